"""The data of a run as Algorithm 1 takes them, or an error that says why nothing can be learned from them."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.energy import Observation
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.shared_lights import rig_numbers

LEAST_OBJECTS = 3


@dataclass(frozen=True)
class Task:
    """The data of a run as the E-step takes them, training objects first, then those that are held out."""

    data: Observation
    there: np.ndarray  # (S, P), which images there are
    lights: np.ndarray | None  # (S, P, 3), where they are to be believed
    truth: np.ndarray | None  # the same, where they are known but not shown: for a monitor
    rig: np.ndarray | None  # (S, P), numbers of the lights that objects share, where these are to be used
    names: list[str]
    shape: tuple[int, int]
    train: int

    @property
    def brightest(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every object its brightest image (S, V), and the weights of its pixels."""
        total = np.asarray(jnp.sum(self.data.images * self.data.weights, axis=2))
        which = np.arange(len(total)), np.argmax(np.where(self.there, total, -1), axis=1)
        return np.asarray(self.data.images)[which], np.asarray(self.data.weights)[which]


def prepare(dataset: Dataset, config: Config) -> Task:
    """The data in the order of the run, or a ValueError that says what they lack."""
    count = len(dataset)
    if count < LEAST_OBJECTS:
        raise ValueError(
            f"data: expected at least {LEAST_OBJECTS} objects, to learn what they have in common, got {count}"
        )
    single = [name for name, there in zip(dataset.names, dataset.present, strict=True) if there.sum() < 2]
    if single:
        raise ValueError(
            f"data: expected at least two images of each object, under different lights, got one of "
            f"{', '.join(single[:5])}{f' and {len(single) - 5} more' if len(single) > 5 else ''}; "
            "one image does not tell shape from paint: leave these objects out, or add images"
        )
    bad = ~np.isfinite(dataset.images) & dataset.mask
    if bad.any():
        raise ValueError(f"data: expected finite pixels, got {int(bad.sum())} that are NaN or infinite")
    held_out = min(config.held_out, count // 4, count - LEAST_OBJECTS)
    order = np.random.default_rng(seed_of(config.seed, "held out")).permutation(count)
    order = np.concatenate([np.sort(order[held_out:]), np.sort(order[:held_out])])
    data, there = dataset.objects(order.tolist()), dataset.present[order]
    lights = data.lights
    if config.known_lights and (lights is None or not np.isfinite(lights[there]).all()):
        got = 0 if lights is None else int(np.isfinite(lights[there]).all(axis=-1).sum())
        raise ValueError(f"known_lights: expected the light of all {int(there.sum())} images, got that of {got}")
    objects, images = there.shape
    pixels = np.where(data.mask, data.images, 0).reshape(objects, images, -1)
    weights = data.mask.reshape(objects, images, -1)
    observation = Observation(jnp.asarray(pixels, jnp.float32), jnp.asarray(weights, jnp.float32))
    known = None if lights is None else np.where(there[..., None], lights, 0).astype(np.float32)
    shown, truth = (known, None) if config.known_lights else (None, lights)
    rig = None
    if data.rig is not None and config.shared_lights != "none" and not config.known_lights:
        rig = rig_numbers(data.rig, there)
    return Task(observation, there, shown, truth, rig, list(data.names), data.shape, count - held_out)


def face_rows(faces: Any, config: Config, shape: tuple[int, int]) -> np.ndarray | None:
    """The rows (n, V) that the albedo prior is first learned from."""
    if faces is None:
        return None
    images = faces.images[:, 0] if isinstance(faces, Dataset) else np.asarray(faces, np.float32)
    if images.ndim != 3 or images.shape[1:] != shape:
        raise ValueError(f"faces: expected images of {shape[0]}×{shape[1]}, as the data are, got shape {images.shape}")
    if config.start != "random" or config.prior != "separate":
        raise ValueError(
            "faces: an albedo prior is learned from them only with start = 'random' and prior = 'separate', "
            f"as in the preset 'paper', got {config.start!r} and {config.prior!r}"
        )
    return images.reshape(len(images), -1)
