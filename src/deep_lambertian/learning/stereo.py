"""Photometric stereo with known lights: the reference that surfaces from a single image are measured against."""

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.geometry import least_squares

DARK, BRIGHT = 0.05, 0.98  # outside of these a pixel is taken by stereo to be in shadow, or saturated
DIM = 0.02
LEAST = 4  # images in which a pixel must be lit
SCALE = 0.05  # of stereo's residuals: those that are larger count less and less
ROUNDS = 5


def photometric_stereo(images: np.ndarray, lights: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    r"""Scaled normals a·n (H, W, 3) of one object from images (P, H, W) under known lights (P, 3).

    Per-pixel robust least squares: $\min_m \sum_p w_p (v_p - m^\top \ell_p)^2$ over the images in which the pixel is
    neither in shadow nor saturated, with weights $w = 1/(1 + (r/0.05)^2)$ of the last round's residuals r.
    """
    images, lights = np.asarray(images, np.float64), np.asarray(lights, np.float64)
    count, height, width = images.shape
    if lights.shape != (count, 3) or not np.isfinite(lights).all():
        raise ValueError(f"lights: expected {count} rows of three finite numbers, got shape {lights.shape}")
    values = images.reshape(count, -1)
    there = np.ones_like(values, bool) if mask is None else np.asarray(mask, bool).reshape(count, -1)
    usable = there & (values > DARK) & (values < BRIGHT)
    for more in (there & (values > DIM), there):  # a pixel that is lit too seldom makes do with what there is
        few = usable.sum(axis=0) < LEAST
        usable[:, few] = more[:, few]
    weights, found = usable.astype(np.float64), np.zeros((values.shape[1], 3))
    for _ in range(ROUNDS):
        found = least_squares(lights, values.T, weights.T)
        residual = values - lights @ found.T
        weights = usable / (1 + (residual / SCALE) ** 2)
    return found.reshape(height, width, 3)


def reference_surfaces(data: Dataset) -> np.ndarray:
    """Scaled normals (S, H, W, 3) of every object of a data set whose lights are all known."""
    found = []
    for name, images, mask, lights in data.each():
        if lights is None:
            raise ValueError(f"{name}: expected the light of every image to be known, got some that are not")
        found.append(photometric_stereo(images, lights, mask))
    return np.stack(found)
