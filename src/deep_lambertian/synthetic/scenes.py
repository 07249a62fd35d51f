"""Surfaces of which everything is known, photographed under many lights: what the built-in generators share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.data.dataset import Dataset
from deep_lambertian.data.morphable import Heads
from deep_lambertian.support.progress import track

Params = dict[str, np.ndarray]  # each (n, 1): one row for each object, to be spread over the pixels
Surface = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]  # albedo, normals, height, mask

FOOTPRINT = 0.4  # a pixel sees a Gaussian with this standard deviation, in pixels
CHUNK = 1 << 15  # pixels drawn at a time: what the features need for so many stays in the processor's cache


class Options(TypedDict, total=False):
    """How surfaces are photographed: `lights` is (images, 3) for all or (count, images, 3); without it they are drawn
    by `sample_lights`. `noise` is the standard deviation of what is added to each pixel; `saturate` clips to [0, 1], as
    a camera does.
    """

    lights: ArrayLike | None
    cast_shadows: bool
    noise: float
    saturate: bool


@dataclass(frozen=True)
class Scenes:
    """S surfaces in P images each, and all that made them. `mask` tells object from background; faces need none."""

    images: np.ndarray  # (S, P, H, W)
    albedo: np.ndarray  # (S, H, W)
    normals: np.ndarray  # (S, H, W, 3), of unit length
    height: np.ndarray  # (S, H, W), towards the viewer, in units of half the frame's width
    lights: np.ndarray  # (S, P, 3), from the surface to the source; length is intensity
    mask: np.ndarray | None = None  # (S, H, W) bool


def pixel_centres(size: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y (V,) of the centres of the pixels, row by row from the top."""
    ticks = ((2 * np.arange(size) + 1) / size - 1).astype(np.float32)
    return np.tile(ticks, size), np.repeat(-ticks, size)


def sample_lights(rng: np.random.Generator, shape, mean=(0.0, 0.0, 0.9), spread=(0.45, 0.45, 0.2)) -> np.ndarray:
    """Lights (*shape, 3), Gaussian about a frontal one, mostly within 50° of it and never from behind (z > 0.15)."""
    lights = np.asarray(mean) + np.asarray(spread) * rng.standard_normal((*np.atleast_1d(shape), 3))
    lights[..., 2] = np.maximum(lights[..., 2], 0.16)
    return lights.astype(np.float32)


def shade(
    albedo: ArrayLike,
    normals: ArrayLike,
    lights: ArrayLike,
    height: ArrayLike | None = None,
    cast_shadows: bool = False,
    squeeze: float = 1.0,
) -> np.ndarray:
    """Images (..., P, H, W) = a·max(n·ℓ, 0) of surfaces (..., H, W) under lights (..., P, 3).

    With `cast_shadows`, what the surface itself hides from the light is dark too: give its `height`, and how much the
    frame shortens what is upright.
    """
    albedo, normals, lights = (np.asarray(v, np.float32) for v in (albedo, normals, lights))
    images = sum(normals[..., None, :, :, k] * lights[..., k, None, None] for k in range(3))
    images = albedo[..., None, :, :] * np.maximum(images, 0)
    if not cast_shadows:
        return images
    if height is None:
        raise ValueError("cast shadows need the surface's height; got height=None")
    height = np.broadcast_to(np.asarray(height, np.float32)[..., None, :, :], images.shape).reshape(
        -1, *images.shape[-2:]
    )
    lights = np.broadcast_to(lights, (*images.shape[:-2], 3)).reshape(-1, 3) / np.array([1, squeeze, 1], np.float32)
    lit = [light_reaches(h, light) for h, light in zip(height, lights, strict=True)]
    return images * np.stack(lit).reshape(images.shape)


