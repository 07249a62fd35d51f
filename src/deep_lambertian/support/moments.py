"""Running mean and variance: a long chain needs no more memory than a short one."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """Welford's sums: `count` of values, their `mean`, and `square`, the sum of squared deviations from it."""

    count: jax.Array
    mean: jax.Array
    square: jax.Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))

    def add(self, value: jax.Array, weight: jax.Array | float = 1.0) -> "Moments":
        """Count one more value; a weight of 0 leaves everything as it was."""
        count = self.count + weight
        delta = value - self.mean
        mean = self.mean + delta * (weight / jnp.maximum(count, 1.0))
        return Moments(count, mean, self.square + weight * delta * (value - mean))

    @property
    def std(self) -> jax.Array:
        """Standard deviation of the values, 0 where fewer than two have come."""
        return jnp.sqrt(self.square / jnp.maximum(self.count - 1, 1.0))
