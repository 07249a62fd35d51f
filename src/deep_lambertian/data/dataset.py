"""Many objects under many lights: the one type that every loader returns and everything else takes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

# What stands for an image that is not there.
NOTHING: dict[str, Any] = {"images": 0.0, "mask": 0.0, "lights": np.nan, "subsets": 0.0, "rig": ""}
Take = Callable[[np.ndarray, Any], np.ndarray]


@dataclass(frozen=True)
class Skipped:
    """A file that was not used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Dataset:
    """S objects with up to P images each, all of one size.

    `images` (S, P, H, W) float32, light of about [0, 1]; `mask` (S, P, H, W) tells which pixels are valid, and is False
    throughout for an image that is not there. `lights` (S, P, 3) where any are known, NaN where one is not.
    `subsets` (S, P) are the numbers of illumination subsets where the data have them, 0 for an image that is not there.
    `rig` (S, P) are names of lights, where the data have them: images of one name, of whatever object, were taken under
    the same light in the same place, wherever that is. They are empty where nothing is known.
    `image_names` has P names an object, empty for an image that is not there. `skipped` are the files that were left
    out; `info` says what was assumed in reading the rest.
    """

    images: np.ndarray
    mask: np.ndarray
    names: tuple[str, ...]
    image_names: tuple[tuple[str, ...], ...]
    lights: np.ndarray | None = None
    subsets: np.ndarray | None = None
    rig: np.ndarray | None = None
    skipped: tuple[Skipped, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or 0 in self.images.shape:
            raise ValueError(f"images: expected (objects, images, height, width), got shape {self.images.shape}")
        objects, count = self.images.shape[:2]
        each = objects, count
        expected = {"mask": self.images.shape, "lights": (*each, 3), "subsets": each, "rig": each}
        for name, shape in expected.items():
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {value.shape}")
        if len(self.names) != objects or any(len(row) != count for row in self.image_names):
            raise ValueError(f"names: expected {objects} objects of {count} images, got {len(self.names)} names")
        if len(set(self.names)) != objects:
            raise ValueError("names: expected each object's to be its own, got some twice")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        objects, count, height, width = self.images.shape
        images = f"{int(self.present.sum())} images of at most {count} each"
        return f"Dataset({objects} objects, {images}, {height}×{width}, {len(self.skipped)} files skipped)"

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self.images.shape[2], self.images.shape[3]

    @property
    def present(self) -> np.ndarray:
        """Which images are there (S, P)."""
        return np.array([[bool(name) for name in row] for row in self.image_names])

    def object(self, which: int | str) -> "Dataset":
        """One object, by its number or name, as a set of its own."""
        return self.objects([which])

    def objects(self, which: Sequence[int | str]) -> "Dataset":
        """The objects with these numbers or names, in this order."""
        for each in which:
            if isinstance(each, str) and each not in self.names:
                raise ValueError(f"no object {each!r}; there are {some(self.names)}")
        index = [self.names.index(i) if isinstance(i, str) else range(len(self))[i] for i in which]
        if not index:
            raise ValueError("expected at least one object, got none")
        return self._with(index, [self.image_names[i] for i in index], lambda array, _: array[index])

    def subset(self, *numbers: int) -> "Dataset":
        """Only the images of these illumination subsets; objects that have none left are dropped."""
        if self.subsets is None:
            raise ValueError("expected a data set with illumination subsets, such as Yale B, got one without")
        return self.keep(np.isin(self.subsets, numbers) & self.present)

    def keep(self, chosen: np.ndarray) -> "Dataset":
        """Only the images that `chosen` (S, P) says, moved together; objects that have none left are dropped."""
        chosen = np.asarray(chosen, bool)
        if chosen.shape != self.images.shape[:2]:
            raise ValueError(f"expected a choice of shape {self.images.shape[:2]}, got {chosen.shape}")
        chosen = chosen & self.present
        if not chosen.any():
            raise ValueError("expected at least one image to keep, got none")
        rows = np.flatnonzero(chosen.any(axis=1))
        most = int(chosen.sum(axis=1).max())
        order = np.argsort(~chosen, axis=1, kind="stable")[rows, :most]  # those chosen first, in their own order
        there = np.take_along_axis(chosen[rows], order, axis=1)

        def take(array: np.ndarray, nothing: Any) -> np.ndarray:
            taken = np.take_along_axis(array[rows], order.reshape(*order.shape, *[1] * (array.ndim - 2)), axis=1)
            taken[~there] = nothing
            return taken

        names = np.where(there, np.take_along_axis(np.array(self.image_names, object)[rows], order, axis=1), "")
        return self._with(rows, names.tolist(), take)

    def _with(self, rows: Iterable[int], image_names: Iterable[Iterable[str]], take: Take) -> "Dataset":
        """The objects of these rows, with what `take` makes of each array and of its value for what is not there."""
        arrays = {name: getattr(self, name) for name in NOTHING}
        taken = {name: None if array is None else take(array, NOTHING[name]) for name, array in arrays.items()}
        names = tuple(self.names[row] for row in rows)
        return replace(self, names=names, image_names=tuple(map(tuple, image_names)), **taken)

    def split(self, *shares: float, seed: int = 0) -> tuple["Dataset", ...]:
        """Split the objects at random into parts of these shares (which sum to at most 1); a seed fixes the split.

        One share gives two parts, that share and the rest.
        """
        if not shares or min(shares) <= 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(f"expected positive shares that sum to at most 1, got {shares}")
        parts = [*shares, 1 - sum(shares)] if len(shares) == 1 else [*shares]
        order = np.random.default_rng(seed).permutation(len(self))
        ends = np.round(np.cumsum([0, *parts]) * len(self)).astype(int)
        if np.any(np.diff(ends) == 0):
            raise ValueError(f"expected at least one object in each part, got {len(self)} objects for shares {shares}")
        return tuple(self.objects(sorted(order[a:b].tolist())) for a, b in pairwise(ends))

    def each(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Name, images (p, H, W), mask (p, H, W) and lights (p, 3) or None of one object after the other."""
        for s, there in enumerate(self.present):
            lights = None if self.lights is None else self.lights[s, there]
            known = lights if lights is not None and np.isfinite(lights).all() else None
            yield self.names[s], self.images[s, there], self.mask[s, there], known

    def skipped_reasons(self) -> dict[str, int]:
        """How many files were skipped for each reason."""
        return dict(Counter(each.reason for each in self.skipped))


def some(names: Sequence[object], most: int = 8) -> str:
    """The first of many names, for a message."""
    listed = ", ".join(map(str, names[:most]))
    return listed if len(names) <= most else f"{listed}, … ({len(names)} in all)"


@dataclass(frozen=True)
class View:
    """One image (H, W) of an object, and what a loader knows about it."""

    name: str
    image: np.ndarray
    mask: np.ndarray | None = None
    light: np.ndarray | None = None
    subset: int = 0
    rig: str = ""


def stack_objects(
    objects: Sequence[tuple[str, Sequence[View]]], skipped: Sequence[Skipped] = (), info: dict[str, Any] | None = None
) -> Dataset:
    """A Dataset from the name and the views of each object, of which some may have more than others."""
    if not objects:
        raise ValueError("expected at least one object, got none")
    shape = len(objects), max(len(views) for _, views in objects)
    pixels = np.zeros((*shape, *objects[0][1][0].image.shape), np.float32)
    valid = np.zeros(pixels.shape, bool)
    lights = np.full((*shape, 3), np.nan, np.float32)
    subsets, rig = np.zeros(shape, np.int32), np.full(shape, "", object)
    for s, (_, views) in enumerate(objects):
        for p, view in enumerate(views):
            pixels[s, p], subsets[s, p], rig[s, p] = view.image, view.subset, view.rig
            valid[s, p] = True if view.mask is None else view.mask
            if view.light is not None:
                lights[s, p] = view.light
    names = tuple(name for name, _ in objects)
    image_names = tuple((*(view.name for view in views), *[""] * (shape[1] - len(views))) for _, views in objects)
    known, sets = None if np.isnan(lights).all() else lights, subsets if subsets.any() else None
    shared = rig.astype(str) if rig.any() else None
    return Dataset(pixels, valid, names, image_names, known, sets, shared, tuple(skipped), info or {})
