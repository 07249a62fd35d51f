"""The result of photos: pictures to look at, numbers to compute with, and the page to relight it on."""

import base64
import io
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.data.images import grey, linear_to_srgb, normal_colours, save_png, save_png16, thumbnail
from deep_lambertian.geometry import angles_of, direction
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.photos.result import Result
from deep_lambertian.support.files import atomic_folder, atomic_write, write_json, write_text
from deep_lambertian.support.resampling import shrink_quickly
from deep_lambertian.surface import illuminate

MOST_ROWS = 384  # of the surface on the page, which it carries as text: 4 MB in colour
LONGEST = 1024  # pixels of a photo's longer side: more than the page ever shows
MOVING = 320  # of a moving picture's, whose frames add up
UNITS = {"albedo": "", "normals": "°"}  # of what has a map of its standard deviation
TOP = 0.99  # of the points are within that map's colours
BALL = 128  # pixels across the drawn sphere
# Of the colour map cividis (Nuñez, Anderton & Renslow, 2018): even to the eye, the same to one that is colour-blind.
COLOURS = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838")
TURNED = {"from the left": direction(-45, 10), "from the right": direction(45, 10), "from above": direction(0, 45)}
AMBIENT = 0.3  # light from all around, as a part of the other: a room is never black where the lamp does not reach


# ---- Files


def at_once(work: Callable[..., Any], *values: Any, **named: Any) -> Future[Any]:
    """Done, where a pool of threads would only promise."""
    job: Future[Any] = Future()
    job.set_result(work(*values, **named))
    return job


def save_files(out: str | Path, result: Result, title: str, submit: Callable[..., Future[Any]] = at_once) -> None:
    """Write all files of a result into the folder `out`, or none; `submit`, of an executor, may do so in threads."""
    post, jobs = result.posterior, []
    with atomic_folder(out) as folder:

        def later(save: Callable[..., Any], name: str, *values: Any, **named: Any) -> Future[Any]:
            jobs.append(submit(save, folder / name, *values, **named))
            return jobs[-1]

        try:
            photo = to_bytes(result.photos[0].colour, result.srgb)
            relit = [later(save_relit, f"relit_{i}.png", result, photo, at) for i, at in enumerate(TURNED.values())]
            later(result.save, "result.npz")
            albedo, normals = result.albedo.astype(np.float32), result.normals.astype(np.float32)
            later(save_png16, "albedo.png", encode(facing(albedo, post), result.srgb))
            later(save_png16, "normals.png", (normals + 1) / 2)
            later(np.save, "albedo.npy", albedo)
            later(np.save, "normals.npy", normals)
            spreads = {name: getattr(post, name) for name in ("albedo_std", "normals_std", "lights_std")}
            for name in ("albedo_std", "normals_std"):
                later(save_picture, f"{name}.png", grey(spreads[name], max(float(spreads[name].max()), 1e-6)))
            later(np.savez_compressed, "uncertainty.npz", **spreads, shadows=post.shadows)
            for name, shadow in zip(_numbered("shadow", len(result.photos)), post.shadows, strict=True):
                later(save_picture, f"{name}.png", _share(shadow))
            if post.samples:
                later(np.savez_compressed, "samples.npz", **post.samples)
            write_json(folder / "lights.json", describe_lights(result))
            page = page_of(result, title, photo)
            pictures = [(f"lit {words}", job.result()) for words, job in zip(TURNED, relit, strict=True)]
            save_result_report(folder / "report.html", replace(page, pictures=pictures))
        finally:
            wait(jobs)
        for job in jobs:
            job.result()


def _numbered(name: str, count: int) -> list[str]:
    """The name itself for one thing; for several each has its number, from 1."""
    return [name] if count == 1 else [f"{name}_{i + 1}" for i in range(count)]


def save_relit(path: Path, result: Result, photo: np.ndarray, toward: np.ndarray) -> np.ndarray:
    """Write the first photo, given in 8 bits, under a light that leaves the face as bright; a small copy comes back."""
    strength = result.as_bright(toward, 0, AMBIENT)
    where, part = result.relight_part(strength * toward, 0, AMBIENT * strength)
    picture = photo.copy()
    picture[where] = to_bytes(part, result.srgb)
    save_picture(path, picture)
    return thumbnail(picture)


