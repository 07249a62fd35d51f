r"""The M-step of Algorithm 1 (steps 4 to 6), and the parameters that it starts from (step 2).

The M-step moves the parameters along the gradient of the expected joint log-likelihood,

$$\Delta\theta = -\alpha \int p(a, N, L, h, g \mid V; \theta^{old})\,
  \frac{\partial}{\partial\theta} E(V, a, N, L, h, g; \theta) \qquad \text{(Eq. 9)}$$

the integral being a mean over the samples of the E-step. For noise and lights it can be followed to its end at once;
the prior learns from surfaces.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Params
from deep_lambertian.learning.augmentation import augment, dome
from deep_lambertian.learning.binary_units import learn_units
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.covariance import covariance_gaussian
from deep_lambertian.learning.e_step import Stats
from deep_lambertian.learning.pretraining import learn_net
from deep_lambertian.priors import DBN, GRBM, Gaussian, GaussianBinary, Prior, Product
from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import distributed, draws
from deep_lambertian.surface import Shape

LEAST_DARK = 100  # pixels in shadow, of which their mean can be learned


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
        found = DBN.random(draws.make_key(seed_of(config.seed, part)), len(centre[rows]), sizes)
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
    normals = net("normals", slice(pixels, None), config.normals_hidden)
    return Product(replace(albedo, top_weight=config.top_weight), normals)


def start_params(prior: Prior, config: Config, pixels: int) -> Params:
    """The parameters before the first E-step."""
    return Params(
        prior=prior,
        noise_var=jnp.full(pixels, config.noise_start, jnp.float32),
        light_mean=jnp.asarray(config.light_start, jnp.float32),
        light_precision=config.light_precision * jnp.eye(3),
        norm_stiffness=jnp.float32(config.norm_stiffness),
    )


def m_step(params: Params, stats: Stats, config: Config) -> Params:
    r"""Step 6: maximum likelihood for σ_v², μ_ℓ and Λ, where Eq. 9 is zero, kept proper by their floors.

    $$\sigma_{v_i}^2 = \frac{\sum w\,(v_i - a_i n_i^\top\ell)^2}{\sum w}, \qquad
      \mu_\ell = \frac1n \sum \ell, \qquad \Lambda^{-1} = \frac1n \sum \ell\ell^\top - \mu_\ell\mu_\ell^\top$$

    A pixel that no image shows keeps the average noise of the others. τ is the mean of the pixels in shadow, where
    there are any to speak of.
    """
    squares, weight = np.asarray(stats.squares, np.float64), np.asarray(stats.weight, np.float64)
    usual = squares.sum() / max(weight.sum(), 1e-9)
    noise = np.where(weight > 1e-6, squares / np.maximum(weight, 1e-6), usual)
    mean = np.asarray(stats.light_sum, np.float64) / stats.lights
    covariance = np.asarray(stats.light_outer, np.float64) / stats.lights - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    precision = (vectors / np.maximum(values, config.light_floor)) @ vectors.T
    dark_mean = float(stats.dark_sum / stats.dark) if stats.dark >= LEAST_DARK else float(params.dark_mean)
    return replace(
        params,
        dark_mean=jnp.float32(max(dark_mean, config.dark_floor)),
        noise_var=jnp.asarray(np.maximum(noise, config.noise_floor), jnp.float32),
        light_mean=jnp.asarray(mean, jnp.float32),
        light_precision=jnp.asarray((precision + precision.T) / 2, jnp.float32),
    )


def prior_step(
    params: Params, mean: np.ndarray, samples: np.ndarray, config: Config, shape: Shape, iteration: int, train: int
) -> tuple[Params, dict[str, float]]:
    """Steps 4 and 5: the prior that the first `train` objects teach, the others being held out, and its monitors."""
    rows = mean if config.rows == "mean" else samples.reshape(-1, samples.shape[-1])
    end, pixels = train * (len(rows) // len(mean)), shape[0] * shape[1]
    seen, unseen = rows[:end], rows[end:]
    number = seed_of(config.seed, "augment", iteration)
    moved = augment(seen, shape, config.copies, config.shift, config.mirror, number)
    still = moved if config.moved == "surface" else augment(seen, shape, config.copies, 0, config.mirror, number)
    old, seed = params.prior, seed_of(config.seed, "prior", iteration)
    if config.prior == "joint":
        prior, monitors = _learn_part(old, moved, unseen, config, shape, seed)
    else:
        parts, monitors = {}, {}
        for name, data, part in (("albedo", still, slice(pixels)), ("normals", moved, slice(pixels, None))):
            before = getattr(old, name, None)  # none before the first covariance
            given = before, data[:, part], unseen[:, part]
            parts[name], found = _learn_part(*given, config, shape, seed_of(seed, name))
            monitors |= {f"{name}.{what}": value for what, value in found.items()}
        prior = Product(**parts)
    return jax.tree.map(jnp.asarray, distributed.agree(replace(params, prior=prior))), monitors


def _learn_part(
    old: Prior | None, seen: np.ndarray, unseen: np.ndarray, config: Config, shape: Shape, seed: int
) -> tuple[Gaussian | GaussianBinary | DBN, dict[str, float]]:
    if config.start == "covariance":
        gaussian = covariance_gaussian(seen, shape, config.covariance)
        monitors = {"directions": float(gaussian.hidden_size)}
        if not config.binary.units:
            return gaussian, monitors
        prior, history = learn_units(gaussian, seen, config.binary, seed)
        return prior, monitors | {f"binary.{what}": value for what, value in history[-1].items()}
    assert isinstance(old, DBN), old  # as `start_prior` and `as_net` make it
    assert isinstance(old.base, GRBM), old.base
    held_out = unseen if len(unseen) else None
    layers, history = learn_net(seen, config.cd, seed, (old.base, *old.layers), held_out=held_out)
    last = {int(epoch["layer"]): epoch for epoch in history}  # of every layer its last epoch
    return as_net(layers, config), {
        f"layer{layer}.{what}": value
        for layer, found in last.items()
        for what, value in found.items()
        if what not in ("epoch", "layer")
    }


def as_net(layers: Sequence[RBM], config: Config) -> DBN:
    """Layers, lowest first, as a deep belief net."""
    base, *above = layers
    return DBN(base, tuple(above), top_weight=config.top_weight)  # type: ignore[arg-type]
