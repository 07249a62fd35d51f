"""Surfaces as rows x = [a, vec(N)] of training data, more of them from few, and the one that every object starts from.

Surfaces are `albedo` (S, H, W) and `normals` (S, H, W, 3), as inference returns them.
"""

import numpy as np

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


def random_translations(
    albedo: np.ndarray, normals: np.ndarray, copies: int, most: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """`copies` of every surface, each moved at random by at most ±`most` pixels, as in Sec. 4 of the paper."""
    if copies < 1 or most < 0:
        raise ValueError(f"expected at least one copy and a shift of at least 0, got {copies} and {most}")
    rng = np.random.default_rng(seed)
    count, (height, width) = len(albedo), albedo.shape[1:3]
    shifts = rng.integers(-most, most + 1, (copies, count, 2, 1))
    rows = np.clip(np.arange(height) - shifts[:, :, 0], 0, height - 1)[..., :, None]
    columns = np.clip(np.arange(width) - shifts[:, :, 1], 0, width - 1)[..., None, :]
    which = np.arange(count)[None, :, None, None]
    moved = albedo[which, rows, columns], normals[which, rows, columns]
    return moved[0].reshape(-1, height, width), moved[1].reshape(-1, height, width, 3)


def mirror(albedo: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left and right exchanged: pixels change places, and the normals' x changes its sign."""
    return albedo[:, :, ::-1], normals[:, :, ::-1] * np.array([-1, 1, 1], normals.dtype)
