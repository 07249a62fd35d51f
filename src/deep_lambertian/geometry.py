"""Small vectors and matrices: angles in degrees, between vectors and of a light as a viewer tells them (x right, y up,
z towards the viewer); least squares, row by row; and Cholesky factors of small symmetric matrices, many at a time.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The upper triangle of a symmetric 3×3 matrix, row by row.
TRIANGLE = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
RIDGE = 1e-9


def direction(azimuth: float, elevation: float) -> np.ndarray:
    """The unit vector to a light, from degrees to the right of the viewer and above: (0, 0) is the viewer's place."""
    a, e = np.radians([azimuth, elevation])
    return np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)], np.float32)


def around(count: int, tilt: float = 45.0) -> list[np.ndarray]:
    """`count` unit vectors to lights that go once round the viewer, `tilt` degrees off."""
    turns, t = 2 * np.pi * np.arange(count) / count, np.radians(tilt)
    return [np.array([np.sin(t) * np.sin(a), np.sin(t) * np.cos(a), np.cos(t)], np.float32) for a in turns]


def angles_of(light: Any) -> tuple[float, float]:
    """Azimuth and elevation of a light in degrees: the opposite of `direction`."""
    x, y, z = np.asarray(light, np.float64) / max(float(np.linalg.norm(light)), 1e-12)
    return float(np.degrees(np.arctan2(x, z))), float(np.degrees(np.arcsin(np.clip(y, -1, 1))))


def angles(one: np.ndarray, other: np.ndarray, axis: int = -2) -> Any:
    """Degrees between normals (..., 3, V) of any length, (..., V), or between vectors along another `axis`."""
    lengths = np.linalg.norm(one, axis=axis) * np.linalg.norm(other, axis=axis)
    cosine = np.sum(one * other, axis=axis) / np.maximum(lengths, 1e-12)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1 along the last axis; zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def least_squares(design: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Coefficients (N, R) of rows of values (N, V), each with weights (N, V) of its own, by one design (V, R) or one
    for each row (N, V, R).

    A ridge too small to matter keeps a row in which nothing counts from stopping all others.
    """
    rank = design.shape[-1]
    if design.ndim == 2:
        outer = np.einsum("vi,vj->vij", design, design).reshape(-1, rank**2)
        system, right = (weights @ outer).reshape(-1, rank, rank), (weights * values) @ design
    else:
        weighted = design * weights[..., None]
        system, right = weighted.swapaxes(1, 2) @ design, (values[:, None] @ weighted)[:, 0]
    ridged = system.astype(np.float64) + RIDGE * np.eye(rank)
    return np.linalg.solve(ridged, right[..., None])[..., 0].astype(values.dtype)


# ---- Small matrices, written out: they fuse with what surrounds them and run on any device, while LAPACK's factors are
# made for one matrix at a time.


def outer_triangle(vectors: Float[Array, "3 K"]) -> Float[Array, "6 K"]:
    """The six distinct elements of each vector's outer product with itself."""
    return jnp.stack([vectors[i] * vectors[j] for i, j in TRIANGLE])


def cholesky3(triangle: Float[Array, "*batch 6"]) -> Float[Array, "*batch 3 3"]:
    """Lower factors of the matrices whose upper triangles are given."""
    m00, m01, m02, m11, m12, m22 = jnp.moveaxis(triangle, -1, 0)
    l00 = jnp.sqrt(m00)
    l10, l20 = m01 / l00, m02 / l00
    # Rounding may take a pivot below 0 where the data outweigh the prior a million times: keep it positive.
    l11 = jnp.sqrt(jnp.maximum(m11 - l10 * l10, 1e-7 * m11))
    l21 = (m12 - l20 * l10) / l11
    l22 = jnp.sqrt(jnp.maximum(m22 - l20 * l20 - l21 * l21, 1e-7 * m22))
    zero = jnp.zeros_like(l00)
    rows = [l00, zero, zero, l10, l11, zero, l20, l21, l22]
    return jnp.stack(rows, axis=-1).reshape(*triangle.shape[:-1], 3, 3)


def solve_lower(factor: Float[Array, "*batch 3 3"], right: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """x with factor·x = right."""
    x0 = right[..., 0] / factor[..., 0, 0]
    x1 = (right[..., 1] - factor[..., 1, 0] * x0) / factor[..., 1, 1]
    x2 = (right[..., 2] - factor[..., 2, 0] * x0 - factor[..., 2, 1] * x1) / factor[..., 2, 2]
    return jnp.stack([x0, x1, x2], axis=-1)


def solve_lower_t(factor: Float[Array, "*batch 3 3"], right: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """x with factorᵀ·x = right."""
    x2 = right[..., 2] / factor[..., 2, 2]
    x1 = (right[..., 1] - factor[..., 2, 1] * x2) / factor[..., 1, 1]
    x0 = (right[..., 0] - factor[..., 1, 0] * x1 - factor[..., 2, 0] * x2) / factor[..., 0, 0]
    return jnp.stack([x0, x1, x2], axis=-1)


def cholesky(matrix: Float[Array, "N N *batch"]) -> Float[Array, "N N *batch"]:
    """Lower factors of symmetric positive definite matrices, whose elements come first."""
    size = len(matrix)
    zero = jnp.zeros_like(matrix[0, 0])
    rows = [[zero] * size for _ in range(size)]
    for j in range(size):
        for i in range(j, size):
            rest = matrix[i, j] - sum((rows[i][k] * rows[j][k] for k in range(j)), zero)
            rows[i][j] = jnp.sqrt(jnp.maximum(rest, 1e-7 * matrix[i, i])) if i == j else rest / rows[j][j]
    return jnp.stack([jnp.stack(row) for row in rows])


def invert_lower(factor: Float[Array, "N N *batch"]) -> Float[Array, "N N *batch"]:
    """The inverses, lower as well, of such factors."""
    size = len(factor)
    zero = jnp.zeros_like(factor[0, 0])
    rows = [[zero] * size for _ in range(size)]
    for j in range(size):
        rows[j][j] = 1 / factor[j, j]
        for i in range(j + 1, size):
            rows[i][j] = -sum((factor[i, k] * rows[k][j] for k in range(j, i)), zero) / factor[i, i]
    return jnp.stack([jnp.stack(row) for row in rows])


def multiply(matrix: Float[Array, "N M *batch"], vector: Float[Array, "M *batch"]) -> Float[Array, "N *batch"]:
    """Small matrices times small vectors, whose elements come first."""
    return sum((matrix[:, j] * vector[j][None] for j in range(1, matrix.shape[1])), matrix[:, 0] * vector[0][None])
