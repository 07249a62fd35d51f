r"""The M-step of Algorithm 1 (step 6): parameters that have a maximum-likelihood estimate in closed form.

The M-step moves the parameters along the gradient of the expected joint log-likelihood,

$$\Delta\theta = -\alpha \int p(a, N, L, h, g \mid V; \theta^{old})\,
  \frac{\partial}{\partial\theta} E(V, a, N, L, h, g; \theta) \qquad \text{(Eq. 9)}$$

the integral being a mean over the samples of the E-step. For noise and lights it can be followed to its end at once;
the prior's share of it is learned by `prior`.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from deep_lambertian.energy import Params
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.e_step import Stats
from deep_lambertian.priors import Prior


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
