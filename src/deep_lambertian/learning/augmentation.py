"""More surfaces from few: moved, and mirrored; and the shape that every object starts from."""

import numpy as np

from deep_lambertian.surface import Shape, Surface


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


def augment(rows: np.ndarray, shape: Shape, copies: int, shift: int, mirrored: bool, seed: int) -> np.ndarray:
    """`copies` of each row x = [a, vec(N)], moved at random by up to ±`shift` pixels, and their mirror images."""
    pictures = Surface.unpack(rows).pictures(shape)
    if shift:
        pictures = random_translations(*pictures, copies, shift, seed)
    all_of_them = (pictures, mirror(*pictures)) if mirrored else (pictures,)
    return np.concatenate([Surface.from_pictures(*each).pack() for each in all_of_them])


def random_translations(
    albedo: np.ndarray, normals: np.ndarray, copies: int, most: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """`copies` of albedo (S, H, W) and normals (S, H, W, 3), each moved by at most ±`most` pixels (Sec. 4)."""
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