def describe_lights(result: Result) -> list[dict[str, Any]]:
    """The light of each photo in words that a program can read."""
    found = []
    for photo, light, std in zip(result.photos, result.posterior.lights, result.posterior.lights_std, strict=True):
        azimuth, elevation = angles_of(light)
        numbers = {name: [round(float(x), 4) for x in each] for name, each in (("light", light), ("std", std))}
        angles = {"azimuth_deg": round(azimuth, 1), "elevation_deg": round(elevation, 1)}
        found.append({"photo": photo.name, **numbers, **angles})
    return found


def summary(post: Posterior) -> dict[str, float]:
    """How sure the result is, in three numbers."""
    return {
        "normals_std_deg": round(float(post.normals_std.mean()), 2),
        "albedo_std": round(float(post.albedo_std.mean()), 4),
        "residual": round(post.diagnostics.residual, 4),
    }


def facing(albedo: np.ndarray, post: Posterior) -> np.ndarray:
    """How bright the surface would be in the first photo where it faced the light: what is dark there stays dark."""
    return albedo * np.float32(np.linalg.norm(post.lights[0]))


def encode(values: np.ndarray, srgb: bool) -> np.ndarray:
    """Linear light as the numbers of a file."""
    return linear_to_srgb(values) if srgb else np.clip(values, 0, 1)


def to_bytes(values: np.ndarray, srgb: bool) -> np.ndarray:
    """Linear light as an 8-bit picture, by a table of 65,536 tones: powers of millions of numbers take long."""
    tones = _encoded(np.linspace(0, 1, 1 << 16, dtype=np.float32), srgb)
    scaled = np.clip(values, 0, 1)
    scaled *= np.float32(65535)
    scaled += np.float32(0.5)
    return tones.take(scaled.astype(np.uint16))


def save_picture(path: str | Path, picture: np.ndarray) -> None:
    save_png(path, Image.fromarray(picture), compress_level=1)  # a fifth of the time, a fifth more bytes


def save_gif(path: str | Path, pictures: list[np.ndarray], milliseconds: int = 80) -> None:
    """A moving picture without end, of a size that can be sent to people."""
    first, *rest = [Image.fromarray(thumbnail(picture, MOVING)) for picture in pictures]
    with atomic_write(path) as file:
        first.save(file, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)


# ---- The page: what went in, what was found and how surely, and the object under any light you drag


@dataclass(frozen=True)
class Page:
    """What the page shows.

    `inputs` and `pictures` are captions with 8-bit pictures (h, w) or (h, w, 3), shown as they are. `scaled_normals`
    (h, w, 3) are a·n, of any size: of the posterior, or with finer detail. `colour` (h, w, 3) are the factors of the
    channels, None for grey. `srgb` tells to encode linear light for the screen; else numbers are shown as they are.
    `notes` are sentences on what was assumed; `aspect` is the width over the height of the model's frame.
    """

    title: str
    inputs: list[tuple[str, np.ndarray]]
    pictures: list[tuple[str, np.ndarray]]
    scaled_normals: np.ndarray
    colour: np.ndarray | None
    srgb: bool
    posterior: Posterior
    notes: list[str]
    aspect: float = 1.0

    def __post_init__(self) -> None:
        shape = np.shape(self.scaled_normals)
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or not np.all(np.isfinite(self.scaled_normals)):
            raise ValueError(f"scaled_normals: expected finite numbers of shape (h, w, 3), got shape {shape}")
        if self.colour is not None and (np.shape(self.colour) != shape or not np.all(np.isfinite(self.colour))):
            raise ValueError(f"colour: expected finite numbers of shape {shape}, got shape {np.shape(self.colour)}")

    @property
    def factors(self) -> np.ndarray:
        """Those of the channels (h, w, 3), or (1, 1, 3) of ones, which goes with every pixel."""
        return np.ones((1, 1, 3), np.float32) if self.colour is None else np.asarray(self.colour, np.float32)


def page_of(result: Result, title: str, photo: np.ndarray) -> Page:
    """The page of a result, without relit photos; `photo` is its first one in 8 bits."""
    others = [(each.name, to_bytes(each.colour, result.srgb)) for each in result.photos[1:6]]
    inputs = [(name, thumbnail(picture)) for name, picture in ((result.photos[0].name, photo), *others)]
    return replace(bare_page(result, title), inputs=inputs)


