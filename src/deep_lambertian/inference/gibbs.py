"""One Gibbs sweep over a DLN's latent variables: the four conditionals of Sec. 3.2 in turn."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from deep_lambertian.energy import Observation, Params, joint_energy
from deep_lambertian.inference.conditionals import (
    albedo_conditional,
    light_conditional,
    normals_conditional,
    solve_lower_t,
)
from deep_lambertian.inference.gauge import gauge_move
from deep_lambertian.inference.hmc import hmc
from deep_lambertian.inference.sampler import Block, Sampler, ShadowWeights
from deep_lambertian.support import draws
from deep_lambertian.surface import pack, render, scale_normals, shading, unpack


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What the chain needs: the latent variables, and HMC's step size at each pixel."""

    albedo: jax.Array  # (V,)
    normals: jax.Array  # (3, V)
    lights: jax.Array  # (P, 3)
    hidden: Any
    step_size: jax.Array  # (V,)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Info:
    """What a person wants to see of a sweep."""

    energy: jax.Array  # (), Eq. 6
    residual: jax.Array  # (), root mean square of v − a n·ℓ over the pixels that count
    acceptance: jax.Array  # (V,)


def start(
    params: Params,
    data: Observation,
    sampler: Sampler,
    albedo: jax.Array | None = None,
    normals: jax.Array | None = None,
    lights: jax.Array | None = None,
    step_size: jax.Array | None = None,
) -> State:
    """The surface at the prior's visible biases, the lights where conditional 3 then expects them.

    A block given by the caller starts there instead (and stays there if it is clamped).
    """
    bias_albedo, bias_normals = unpack(params.prior.centre)
    if sampler.start == "sphere":
        bias_normals = on_sphere(bias_normals)
    albedo = bias_albedo if albedo is None else albedo
    normals = bias_normals if normals is None else normals
    if lights is None:
        lights, _ = light_conditional(
            data.images,
            data.weights,
            scale_normals(albedo, normals),
            params.noise_var,
            params.light_mean,
            params.light_precision,
        )
    hidden = params.prior.mean_hidden(pack(albedo, normals))
    if step_size is None:
        step_size = jnp.full_like(albedo, sampler.step_size)
    return State(albedo, normals, lights, hidden, step_size)


def on_sphere(normals: jax.Array) -> jax.Array:
    """Normals of unit length; one of no length faces the viewer."""
    length = jnp.sqrt(jnp.sum(normals * normals, axis=0, keepdims=True))
    ahead = jnp.broadcast_to(jnp.array([[0.0], [0.0], [1.0]]), normals.shape)
    return jnp.where(length > 1e-6, normals / jnp.maximum(length, 1e-6), ahead)


def shadow_weights(options: ShadowWeights, images: jax.Array, predicted: jax.Array, weights: jax.Array) -> jax.Array:
    """How far each pixel of each image is to be believed, times the weight it was given."""
    lit = (images > options.dark) & (predicted > options.unlit)
    trust = lit.astype(images.dtype) / (1 + ((images - predicted) / options.scale) ** 2)
    return weights * (options.floor + (1 - options.floor) * trust)


def step(
    key: jax.Array,
    params: Params,
    data: Observation,
    state: State,
    sampler: Sampler,
    clamped: frozenset[Block] = frozenset(),
    temperature: jax.Array | float = 1.0,
    adapt_rate: jax.Array | float = 0.0,
) -> tuple[State, Info]:
    """Conditionals 1 to 4, each block that is not clamped drawn given all the others.

    `temperature` multiplies the noise variance; `adapt_rate` is how fast log step sizes follow the acceptance.
    """
    hidden_key, albedo_key, light_key, normals_key, gauge_key = draws.split(key, 5)
    prior, noise_var = params.prior, params.noise_var * temperature
    albedo, normals, lights, hidden = state.albedo, state.normals, state.lights, state.hidden
    images, weights = data.images, data.weights
    if sampler.shadow is not None:
        weights = shadow_weights(sampler.shadow, images, render(albedo, normals, lights), weights)

    if not clamped:  # a known block fixes the gauge
        for move in range(sampler.gauge_moves):
            albedo, normals, lights = gauge_move(draws.fold_in(gauge_key, move), params, albedo, normals, lights)

    if "hidden" not in clamped:
        surface = pack(albedo, normals)
        sampled = sampler.hidden == "sample"
        hidden = prior.sample_hidden(hidden_key, surface) if sampled else prior.mean_hidden(surface)
    mean, variance = (x.reshape(4, -1) for x in prior.top_down(hidden))

    if "albedo" not in clamped:
        s = shading(normals, lights)
        centre, spread = albedo_conditional(images, weights, s, noise_var, mean[0], variance[0])
        albedo = centre + jnp.sqrt(spread) * draws.normal(albedo_key, centre.shape)

    if "lights" not in clamped:
        centre, factor = light_conditional(
            images,
            weights,
            scale_normals(albedo, normals),
            noise_var,
            params.light_mean,
            params.light_precision,
        )
        lights = centre + solve_lower_t(factor, draws.normal(light_key, centre.shape))

    step_size, acceptance = state.step_size, jnp.ones_like(albedo)
    if "normals" not in clamped:
        target = normals_conditional(images, weights, albedo, lights, noise_var, mean[1:], variance[1:])
        normals, acceptance = hmc(
            normals_key,
            target,
            params.norm_stiffness,
            step_size,
            normals,
            leapfrogs=sampler.leapfrogs,
            epochs=sampler.epochs,
            mass=sampler.mass,
        )
        if sampler.target_acceptance is not None:
            step_size = step_size * jnp.exp(adapt_rate * (acceptance - sampler.target_acceptance))

    state = State(albedo, normals, lights, hidden, step_size)
    seen = Observation(images, weights)
    squares = data.weights * (images - render(albedo, normals, lights)) ** 2
    residual = jnp.sqrt(jnp.sum(squares) / jnp.maximum(jnp.sum(data.weights), 1e-6))
    return state, Info(joint_energy(params, seen, albedo, normals, lights, hidden), residual, acceptance)
