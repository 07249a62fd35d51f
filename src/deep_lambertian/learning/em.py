"""Algorithm 1 as two functions: the E-step, which samples surfaces and lights given the images, and the M-step.

The E-step returns sums over objects; the M-step makes parameters of them. Lights are not given: a start common to all
objects and the learned priors fix what images alone leave open (`surfaces.dome`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference import chain
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.inference.shadows import shadow_weights
from deep_lambertian.learning.augmentation import Shape, augment, dome
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.prior import learn_prior
from deep_lambertian.learning.seeds import seed_of
from deep_lambertian.surface import Surface, on_sphere, render

Chains = dict[str, Any]  # where each object's chain stands: albedo (S, V), normals (S, 3, V), lights (S, P, 3), steps


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stats:
    """Sums over objects, and over the kept samples of each, that maximum likelihood needs (step 6).

    `squares` Σ w (v − a n·ℓ)² and `weight` Σ w of each pixel (V,); of the lights their number, sum and outer products.
    """

    squares: Any
    weight: Any
    lights: Any
    light_sum: Any
    light_outer: Any


@dataclass(frozen=True)
class Expected:
    """What an E-step found: chains to go on from, posterior means, samples (S, K, 4V) of the surfaces, and sums."""

    chains: Chains
    mean: np.ndarray  # (S, 4V), normals of unit length
    lights: np.ndarray  # (S, P, 3)
    samples: np.ndarray
    stats: Stats
    monitors: dict[str, float]


def start_params(prior: Any, config: Config, pixels: int) -> Params:
    """The parameters before the first E-step."""
    return Params(
        prior=prior,
        noise_var=jnp.full(pixels, config.noise_start, jnp.float32),
        light_mean=jnp.asarray(config.light_start, jnp.float32),
        light_precision=config.light_precision * jnp.eye(3),
        norm_stiffness=jnp.float32(config.norm_stiffness),
    )


def start_chains(params: Params, config: Config, objects: int, shape: Shape, lights: np.ndarray | None) -> Chains:
    """All objects alike: the dome of normals, the albedo that the prior expects, light as conditional 3 then has it."""
    pixels = shape[0] * shape[1]
    chains: Chains = {
        "albedo": np.tile(np.asarray(params.prior.centre)[:pixels], (objects, 1)),
        "normals": np.tile(dome(shape), (objects, 1, 1)),
    }
    return chains if lights is None else chains | {"lights": lights}


def e_step(
    params: Params, data: Observation, there: np.ndarray, chains: Chains, config: Config, iteration: int, train: int
) -> Expected:
    """Step 3 for all S objects: sweep on from where their chains stand. Sums are over the first `train` of them.

    `there` (S, P) tells which images there are.
    """
    sampler = config.e_step
    keep = min(config.keep, sampler.iterations - sampler.burn_in)  # a slot for each sweep at most
    found = chain.run(
        params,
        data,
        replace(sampler, keep=keep),
        seed=seed_of(config.seed, "e-step", iteration),
        given=jax.tree.map(jnp.asarray, chains),
        known=frozenset(["lights"]) if config.known_lights else frozenset(),
    )
    kept = {name: jnp.asarray(value[:, 0]) for name, value in found.kept.items()}
    state = jax.tree.map(lambda x: x[:, 0], found.state)
    mean = Surface(found.mean["albedo"][:, 0], np.asarray(jax.vmap(on_sphere)(found.mean["directions"][:, 0])))
    observed, present, samples = jax.tree.map(lambda x: x[:train], (data, jnp.asarray(there, jnp.float32), kept))
    return Expected(
        chains={
            "albedo": state.surface.albedo,
            "normals": state.surface.normals,
            "lights": state.lights,
            "step_size": state.step_size,
        },
        mean=mean.pack(),
        lights=found.mean["lights"][:, 0],
        samples=np.asarray(Surface(kept["albedo"], kept["normals"]).pack()),
        stats=jax.tree.map(np.asarray, sums(observed, present, samples, sampler)),
        monitors={
            "energy": float(found.trace["energy"][:, 0, -1].mean()),
            "residual": float(found.trace["residual"][:, 0, -1].mean()),
            "acceptance": float(found.mean["acceptance"].mean()),
        },
    )


@partial(jax.jit, static_argnames="sampler")
def sums(data: Observation, there: jax.Array, kept: dict[str, jax.Array], sampler: Sampler) -> Stats:
    """The sums over objects (S, ...) and their kept samples (S, K, ...)."""

    def one(data: Observation, there: jax.Array, kept: dict[str, jax.Array]) -> Stats:
        def sample(albedo: jax.Array, normals: jax.Array, lights: jax.Array) -> Stats:
            predicted, weights = render(Surface(albedo, normals), lights), data.weights
            if sampler.shadow is not None:  # the noise of the pixels that the sampler believed
                weights = shadow_weights(sampler.shadow, data, predicted)
            return Stats(
                jnp.sum(weights * (data.images - predicted) ** 2, axis=0),
                jnp.sum(weights, axis=0),
                jnp.sum(there),
                there @ lights,
                (lights * there[:, None]).T @ lights,
            )

        return _total(jax.vmap(sample)(kept["albedo"], kept["normals"], kept["lights"]))

    return _total(jax.vmap(one)(data, there, kept))


def _total(stats: Stats) -> Stats:
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), stats)


def m_step(params: Params, stats: Stats, config: Config) -> Params:
    """Step 6: maximum likelihood for σ_v², μ_ℓ and Λ, kept proper by their floors.

    A pixel that no image shows keeps the average noise of the others.
    """
    squares, weight = np.asarray(stats.squares, np.float64), np.asarray(stats.weight, np.float64)
    usual = squares.sum() / max(weight.sum(), 1e-9)
    noise = np.where(weight > 1e-6, squares / np.maximum(weight, 1e-6), usual)
    mean = np.asarray(stats.light_sum, np.float64) / stats.lights
    covariance = np.asarray(stats.light_outer, np.float64) / stats.lights - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    precision = (vectors / np.maximum(values, config.light_floor)) @ vectors.T
    return replace(
        params,
        noise_var=jnp.asarray(np.maximum(noise, config.noise_floor), jnp.float32),
        light_mean=jnp.asarray(mean, jnp.float32),
        light_precision=jnp.asarray((precision + precision.T) / 2, jnp.float32),
    )


def prior_step(
    params: Params, mean: np.ndarray, samples: np.ndarray, config: Config, shape: Shape, iteration: int, train: int
) -> tuple[Params, dict[str, float]]:
    """Steps 4 and 5 on the first `train` objects, the others being what contrastive divergence holds out."""
    rows = mean if config.rows == "mean" else samples.reshape(-1, samples.shape[-1])
    each = len(rows) // len(mean)
    seen, unseen = rows[: train * each], rows[train * each :]
    seed = seed_of(config.seed, "augment", iteration)
    seen = augment(seen, shape, config.copies, config.shift, config.mirror, seed)
    held_out = unseen if len(unseen) else None
    prior, monitors = learn_prior(params.prior, seen, config, shape, iteration, held_out)
    return replace(params, prior=prior), monitors
