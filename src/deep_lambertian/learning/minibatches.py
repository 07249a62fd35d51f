"""The minibatches of an epoch: each sample once, in a new order, shared out over devices."""

import jax
import jax.numpy as jnp
from jax import lax

from deep_lambertian.support import draws


def permutation(key: jax.Array, count: int) -> jax.Array:
    return jnp.argsort(draws.bits(key, (count,)))


def batch_rows(count: int, batch_size: int) -> tuple[int, int]:
    """How many minibatches, and of how many rows: all alike but for a row, rather than a short one at the end."""
    batches = -(-count // batch_size)
    return batches, -(-count // batches)


def minibatches(order: jax.Array, batch_size: int, axis_name: str | None = None) -> jax.Array:
    """Row numbers (batches, rows), or a device's share of them; −1 where there is no sample left."""
    batches, rows = batch_rows(order.shape[0], batch_size)
    missing = batches * rows - order.shape[0]  # fewer than `batches`: at most one of them in each
    order = jnp.pad(order, (0, missing), constant_values=-1).reshape(rows, batches).T
    if axis_name is None:
        return order
    devices = lax.axis_size(axis_name)
    share = -(-rows // devices)
    order = jnp.pad(order, ((0, 0), (0, devices * share - rows)), constant_values=-1)
    return lax.dynamic_slice_in_dim(order, lax.axis_index(axis_name) * share, share, axis=1)