def bare_page(result: Result, title: str = "", rows: int = MOST_ROWS) -> Page:
    """The same without any photos, and with a surface of at most so many rows."""
    height, width = result.scaled_normals.shape[:2]
    size = (min(height, rows), max(8, round(width * min(1, rows / height))))
    surface, coloured = shrink_quickly(result.scaled_normals, size), float(np.abs(result.colour - 1).max()) > 0.01
    colour = shrink_quickly(result.colour, size) if coloured else None
    notes, aspect = list(result.notes), result.photos[0].alignment.aspect
    return Page(title, [], [], surface, colour, result.srgb, result.posterior, notes, aspect)


def displayed(page: Page, light: Any, ambient: float = 0.0, intensity: float = 1.0) -> np.ndarray:
    r"""The 8-bit picture (h, w, 3) that the page's canvas shows under a light (3,).

    $I_c = k_c \, i \, (\max(m^\top \ell, 0) + b\,|m|)$ with $m = a n$, the channels' factors k, the intensity i, and
    the ambient light b, which reaches a surface alike wherever it faces.
    """
    surface = np.asarray(page.scaled_normals, np.float32)
    lit = illuminate(surface, np.asarray(light, np.float32))
    lit = np.float32(intensity) * (lit + np.float32(ambient) * np.linalg.norm(surface, axis=-1))
    return _encoded(lit[..., None] * page.factors, page.srgb)


def render_result(page: Page) -> str:
    """The page as one HTML text that refers to nothing outside of itself."""
    post, seen = page.posterior, views_of(page)
    script = resources.files("deep_lambertian.report").joinpath("templates", "relight.js").read_text("utf-8")
    stills = {"as estimated": post.lights[0]} | TURNED
    return render(
        "result.html",
        title=page.title,
        notes=page.notes,
        aspect=page.aspect,
        inputs=[(caption, _png(picture)) for caption, picture in page.inputs],
        pictures=[(caption, _png(picture)) for caption, picture in page.pictures],
        albedo=_png(seen["albedo"]),
        normals=_png(seen["normals"]),
        spreads=[spread_of(post, name) | {"picture": _png(seen[f"{name}_std"])} for name in UNITS],
        shadows=[_png(seen[name]) for name in _numbered("shadow", len(post.shadows))],
        unlit=[float(np.mean(shadow)) for shadow in post.shadows],
        share=np.median(post.albedo_std / np.maximum(post.albedo, 1e-3)),
        legend=", ".join(COLOURS),
        lights=[
            facts_of_light(*pair) | {"ball": _ball(pair[0])} for pair in zip(post.lights, post.lights_std, strict=True)
        ],
        stills=[(words, _png(displayed(page, light))) for words, light in stills.items()],
        info=post.info,
        diagnostics=post.diagnostics,
        rhat={name: value for name, value in post.diagnostics.rhat.items() if np.isfinite(value)},
        surface=_surface(page),
        script=script,
    )


def render(template: str, **values: Any) -> str:
    """One of the package's pages, filled in."""
    return _template(template).render(**values)


