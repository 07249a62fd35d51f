r"""The gradient of contrastive divergence (Hinton, 2002) for Gaussian and binary RBMs, and the minibatches it is of.

$$\nabla_\theta \log p(v) = \langle -\partial E/\partial\theta \rangle_{\text{data}}
                          - \langle -\partial E/\partial\theta \rangle_{\text{model}}$$

The second mean is taken over `steps` alternating Gibbs steps: from the data (CD-k), or from particles that live on from
one minibatch to the next (persistent CD; Tieleman, 2008).
"""

from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Integer, Key, UInt32

from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import draws

R = TypeVar("R", bound=RBM)


def cd_gradient(
    rbm: R,
    batch: Float[Array, "B V"],
    key: Key[Array, ""],
    steps: int = 1,
    *,
    weights: Float[Array, " B"] | None = None,
    particles: Float[Array, "C H"] | None = None,
    axis_name: str | None = None,
) -> tuple[R, Float[Array, "chains H"], Float[Array, "chains V"]]:
    """An estimate of the gradient of the mean log-likelihood of a batch, shaped like the RBM.

    Also returned are the chains' last hidden states and their last visible ones. `weights` are those of the samples
    in the mean. The chains start from the data or, if they are given, from `particles`, hidden states.
    Within a `shard_map` over `axis_name`, batch, weights and particles are a device's rows; the gradient is that
    of all rows, and the draws depend on a row's place among them, so that the number of devices does not matter.
    """
    draw = Draws(rbm, key, axis_name)
    up_from = jax.vmap(rbm.mean_hidden)
    psum = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    weights = jnp.ones(batch.shape[0]) if weights is None else weights
    weights = weights / jnp.maximum(psum(jnp.sum(weights)), jnp.finfo(jnp.float32).tiny)
    up = up_from(batch)
    if particles is None:
        hidden, fantasy_weights = draw.hidden(up, 0), weights
    else:
        hidden = particles
        fantasy_weights = jnp.full(hidden.shape[0], 1 / hidden.shape[0]) / psum(jnp.ones(()))
    hidden = lax.fori_loop(0, steps - 1, lambda t, h: draw.alternate(h, 2 * t + 1), hidden) if steps > 1 else hidden
    fantasy = draw.visible(hidden, 2 * steps - 1)
    fantasy_up = up_from(fantasy)
    # Both phases in one product of a batch twice as long; the hidden probabilities rather than draws, for less noise.
    gradient = rbm.energy_gradient(
        jnp.concatenate([batch, fantasy]),
        jnp.concatenate([up, fantasy_up]),
        jnp.concatenate([weights, -fantasy_weights]),
    )
    return psum(gradient), draw.hidden(fantasy_up, 2 * steps), fantasy


def advance(rbm: RBM, chains: Float[Array, "C H"], key: Key[Array, ""], steps: int) -> Float[Array, "C H"]:
    """Chains of hidden states, moved on by alternating Gibbs steps."""
    draw = Draws(rbm, key)
    return lax.fori_loop(0, steps, lambda t, hidden: draw.alternate(hidden, 2 * t), chains)


class Draws(NamedTuple):
    """Draws for a batch: each number depends on the key, the stream and its place among the rows of all devices."""

    rbm: RBM
    key: jax.Array
    axis_name: str | None = None

    def hidden(self, probability: Float[Array, "B H"], stream: Integer[Array, ""] | int) -> Float[Array, "B H"]:
        return draws.bernoulli_of(self._words(probability.shape, stream), probability)

    def visible(self, hidden: Float[Array, "B H"], stream: Integer[Array, ""] | int) -> Float[Array, "B V"]:
        words = self._words((hidden.shape[0], self.rbm.size), stream)
        return jax.vmap(self.rbm.visible_of)(hidden, words)

    def alternate(self, hidden: Float[Array, "B H"], stream: Integer[Array, ""] | int) -> Float[Array, "B H"]:
        """Down and up again, with this stream and the next."""
        visible = self.visible(hidden, stream)
        return self.hidden(jax.vmap(self.rbm.mean_hidden)(visible), stream + 1)

    def _words(self, shape: tuple[int, ...], stream: Integer[Array, ""] | int) -> UInt32[Array, "B D"]:
        first = lax.axis_index(self.axis_name) * shape[0] if self.axis_name else 0
        row = lax.broadcasted_iota(jnp.uint32, shape, 0) + jnp.asarray(first, jnp.uint32)
        counter = row * jnp.uint32(shape[1]) + lax.broadcasted_iota(jnp.uint32, shape, 1)
        return draws.threefry(*draws.key_words(self.key), counter, jnp.full_like(counter, stream))[0]


# ---- Minibatches: each sample once in an epoch, in a new order, shared out over devices


def permutation(key: Key[Array, ""], count: int) -> Int[Array, " count"]:
    return jnp.argsort(draws.bits(key, (count,)))


def batch_rows(count: int, batch_size: int) -> tuple[int, int]:
    """How many minibatches, and of how many rows: all alike but for a row, rather than a short one at the end."""
    batches = -(-count // batch_size)
    return batches, -(-count // batches)


def minibatches(
    order: Int[Array, " count"], batch_size: int, axis_name: str | None = None
) -> Int[Array, "batches rows"]:
    """Row numbers, or a device's share of them; −1 where there is no sample left."""
    batches, rows = batch_rows(order.shape[0], batch_size)
    missing = batches * rows - order.shape[0]  # fewer than `batches`: at most one of them in each
    order = jnp.pad(order, (0, missing), constant_values=-1).reshape(rows, batches).T
    if axis_name is None:
        return order
    devices = lax.axis_size(axis_name)
    share = -(-rows // devices)
    order = jnp.pad(order, ((0, 0), (0, devices * share - rows)), constant_values=-1)
    return lax.dynamic_slice_in_dim(order, lax.axis_index(axis_name) * share, share, axis=1)
