"""The prior's part of Algorithm 1: where it starts, and steps 4 and 5, learning it from surfaces."""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Params
from deep_lambertian.learning.augmentation import Shape, augment, dome
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.covariance import principal, to_gaussian
from deep_lambertian.learning.pretraining import learn_net
from deep_lambertian.priors import DBN, Gaussian, Prior, Product
from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import draws


def start_prior(config: Config, shape: Shape, albedo: DBN | None = None) -> Gaussian | DBN | Product:
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
    old: Prior, rows: np.ndarray, config: Config, shape: Shape, iteration: int, held_out: np.ndarray | None = None
) -> tuple[Prior, dict[str, float]]:
    """Steps 4 and 5: the prior that surfaces (N, 4V) teach, and what contrastive divergence has to say about it."""
    seed = seed_of(config.seed, "prior", iteration)
    if config.prior == "joint":
        return _learn_part(old, rows, config, shape, seed, held_out)
    pixels = shape[0] * shape[1]
    parts, monitors = {}, {}
    for name, columns in (("albedo", slice(pixels)), ("normals", slice(pixels, None))):
        unseen = None if held_out is None else held_out[:, columns]
        part = getattr(old, name, None)  # none before the first covariance
        parts[name], found = _learn_part(part, rows[:, columns], config, shape, seed_of(seed, name), unseen)
        monitors |= {f"{name}.{what}": value for what, value in found.items()}
    return Product(**parts), monitors


def _learn_part(
    old: Prior | None, rows: np.ndarray, config: Config, shape: Shape, seed: int, held_out: np.ndarray | None
) -> tuple[Gaussian | DBN, dict[str, float]]:
    if config.start == "covariance":
        found = principal(rows, shape, config.covariance)
        return to_gaussian(found), {"directions": float(len(found.values))}
    assert isinstance(old, DBN), old  # as `start_prior` and `as_net` make it
    layers, history = learn_net(rows, config.cd, seed, (old.base, *old.layers), held_out=held_out)
    return as_net(layers, config), last_epochs(history)


def as_net(layers: Sequence[RBM], config: Config) -> DBN:
    """Layers, lowest first, as a deep belief net."""
    base, *above = layers
    return DBN(base, tuple(above), top_weight=config.top_weight)  # type: ignore[arg-type]


def last_epochs(history: list[dict[str, float]]) -> dict[str, float]:
    """Of every layer the monitors of its last epoch, under names such as `layer1.dead`."""
    last = {int(h["layer"]): h for h in history}
    return {
        f"layer{layer}.{what}": value
        for layer, found in last.items()
        for what, value in found.items()
        if what not in ("epoch", "layer")
    }
