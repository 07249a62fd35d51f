"""The files of a result: pictures to look at, numbers to compute with, and the page to relight it on."""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.geometry import angles_of, direction
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.photos.result import Result
from deep_lambertian.report.photo_page import Page, encode, save_result_report
from deep_lambertian.support.files import atomic_folder, atomic_write
from deep_lambertian.support.pictures import grey, save_png, save_png16, thumbnail
from deep_lambertian.support.resampling import shrink_quickly

MOST_ROWS = 384  # of the surface on the page, which it carries as text: 4 MB in colour
WRITERS = 2  # threads: compressing leaves Python free for the rest
TURNED = (
    ("lit from the left", direction(-45, 10)),
    ("lit from the right", direction(45, 10)),
    ("lit from above", direction(0, 45)),
)
AMBIENT = 0.3  # light from all around, as a part of the other: a room is never black where the lamp does not reach


def save_files(out: str | Path, result: Result, title: str) -> None:
    """Write all files of a result into the folder `out`, or none."""
    post = result.posterior
    with atomic_folder(out) as folder, ThreadPoolExecutor(WRITERS) as pool:
        jobs: list[Future[Any]] = []

        def later(save: Callable[..., Any], name: str, *values: Any, **named: Any) -> Future[Any]:
            jobs.append(pool.submit(save, folder / name, *values, **named))
            return jobs[-1]

        photo = to_bytes(result.photos[0].colour, result.srgb)
        relit = [later(save_relit, f"relit_{i}.png", result, photo, toward) for i, (_, toward) in enumerate(TURNED)]
        later(result.save, "result.npz")
        albedo, normals = result.albedo.astype(np.float32), result.normals.astype(np.float32)
        later(save_png16, "albedo.png", encode(albedo / max(1.0, float(albedo.max())), result.srgb))
        later(save_png16, "normals.png", (normals + 1) / 2)
        later(np.save, "albedo.npy", albedo)
        later(np.save, "normals.npy", normals)
        for name in ("albedo_std", "normals_std"):
            spread = getattr(post, name)
            later(save_picture, f"{name}.png", grey(spread, max(float(spread.max()), 1e-6)))
        stds = {name: getattr(post, name) for name in ("albedo_std", "normals_std", "lights_std")}
        later(np.savez_compressed, "uncertainty.npz", **stds)
        if post.samples:
            later(np.savez_compressed, "samples.npz", **post.samples)
        (folder / "lights.json").write_text(json.dumps(describe_lights(result), indent=2) + "\n")
        drawn = page(result, title, photo)
        drawn = replace(drawn, pictures=[(words, job.result()) for (words, _), job in zip(TURNED, relit, strict=True)])
        save_result_report(folder / "report.html", drawn)
        for job in jobs:
            job.result()


def page(result: Result, title: str, photo: np.ndarray) -> Page:
    """The report of a result, without relit photos; `photo` is its first one in 8 bits."""
    first = result.photos[0]
    others = [(each.name, to_bytes(each.colour, result.srgb)) for each in result.photos[1:6]]
    height, width = result.scaled_normals.shape[:2]
    size = (min(height, MOST_ROWS), max(8, round(width * min(1, MOST_ROWS / height))))
    coloured = float(np.abs(result.colour - 1).max()) > 0.01
    return Page(
        title=title,
        inputs=[(name, thumbnail(picture)) for name, picture in ((first.name, photo), *others)],
        pictures=[],
        scaled_normals=shrink_quickly(result.scaled_normals, size),
        colour=shrink_quickly(result.colour, size) if coloured else None,
        srgb=result.srgb,
        posterior=result.posterior,
        notes=list(result.notes),
        aspect=first.alignment.aspect,
    )


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
        found.append(
            {
                "photo": photo.name,
                "light": [round(float(x), 4) for x in light],
                "std": [round(float(x), 4) for x in std],
                "azimuth_deg": round(azimuth, 1),
                "elevation_deg": round(elevation, 1),
            }
        )
    return found


def summary(post: Posterior) -> dict[str, float]:
    """How sure the result is, in three numbers."""
    return {
        "normals_std_deg": round(float(post.normals_std.mean()), 2),
        "albedo_std": round(float(post.albedo_std.mean()), 4),
        "residual": round(post.diagnostics.residual, 4),
    }


def to_bytes(values: np.ndarray, srgb: bool) -> np.ndarray:
    """Linear light as an 8-bit picture, by a table of 65,536 tones: powers of millions of numbers take long."""
    tones = np.round(255 * encode(np.linspace(0, 1, 1 << 16, dtype=np.float32), srgb)).astype(np.uint8)
    scaled = np.clip(values, 0, 1)
    scaled *= np.float32(65535)
    scaled += np.float32(0.5)
    return tones.take(scaled.astype(np.uint16))


def save_picture(path: str | Path, picture: np.ndarray) -> None:
    save_png(path, Image.fromarray(picture), compress_level=1)  # a fifth of the time, a fifth more bytes


def save_gif(path: str | Path, pictures: list[np.ndarray], milliseconds: int = 80) -> None:
    """A moving picture without end."""
    first, *rest = [Image.fromarray(picture) for picture in pictures]
    with atomic_write(path) as file:
        first.save(file, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
