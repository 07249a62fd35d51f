"""More surfaces from few: translations, applied to albedo and normals together, and mirror images.

Arrays are `albedo` (S, H, W) and `normals` (S, H, W, 3), as inference returns them.
"""

import numpy as np


def translate(albedo: np.ndarray, normals: np.ndarray, dy: int, dx: int) -> tuple[np.ndarray, np.ndarray]:
    """All surfaces moved down by `dy` and right by `dx` pixels; what enters at the edge repeats the edge."""
    height, width = albedo.shape[1:3]
    rows = np.clip(np.arange(height) - dy, 0, height - 1)
    columns = np.clip(np.arange(width) - dx, 0, width - 1)
    return albedo[:, rows][:, :, columns], normals[:, rows][:, :, columns]


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
