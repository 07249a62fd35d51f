"""Collections of faces without labels: the stand-in for the Toronto Face Database, from which an albedo prior starts.

Such photos are not albedo: each has its own light and exposure. Brought to the statistics of albedo, every image has
the same mean and spread, so that what the prior learns is what faces look like, not how they were photographed.
"""

from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped
from deep_lambertian.data.images import image_shape, is_image_name, luminance, read_image
from deep_lambertian.data.sources import open_source
from deep_lambertian.support.archives import as_array, read_npz
from deep_lambertian.support.progress import track
from deep_lambertian.support.resampling import average_areas

ALBEDO_MEAN, ALBEDO_STD = 0.5, 0.15  # of faces whose mean albedo is taken to be a half


def load_faces(source: Any, size: int | tuple[int, int] = 24, *, normalise: bool = True, srgb: bool = False) -> Dataset:
    """Faces from an `.npz` (its array `images`), a folder or an archive of images, or an array (n, H, W[, 3]).

    Arrays such as scikit-learn's `fetch_lfw_people().images` and `fetch_olivetti_faces().images` are taken as they are.
    Every face becomes an object of one image. `normalise` brings each to the mean and spread of albedo, cut off at
    0; one without any contrast is skipped.
    """
    shape = image_shape(size)
    skipped: list[Skipped] = []
    if isinstance(source, np.ndarray):
        path, names, images = "an array", *_from_array(source, shape, "array")
    elif str(source).endswith((".npz", ".npy")):
        path, names, images = str(source), *_from_array(_read_array(Path(source)), shape, Path(source).stem)
    else:
        path, names, images = str(source), *_from_files(source, shape, srgb, skipped)
    if normalise:
        spread = images.std(axis=(1, 2))
        flat = spread < 1e-3
        skipped += [Skipped(names[i], "no contrast") for i in np.flatnonzero(flat)]
        if flat.all():
            raise ValueError(f"{path}: expected faces, got {len(names)} images without any contrast")
        names = [name for name, bad in zip(names, flat, strict=True) if not bad]
        images, spread = images[~flat], spread[~flat, None, None]
        scaled = (images - images.mean(axis=(1, 2), keepdims=True)) / spread * ALBEDO_STD + ALBEDO_MEAN
        images = np.maximum(scaled, 0).astype(np.float32)
    mask, image_names = np.ones((len(images), 1, *shape), bool), tuple((name,) for name in names)
    info = {"kind": "faces", "path": path, "linearised": srgb, "normalised": normalise}
    return Dataset(images[:, None], mask, tuple(names), image_names, skipped=tuple(skipped), info=info)


def _read_array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise ValueError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'nothing'}")
    if path.suffix == ".npy":
        return as_array(path.read_bytes(), str(path))
    return read_npz(path, only="images")["images"]


def _from_array(array: np.ndarray, shape: tuple[int, int], stem: str) -> tuple[list[str], np.ndarray]:
    kind = array.dtype.kind
    if array.ndim not in (3, 4) or 0 in array.shape or kind not in "fiu" or (array.ndim == 4 and array.shape[3] != 3):
        raise ValueError(f"expected faces as numbers of shape (n, height, width[, 3]), got {array.dtype} {array.shape}")
    scale = 1.0 if kind == "f" else float(np.iinfo(str(array.dtype)).max)
    images = np.empty((len(array), *shape), np.float32)
    for i in track(range(len(array)), "resizing faces"):
        images[i] = average_areas(luminance(np.asarray(array[i], np.float32) / scale), shape)
    if not np.isfinite(images).all():
        raise ValueError("expected finite pixels, got some that are not")
    if images.max() > 2:  # floats that run to 255, as scikit-learn's LFW did before version 1.0
        images /= 255
    return [f"{stem}{i:06}" for i in range(len(images))], images


def _from_files(path: Any, shape: tuple[int, int], srgb: bool, skipped: list[Skipped]) -> tuple[list[str], np.ndarray]:
    names, images = [], []
    with open_source(path) as source:
        for name in track(source.names, "reading faces"):
            if not is_image_name(name):
                skipped.append(Skipped(name, "not an image by its name"))
                continue
            pixels = read_image(source, name, skipped, srgb=srgb)
            if pixels is not None:
                images.append(average_areas(pixels, shape))
                names.append(name)
        if not images:
            raise ValueError(f"{path}: expected images of faces, found none among {len(source.names)} files")
    return names, np.stack(images)
