"""A GRBM in which many units share their weights, computed with each column of weights only once.

The thermometers of `learning.covariance` are groups of units that differ in their biases alone, and in sign: of 1,836
columns of weights 400 are different. The density is the same, and so are the draws but for rounding; the two products
that most of a sweep's time goes into take a fifth of it.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.product import Product

PROBES = 64  # rows by which columns are told apart before they are compared in full
WORTH_IT = 0.5  # of the columns at most may be left


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tied(GRBM):
    """A GRBM whose unit j has the weights `sign`_j times column `column`_j of `weights` (V, K); both are (H,)."""

    column: jax.Array
    sign: jax.Array

    def up(self, visible: jax.Array) -> jax.Array:
        return self.sign * (visible @ self.weights)[self.column]

    def down(self, hidden: jax.Array) -> jax.Array:
        together = jnp.zeros(self.weights.shape[1]).at[self.column].add(self.sign * hidden)
        return self.weights @ together


def tie(prior: Any) -> Any:
    """The same prior, with the units of its GRBMs tied where that is worth it."""
    if isinstance(prior, Product):
        return Product(tie(prior.albedo), tie(prior.normals))
    if type(prior) is not GRBM or not prior.weights.size:
        return prior
    weights = np.asarray(prior.weights)
    rows = weights[np.linspace(0, len(weights) - 1, PROBES).astype(int)]
    sign = np.where(rows[0] < 0, -1, 1).astype(np.float32)
    seen: dict[bytes, int] = {}
    column = np.array([seen.setdefault(each.tobytes(), len(seen)) for each in (sign * rows + 0.0).T])  # −0 is 0
    if len(seen) > WORTH_IT * weights.shape[1]:
        return prior
    first = np.unique(column, return_index=True)[1]
    kept = sign[first] * weights[:, first]
    if not np.array_equal(sign * kept[:, column], weights):
        return prior
    kept, column, sign = jax.device_put((kept, column.astype(np.int32), sign))
    return Tied(prior.bias, prior.hidden_bias, kept, prior.variance, column, sign)
