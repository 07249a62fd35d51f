"""Photos of one thing, read in colour. Nothing here needs JAX: a photo that is no photo is refused at once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deep_lambertian.data.folder import photo_files
from deep_lambertian.data.images import decode


def read_photos(paths: Sequence[str | Path], *, srgb: bool = True) -> list[tuple[str, np.ndarray]]:
    """Names and linear colours of photos of the same thing, which must be of one size."""
    return photo_files(paths, srgb=srgb, colour=True)


def read_mask(path: str | Path, shape: tuple[int, int]) -> np.ndarray:
    """A picture of the photos' `shape` that is white where their pixels count, as (H, W) in [0, 1]."""
    mask = decode(Path(path).read_bytes(), str(path), srgb=False).pixels
    if mask.shape != shape:
        (h, w), (oh, ow) = shape, mask.shape
        raise ValueError(f"{path}: expected a mask of the photos' size, {w}×{h}, got {ow}×{oh}")
    if not mask.max() > 0.5:
        raise ValueError(f"{path}: expected a mask with some white in it, got none")
    return mask
