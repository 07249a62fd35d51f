"""What a caller may hand to inference, checked once at the door; every message says what was got and expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.energy import Observation
from deep_lambertian.priors.contract import check_array
from deep_lambertian.surface import Shape, Surface


@dataclass(frozen=True)
class Layout:
    """How a batch of objects is laid out, which does not change what is found but for rounding.

    `numbers`, 0, 1, … unless told, make the objects' keys: an object that keeps its number keeps its draws, whatever it
    is run with. Batches filled up to one `size` (objects, images) share one compilation, and rounding too. `devices`
    are all there are, of all processes, unless told.
    """

    numbers: Sequence[int] | None = None
    size: tuple[int, int] | None = None
    devices: Sequence[Any] | None = None


@dataclass(frozen=True)
class Request:
    """One object's images (P, V), weights (P, V), and the blocks that are known, as the sampler holds them."""

    images: np.ndarray
    weights: np.ndarray
    known: dict[str, np.ndarray]


def check_request(
    shape: Shape,
    images: ArrayLike,
    lights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    surface: Surface | None = None,
    name: str = "images",
) -> Request:
    """Bring one object's inputs to the sampler's form, or raise a ValueError."""
    pixels = _images(shape, images, name)
    count = pixels.shape[0]
    seen = np.ones_like(pixels) if mask is None else _mask(shape, count, mask)
    bad = ~np.isfinite(pixels) & (seen > 0)
    if bad.any():
        raise ValueError(
            f"{name}: expected finite pixels, got {int(bad.sum())} that are NaN or infinite; mend them or mask them out"
        )
    pixels = np.where(np.isfinite(pixels), pixels, 0).astype(np.float32)
    known = {}
    if lights is not None:
        known["lights"] = _known("lights", lights, (count, 3))
    if surface is not None:
        size = shape[0] * shape[1]
        known["albedo"] = _known("surface.albedo", surface.albedo, (size,))
        known["normals"] = _known("surface.normals", surface.normals, (3, size))
    return Request(pixels, seen, known)


def _images(shape: Shape, images: ArrayLike, name: str) -> np.ndarray:
    try:
        array = np.asarray(images)
    except ValueError as error:
        raise ValueError(f"{name}: expected images of one size, got a ragged sequence ({error})") from error
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{name}: expected real numbers, got {array.dtype}")
    height, width = shape
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one image of {height}×{width} pixels, got none")
    if array.ndim not in (2, 3):
        raise ValueError(
            f"{name}: expected ({height}, {width}) for one image or (P, {height}, {width}) for several, "
            f"got shape {array.shape}"
        )
    if array.shape[-2:] != shape:
        raise ValueError(
            f"{name}: the model was built for {height}×{width} pixels, got {array.shape[-2]}×{array.shape[-1]}; "
            f"resize the images to {height}×{width}, or take a model of their size"
        )
    if np.issubdtype(array.dtype, np.integer):  # the full range of the type is [0, 1], as in image libraries
        array = array.astype(np.float64) / np.iinfo(array.dtype).max
    return array.reshape(-1, height * width).astype(np.float32)


def _mask(shape: Shape, count: int, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if array.shape not in (shape, (count, *shape)):
        raise ValueError(f"mask: expected shape {shape} or {(count, *shape)}, got {array.shape}")
    if not np.all((array >= 0) & (array <= 1)):
        raise ValueError(f"mask: expected values between 0 and 1, got {array.min():g} to {array.max():g}")
    if not array.any():
        raise ValueError("mask: expected at least one pixel that counts, got a mask that is 0 everywhere")
    return np.broadcast_to(array.reshape(-1, shape[0] * shape[1]), (count, shape[0] * shape[1]))


def _known(what: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if what == "lights" and array.shape == (3,) and shape[0] == 1:
        array = array[None]
    check_array(what, array, shape)
    return array


def stack(requests: Sequence[Request], size: tuple[int, int] | None = None) -> tuple[Observation, dict[str, Any]]:
    """Many objects in one batch (S, P, ...): objects with fewer images are filled up with images of weight 0.

    With a `size`, of at least so many objects and images: the batch is filled up to it in the same way.
    """
    objects, most = size or (0, 0)
    most = max(most, *(request.images.shape[0] for request in requests))
    spare = max(objects - len(requests), 0)

    def fill(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros((most - array.shape[0], *array.shape[1:]), np.float32)])

    def whole(arrays: list[np.ndarray]) -> Any:  # NumPy's: whatever JAX makes eagerly is compiled by itself
        return np.stack(arrays + [np.zeros_like(arrays[0])] * spare)

    blocks = {frozenset(request.known) for request in requests}
    if len(blocks) > 1:
        raise ValueError(
            "expected the same blocks (lights, albedo, normals) to be known for every object, "
            f"got {sorted(sorted(b) for b in blocks)}"
        )
    known = {}
    for block in next(iter(blocks)):
        values = [request.known[block] for request in requests]
        known[block] = whole([fill(v) if block == "lights" else v for v in values])
    images, weights = ([fill(getattr(request, what)) for request in requests] for what in ("images", "weights"))
    return Observation(whole(images), whole(weights)), known
