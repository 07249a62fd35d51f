"""From the surface at the model's size to one at the photo's: the same conditionals, with that surface as the prior.

A pixel of the model covers many of the photo. Each of those starts from what the model found there and may depart from
it, its albedo by much and its normal by little, as far as the photo asks for it: the modes of conditionals 2 and 4 in
turn, with the lights as they were found. What lies in shadow in every photo stays as the model has it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Observation
from deep_lambertian.geometry import cholesky3, solve_lower, solve_lower_t
from deep_lambertian.inference.albedo import albedo_conditional
from deep_lambertian.inference.normals import NormalsQuadratic, normals_conditional
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.shadows import ShadowWeights, shadow_weights
from deep_lambertian.support import compiled
from deep_lambertian.support.resampling import enlarge_cubic
from deep_lambertian.surface import Shape, Surface, as_field, as_picture, render, shading

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
    shape = images.shape[1], images.shape[2]
    albedo, normals = np.maximum(enlarge_cubic(post.albedo, shape), 1e-3), enlarge_cubic(post.normals, shape)
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-6)
    seen = np.ones_like(images) if weights is None else np.broadcast_to(weights, images.shape)
    flat = [np.asarray(each, np.float32).reshape(len(images), -1) for each in (images, seen)]
    found = refinement(len(images), shape)(
        Observation(*flat), np.asarray(post.lights, np.float32), Surface.from_pictures(albedo, normals), rounds
    )
    return as_picture(found.albedo, shape), as_field(found.normals, shape)


def refinement(images: int, shape: Shape) -> compiled.Program:
    """The program of `refine` for so many images of this shape."""
    pixels = shape[0] * shape[1]
    sizes = (images, pixels), (images, pixels), (images, 3), (pixels,), (3, pixels)
    pictures, weights, lights, albedo, normals = (jax.ShapeDtypeStruct(size, np.float32) for size in sizes)
    return compiled.program(_modes, Observation(pictures, weights), lights, Surface(albedo, normals), 0, quick=True)


def _modes(data: Observation, lights: jax.Array, centre: Surface, rounds: jax.Array) -> Surface:
    """The most likely albedo and unit normals about their prior means, one after the other."""
    noise_var = jnp.full_like(centre.albedo, NOISE_VAR)
    albedo_var = jnp.full_like(centre.albedo, ALBEDO_STD**2)
    normals_var = jnp.full_like(centre.normals, NORMALS_STD**2)

    def turn(_: jax.Array, surface: Surface) -> Surface:
        trust = shadow_weights(SHADOW, data, render(surface, lights))
        s = shading(surface.normals, lights)
        albedo, _ = albedo_conditional(data.images, trust, s, noise_var, centre.albedo, albedo_var)
        albedo = jnp.maximum(albedo, 1e-3)
        believed = Observation(data.images, trust)
        target = normals_conditional(believed, albedo, lights, noise_var, centre.normals, normals_var)
        return Surface(albedo, _newton(target, surface.normals))

    found = jax.lax.fori_loop(0, rounds, turn, centre)
    return Surface(found.albedo, found.normals / jnp.sqrt(jnp.sum(found.normals**2, axis=0, keepdims=True)))


def _newton(target: NormalsQuadratic, normals: jax.Array) -> jax.Array:
    """A step towards the mode of E(n) = ½ nᵀAn − bᵀn + η/2 (nᵀn − 1)² (conditional 4), for all pixels.

    Of the norm term's curvature only the part along n is taken, which is never negative.
    """
    x, y, z = normals
    a = target.quadratic
    product = jnp.stack([a[i] * x + a[j] * y + a[k] * z for i, j, k in ((0, 1, 2), (1, 3, 4), (2, 4, 5))])
    excess = x * x + y * y + z * z - 1
    gradient = product - target.linear + 2 * STIFFNESS * excess[None] * normals
    along = 4 * STIFFNESS * jnp.stack([x * x, x * y, x * z, y * y, y * z, z * z])
    factor = cholesky3((a + along).T)
    return normals - solve_lower_t(factor, solve_lower(factor, gradient.T)).T
