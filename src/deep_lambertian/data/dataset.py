"""Many objects under many lights: the one type that every loader returns and everything else takes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np


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
    `image_names` has P names an object, empty for an image that is not there. `skipped` are the files that were left
    out; `info` says what was assumed in reading the rest.
    """

    images: np.ndarray
    mask: np.ndarray
    names: tuple[str, ...]
    image_names: tuple[tuple[str, ...], ...]
    lights: np.ndarray | None = None
    subsets: np.ndarray | None = None
    skipped: tuple[Skipped, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or 0 in self.images.shape:
            raise ValueError(f"images: expected (objects, images, height, width), got shape {self.images.shape}")
        objects, count = self.images.shape[:2]
        expected = {
            "mask": self.images.shape,
            "lights": (objects, count, 3),
            "subsets": (objects, count),
        }
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
        return (
            f"Dataset({objects} objects, {int(self.present.sum())} images of at most {count} each, "
            f"{height}×{width}, {len(self.skipped)} files skipped)"
        )

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
        index = []
        for each in which:
            if isinstance(each, str):
                if each not in self.names:
                    raise ValueError(f"no object {each!r}; there are {_some(self.names)}")
                index.append(self.names.index(each))
            else:
                index.append(range(len(self))[each])
        if not index:
            raise ValueError("expected at least one object, got none")
        return replace(
            self,
            images=self.images[index],
            mask=self.mask[index],
            names=tuple(self.names[i] for i in index),
            image_names=tuple(self.image_names[i] for i in index),
            lights=None if self.lights is None else self.lights[index],
            subsets=None if self.subsets is None else self.subsets[index],
        )

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
        order = np.argsort(~chosen, axis=1, kind="stable")[:, :most]  # those chosen first, in their own order
        there = np.take_along_axis(chosen, order, axis=1)[rows]
        order = order[rows]

        def take(array: np.ndarray | None, nothing: float) -> np.ndarray | None:
            if array is None:
                return None
            extra = array.ndim - 2
            index = order.reshape(*order.shape, *[1] * extra)
            taken = np.take_along_axis(array[rows], index, axis=1)
            taken[~there] = nothing
            return taken

        names = tuple(
            tuple(self.image_names[r][p] if ok else "" for p, ok in zip(order[i], there[i], strict=True))
            for i, r in enumerate(rows)
        )
        images, mask = take(self.images, 0), take(self.mask, 0)
        assert images is not None
        assert mask is not None
        return replace(
            self,
            images=images,
            mask=mask,
            names=tuple(self.names[r] for r in rows),
            image_names=names,
            lights=take(self.lights, np.nan),
            subsets=take(self.subsets, 0),
        )

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

    def split_images(self, train: int, seed: int | None = None) -> tuple["Dataset", "Dataset"]:
        """Split each object's images into `train` and the rest: the first ones, or at random with a seed."""
        chosen = np.zeros(self.images.shape[:2], bool)
        for s, row in enumerate(self.present):
            there = np.flatnonzero(row)
            if len(there) <= train or train < 1:
                raise ValueError(f"{self.names[s]}: expected more than {train} images (at least 1), got {len(there)}")
            order = there if seed is None else np.random.default_rng([seed, s]).permutation(there)
            chosen[s, order[:train]] = True
        return self.keep(chosen), self.keep(self.present & ~chosen)

    def each(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Name, images (p, H, W), mask (p, H, W) and lights (p, 3) or None of one object after the other."""
        for s, there in enumerate(self.present):
            lights = None if self.lights is None else self.lights[s, there]
            known = lights if lights is not None and np.isfinite(lights).all() else None
            yield self.names[s], self.images[s, there], self.mask[s, there], known

    def skipped_reasons(self) -> dict[str, int]:
        """How many files were skipped for each reason."""
        return dict(Counter(each.reason for each in self.skipped))


def _some(names: Sequence[str], most: int = 8) -> str:
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed}, … ({len(names)} in all)"


def stack_objects(
    objects: Sequence[tuple[str, Sequence[tuple[str, np.ndarray]]]],
    *,
    masks: Sequence[Sequence[np.ndarray | None]] | None = None,
    lights: Sequence[Sequence[Any]] | None = None,
    subsets: Sequence[Sequence[int]] | None = None,
    skipped: Sequence[Skipped] = (),
    info: dict[str, Any] | None = None,
) -> Dataset:
    """A Dataset from ragged lists: of each object its name and its images, each a name and an array (H, W)."""
    if not objects:
        raise ValueError("expected at least one object, got none")
    most = max(len(images) for _, images in objects)
    height, width = objects[0][1][0][1].shape
    count = len(objects)
    pixels = np.zeros((count, most, height, width), np.float32)
    valid = np.zeros((count, most, height, width), bool)
    directions = None if lights is None else np.full((count, most, 3), np.nan, np.float32)
    numbers = None if subsets is None else np.zeros((count, most), np.int32)
    for s, (_, images) in enumerate(objects):
        for p, (_, image) in enumerate(images):
            pixels[s, p] = image
            mask = None if masks is None else masks[s][p]
            valid[s, p] = True if mask is None else mask
            if directions is not None and lights is not None and lights[s][p] is not None:
                directions[s, p] = lights[s][p]
            if numbers is not None and subsets is not None:
                numbers[s, p] = subsets[s][p]
    return Dataset(
        pixels,
        valid,
        tuple(name for name, _ in objects),
        tuple(tuple(n for n, _ in images) + ("",) * (most - len(images)) for _, images in objects),
        directions,
        numbers,
        tuple(skipped),
        info or {},
    )
