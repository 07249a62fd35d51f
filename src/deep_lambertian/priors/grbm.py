r"""The Gaussian restricted Boltzmann machine (Sec. 2, Eq. 1, 2, 7 and 8).

$$E(v, h) = \tfrac12 \sum_i \frac{(v_i - b_i)^2}{\sigma_i^2} - \sum_j c_j h_j - \sum_{ij} W_{ij} v_i h_j$$

Eq. 8 of the paper is Eq. 7 with its square expanded (and a constant dropped): one class serves both albedo
(b, c, W) and normals (d, e, U). With no hidden units it is a diagonal Gaussian.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt32

from deep_lambertian.priors.contract import check_array
from deep_lambertian.priors.rbm import RBM, Units
from deep_lambertian.support import draws

LEAST_SPREAD = 0.05  # of the root mean square spread: the unit of an element that hardly varies
MOST_LOG_STEP = 0.02  # of log σ² in one step, whatever its gradient: learning is most sensitive to σ


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GRBM(RBM):
    """Parameters `bias` b (V,), `hidden_bias` c (H,), `weights` W (V, H), `variance` σ² (V,)."""

    bias: jax.Array
    hidden_bias: jax.Array
    weights: jax.Array
    variance: jax.Array

    @classmethod
    def random(cls, key: Key[Array, ""], size: int, hidden_size: int, scale: float = 0.01) -> "GRBM":
        """Step 2 of Algorithm 1: weights ~ N(0, 0.01²), variances 1, biases 0."""
        weights = scale * draws.normal(key, (size, hidden_size))
        return cls(jnp.zeros(size), jnp.zeros(hidden_size), weights, jnp.ones(size))

    @classmethod
    def of_data(cls, key: Key[Array, ""], data: Float[Array, "N V"], hidden_size: int, scale: float = 0.01) -> "GRBM":
        """A GRBM that knows the mean and the variance of each element; weights ~ N(0, scale²) in the data's units."""
        rbm = cls.random(key, data.shape[1], hidden_size, scale)
        return rbm.out_of_units(rbm.units_of(data, jnp.ones(data.shape[0])))

    @property
    def centre(self) -> Float[Array, " V"]:
        return self.bias

    def top_down(self, hidden: Float[Array, " H"]) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """μ_i = b_i + σ_i² Σ_j W_ij h_j, and σ_i² (Eq. 2)."""
        return self.bias + self.variance * (self.weights @ hidden), self.variance

    def visible_of(self, hidden: Float[Array, " H"], words: UInt32[Array, " V"]) -> Float[Array, " V"]:
        mean, variance = self.top_down(hidden)
        return mean + jnp.sqrt(variance) * draws.gaussian(words)

    def energy(self, visible: Float[Array, " V"], hidden: Float[Array, " H"]) -> Float[Array, ""]:
        # W·h rather than v·W: the same product as in `top_down`, so that a sweep computes it once.
        return self._quadratic(visible) - self.hidden_bias @ hidden - visible @ (self.weights @ hidden)

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return self._quadratic(visible) - jnp.sum(jax.nn.softplus(self.hidden_logits(visible)))

    def _quadratic(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum((visible - self.bias) ** 2 / self.variance)

    def chain_start(self, key: Key[Array, ""]) -> Float[Array, " V"]:
        return self.bias

    def validate(self, name: str = "grbm") -> None:
        super().validate(name)
        check_array(f"{name}.variance", self.variance, (self.size,), positive=True)

    # ---- What learning asks for

    def energy_gradient(
        self, visible: Float[Array, "B V"], hidden: Float[Array, "B H"], weights: Float[Array, " B"]
    ) -> "GRBM":
        off = visible - self.bias[None]
        return replace(
            super().energy_gradient(visible, hidden, weights),
            bias=(weights @ off) / self.variance,
            variance=0.5 * (weights @ off**2) / self.variance**2,
        )

    def ascent(self, gradient: "GRBM") -> "GRBM":  # pyright: ignore[reportIncompatibleMethodOverride]
        """Along log σ² in place of σ², and for b freed of its 1/σ²."""
        return replace(gradient, bias=gradient.bias * self.variance, variance=gradient.variance * self.variance)

    def moved(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, step: "GRBM", variance_rate: Float[Array, ""] | None
    ) -> "GRBM":
        """The step of the variance is one of log σ², and a short one."""
        variance = self.variance
        if variance_rate is not None:
            variance *= jnp.exp(jnp.clip(variance_rate * step.variance, -MOST_LOG_STEP, MOST_LOG_STEP))
        return replace(jax.tree.map(jnp.add, self, step), variance=variance)

    def bounded(self, low: Float[Array, ""], high: Float[Array, ""]) -> "GRBM":
        return replace(self, variance=jnp.clip(self.variance, low, high))

    def units_of(self, data: Float[Array, "N V"], weights: Float[Array, " N"]) -> Units:
        """The mean and spread of each element, the spread not less than a share of what is usual.

        Learning rates, decay and variance bounds then mean the same whatever the data.
        """
        share = weights / jnp.sum(weights)
        mean = share @ data
        variance = share @ (data - mean[None]) ** 2
        usual = jnp.mean(variance)
        spread = jnp.sqrt(jnp.maximum(variance, LEAST_SPREAD**2 * usual))
        return Units(mean, jnp.where(usual > 0, spread, 1.0))

    def into_units(self, units: Units) -> "GRBM":
        """b̃ = (b − m)/s, c̃ = c + Wᵀm, W̃ = s∘W and σ̃² = σ²/s²."""
        return replace(
            self,
            bias=(self.bias - units.mean) / units.spread,
            hidden_bias=self.hidden_bias + units.mean @ self.weights,
            weights=units.spread[:, None] * self.weights,
            variance=self.variance / units.spread**2,
        )

    def out_of_units(self, units: Units) -> "GRBM":
        weights = self.weights / units.spread[:, None]
        return replace(
            self,
            bias=units.mean + units.spread * self.bias,
            hidden_bias=self.hidden_bias - units.mean @ weights,
            weights=weights,
            variance=self.variance * units.spread**2,
        )

    def scores(self, visible: Float[Array, " V"], probes: Int[Array, " K"]) -> Float[Array, " V"]:
        r"""Hyvärinen's (2005) score of each element, whatever the `probes`.

        $\frac12 g_i^2 + \partial g_i/\partial v_i$ with $g = \nabla_v \log p(v) = -(v - b)/\sigma^2 + W q$.
        """
        q = self.mean_hidden(visible)
        slope = self.weights @ q - (visible - self.bias) / self.variance
        curvature = self.weights**2 @ (q * (1 - q)) - 1 / self.variance
        return 0.5 * slope**2 + curvature

    def figures(self) -> dict[str, Any]:
        return super().figures() | {"variance_low": jnp.min(self.variance), "variance_high": jnp.max(self.variance)}
