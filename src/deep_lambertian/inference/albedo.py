r"""Conditional 2: the albedo, given all else, a Gaussian at every pixel.

$$p(a_i \mid \mathbf N, \mathbf L, \mathbf h, \mathbf V) = \mathcal N\!\left(a_i \,\middle|\, \frac{
  \sum_p w_{ip} s_{ip} v_{ip} / \sigma_{v_i}^2 + \phi_i / \sigma_{a_i}^2}{
  \sum_p w_{ip} s_{ip}^2 / \sigma_{v_i}^2 + 1 / \sigma_{a_i}^2},\
  \Bigl(\sum_p w_{ip} s_{ip}^2 / \sigma_{v_i}^2 + 1 / \sigma_{a_i}^2\Bigr)^{-1}\right)$$

with shading s = n·ℓ, and the mean φ and variance σ_a² that the prior's hidden variables predict.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.support import draws
from deep_lambertian.surface import Surface, shading


def albedo_conditional(
    images: Float[Array, "P V"],
    weights: Float[Array, "P V"],
    shading: Float[Array, "P V"],
    noise_var: Float[Array, " V"],
    mean: Float[Array, " V"],
    variance: Float[Array, " V"],
) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
    """Mean and variance of a_i, given the prior's top-down `mean` φ_i and `variance` σ_ai²."""
    weighted = weights * shading
    precision = jnp.sum(weighted * shading, axis=0) / noise_var + 1 / variance
    linear = jnp.sum(weighted * images, axis=0) / noise_var + mean / variance
    return linear / precision, 1 / precision


def draw_albedo(key: jax.Array, params: Params, data: Observation, state: State) -> State:
    """Draw the albedo of every pixel."""
    mean, variance = (Surface.unpack(x).albedo for x in params.prior.top_down(state.hidden))
    s = shading(state.surface.normals, state.lights)
    centre, spread = albedo_conditional(data.images, state.weights, s, params.noise_var, mean, variance)
    albedo = centre + jnp.sqrt(spread) * draws.normal(key, centre.shape)
    return replace(state, surface=replace(state.surface, albedo=albedo))
