r"""The gradient of contrastive divergence (Hinton, 2002) for Gaussian and binary RBMs.

$$\nabla_\theta \log p(v) = \langle -\partial E/\partial\theta \rangle_{\text{data}}
                          - \langle -\partial E/\partial\theta \rangle_{\text{model}}$$

The second mean is taken over `steps` alternating Gibbs steps: from the data (CD-k), or from particles that live on from
one minibatch to the next (persistent CD; Tieleman, 2008).
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.rbm import BinaryRBM
from deep_lambertian.support import draws

RBM = TypeVar("RBM", GRBM, BinaryRBM)


def cd_gradient(
    rbm: RBM,
    batch: jax.Array,
    key: jax.Array,
    steps: int = 1,
    *,
    weights: jax.Array | None = None,
    particles: jax.Array | None = None,
    axis_name: str | None = None,
) -> tuple[RBM, jax.Array, jax.Array]:
    """An estimate of the gradient of the mean log-likelihood of a batch (B, V), shaped like the RBM.

    Also returned are the chains' last hidden states and their last visible ones. `weights` (B,) are those of the
    samples in the mean. The chains start from the data or, if they are given, from `particles`, hidden states (C, H).
    Within a `shard_map` over `axis_name`, batch, weights and particles are a device's rows; the gradient is that
    of all rows, and the draws depend on a row's place among them, so that the number of devices does not matter.
    """
    draw = Draws(rbm, key, axis_name)
    psum = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    weights = jnp.ones(batch.shape[0]) if weights is None else weights
    weights = weights / jnp.maximum(psum(jnp.sum(weights)), jnp.finfo(jnp.float32).tiny)
    up = hidden_mean(rbm, batch)
    if particles is None:
        hidden, fantasy_weights = draw.hidden(up, 0), weights
    else:
        hidden = particles
        fantasy_weights = jnp.full(hidden.shape[0], 1 / hidden.shape[0]) / psum(jnp.ones(()))

    def gibbs(t: Any, hidden: jax.Array) -> jax.Array:
        return draw.hidden(hidden_mean(rbm, draw.visible(hidden, 2 * t + 1)), 2 * t + 2)

    if steps > 1:
        hidden = lax.fori_loop(0, steps - 1, gibbs, hidden)
    fantasy = draw.visible(hidden, 2 * steps - 1)
    fantasy_up = hidden_mean(rbm, fantasy)
    # Both phases in one product of a batch twice as long; the hidden probabilities rather than draws, for less noise.
    gradient = energy_gradient(
        rbm,
        jnp.concatenate([batch, fantasy]),
        jnp.concatenate([up, fantasy_up]),
        jnp.concatenate([weights, -fantasy_weights]),
    )
    return psum(gradient), draw.hidden(fantasy_up, 2 * steps), fantasy


def energy_gradient(rbm: RBM, visible: jax.Array, hidden: jax.Array, weights: jax.Array) -> RBM:
    """Σ_n w_n (−∂E/∂θ) at pairs of visible (B, V) and hidden (B, H), shaped like the RBM."""
    weighted = weights[:, None] * hidden
    common = {"hidden_bias": jnp.sum(weighted, axis=0), "weights": (weighted.T @ visible).T}
    if isinstance(rbm, BinaryRBM):
        return replace(rbm, bias=weights @ visible, **common)
    off = visible - rbm.bias[None]
    bias = (weights @ off) / rbm.variance
    return replace(rbm, bias=bias, variance=0.5 * (weights @ off**2) / rbm.variance**2, **common)


def hidden_mean(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    """p(h = 1 | v) for a batch (Eq. 1)."""
    return jax.nn.sigmoid(hidden_logits(rbm, visible))


def hidden_logits(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    return rbm.hidden_bias[None] + visible @ rbm.weights


def visible_mean(rbm: GRBM | BinaryRBM, hidden: jax.Array) -> jax.Array:
    """E(v | h) for a batch (Eq. 2)."""
    field = hidden @ rbm.weights.T
    if isinstance(rbm, BinaryRBM):
        return jax.nn.sigmoid(rbm.bias[None] + field)
    return rbm.bias[None] + rbm.variance[None] * field


def advance(rbm: GRBM | BinaryRBM, chains: jax.Array, key: jax.Array, steps: int) -> jax.Array:
    """Chains (C, H) of hidden states, moved on by alternating Gibbs steps."""
    draw = Draws(rbm, key)

    def gibbs(t: jax.Array, hidden: jax.Array) -> jax.Array:
        return draw.hidden(hidden_mean(rbm, draw.visible(hidden, 2 * t)), 2 * t + 1)

    return lax.fori_loop(0, steps, gibbs, chains)


class Draws(NamedTuple):
    """Draws for a batch, of which each number depends on the key, the stream and its place among the rows of all
    devices."""

    rbm: GRBM | BinaryRBM
    key: jax.Array
    axis_name: str | None = None

    def hidden(self, probability: jax.Array, stream: Any) -> jax.Array:
        return _bernoulli(self._bits(probability.shape, stream), probability)

    def visible(self, hidden: jax.Array, stream: Any) -> jax.Array:
        mean = visible_mean(self.rbm, hidden)
        bits = self._bits(mean.shape, stream)
        if isinstance(self.rbm, BinaryRBM):
            return _bernoulli(bits, mean)
        return mean + jnp.sqrt(self.rbm.variance)[None] * draws.gaussian(bits)

    def _bits(self, shape: tuple[int, ...], stream: Any) -> jax.Array:
        first = lax.axis_index(self.axis_name) * shape[0] if self.axis_name else 0
        row = lax.broadcasted_iota(jnp.uint32, shape, 0) + jnp.asarray(first, jnp.uint32)
        counter = row * jnp.uint32(shape[1]) + lax.broadcasted_iota(jnp.uint32, shape, 1)
        return draws.threefry(*draws.key_words(self.key), counter, jnp.full_like(counter, stream))[0]


def _bernoulli(bits: jax.Array, probability: jax.Array) -> jax.Array:
    return (draws.unit_interval(bits) < probability).astype(probability.dtype)
