"""The built-in objects as a `Dataset`: faces and solids whose albedo, normals and lights are known exactly."""

from typing import Any

import numpy as np

from deep_lambertian.data.dataset import Dataset
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.scenes import Scenes
from deep_lambertian.synthetic.solids import draw_solids


def make_faces(count: int = 100, images: int = 10, size: int = 24, seed: int = 0, **options: Any) -> Dataset:
    """Synthetic faces; `options` are those of `draw_faces`. The truth is in `info["albedo"]` and `info["normals"]`."""
    return as_dataset(draw_faces(count, images, size, seed, **options), "face", seed)


def make_solids(count: int = 100, images: int = 10, size: int = 48, seed: int = 0, **options: Any) -> Dataset:
    """Spheres, ellipsoids and vases with painted albedo; `options` are those of `draw_solids`."""
    return as_dataset(draw_solids(count, images, size, seed, **options), "solid", seed)


def as_dataset(scenes: Scenes, what: str, seed: int) -> Dataset:
    """Scenes with names; their exact albedo and normals go along in `info`."""
    objects, images = scenes.images.shape[:2]
    mask = np.ones(scenes.images.shape, bool)
    if scenes.mask is not None:
        mask &= scenes.mask[:, None]
    return Dataset(
        scenes.images,
        mask,
        tuple(f"{what}{i:05}" for i in range(objects)),
        tuple(tuple(f"{what}{i:05}_{p:02}" for p in range(images)) for i in range(objects)),
        scenes.lights.astype(np.float32),
        info={"kind": what, "seed": seed, "albedo": scenes.albedo, "normals": scenes.normals},
    )
