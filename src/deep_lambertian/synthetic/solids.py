r"""Simple solids under many lights: painted spheres, ellipsoids and vases, with their exact albedo, normals and height.

All three are one family. Around an upright axis, at height y on it, the solid is R(y) wide and d·R(y) deep:

$$z = d\sqrt{R(y)^2 - x^2}, \qquad \mathbf n \propto \bigl(d^2 x,\ -d^2 R\,R'(y),\ z\bigr)$$

so that normals are exact up to the rim, where slopes are infinite. The axis may be tilted and off the centre. `mask`
tells the solid from the background, where albedo and height are 0 and the normal faces the viewer.
"""

from typing import Unpack

import numpy as np

from deep_lambertian.data.dataset import Dataset
from deep_lambertian.synthetic import scenes
from deep_lambertian.synthetic.scenes import FOOTPRINT, Options, Params, Scenes, Surface

# What varies from solid to solid, uniformly between two bounds.
SOLIDS: dict[str, tuple[float, float]] = {
    **{"kind": (0, 3), "shift_x": (-0.1, 0.1), "shift_y": (-0.1, 0.1), "roll": (-0.4, 0.4)},
    **{"width": (0.5, 0.85), "length": (0.5, 0.88), "depth": (0.6, 1.3)},
    **{"belly": (0.12, 0.35), "belly_at": (-1.5, 1.5), "neck": (0.03, 0.2), "neck_at": (-3.1, 3.1)},
    **{"tone": (0.35, 0.8), "contrast": (0.0, 0.35), "around": (-6.0, 6.0), "along": (-9.0, 9.0), "phase": (-3.1, 3.1)},
    **{f"spot_{k}{i}": (-s, s) for i in range(3) for k, s in (("x", 0.5), ("y", 0.5), ("a", 0.3))},
}


def draw_params(count: int, seed: int) -> Params:
    """The parameters of `count` solids, of which the first are the same however many follow."""
    low, high = np.array(list(SOLIDS.values())).T
    rows = (low + (high - low) * np.random.default_rng([seed, 0]).random((count, len(SOLIDS)))).astype(np.float32)
    return {name: rows[:, k, None] for k, name in enumerate(SOLIDS)}


def profile(p: Params, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R² and half its derivative, R·R', at y along the axis (n, V): negative R² is beyond the solid's end."""
    sphere, vase = p["kind"] < 1, p["kind"] >= 2
    ratio = np.where(sphere, 1, p["width"] / p["length"]) ** 2
    squared, slope = ratio * (np.where(sphere, p["width"], p["length"]) ** 2 - y * y), -ratio * y
    belly, neck = 2.6 * y + p["belly_at"], 6.5 * y + p["neck_at"]
    radius = 0.7 * p["width"] * (1 + p["belly"] * np.cos(belly) + p["neck"] * np.cos(neck))
    bending = -0.7 * p["width"] * (2.6 * p["belly"] * np.sin(belly) + 6.5 * p["neck"] * np.sin(neck))
    cut = np.where(np.abs(y) < p["length"], radius * radius, -1)
    return np.where(vase, cut, squared), np.where(vase, radius * bending, slope)


def paint_solid(p: Params, x: np.ndarray, y: np.ndarray, z: np.ndarray, size: int) -> np.ndarray:
    """Bands that wind around the solid, and soft spots; edges are about a pixel wide."""
    turn = np.arctan2(x, z + np.float32(1e-6))
    footprint = FOOTPRINT * 2 / size * (np.abs(p["around"]) / p["width"] + np.abs(p["along"]))
    edge = np.sqrt(np.float32(0.15**2) + footprint**2)
    albedo = p["tone"] + 0.5 * p["contrast"] * np.tanh(np.sin(p["around"] * turn + p["along"] * y + p["phase"]) / edge)
    for i in range(3):
        distance = (x - p[f"spot_x{i}"]) ** 2 + (y - p[f"spot_y{i}"]) ** 2
        albedo = albedo + p[f"spot_a{i}"] * np.exp(-distance / np.float32(2 * 0.16**2))
    return np.clip(albedo, 0.08, 1)


def solid_surface(p: Params, size: int) -> Surface:
    x, y = scenes.pixel_centres(size)
    x, y = x - p["shift_x"], y - p["shift_y"]
    c, s = np.cos(p["roll"]), np.sin(p["roll"])
    x, y = c * x + s * y, c * y - s * x
    squared, slope = profile(p, y)
    inside = squared - x * x
    mask = inside > 0
    depth = np.where(p["kind"] < 1, np.float32(1), p["depth"])
    z = depth * np.sqrt(np.maximum(inside, 0))
    # Back from the solid's own axes to those of the frame.
    nx, ny = depth**2 * x, -(depth**2) * slope
    normals = np.stack([c * nx - s * ny, s * nx + c * ny, z], axis=-1)
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), np.float32(1e-12))
    normals = np.where(mask[..., None], normals, np.array([0, 0, 1], np.float32))
    albedo = np.where(mask, paint_solid(p, x, y, z, size), np.float32(0))
    shape = (-1, size, size)
    return albedo.reshape(shape), normals.reshape(*shape, 3), z.reshape(shape), mask.reshape(shape)


def draw_solids(count: int, images: int = 1, size: int = 24, seed: int = 0, **options: Unpack[Options]) -> Scenes:
    """`count` solids of `size`×`size` pixels in `images` images each, with their `mask`; otherwise as `draw_faces`."""
    scenes.check_drawable(count, images, size, options)
    return scenes.draw_scenes(solid_surface, draw_params(count, seed), images, size, seed, **options)


def make_solids(
    count: int = 100, images: int = 10, size: int = 48, seed: int = 0, **options: Unpack[Options]
) -> Dataset:
    """Spheres, ellipsoids and vases with painted albedo, as a data set."""
    return scenes.as_dataset(draw_solids(count, images, size, seed, **options), "solid", seed)
