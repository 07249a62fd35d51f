r"""The linear-Gaussian prior: a diagonal Gaussian, or one with a few directions of common variation.

$$x = \mu + F z + \epsilon, \quad z \sim \mathcal N(0, I), \quad \epsilon \sim \mathcal N(0, \mathrm{diag}\,\sigma^2)$$

It serves where nothing has been learned yet, and as the yardstick that a learned prior has to beat.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from deep_lambertian.priors.contract import Generative, check_array
from deep_lambertian.support import draws
from deep_lambertian.support.trees import pytree


@pytree
@dataclass(frozen=True)
class Gaussian(Generative):
    """Parameters `mean` μ (V,), `variance` σ² (V,), `factors` F (V, K); K may be 0."""

    mean: jax.Array
    variance: jax.Array
    factors: jax.Array

    @classmethod
    def diagonal(cls, mean: jax.Array, variance: jax.Array) -> "Gaussian":
        """Independent elements: no hidden variables at all."""
        return cls(mean, variance, jnp.zeros((mean.shape[0], 0)))

    @property
    def size(self) -> int:
        return self.mean.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.factors.shape[-1]

    @property
    def centre(self) -> jax.Array:
        return self.mean

    def _precision_factor(self) -> jax.Array:
        """Cholesky factor of I + Fᵀσ⁻²F, the precision of z given x; XLA hoists it out of a chain's loop."""
        scaled = self.factors / self.variance[:, None]
        return jnp.linalg.cholesky(jnp.eye(self.hidden_size) + self.factors.T @ scaled)

    def mean_hidden(self, visible: jax.Array) -> jax.Array:
        if not self.hidden_size:
            return jnp.zeros(0)
        return cho_solve((self._precision_factor(), True), ((visible - self.mean) / self.variance) @ self.factors)

    def sample_hidden(self, key: jax.Array, visible: jax.Array) -> jax.Array:
        if not self.hidden_size:
            return jnp.zeros(0)
        noise = draws.normal(key, (self.hidden_size,))
        return self.mean_hidden(visible) + solve_triangular(self._precision_factor(), noise, lower=True, trans="T")

    def top_down(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.mean + self.factors @ hidden, self.variance

    def energy(self, visible: jax.Array, hidden: jax.Array) -> jax.Array:
        mean, variance = self.top_down(hidden)
        return 0.5 * jnp.sum((visible - mean) ** 2 / variance) + 0.5 * hidden @ hidden

    def free_energy(self, visible: jax.Array) -> jax.Array:
        best = self.energy(visible, self.mean_hidden(visible))
        if not self.hidden_size:
            return best
        log_det_half = jnp.sum(jnp.log(jnp.diagonal(self._precision_factor())))
        return best + log_det_half - 0.5 * self.hidden_size * jnp.log(2 * jnp.pi)

    def chain_start(self, key: jax.Array) -> jax.Array:
        return self.mean

    def chain_step(self, key: jax.Array, state: jax.Array) -> jax.Array:
        """One step is an exact, independent draw: z from its own prior, then x."""
        mean, variance = self.top_down(draws.normal(key, (self.hidden_size,)))
        return mean + jnp.sqrt(variance) * draws.normal(key, mean.shape, stream=1)

    def chain_visible(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return state

    def validate(self, name: str = "gaussian") -> None:
        check_array(f"{name}.mean", self.mean, (self.size,))
        check_array(f"{name}.variance", self.variance, (self.size,), positive=True)
        check_array(f"{name}.factors", self.factors, (self.size, self.hidden_size))
