"""The conditional distributions of Sec. 3.2, each derived from the joint energy, Eq. 6.

Every pixel of every image counts by its weight w_ip in [0, 1]: a mask is the special case of 0 and 1, and an image
that is missing has weight 0 throughout. Conditional 1 is the prior's own `sample_hidden`. Where the paper's text
misprints a formula (conditional 3's linear term is Λμ_ℓ, conditional 4's lacks its n_i), the energy decides.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The upper triangle of a symmetric 3×3 matrix, row by row.
TRIANGLE = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def outer_triangle(vectors: jax.Array) -> jax.Array:
    """The six distinct elements of each vector's outer product with itself: (3, K) to (6, K)."""
    return jnp.stack([vectors[i] * vectors[j] for i, j in TRIANGLE])


def albedo_conditional(
    images: jax.Array,
    weights: jax.Array,
    shading: jax.Array,
    noise_var: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Conditional 2: mean and variance of a_i, given the prior's top-down `mean` φ_i and `variance` σ_ai²."""
    weighted = weights * shading
    precision = jnp.sum(weighted * shading, axis=0) / noise_var + 1 / variance
    linear = jnp.sum(weighted * images, axis=0) / noise_var + mean / variance
    return linear / precision, 1 / precision


def light_conditional(
    images: jax.Array,
    weights: jax.Array,
    scaled_normals: jax.Array,
    noise_var: jax.Array,
    light_mean: jax.Array,
    light_precision: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Conditional 3: mean (P, 3) of each ℓ_p, and the lower Cholesky factor (P, 3, 3) of its precision."""
    prior = jnp.stack([light_precision[i, j] for i, j in TRIANGLE])
    per_noise = weights / noise_var[None]
    precision = prior[None] + per_noise @ outer_triangle(scaled_normals).T
    linear = (light_precision @ light_mean)[None] + (per_noise * images) @ scaled_normals.T
    factor = cholesky3(precision)
    return solve_lower_t(factor, solve_lower(factor, linear)), factor


class NormalsQuadratic(NamedTuple):
    """E(n_i) = ½ nᵀ A n − bᵀ n + η/2 (nᵀn − 1)²: the six elements of A (6, V) and the three of b (3, V).

    Components lie apart, in rows, so that the sampler's loop over pixels runs through contiguous memory.
    """

    quadratic: jax.Array
    linear: jax.Array


def normals_conditional(
    images: jax.Array,
    weights: jax.Array,
    albedo: jax.Array,
    lights: jax.Array,
    noise_var: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
) -> NormalsQuadratic:
    """Conditional 4, all but its norm term, given the prior's top-down `mean` and `variance`, both (3, V)."""
    per_noise = albedo / noise_var
    quadratic = (outer_triangle(lights.T) @ weights) * (albedo * per_noise)[None]
    linear = (lights.T @ (weights * images)) * per_noise[None] + mean / variance
    diagonal = jnp.array([k for k, (i, j) in enumerate(TRIANGLE) if i == j])
    return NormalsQuadratic(quadratic.at[diagonal].add(1 / variance), linear)


# Cholesky factors of 3×3 matrices, many at a time. Written out, they fuse with what surrounds them and run
# on any device; LAPACK's are called one matrix at a time.


def cholesky3(triangle: jax.Array) -> jax.Array:
    """Lower factor (..., 3, 3) of the symmetric matrices whose upper triangles (..., 6) are given."""
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


def solve_lower(factor: jax.Array, right: jax.Array) -> jax.Array:
    """x with factor·x = right, for (..., 3, 3) and (..., 3)."""
    x0 = right[..., 0] / factor[..., 0, 0]
    x1 = (right[..., 1] - factor[..., 1, 0] * x0) / factor[..., 1, 1]
    x2 = (right[..., 2] - factor[..., 2, 0] * x0 - factor[..., 2, 1] * x1) / factor[..., 2, 2]
    return jnp.stack([x0, x1, x2], axis=-1)


def solve_lower_t(factor: jax.Array, right: jax.Array) -> jax.Array:
    """x with factorᵀ·x = right."""
    x2 = right[..., 2] / factor[..., 2, 2]
    x1 = (right[..., 1] - factor[..., 2, 1] * x2) / factor[..., 1, 1]
    x0 = (right[..., 0] - factor[..., 1, 0] * x1 - factor[..., 2, 0] * x2) / factor[..., 0, 0]
    return jnp.stack([x0, x1, x2], axis=-1)
