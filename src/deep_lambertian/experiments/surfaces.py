"""Surfaces of test objects from a few images of each, inferred once and used by every figure (Sec. 4.1, 4.2)."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.experiments.one_shot import Key, RecognitionTest, Surfaces
from deep_lambertian.geometry import angles
from deep_lambertian.inference.inputs import Layout
from deep_lambertian.model import DLN
from deep_lambertian.support.run_folder import RunFolder
from deep_lambertian.tasks.baselines import mean_shape
from deep_lambertian.tasks.distances import relighting_rmse

BATCH = 70  # sets of images at a time: results are kept as they come


def infer_kept(
    model: DLN,
    images: Sequence[np.ndarray],
    folder: RunFolder,
    name: str,
    batch: int,
    *,
    masks: Sequence[np.ndarray] | None = None,
    numbers: Sequence[int] | None = None,
    **settings: Any,
) -> dict[str, np.ndarray]:
    """Scaled and unit normals (S, V, 3) and albedo (S, V) of S objects, in batches of one shape that are kept."""
    numbers = range(len(images)) if numbers is None else numbers
    size = min(batch, len(images)), max(len(each) for each in images)
    parts = []
    for first in range(0, len(images), batch):
        here = slice(first, min(first + batch, len(images)))

        def infer(here: slice = here) -> dict[str, np.ndarray]:
            mask = None if masks is None else masks[here]
            posts = model.infer_many(images[here], mask=mask, layout=Layout(numbers[here], size), **settings)
            return {
                "scaled": np.stack([post.scaled_normals.reshape(-1, 3) for post in posts]),
                "normals": np.stack([post.normals.reshape(-1, 3) for post in posts]),
                "albedo": np.stack([post.albedo.reshape(-1) for post in posts]),
            }

        parts.append(folder.arrays(f"surfaces-{name}-{first:04}", infer))
    return {what: np.concatenate([part[what] for part in parts]) for what in parts[0]}


def infer_sets(
    model: DLN, test: RecognitionTest, sets: list[Key], folder: RunFolder, name: str, **settings: Any
) -> Surfaces:
    """What every set of images gives.

    The more images, the less there is to average over: unless given, the preset's chains are shared by the images of a
    set. Sets with as many chains share a shape, so that few shapes are compiled.
    """
    given = settings.pop("chains", None)
    found = {}

    def chains_of(key: Key) -> int:
        return given or math.ceil(model.sampler.chains / len(key[1]))

    for chains, group in groupby(sorted(sets, key=lambda key: len(key[1])), chains_of):
        alike = list(group)
        images = [test.images[person][list(chosen)].reshape(-1, *test.shape) for person, chosen in alike]
        numbers = [sets.index(key) for key in alike]
        arrays = infer_kept(
            model, images, folder, f"{name}-{chains}", BATCH, numbers=numbers, chains=chains, **settings
        )
        found |= {key: {what: values[i] for what, values in arrays.items()} for i, key in enumerate(alike)}
    return found


def mean_shape_sets(normals: np.ndarray, test: RecognitionTest, sets: list[Key]) -> Surfaces:
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
    surfaces: Surfaces,
    test: RecognitionTest,
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
        chosen = [(flat[person], person, value) for (person, shown), value in surfaces.items() if len(shown) == count]
        if not chosen:
            continue
        degrees = {}
        for prefix, turn in (("", np.eye(3, dtype=np.float32)), ("mapped_", mapped)):
            if turn is not None:
                off = np.stack([angles(value["normals"] @ turn, truth, axis=-1) for truth, _, value in chosen])
                degrees |= {f"{prefix}mean": float(off.mean()), f"{prefix}median": float(np.median(off))}
        alike = [np.corrcoef(value["albedo"], np.linalg.norm(truth, axis=1))[0, 1] for truth, _, value in chosen]
        errors = [relighting_rmse(value["scaled"], test.probes[test.people == who]) for _, who, value in chosen]
        found["normals_deg"][str(count)] = degrees
        found["albedo_correlation"][str(count)] = float(np.mean(alike))
        found["relighting_rmse"][str(count)] = float(np.mean(errors))
    return found
