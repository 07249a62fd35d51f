"""One page for one result: what went in, what was found and how surely, and the object under any light you drag."""

import base64
import io
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.geometry import angles_of
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.report.experiment import render
from deep_lambertian.support.files import write_text
from deep_lambertian.support.pictures import normal_colours, thumbnail

LONGEST = 1024  # pixels of a photo's longer side: more than the page ever shows
BALL = 128  # pixels across the drawn sphere
# Of the colour map cividis (Nuñez, Anderton & Renslow, 2018): even to the eye, the same to one that is colour-blind.
COLOURS = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838")
STILLS = (("from the left", (-0.8, 0.1, 0.6)), ("from the right", (0.8, 0.1, 0.6)), ("from above", (0.0, 0.8, 0.6)))


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


def displayed(page: Page, light: Any, ambient: float = 0.0, intensity: float = 1.0) -> np.ndarray:
    r"""The 8-bit picture (h, w, 3) that the page's canvas shows under a light (3,).

    $I_c = k_c \, i \, (\max(m^\top \ell, 0) + b\,|m|)$ with $m = a n$, the channels' factors k, the intensity i, and
    the ambient light b, which reaches a surface alike wherever it faces.
    """
    surface = np.asarray(page.scaled_normals, np.float32)
    lit = np.maximum(surface @ np.asarray(light, np.float32), 0)
    lit = np.float32(intensity) * (lit + np.float32(ambient) * np.linalg.norm(surface, axis=-1))
    return _encoded(lit[..., None] * _factors(page.colour), page.srgb)


def render_result(page: Page) -> str:
    """The page as one HTML text that refers to nothing outside of itself."""
    post = page.posterior
    script = resources.files("deep_lambertian.report").joinpath("templates", "relight.js").read_text("utf-8")
    lights = [_light(*pair) for pair in zip(post.lights, post.lights_std, strict=True)]
    stills = [("as estimated", post.lights[0]), *((words, np.array(at)) for words, at in STILLS)]
    return render(
        "result.html",
        title=page.title,
        notes=page.notes,
        aspect=page.aspect,
        inputs=[(caption, _png(picture)) for caption, picture in page.inputs],
        pictures=[(caption, _png(picture)) for caption, picture in page.pictures],
        found=_found(page),
        spreads=_spreads(post),
        lights=lights,
        stills=[(words, _png(displayed(page, light))) for words, light in stills],
        warnings=[_sentence(warning) for warning in post.diagnostics.warnings],
        chain=_chain_words(post),
        surface=_surface(page),
        script=script,
    )


def save_result_report(path: str | Path, page: Page) -> None:
    """Write the page to a file."""
    write_text(path, render_result(page))


def direction_words(light: np.ndarray) -> str:
    """Where a light comes from, as the viewer sees it: x right, y up, z to the viewer."""
    azimuth, elevation = (round(angle) for angle in angles_of(light))
    side = f" {'right' if azimuth > 0 else 'left'}" if azimuth else ""
    height = f" {'up' if elevation > 0 else 'down'}" if elevation else ""
    return f"azimuth {abs(azimuth)}°{side}, elevation {abs(elevation)}°{height}"


def _factors(colour: np.ndarray | None) -> np.ndarray:
    """(h, w, 3), or (1, 1, 3) of ones, which goes with every pixel."""
    return np.ones((1, 1, 3), np.float32) if colour is None else np.asarray(colour, np.float32)


def encode(values: np.ndarray, srgb: bool) -> np.ndarray:
    """Linear light as the numbers of a file."""
    return linear_to_srgb(values) if srgb else np.clip(values, 0, 1)


def _encoded(values: np.ndarray, srgb: bool) -> np.ndarray:
    return np.round(255 * encode(values, srgb)).astype(np.uint8)


