"""The E-step of Algorithm 1 (step 3): surfaces and lights are sampled given the images.

It returns sums over objects, of which `m_step` makes parameters. Lights are not given: a start common to all objects
and the learned priors fix what images alone leave open (`augmentation.dome`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params
from deep_lambertian.geometry import angles
from deep_lambertian.inference import chain
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.learning.augmentation import dome
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.shared_lights import align
from deep_lambertian.learning.task import Task
from deep_lambertian.surface import Surface, on_sphere, render

Numbers = jax.Array | np.ndarray
Chains = dict[str, Any]  # where each object's chain stands: albedo (S, V), normals (S, 3, V), lights (S, P, 3), steps


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stats:
    """Sums over objects, and over the kept samples of each, that maximum likelihood needs (step 6).

    `squares` Σ w (v − a n·ℓ)² and `weight` Σ w of each pixel (V,); of the lights their number, sum and outer products;
    `dark_sum` Σ v and `dark` the number of pixels in shadow.
    """

    squares: Float[Numbers, " V"]
    weight: Float[Numbers, " V"]
    lights: Float[Numbers, ""]
    light_sum: Float[Numbers, "3"]
    light_outer: Float[Numbers, "3 3"]
    dark_sum: Float[Numbers, ""]
    dark: Float[Numbers, ""]


@dataclass(frozen=True)
class Expected:
    """What an E-step found: chains to go on from, posterior means, samples (S, K, 4V) of the surfaces, and sums."""

    chains: Chains
    mean: np.ndarray  # (S, 4V), normals of unit length
    lights: np.ndarray  # (S, P, 3)
    samples: np.ndarray
    stats: Stats
    monitors: dict[str, float]


def start_chains(params: Params, task: Task) -> Chains:
    """All objects alike: the dome of normals, the albedo that the prior expects, light as conditional 3 then has it."""
    objects, albedo = len(task.names), np.asarray(params.prior.centre)[: params.pixels]
    chains: Chains = {"albedo": np.tile(albedo, (objects, 1)), "normals": np.tile(dome(task.shape), (objects, 1, 1))}
    return chains if task.lights is None else chains | {"lights": task.lights}


def e_step(params: Params, task: Task, chains: Chains, config: Config, iteration: int, train: int) -> Expected:
    """Step 3 for all S objects: sweep on from where their chains stand. Sums are over the first `train` of them."""
    sampler = config.e_step
    keep = min(config.keep, sampler.iterations - sampler.burn_in)  # a slot for each sweep at most
    found = chain.run(
        params,
        task.data,
        replace(sampler, keep=keep),
        seed=seed_of(config.seed, "e-step", iteration),
        given=jax.tree.map(jnp.asarray, chains),
        known=frozenset(["lights"]) if config.known_lights else frozenset(),
    )
    tilt = {}
    if task.rig is not None:
        found, maps = align(found, task.rig, rotate=config.shared_lights == "rotation")
        tilt = {"tilt_deg": float(angles(maps[:, :, 2], np.eye(3)[2], axis=-1).mean())}
    kept = {name: jnp.asarray(value[:, 0]) for name, value in found.kept.items()}
    state = jax.tree.map(lambda x: x[:, 0], found.state)
    directions = jnp.asarray(found.mean["directions"][:, 0])
    mean = Surface(found.mean["albedo"][:, 0], np.asarray(jax.vmap(on_sphere)(directions)))
    each = task.data, jnp.asarray(task.there, jnp.float32), kept, jnp.asarray(state.proportions)
    taught = jax.tree.map(lambda x: x[:train], each)
    return Expected(
        chains=vars(state.surface) | {"lights": state.lights, "step_size": state.step_size},
        mean=mean.pack(),
        lights=found.mean["lights"][:, 0],
        samples=np.asarray(Surface(kept["albedo"], kept["normals"]).pack()),
        stats=jax.tree.map(np.asarray, sums(params, *taught, sampler)),
        monitors={
            "energy": float(found.trace["energy"][:, 0, -1].mean()),
            "residual": float(found.trace["residual"][:, 0, -1].mean()),
            "acceptance": float(found.mean["acceptance"].mean()),
            **tilt,
        },
    )


@partial(jax.jit, static_argnames="sampler")
def sums(
    params: Params,
    data: Observation,
    there: Float[Array, "S P"],
    kept: dict[str, jax.Array],
    proportions: Float[Array, "S P 3"],
    sampler: Sampler,
) -> Stats:
    """The sums over objects (S, ...) and their kept samples (S, K, ...)."""

    def one(data: Observation, there: jax.Array, kept: dict[str, jax.Array], proportions: jax.Array) -> Stats:
        def sample(albedo: Float[Array, " V"], normals: Float[Array, "3 V"], lights: Float[Array, "P 3"]) -> Stats:
            predicted = render(Surface(albedo, normals), lights)
            weights, dark = data.weights, jnp.zeros_like(data.weights)
            if sampler.shadow is not None:  # by the probabilities of the labels, which tell more than a draw
                shares = jax.nn.softmax(sampler.shadow.logits(params, data, predicted, proportions), axis=0)
                weights, dark = shares[0] * data.weights, shares[1] * data.weights
            return Stats(
                jnp.sum(weights * (data.images - predicted) ** 2, axis=0),
                jnp.sum(weights, axis=0),
                jnp.sum(there),
                there @ lights,
                (lights * there[:, None]).T @ lights,
                jnp.sum(dark * jnp.maximum(data.images, 0)),
                jnp.sum(dark),
            )

        return _total(jax.vmap(sample)(kept["albedo"], kept["normals"], kept["lights"]))

    return _total(jax.vmap(one)(data, there, kept, proportions))


def _total(stats: Stats) -> Stats:
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), stats)
