r"""How probable a prior holds surfaces to be: annealed importance sampling (Neal, 2001; Salakhutdinov & Murray, 2008).

$-\log p(v) = F(v) + \log Z$, and the normaliser Z of an RBM is a sum over all of its hidden states. It is known where
the hidden units say nothing, and is followed from there: chains go through densities of ever more of what they say, and

$$\log \frac{Z_1}{Z_0} \approx \log \frac1C \sum_{\text{chains}} \exp \sum_k \bigl[F_{\beta_{k-1}}(v_k) -
F_{\beta_k}(v_k)\bigr]$$

How far the chains' own estimates scatter is its error. Of a deep belief net, F is a bound, and so is the density.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.priors.contract import Prior
from deep_lambertian.priors.dbn import DBN
from deep_lambertian.priors.gaussian import Gaussian
from deep_lambertian.priors.gaussian_binary import GaussianBinary
from deep_lambertian.priors.product import Product
from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import draws


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error."""

    value: float
    error: float = 0.0


def log_density(
    prior: Prior, rows: ArrayLike, *, seed: int = 0, steps: int = 2000, chains: int = 64
) -> tuple[np.ndarray, float]:
    """log p of rows (N, V), of a deep belief net a lower bound of it, and the standard error that they share."""
    visible = jnp.asarray(rows, jnp.float32)
    if isinstance(prior, Product):
        own, other = np.split(np.asarray(visible), [prior.albedo.size], axis=1)
        found = [
            log_density(part, data, seed=seed, steps=steps, chains=chains)
            for part, data in ((prior.albedo, own), (prior.normals, other))
        ]
        return found[0][0] + found[1][0], float(np.hypot(found[0][1], found[1][1]))
    normaliser = log_normaliser(prior, seed=seed, steps=steps, chains=chains)
    energies = np.asarray(jax.jit(jax.vmap(prior.free_energy))(visible), np.float64)
    return -energies - normaliser.value, normaliser.error


def log_normaliser(prior: Prior, *, seed: int = 0, steps: int = 2000, chains: int = 64) -> Estimate:
    """log Z of one prior; that of a deep belief net is its top layer's, as all below has densities of its own."""
    if isinstance(prior, Gaussian):
        return Estimate(float(prior.log_normaliser()))
    if isinstance(prior, DBN):
        return log_normaliser(prior.layers[-1] if prior.layers else prior.base, seed=seed, steps=steps, chains=chains)
    if not isinstance(prior, RBM | GaussianBinary):
        raise ValueError(f"prior: expected one whose normaliser can be followed, got {type(prior).__name__}")
    weights = np.asarray(_anneal(prior, draws.make_key(seed), chains, jnp.linspace(0, 1, steps + 1)), np.float64)
    top = weights.max()
    ratios = np.exp(weights - top)
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(chains)
    return Estimate(float(prior.log_normaliser_untied()) + top + float(np.log(ratios.mean())), float(error))


@partial(jax.jit, static_argnames="chains")
def _anneal(prior: RBM | GaussianBinary, key: jax.Array, chains: int, betas: jax.Array) -> jax.Array:
    """The logarithm of each chain's weight."""

    def step(carry: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        visible, weight = carry
        cold, warm = prior.tempered(betas[k + 1]), prior.tempered(betas[k])
        gain = jax.vmap(lambda v: warm.free_energy(v) - cold.free_energy(v))(visible)
        keys = jax.vmap(lambda c: draws.fold_in(draws.fold_in(key, k + 1), c))(jnp.arange(chains))
        return (jax.vmap(cold.chain_step)(keys, visible), weight + gain), None

    keys = jax.vmap(lambda c: draws.fold_in(draws.fold_in(key, 0), c))(jnp.arange(chains))
    alone = prior.tempered(0.0)
    begin = jax.vmap(lambda each: alone.chain_step(each, alone.chain_start(each)))(keys)  # exact: units say nothing
    (_, weight), _ = jax.lax.scan(step, (begin, jnp.zeros(chains)), jnp.arange(betas.shape[0] - 1))
    return weight
