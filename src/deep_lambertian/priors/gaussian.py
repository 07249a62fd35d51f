r"""The linear-Gaussian prior: a diagonal Gaussian, or one with a few directions of common variation.

$$x = \mu + F z + \epsilon, \quad z \sim \mathcal N(0, I), \quad \epsilon \sim \mathcal N(0, \mathrm{diag}\,\sigma^2)$$

With the covariance of surfaces it is the prior of the preset `best` (see `learning.covariance`); without factors it
serves where nothing has been learned yet.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from deep_lambertian.priors.contract import Prior, check_array
from deep_lambertian.support import draws


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussian(Prior):
    """Parameters `mean` μ (V,), `variance` σ² (V,), `factors` F (V, K); K may be 0."""

    mean: jax.Array
    variance: jax.Array
    factors: jax.Array

    @classmethod
    def diagonal(cls, mean: ArrayLike, variance: ArrayLike) -> "Gaussian":
        """Independent elements (V,): no hidden variables at all."""
        mean, variance = jnp.asarray(mean, jnp.float32), jnp.asarray(variance, jnp.float32)
        return cls(mean, variance, jnp.zeros((mean.shape[0], 0)))

    @property
    def size(self) -> int:
        return self.mean.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.factors.shape[-1]

    @property
    def centre(self) -> Float[Array, " V"]:
        return self.mean

    def _whitener(self) -> Float[Array, "K K"]:
        """L⁻¹ for LLᵀ = I + Fᵀσ⁻²F, the precision of z given x.

        It depends on the parameters alone, and XLA takes it out of a chain's loop, where products of matrices are left.
        Solving with L, it would leave all of it there.
        """
        if not self.hidden_size:
            return jnp.zeros((0, 0))
        precision = jnp.eye(self.hidden_size) + self.factors.T @ (self.factors / self.variance[:, None])
        return solve_triangular(jnp.linalg.cholesky(precision), jnp.eye(self.hidden_size), lower=True)

    def _message(self, visible: Float[Array, " V"]) -> Float[Array, " K"]:
        """Fᵀσ⁻²(x − μ), what x says of z."""
        return ((visible - self.mean) / self.variance) @ self.factors

    def mean_hidden(self, visible: Float[Array, " V"]) -> Float[Array, " K"]:
        """(I + Fᵀσ⁻²F)⁻¹ Fᵀσ⁻²(x − μ) = L⁻ᵀL⁻¹ Fᵀσ⁻²(x − μ)."""
        whitener = self._whitener()
        return (whitener @ self._message(visible)) @ whitener

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Float[Array, " K"]:
        """The same with L⁻ᵀ times standard normal noise added, whose covariance is (LLᵀ)⁻¹."""
        whitener = self._whitener()
        return (whitener @ self._message(visible) + draws.normal(key, (self.hidden_size,))) @ whitener

    def top_down(self, hidden: Float[Array, " K"]) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        return self.mean + self.factors @ hidden, self.variance

    def energy(self, visible: Float[Array, " V"], hidden: Float[Array, " K"]) -> Float[Array, ""]:
        mean, variance = self.top_down(hidden)
        return 0.5 * jnp.sum((visible - mean) ** 2 / variance) + 0.5 * hidden @ hidden

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        best = self.energy(visible, self.mean_hidden(visible))
        log_det_half = -jnp.sum(jnp.log(jnp.diagonal(self._whitener())))
        return best + log_det_half - 0.5 * self.hidden_size * jnp.log(2 * jnp.pi)

    def chain_step(self, key: Key[Array, ""], state: Float[Array, " V"]) -> Float[Array, " V"]:
        """One step is an exact, independent draw: z from its own prior, then x."""
        mean, variance = self.top_down(draws.normal(key, (self.hidden_size,)))
        return mean + jnp.sqrt(variance) * draws.normal(key, mean.shape, stream=1)

    def validate(self, name: str = "gaussian") -> None:
        check_array(f"{name}.mean", self.mean, (self.size,))
        check_array(f"{name}.variance", self.variance, (self.size,), positive=True)
        check_array(f"{name}.factors", self.factors, (self.size, self.hidden_size))
