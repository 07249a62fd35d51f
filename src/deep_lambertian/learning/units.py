"""The units that an RBM learns in: those of the data.

Gaussian visibles are learned as u = (v − m)/s for the mean m and the spread s of each element, and given back as v:
with b̃ = (b − m)/s, c̃ = c + Wᵀm, W̃ = s∘W and σ̃² = σ²/s² the energy is the same number. Learning rates, decay and
variance bounds then mean the same whatever the data. Binary visibles are left as they are.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from deep_lambertian.learning.gradient import RBM
from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.rbm import BinaryRBM
from deep_lambertian.support import draws

LEAST_SPREAD = 0.05  # of the root mean square spread: the unit of an element that hardly varies


class Units(NamedTuple):
    """Visibles are learned as u = (v − mean)/spread, each (V,); mean 0 and spread 1 for a binary RBM."""

    mean: jax.Array
    spread: jax.Array


def units_of(rbm: GRBM | BinaryRBM, data: jax.Array, weights: jax.Array) -> Units:
    """The mean and spread of each element, the spread not less than a share of what is usual."""
    if isinstance(rbm, BinaryRBM):
        return Units(jnp.zeros(rbm.size), jnp.ones(rbm.size))
    share = weights / jnp.sum(weights)
    mean = share @ data
    variance = share @ (data - mean[None]) ** 2
    usual = jnp.mean(variance)
    spread = jnp.sqrt(jnp.maximum(variance, LEAST_SPREAD**2 * usual))
    return Units(mean, jnp.where(usual > 0, spread, 1.0))


def into_units(rbm: RBM, units: Units) -> RBM:
    """The same energy as a function of u = (v − m)/s."""
    if isinstance(rbm, BinaryRBM):
        return rbm
    return replace(
        rbm,
        bias=(rbm.bias - units.mean) / units.spread,
        hidden_bias=rbm.hidden_bias + units.mean @ rbm.weights,
        weights=units.spread[:, None] * rbm.weights,
        variance=rbm.variance / units.spread**2,
    )


def out_of_units(rbm: RBM, units: Units) -> RBM:
    """The same energy as a function of v = m + s u."""
    if isinstance(rbm, BinaryRBM):
        return rbm
    weights = rbm.weights / units.spread[:, None]
    return replace(
        rbm,
        bias=units.mean + units.spread * rbm.bias,
        hidden_bias=rbm.hidden_bias - units.mean @ weights,
        weights=weights,
        variance=rbm.variance * units.spread**2,
    )


def standardised(units: Units, visible: jax.Array) -> jax.Array:
    """A batch (B, V) in units."""
    return (visible - units.mean[None]) * (1 / units.spread)[None]


def initial(key: jax.Array, data: jax.Array, hidden_size: int, *, binary: bool = False, scale: float = 0.01) -> Any:
    """An RBM that knows each element's mean and, of real data, its variance; weights ~ N(0, scale²) in units."""
    mean, size = jnp.mean(data, axis=0), data.shape[1]
    weights = scale * draws.normal(key, (size, hidden_size))
    if binary:
        mean = jnp.clip(mean, 0.01, 0.99)
        return BinaryRBM(jnp.log(mean) - jnp.log1p(-mean), jnp.zeros(hidden_size), weights)
    rbm = GRBM(jnp.zeros(size), jnp.zeros(hidden_size), weights, jnp.ones(size))
    return out_of_units(rbm, units_of(rbm, data, jnp.ones(data.shape[0])))