def photograph(heads: Heads, images: int, seed: int = 0, cast_shadows: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, P, H, W) of heads under lights (n, P, 3) drawn by `sample_lights`; what is no head is dark."""
    streams = [np.random.default_rng([seed, 3, i]) for i in range(len(heads))]  # a head's own, whatever the others
    lights = np.stack([sample_lights(rng, images) for rng in streams])
    albedo, normals = heads.surface.pictures(heads.height.shape[1:])
    shot = [
        shade(albedo[i], normals[i], lights[i], heads.height[i], cast_shadows, heads.squeeze) * heads.mask[i]
        for i in track(range(len(heads)), "photographing")
    ]
    return np.stack(shot), lights


def light_reaches(height: np.ndarray, light: np.ndarray) -> np.ndarray:
    """How much of a distant light (3,) reaches each pixel (H, W): 0 to 1, half-shadows only at the rims.

    From every pixel a ray climbs to the light, a pixel's width at a time; where the surface stands above the ray
    it hides the light. Nothing stands outside the frame.
    """
    rows, columns = height.shape
    pixel = 2 / columns
    across = float(np.hypot(light[0], light[1]))
    if across < 1e-6:
        return np.ones_like(height)
    right, down, climb = light[0] / across, -light[1] / across, light[2] / across * pixel
    above = np.zeros_like(height)
    top = float(height.max() - height.min())
    for k in range(1, int(np.hypot(rows, columns)) + 1):
        if climb * k > top:
            break
        # The whole picture moves by the same step, so that bilinear reading is four shifted copies.
        i, j = int(np.floor(k * down)), int(np.floor(k * right))
        fi, fj = k * down - i, k * right - j
        r, c = slice(max(0, -i), min(rows, rows - i - 1)), slice(max(0, -j), min(columns, columns - j - 1))
        if r.start >= r.stop or c.start >= c.stop:
            break
        near, far = slice(r.start + i, r.stop + i), slice(r.start + i + 1, r.stop + i + 1)
        left, next_ = slice(c.start + j, c.stop + j), slice(c.start + j + 1, c.stop + j + 1)
        blocker = (1 - fi) * ((1 - fj) * height[near, left] + fj * height[near, next_])
        blocker += fi * ((1 - fj) * height[far, left] + fj * height[far, next_])
        above[r, c] = np.maximum(above[r, c], blocker - (height[r, c] + climb * k))
    return np.clip(1 - above / (0.5 * pixel), 0, 1).astype(np.float32)


def draw_scenes(
    surface: Callable[[Params, int], Surface],
    params: Params,
    images: int,
    size: int,
    seed: int,
    **options: Unpack[Options],
) -> Scenes:
    """Surfaces with these parameters under lights that are given or drawn, a few at a time to spare memory."""
    lights, noise = options.get("lights"), options.get("noise", 0.0)
    count = len(next(iter(params.values())))
    # Every image has streams of its own: more images or more people change nothing about the others.
    if lights is None:
        lights = np.stack([sample_lights(np.random.default_rng([seed, 1, k]), count) for k in range(images)], axis=1)
    toward = np.array(np.broadcast_to(np.asarray(lights), (count, images, 3)), np.float32)
    streams = [np.random.default_rng([seed, 2, k]) for k in range(images)]
    new = lambda *shape: np.empty((count, *shape), np.float32)
    pictures, albedo, normals, height = new(images, size, size), new(size, size), new(size, size, 3), new(size, size)
    masks, chunk = [], max(1, CHUNK // size**2)
    for start in range(0, count, chunk):
        here = slice(start, start + chunk)
        a, n, h, mask = surface({name: v[here] for name, v in params.items()}, size)
        albedo[here], normals[here], height[here] = a, n, h
        masks += [] if mask is None else [mask]
        for k, stream in enumerate(streams):
            seen = shade(a, n, toward[here, k, None], h, options.get("cast_shadows", False))[:, 0]
            if noise:
                seen = seen + np.float32(noise) * stream.standard_normal(seen.shape, np.float32)
            pictures[here, k] = seen
    if options.get("saturate"):
        np.clip(pictures, 0, 1, out=pictures)
    return Scenes(pictures, albedo, normals, height, toward, np.concatenate(masks) if masks else None)


def check_drawable(count: int, images: int, size: int, options: Options) -> None:
    """Refuse what cannot be drawn, saying what was got and what was expected."""
    if unknown := set(options) - set(Options.__annotations__):
        raise TypeError(f"unknown options {sorted(unknown)}; expected some of {list(Options.__annotations__)}")
    for name, value, least in (("count", count, 1), ("images", images, 1), ("size", size, 4)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    noise, lights = options.get("noise", 0.0), options.get("lights")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise, a standard deviation, must be finite and not negative; got {noise!r}")
    allowed = [(images, 3), (count, images, 3)]
    if lights is not None and np.shape(lights) not in allowed:
        raise ValueError(f"lights must have the shape {allowed[0]} or {allowed[1]}; got {np.shape(lights)}")
    if lights is not None and not np.all(np.isfinite(lights)):
        raise ValueError("lights must be finite; got some that are not")


def as_dataset(scenes: Scenes, what: str, seed: int) -> Dataset:
    """Scenes with names; their exact albedo and normals go along in `info`."""
    objects, images = scenes.images.shape[:2]
    names = tuple(f"{what}{i:05}" for i in range(objects))
    image_names = tuple(tuple(f"{name}_{p:02}" for p in range(images)) for name in names)
    mask = np.array(np.broadcast_to(True if scenes.mask is None else scenes.mask[:, None], scenes.images.shape))
    info = {"kind": what, "seed": seed, "albedo": scenes.albedo, "normals": scenes.normals}
    return Dataset(scenes.images, mask, names, image_names, scenes.lights, info=info)
