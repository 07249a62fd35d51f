r"""Objects under the same lights: what of an object's own tilt has moved into its lights is moved back.

Any linear map of an object's normals, undone in its lights, explains its images as well. The prior pulls every object
to the tilt that all have in common, and so its lights away from where they were. Where images of several objects were
taken under the same light of a rig (`Dataset.rig`), the lights $c_r$ that most objects agree on tell how far. Each
object s has its map

$$A_s = \arg\min_A \sum_p \|A\,\ell_{sp} - c_{r(s,p)}\|^2 + \lambda\,\|A - I\|^2, \qquad
  \ell_{sp} \to A_s\,\ell_{sp}, \quad a_i n_i \to A_s^{-\top} a_i n_i$$

or the rotation nearest to it, and its images stay the same. Taken together the objects do not turn: the mean of the
maps is the identity. Where the lights are, and what they are called, is not used: a name only says which are the same.
"""

from dataclasses import replace

import numpy as np

from deep_lambertian.inference.chain import Sampled
from deep_lambertian.surface import Surface

LEAST_OBJECTS = 3  # that say where a light is
RIDGE = 1.0  # λ, in units of what an image says on average
ROUNDS = 10  # of lights that most agree on, and maps to them


def rig_numbers(rig: np.ndarray, there: np.ndarray) -> np.ndarray | None:
    """Names (S, P) of lights as numbers, −1 where a light has no name or too few objects; None where all are such."""
    names = np.where(there, rig.astype(str), "")
    shared = [name for name in np.unique(names) if name and (names == name).any(axis=1).sum() >= LEAST_OBJECTS]
    numbers = np.full(names.shape, -1)
    for number, name in enumerate(shared):
        numbers[names == name] = number
    return numbers if shared else None


def aligning_maps(lights: np.ndarray, rig: np.ndarray, rotate: bool) -> np.ndarray:
    """The maps A (S, 3, 3), or rotations, that bring the lights (S, P, 3) of objects to those of the same number."""
    objects, known = len(lights), rig >= 0
    count, total = np.zeros((objects, rig.max() + 1, 1)), np.zeros((objects, rig.max() + 1, 3))
    place = np.nonzero(known)[0], rig[known]
    np.add.at(count, place, 1)
    np.add.at(total, place, lights[known])
    seen = count[..., 0] > 0
    own = np.where(seen[..., None], total / np.maximum(count, 1), np.nan)
    weak = RIDGE * np.mean(lights[known] ** 2) * np.eye(3)
    chosen = _nearest_rotation if rotate else np.asarray
    maps = np.tile(np.eye(3), (objects, 1, 1))
    for _ in range(ROUNDS):
        agreed = np.nanmedian(own @ maps.swapaxes(1, 2), axis=0)
        for s, each in enumerate(seen):
            mine = own[s, each]
            maps[s] = np.linalg.solve(mine.T @ mine + weak, mine.T @ agreed[each] + weak).T
        maps = chosen(maps)
        maps = np.linalg.solve(chosen(maps.mean(axis=0)), maps)
    return maps


def _nearest_rotation(maps: np.ndarray) -> np.ndarray:
    left, _, right = np.linalg.svd(maps)
    return left @ right


def transform(maps: np.ndarray, surface: Surface, lights: np.ndarray) -> tuple[Surface, np.ndarray]:
    """Surfaces (S, ..., V) and lights (S, ..., P, 3) of S objects after their maps.

    Lengths of normals stay, albedo takes what they would have changed by.
    """
    maps = maps.reshape(len(maps), *[1] * (lights.ndim - 3), 3, 3)
    moved = np.linalg.inv(maps).swapaxes(-1, -2) @ surface.normals
    length, new_length = (np.maximum(np.linalg.norm(n, axis=-2), 1e-12) for n in (surface.normals, moved))
    stretch = new_length / length
    turned = Surface((surface.albedo * stretch).astype(np.float32), (moved / stretch[..., None, :]).astype(np.float32))
    return turned, (lights @ maps.swapaxes(-1, -2)).astype(np.float32)


def align(found: Sampled, rig: np.ndarray, rotate: bool) -> tuple[Sampled, np.ndarray]:
    """What the chains of S objects have found, where the lights they share agree, and the maps that lead there.

    Of `found` this is what is learned from: states, kept ones, and the means of albedo, directions and lights.
    """
    mean, kept = found.mean, found.kept
    maps = aligning_maps(mean["lights"].mean(axis=1, dtype=np.float64), rig, rotate)
    surface, lights = transform(maps, found.state.surface, found.state.lights)
    usual, usual_lights = transform(maps, Surface(mean["albedo"], mean["directions"]), mean["lights"])
    samples, sample_lights = transform(maps, Surface(kept["albedo"], kept["normals"]), kept["lights"])
    aligned = replace(
        found,
        state=replace(found.state, surface=surface, lights=lights),
        mean=mean | {"albedo": usual.albedo, "directions": usual.normals, "lights": usual_lights},
        kept=kept | vars(samples) | {"lights": sample_lights},
    )
    return aligned, maps
