r"""The linear-Gaussian prior: a diagonal Gaussian, or one with a few directions of common variation.

$$x = \mu + F z + \epsilon, \quad z \sim \mathcal N(0, I), \quad \epsilon \sim \mathcal N(0, \mathrm{diag}\,\sigma^2)$$

With the covariance of surfaces it is the prior of the preset `best` (see `learning.covariance`); without factors it
serves where nothing has been learned yet.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from deep_lambertian.priors.contract import Normal, Prior, check_array
from deep_lambertian.support import draws

ORTHOGONAL = 0.01  # cosines between factors that rounding, to half precision too, may leave


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussian(Prior):
    """Parameters `mean` μ (V,), `variance` σ² (V,), `factors` F (V, K); K may be 0.

    Factors are orthogonal in units of the noise, so that the elements of z are independent given x, and conditional 1
    is two products of matrices. That is no restriction: a rotation of z leaves the density of x as it is.
    """

    mean: jax.Array
    variance: jax.Array
    factors: jax.Array

    @classmethod
    def diagonal(cls, mean: ArrayLike, variance: ArrayLike) -> "Gaussian":
        """Independent elements (V,): no hidden variables at all."""
        mean, variance = jnp.asarray(mean, jnp.float32), jnp.asarray(variance, jnp.float32)
        return cls(mean, variance, jnp.zeros((mean.shape[0], 0)))

    @classmethod
    def of_factors(cls, mean: ArrayLike, variance: ArrayLike, factors: ArrayLike) -> "Gaussian":
        """The Gaussian with any factors (V, K), which are rotated to be orthogonal."""
        mean, variance, factors = (np.asarray(each, np.float64) for each in (mean, variance, factors))
        _, rotation = np.linalg.eigh(factors.T @ (factors / variance[:, None]))
        return cls(*(jnp.asarray(each, jnp.float32) for each in (mean, variance, factors @ rotation)))

    @property
    def size(self) -> int:
        return self.mean.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.factors.shape[-1]

    @property
    def centre(self) -> Float[Array, " V"]:
        return self.mean

    def _precision(self) -> Float[Array, " K"]:
        """The diagonal of I + Fᵀσ⁻²F, the precision of z given x."""
        return 1 + jnp.sum(self.factors**2 / self.variance[:, None], axis=0)

    def mean_hidden(self, visible: Float[Array, " V"]) -> Float[Array, " K"]:
        """(I + Fᵀσ⁻²F)⁻¹ Fᵀσ⁻²(x − μ)."""
        return ((visible - self.mean) / self.variance) @ self.factors / self._precision()

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Float[Array, " K"]:
        """The same with noise of covariance (I + Fᵀσ⁻²F)⁻¹."""
        noise = draws.normal(key, (self.hidden_size,)) / jnp.sqrt(self._precision())
        return self.mean_hidden(visible) + noise

    def top_down(self, hidden: Float[Array, " K"]) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        return self.mean + self.factors @ hidden, self.variance

    def gaussian(self, hidden: Float[Array, " K"]) -> Normal:
        return self.mean, self.variance, self.factors

    def energy(self, visible: Float[Array, " V"], hidden: Float[Array, " K"]) -> Float[Array, ""]:
        mean, variance = self.top_down(hidden)
        return 0.5 * jnp.sum((visible - mean) ** 2 / variance) + 0.5 * hidden @ hidden

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        best = self.energy(visible, self.mean_hidden(visible))
        log_det_half = 0.5 * jnp.sum(jnp.log(self._precision()))
        return best + log_det_half - 0.5 * self.hidden_size * jnp.log(2 * jnp.pi)

    def log_normaliser(self) -> Float[Array, ""]:
        """log Σ exp(−E), of which −log p(x) is F(x) and this."""
        return 0.5 * (self.hidden_size * jnp.log(2 * jnp.pi) + jnp.sum(jnp.log(2 * jnp.pi * self.variance)))

    def chain_step(self, key: Key[Array, ""], state: Float[Array, " V"]) -> Float[Array, " V"]:
        """One step is an exact, independent draw: z from its own prior, then x."""
        mean, variance = self.top_down(draws.normal(key, (self.hidden_size,)))
        return mean + jnp.sqrt(variance) * draws.normal(key, mean.shape, stream=1)

    def validate(self, name: str = "gaussian") -> None:
        check_array(f"{name}.mean", self.mean, (self.size,))
        check_array(f"{name}.variance", self.variance, (self.size,), positive=True)
        check_array(f"{name}.factors", self.factors, (self.size, self.hidden_size))
        scaled = np.asarray(self.factors) / np.sqrt(np.asarray(self.variance))[:, None]
        unit = scaled / np.maximum(np.linalg.norm(scaled, axis=0), 1e-12)
        apart = np.abs(unit.T @ unit - np.diag(np.linalg.norm(unit, axis=0) ** 2)).max(initial=0)
        if apart > ORTHOGONAL:
            raise ValueError(
                f"{name}.factors: expected orthogonal ones in units of the noise, got cosines of up to {apart:.3g}; "
                "make it by Gaussian.of_factors, which rotates them"
            )