def _png(picture: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(thumbnail(picture, LONGEST)).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()


def _found(page: Page) -> list[tuple[str, str, str]]:
    """Albedo and normals, with the finer detail if there is any."""
    post, surface = page.posterior, page.scaled_normals
    albedo, normals = post.albedo, post.normals
    if surface.shape[:2] != post.shape:
        albedo = np.linalg.norm(surface, axis=-1)
        normals = surface / np.maximum(albedo, 1e-9)[..., None]
    albedo = albedo[..., None] * _factors(page.colour)
    brightest = max(float(np.quantile(albedo, 0.995)), 1e-9)
    return [
        (
            "Albedo",
            "How much light each point gives back, whatever the light. White is the brightest.",
            _png(_encoded(albedo / brightest, page.srgb)),
        ),
        (
            "Normals",
            "Which way each point faces: redder to the right, greener upwards, bluer towards you.",
            _png(normal_colours(normals)),
        ),
    ]


def _spreads(post: Posterior) -> list[dict[str, Any]]:
    """Maps of the standard deviations, each with its scale and a sentence."""
    share = np.median(post.albedo_std / np.maximum(post.albedo, 1e-3))
    typical, most = np.quantile(post.normals_std, (0.5, 0.95))
    return [
        _spread(
            "Uncertainty of the albedo",
            post.albedo_std,
            "",
            f"For half of the points at most {share:.0%} of the albedo itself.",
        ),
        _spread(
            "Uncertainty of the normals",
            post.normals_std,
            "°",
            f"For half of the points at most {typical:.1f}°, for 95% at most {most:.1f}°.",
        ),
    ]


def _spread(title: str, values: np.ndarray, unit: str, words: str) -> dict[str, Any]:
    top = float(np.quantile(values, 0.99))
    picture = _coloured(values / max(top, 1e-9))
    return {
        "title": title,
        "words": words if top > 0 else "It was given, and held fixed.",
        "picture": _png(picture),
        "legend": ", ".join(COLOURS),
        "top": f"{top:.2g}{unit}",
        "zero": f"0{unit}",
    }


def _coloured(values: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1] (h, w) as colours (h, w, 3) of the map, which is straight between those of the legend."""
    stops = np.linspace(0, 1, len(COLOURS))
    channels = np.array([list(bytes.fromhex(colour[1:])) for colour in COLOURS]).T
    return np.stack([np.interp(values, stops, channel) for channel in channels], axis=-1).round().astype(np.uint8)


def _light(light: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    r"""A light on a sphere and in words.

    The spread of the strength |ℓ| is $\sqrt{\sum_k u_k^2 \sigma_k^2}$ along u = ℓ/|ℓ|, and what of $\sum_k \sigma_k^2$
    is left lies across it and turns the direction; the three components are taken as independent.
    """
    strength = max(float(np.linalg.norm(light)), 1e-9)
    unit = np.asarray(light, np.float64) / strength
    along = float(np.sum(unit**2 * std**2))
    across = np.degrees(np.arctan(np.sqrt(max(float(np.sum(std**2)) - along, 0)) / strength))
    given = float(np.max(std)) <= 1e-6 * strength
    return {
        "direction": direction_words(light),
        "strength": f"strength {strength:.2f}" + ("" if given else f" ± {np.sqrt(along):.2f}"),
        "sure": "given, and held fixed" if given else f"direction ± {across:.0f}°",
        "ball": _ball(unit),
        "x": round(unit[0], 4),
        "y": round(-unit[1], 4),  # a picture's y points down
        "behind": bool(unit[2] < 0),
        "wide": [round(float(s) / strength, 4) for s in std[:2]],
    }


def _ball(unit: np.ndarray) -> str:
    """A matt sphere under a light from direction `unit` (3,); relight.js draws the same."""
    x = (np.arange(BALL) + 0.5) * 2 / BALL - 1
    x, y = np.meshgrid(x, -x)
    z = np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    tone = 255 * (0.05 + 0.9 * np.maximum(x * unit[0] + y * unit[1] + z * unit[2], 0)) ** 0.6
    edge = 255 * np.clip((1 - np.hypot(x, y)) * BALL / 2, 0, 1)
    return _png(np.stack([tone, edge], axis=-1).round().astype(np.uint8))


def _chain_words(post: Posterior) -> list[str]:
    """What the chains did, in sentences."""
    diagnostics, words = post.diagnostics, []
    chains = len(diagnostics.energy)
    several = "chains" if chains > 1 else "chain"
    if "iterations" in post.info and "burn_in" in post.info:
        sweeps, left = post.info["iterations"], post.info["burn_in"]
        words.append(f"{chains} {several} of {sweeps} sweeps, the first {left} of which do not count.")
    rhat = {name: value for name, value in diagnostics.rhat.items() if np.isfinite(value)}
    if rhat:
        name, least = max(rhat, key=lambda name: rhat[name]), min(diagnostics.ess.values())
        parts = "chains" if chains > 1 else "two halves of the chain"
        words.append(
            f"The {parts} differ most in the {name}: R-hat is {rhat[name]:.2f}, where 1 is best. "
            f"Whatever was watched is worth at least {least:.0f} independent draws."
        )
    words.append(
        f"The model leaves {diagnostics.residual:.3f} (root mean square) of the images unexplained, and "
        f"{np.mean(diagnostics.acceptance):.0%} of the moves proposed for the normals were accepted."
    )
    return words


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".") + "."


def _surface(page: Page) -> dict[str, Any]:
    """What relight.js needs. 32 bits: in sRGB's steep dark end, half floats are off by more than one of 255."""

    def packed(values: np.ndarray) -> str:
        return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()

    height, width = page.scaled_normals.shape[:2]
    return {
        "width": width,
        "height": height,
        "aspect": page.aspect,
        "srgb": page.srgb,
        "normals": packed(page.scaled_normals),
        "colour": packed(_factors(page.colour)),
        "lights": page.posterior.lights.astype(float).tolist(),
    }
