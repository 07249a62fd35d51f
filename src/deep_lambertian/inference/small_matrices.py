"""Cholesky factors of symmetric 3×3 matrices, many at a time.

Written out, they fuse with what surrounds them and run on any device; LAPACK's are called one matrix at a time.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

# The upper triangle of a symmetric 3×3 matrix, row by row.
TRIANGLE = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


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
