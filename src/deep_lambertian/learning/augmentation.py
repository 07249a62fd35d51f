"""Surfaces as rows x = [a, vec(N)] of training data, and the surface that every object starts from."""

import numpy as np

from deep_lambertian.data.augment import mirror, random_translations

Shape = tuple[int, int]


def dome(shape: Shape) -> np.ndarray:
    """Normals (3, V) of a convex dome, steeper to the sides than up and down: the common start of all objects.

    Any invertible linear map of all normals, undone in all lights, explains the images as well (the linear ambiguity).
    Objects that start alike are led to the same one.
    """
    height, width = shape
    y = 1 - (2 * np.arange(height) + 1) / height  # up
    x = (2 * np.arange(width) + 1) / width - 1  # right
    normals = np.stack(np.broadcast_arrays(1.3 * x[None], 0.75 * y[:, None], np.ones((1, 1)))).reshape(3, -1)
    return (normals / np.linalg.norm(normals, axis=0)).astype(np.float32)


def to_rows(albedo: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """Albedo (S, H, W) and normals (S, H, W, 3) as rows (S, 4V)."""
    parts = [albedo[:, None], np.moveaxis(normals, -1, 1)]
    return np.concatenate(parts, axis=1).reshape(len(albedo), -1).astype(np.float32)


def from_rows(rows: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The opposite of `to_rows`."""
    parts = rows.reshape(len(rows), 4, *shape)
    return parts[:, 0], np.moveaxis(parts[:, 1:], 1, -1)


def augment(rows: np.ndarray, shape: Shape, copies: int, shift: int, mirrored: bool, seed: int) -> np.ndarray:
    """`copies` of each row, moved at random by up to ±`shift` pixels, and where asked for their mirror images."""
    albedo, normals = from_rows(rows, shape)
    if shift:
        albedo, normals = random_translations(albedo, normals, copies, shift, seed)
    moved = to_rows(albedo, normals)
    return np.concatenate([moved, to_rows(*mirror(albedo, normals))]) if mirrored else moved


def angles(one: np.ndarray, other: np.ndarray, axis: int = -2) -> np.ndarray:
    """Degrees between normals (..., 3, V) of any length, (..., V), or vectors along another `axis`."""
    lengths = np.linalg.norm(one, axis=axis) * np.linalg.norm(other, axis=axis)
    cosine = np.sum(one * other, axis=axis) / np.maximum(lengths, 1e-12)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))