@cache
def _template(name: str) -> Any:
    """The page to be filled in, which takes longer to compile than to fill."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    pages, escape = PackageLoader("deep_lambertian.report"), select_autoescape(["html"])
    return Environment(loader=pages, autoescape=escape, trim_blocks=True).get_template(name)


def save_result_report(path: str | Path, page: Page) -> None:
    """Write the page to a file."""
    write_text(path, render_result(page))


def direction_words(light: np.ndarray) -> str:
    """Where a light comes from, as the viewer sees it: x right, y up, z to the viewer."""
    azimuth, elevation = (round(angle) for angle in angles_of(light))
    side = f" {'right' if azimuth > 0 else 'left'}" if azimuth else ""
    height = f" {'up' if elevation > 0 else 'down'}" if elevation else ""
    return f"azimuth {abs(azimuth)}°{side}, elevation {abs(elevation)}°{height}"


def _encoded(values: np.ndarray, srgb: bool) -> np.ndarray:
    return np.round(255 * encode(values, srgb)).astype(np.uint8)


def _share(values: np.ndarray) -> np.ndarray:
    """Shares of 1 as a grey picture, in which they can be read off."""
    return np.round(255 * np.clip(values, 0, 1)).astype(np.uint8)


def _png(picture: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(thumbnail(picture, LONGEST)).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()


def views_of(page: Page) -> dict[str, np.ndarray]:
    """What was found, and how surely, as 8-bit pictures by name: albedo, normals, their spreads, shadows."""
    post, (albedo, normals) = page.posterior, _maps(page)
    found = {"albedo": _encoded(albedo, page.srgb), "normals": normal_colours(normals)}
    found |= {f"{name}_std": _coloured(getattr(post, f"{name}_std")) for name in UNITS}
    return found | dict(zip(_numbered("shadow", len(post.shadows)), map(_share, post.shadows), strict=True))


def _maps(page: Page) -> tuple[np.ndarray, np.ndarray]:
    """Albedo in colour, as bright as the photo, and normals, with the finer detail if there is any."""
    post, surface = page.posterior, page.scaled_normals
    albedo, normals = post.albedo, post.normals
    if surface.shape[:2] != post.shape:
        albedo = np.linalg.norm(surface, axis=-1)
        normals = surface / np.maximum(albedo, 1e-9)[..., None]
    return facing(albedo[..., None] * page.factors, post), normals


def spread_of(post: Posterior, name: str) -> dict[str, Any]:
    """How unsure half of the points are at most, and most of them; `top` is where the map of it ends."""
    typical, most, top = map(float, np.quantile(getattr(post, f"{name}_std"), (0.5, 0.95, TOP)))
    return {"name": name, "unit": UNITS[name], "typical": typical, "most": most, "top": top}


def _coloured(values: np.ndarray) -> np.ndarray:
    """A map of standard deviations in the colours of the legend, which are straight between its stops."""
    stops, top = np.linspace(0, 1, len(COLOURS)), max(float(np.quantile(values, TOP)), 1e-9)
    channels = np.array([list(bytes.fromhex(colour[1:])) for colour in COLOURS]).T
    return np.stack([np.interp(values / top, stops, each) for each in channels], axis=-1).round().astype(np.uint8)


def facts_of_light(light: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    r"""A light on a sphere and in numbers.

    The spread of the strength |ℓ| is $\sqrt{\sum_k u_k^2 \sigma_k^2}$ along u = ℓ/|ℓ|, and what of $\sum_k \sigma_k^2$
    is left lies across it and turns the direction; the three components are taken as independent.
    """
    strength = max(float(np.linalg.norm(light)), 1e-9)
    unit = np.asarray(light, np.float64) / strength
    along = float(np.sum(unit**2 * std**2))
    return {
        "direction": direction_words(light),
        "strength": strength,
        "along": np.sqrt(along),
        "across": np.degrees(np.arctan(np.sqrt(max(float(np.sum(std**2)) - along, 0)) / strength)),
        "given": float(np.max(std)) <= 1e-6 * strength,
        "x": round(unit[0], 4),
        "y": round(-unit[1], 4),  # a picture's y points down
        "behind": bool(unit[2] < 0),
        "wide": [round(float(s) / strength, 4) for s in std[:2]],
    }


def _ball(light: np.ndarray) -> str:
    """A matt sphere under a light from this direction (3,); relight.js draws the same."""
    unit = np.asarray(light, np.float64) / max(float(np.linalg.norm(light)), 1e-9)
    x = (np.arange(BALL) + 0.5) * 2 / BALL - 1
    x, y = np.meshgrid(x, -x)
    sphere = np.stack([x, y, np.sqrt(np.maximum(1 - x**2 - y**2, 0))], axis=-1)
    tone = 255 * (0.05 + 0.9 * illuminate(sphere, unit)) ** 0.6
    edge = 255 * np.clip((1 - np.hypot(x, y)) * BALL / 2, 0, 1)
    return _png(np.stack([tone, edge], axis=-1).round().astype(np.uint8))


def _surface(page: Page) -> dict[str, Any]:
    """What relight.js needs. 32 bits: in sRGB's steep dark end, half floats are off by more than one of 255."""

    def packed(values: np.ndarray) -> str:
        return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()

    height, width = page.scaled_normals.shape[:2]
    return {
        **{"width": width, "height": height, "aspect": page.aspect, "srgb": page.srgb},
        "normals": packed(page.scaled_normals),
        "colour": packed(page.factors),
        "lights": page.posterior.lights.astype(float).tolist(),
    }
