"""Surfaces of test subjects from a few images of each, inferred once and used by every figure."""

import math
from itertools import groupby
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.experiments.cache import Cache
from deep_lambertian.experiments.trials import Test
from deep_lambertian.geometry import angles
from deep_lambertian.inference.sampler import CHAINS
from deep_lambertian.model import DLN
from deep_lambertian.tasks.mean_shape import mean_shape
from deep_lambertian.tasks.relighting import relighting_rmse

BATCH = 70  # sets of images at a time: results are kept as they come
Key = tuple[int, tuple[int, ...]]  # a person, and which of its gallery images


def infer_sets(
    model: DLN, test: Test, sets: list[Key], cache: Cache, name: str, seed: int, **settings: Any
) -> dict[Key, dict[str, np.ndarray]]:
    """Scaled normals, unit normals (V, 3) and albedo (V,) for every set of images, in batches that are kept.

    The more images, the less there is to average over: unless told, the preset's chains are shared by the images of a
    set. Sets with as many chains share a shape, so that few shapes are compiled.
    """
    most = settings.pop("chains", None)
    found = {}
    for chains, group in groupby(sorted(sets, key=lambda key: len(key[1])), lambda key: most or share(model, key)):
        alike = list(group)
        size = min(BATCH, len(alike)), max(len(images) for _, images in alike)
        for first in range(0, len(alike), BATCH):
            batch = alike[first : first + BATCH]
            numbers = [sets.index(key) for key in batch]

            def infer(batch: Any = batch, numbers: Any = numbers, size: Any = size, chains: int = chains) -> Any:
                images = [test.images[person][list(chosen)].reshape(-1, *test.shape) for person, chosen in batch]
                posts = model.infer_many(images, seed=seed, numbers=numbers, size=size, chains=chains, **settings)
                return {
                    "scaled": np.stack([post.scaled_normals.reshape(-1, 3) for post in posts]),
                    "normals": np.stack([post.normals.reshape(-1, 3) for post in posts]),
                    "albedo": np.stack([post.albedo.reshape(-1) for post in posts]),
                }

            arrays = cache.arrays(f"surfaces-{name}-{chains}-{first:04}", infer)
            for i, key in enumerate(batch):
                found[key] = {what: values[i] for what, values in arrays.items()}
    return found


def share(model: DLN, key: Key) -> int:
    """Chains for a set of images: as many as make the preset's number, times the images."""
    return math.ceil(CHAINS[model.preset] / len(key[1]))


def mean_shape_sets(normals: np.ndarray, test: Test, sets: list[Key]) -> dict[Key, dict[str, np.ndarray]]:
    """The same by the average normals (H, W, 3) of other people."""
    flat, found = normals.reshape(-1, 3), {}
    for person, chosen in sets:
        scaled = mean_shape(flat, test.images[person][list(chosen)])
        found[person, chosen] = {"scaled": scaled, "normals": flat, "albedo": np.linalg.norm(scaled, axis=1)}
    return found


def common_map(model: DLN, train: Dataset, references: np.ndarray, seed: int) -> np.ndarray:
    """The one linear map (3, 3) that brings the model's normals of its training subjects nearest to the references.

    Images alone leave such a map open, and with it what a model that was shown no light calls straight ahead.
    """
    images, masks = zip(*((images, mask) for _, images, mask, _ in train.each()), strict=True)
    posts = model.infer_many(images, mask=masks, seed=seed, iterations=100)
    found = np.concatenate([post.normals.reshape(-1, 3) for post in posts])
    truth = references.reshape(-1, 3) / np.maximum(np.linalg.norm(references.reshape(-1, 3), axis=1), 1e-12)[:, None]
    return np.linalg.lstsq(found, truth, rcond=None)[0]


def judge(
    surfaces: dict[Key, dict[str, np.ndarray]],
    test: Test,
    references: np.ndarray,
    counts: tuple[int, ...],
    mapped: np.ndarray | None = None,
) -> dict[str, dict[str, Any]]:
    """By number of images: normals' errors in degrees, albedo's correlation, and the error in predicting the probes.

    `references` (G, H, W, 3) are from photometric stereo with known lights.
    """
    found: dict[str, dict[str, Any]] = {"normals_deg": {}, "albedo_correlation": {}, "relighting_rmse": {}}
    flat = references.reshape(len(references), -1, 3)
    for count in counts:
        chosen = [(key, value) for key, value in surfaces.items() if len(key[1]) == count]
        if not chosen:
            continue
        off = np.stack([angles(value["normals"], flat[key[0]], axis=-1) for key, value in chosen])
        degrees = {"mean": float(off.mean()), "median": float(np.median(off))}
        if mapped is not None:
            off = np.stack([angles(value["normals"] @ mapped, flat[key[0]], axis=-1) for key, value in chosen])
            degrees |= {"mapped_mean": float(off.mean()), "mapped_median": float(np.median(off))}
        albedo = [
            float(np.corrcoef(value["albedo"], np.linalg.norm(flat[key[0]], axis=1))[0, 1]) for key, value in chosen
        ]
        errors = [relighting_rmse(v["scaled"], test.probes[test.people == key[0]]) for key, v in chosen]
        found["normals_deg"][str(count)] = degrees
        found["albedo_correlation"][str(count)] = float(np.mean(albedo))
        found["relighting_rmse"][str(count)] = float(np.mean(errors))
    return found


def by_key(surfaces: dict[Key, dict[str, np.ndarray]]) -> dict[Key, np.ndarray]:
    """Scaled normals alone, as recognition takes them."""
    return {key: value["scaled"] for key, value in surfaces.items()}
