"""The prior's part of Algorithm 1: where it starts, and steps 4 and 5, learning it from surfaces."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Params
from deep_lambertian.learning.augmentation import Shape, augment, dome
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.covariance import principal, to_gaussian, to_grbm
from deep_lambertian.learning.pretraining import go_up, learn_net
from deep_lambertian.learning.scores import DEAD, SATURATED
from deep_lambertian.priors import DBN, GRBM, Gaussian, Product
from deep_lambertian.support import draws


def start_prior(config: Config, shape: Shape, albedo: DBN | None = None) -> Any:
    """What is believed before the first E-step: about the common start, plainly.

    A random start has its hidden units from the first, with weights ~ N(0, 0.01²) and σ² = 1 in units of the spread
    that is expected of albedo and normals, and the `albedo` net that has been learned from faces, if any (steps 1 and 2
    of Algorithm 1). With σ² = 1 as it stands, the first E-step forgets the start that all objects share.
    """
    pixels = shape[0] * shape[1]
    centre = np.concatenate([np.full(pixels, config.albedo_start), dome(shape).ravel()])
    spread = np.repeat([config.albedo_variance, config.normals_variance], [pixels, 3 * pixels])
    if config.start == "covariance":
        return Gaussian.diagonal(jnp.asarray(centre, jnp.float32), jnp.asarray(spread, jnp.float32))

    def net(part: str, rows: slice, sizes: tuple[int, ...]) -> DBN:
        key = draws.make_key(seed_of(config.seed, part))
        found = DBN.random(key, len(centre[rows]), sizes)
        deviation = jnp.sqrt(jnp.asarray(spread[rows], jnp.float32))  # σ² = 1 in units of what is expected to vary
        base = replace(
            found.base,
            bias=jnp.asarray(centre[rows], jnp.float32),
            weights=found.base.weights / deviation[:, None],
            variance=deviation**2,
        )
        return replace(found, base=base, top_weight=config.top_weight)

    if config.prior == "joint":
        return net("joint", slice(None), config.joint_hidden)
    if albedo is None:
        albedo = net("albedo", slice(pixels), config.albedo_hidden)
    return Product(
        replace(albedo, top_weight=config.top_weight), net("normals", slice(pixels, None), config.normals_hidden)
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


def learn_prior(
    old: Any, rows: np.ndarray, config: Config, shape: Shape, iteration: int, held_out: np.ndarray | None = None
) -> tuple[Any, dict[str, float]]:
    """Steps 4 and 5: the prior that surfaces (N, 4V) teach, and what contrastive divergence has to say about it."""
    seed = seed_of(config.seed, "prior", iteration)
    if config.prior == "joint":
        return _learn_part(old, rows, config, shape, iteration, seed, held_out, "")
    pixels = shape[0] * shape[1]
    parts, monitors = {}, {}
    for name, columns in (("albedo", slice(pixels)), ("normals", slice(pixels, None))):
        unseen = None if held_out is None else held_out[:, columns]
        before = getattr(old, name, None)
        parts[name], found = _learn_part(
            before, rows[:, columns], config, shape, iteration, seed_of(seed, name), unseen, f"{name}."
        )
        monitors |= found
    return Product(**parts), monitors


def _learn_part(
    old: Any,
    rows: np.ndarray,
    config: Config,
    shape: Shape,
    iteration: int,
    seed: int,
    held_out: np.ndarray | None,
    name: str,
) -> tuple[Any, dict[str, float]]:
    if config.start == "random":
        layers, history = learn_net(rows, config.cd, seed, (old.base, *old.layers), held_out=held_out)
        return as_net(layers, config), last_epochs(history, name)
    found = principal(rows, shape, config.covariance)
    monitors = {f"{name}directions": float(len(found.values))}
    if iteration < config.gaussian_iterations:
        return to_gaussian(found), monitors
    grbm = to_grbm(found, config.covariance.weight)
    monitors |= _activity(grbm, rows, name)
    if not config.upper:
        return grbm, monitors
    seen = np.asarray(go_up(grbm, jnp.asarray(rows)))
    above, history = learn_net(seen, config.cd, seed, config.upper)
    return as_net((grbm, *above), config), monitors | last_epochs(history, name)


def as_net(layers: tuple[Any, ...], config: Config) -> DBN:
    return DBN(layers[0], layers[1:], top_weight=config.top_weight)


def last_epochs(history: list[dict[str, float]], name: str) -> dict[str, float]:
    """Of every layer the monitors of its last epoch, under names such as `normals.layer1.dead`."""
    last = {int(h["layer"]): h for h in history}
    return {
        f"{name}layer{layer}.{what}": value
        for layer, found in last.items()
        for what, value in found.items()
        if what not in ("epoch", "layer")
    }


def _activity(grbm: GRBM, rows: np.ndarray, name: str) -> dict[str, float]:
    """The shares of hidden units that are nearly always off, or on, for all of the surfaces."""
    mean = np.asarray(jnp.mean(go_up(grbm, jnp.asarray(rows)), axis=0))
    if not mean.size:
        return {}
    return {
        f"{name}layer1.dead": float(np.mean(mean < DEAD)),
        f"{name}layer1.saturated": float(np.mean(mean > SATURATED)),
    }
