"""The simplest prior over shape: everyone has the average normals. What a learned prior has to beat."""

import numpy as np

LEAST_SHADING = 0.2  # of n·ℓ: where the average surface is darker, dividing by it would make paint of noise


def mean_normals(scaled_normals: np.ndarray) -> np.ndarray:
    """The average unit normals (H, W, 3) of surfaces (S, H, W, 3)."""
    unit = scaled_normals / np.maximum(np.linalg.norm(scaled_normals, axis=-1, keepdims=True), 1e-12)
    mean = unit.mean(axis=0)
    return mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


def mean_shape(normals: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Scaled normals (V, 3) of an object with normals (V, 3) from images (P, V).

    Each image's light by least squares as if it were white, then albedo by least squares: of one image v / shading.
    """
    images = np.asarray(images, np.float64)
    lights = np.linalg.lstsq(normals, images.T, rcond=None)[0]
    shading = np.maximum(normals @ lights, LEAST_SHADING)
    albedo = np.sum(images.T * shading, axis=1) / np.sum(shading**2, axis=1)
    return albedo[:, None] * normals
