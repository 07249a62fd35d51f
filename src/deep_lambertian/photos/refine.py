"""From the surface at the model's size to one at the photo's: the same conditionals, with that surface as the prior.

A pixel of the model covers many of the photo. Each of those starts from what the model found there and may depart from
it, its albedo by much and its normal by little, as far as the photo asks for it: the modes of conditionals 2 and 4 in
turn, with the lights as they were found. What lies in shadow in every photo stays as the model has it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.inference.conditionals import (
    NormalsQuadratic,
    albedo_conditional,
    cholesky3,
    normals_conditional,
    solve_lower,
    solve_lower_t,
)
from deep_lambertian.inference.gibbs import shadow_weights
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.sampler import ShadowWeights
from deep_lambertian.support import compiled as traces
from deep_lambertian.support.resampling import enlarge_cubic
from deep_lambertian.surface import render, shading

ALBEDO_STD = 0.15  # how far the albedo of a photo's pixel may be from that of the model's pixel around it
NORMALS_STD = 0.1  # the same for each component of its normal: six degrees
NOISE_VAR = 1e-3
SHADOW = ShadowWeights(dark=0.0, floor=0.0)  # what is dark is mostly a pupil or a brow here: paint, not shadow
STIFFNESS = 100.0
ROUNDS = 12


def refine(
    post: Posterior, images: np.ndarray, weights: np.ndarray | None = None, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    """Albedo (h, w) and normals (h, w, 3) that explain images (P, h, w), of the brightness that the model saw."""
    shape = images.shape[1:]
    albedo, normals = np.maximum(enlarge_cubic(post.albedo, shape), 1e-3), enlarge_cubic(post.normals, shape)
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-6)
    seen = np.ones_like(images) if weights is None else np.broadcast_to(weights, images.shape)
    albedo, found = _compiled(len(images), albedo.size)(
        np.asarray(images.reshape(len(images), -1), np.float32),
        np.asarray(seen.reshape(len(images), -1), np.float32),
        np.asarray(post.lights, np.float32),
        np.asarray(albedo.reshape(-1), np.float32),
        np.asarray(normals.reshape(-1, 3).T, np.float32),
        rounds,
    )
    return np.asarray(albedo).reshape(shape), np.ascontiguousarray(np.asarray(found).T).reshape(*shape, 3)


def compile_refinement(images: int, shape: tuple[int, int]) -> None:
    """Begin to compile `refine`, in the background, for so many images of this shape."""
    _compiled(images, shape[0] * shape[1])


def _compiled(images: int, pixels: int) -> traces.Program:
    sizes = ((images, pixels), (images, pixels), (images, 3), (pixels,), (3, pixels))
    return traces.program(_modes, *(jax.ShapeDtypeStruct(size, np.float32) for size in sizes), 0, quick=True)


@jax.jit
def _modes(images, weights, lights, albedo_mean, normals_mean, rounds):
    """The most likely albedo (V,) and unit normals (3, V) about their prior means, one after the other."""
    noise_var = jnp.full_like(albedo_mean, NOISE_VAR)
    albedo_var, normals_var = jnp.full_like(albedo_mean, ALBEDO_STD**2), jnp.full_like(normals_mean, NORMALS_STD**2)

    def turn(_, surface):
        albedo, normals = surface
        trust = shadow_weights(SHADOW, images, render(albedo, normals, lights), weights)
        albedo, _ = albedo_conditional(images, trust, shading(normals, lights), noise_var, albedo_mean, albedo_var)
        albedo = jnp.maximum(albedo, 1e-3)
        target = normals_conditional(images, trust, albedo, lights, noise_var, normals_mean, normals_var)
        return albedo, _newton(target, normals)

    albedo, normals = jax.lax.fori_loop(0, rounds, turn, (albedo_mean, normals_mean))
    return albedo, normals / jnp.sqrt(jnp.sum(normals**2, axis=0, keepdims=True))


def _newton(target: NormalsQuadratic, normals: jax.Array) -> jax.Array:
    """A step towards the mode of E(n) = ½ nᵀAn − bᵀn + η/2 (nᵀn − 1)² (conditional 4), for all pixels.

    Of the norm term's curvature only the part along n is taken, which is never negative.
    """
    x, y, z = normals
    a = target.quadratic
    product = jnp.stack(
        [a[0] * x + a[1] * y + a[2] * z, a[1] * x + a[3] * y + a[4] * z, a[2] * x + a[4] * y + a[5] * z]
    )
    excess = x * x + y * y + z * z - 1
    gradient = product - target.linear + 2 * STIFFNESS * excess[None] * normals
    along = 4 * STIFFNESS * jnp.stack([x * x, x * y, x * z, y * y, y * z, z * z])
    factor = cholesky3((a + along).T)
    return normals - solve_lower_t(factor, solve_lower(factor, gradient.T)).T
