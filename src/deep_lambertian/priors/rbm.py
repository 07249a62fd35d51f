r"""Restricted Boltzmann machines: what the Gaussian and the binary one have in common, and each of them.

$$p(h_j = 1 \mid v) = \mathrm{sigmoid}\Big(c_j + \sum_i v_i W_{ij}\Big) \qquad \text{(Eq. 1)}$$

Methods take a single vector, and batches are made with `jax.vmap`, but for the few that speak of a whole batch.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from deep_lambertian.priors.contract import Prior, check_array
from deep_lambertian.support import draws

R = TypeVar("R", bound="RBM")
LEAST_SPREAD = 0.05  # of the root mean square spread: the unit of an element that hardly varies
MOST_LOG_STEP = 0.02  # of log σ² in one step, whatever its gradient: learning is most sensitive to σ


class Units(NamedTuple):
    """What visibles are measured in while learning: u = (v − mean)/spread, each (V,)."""

    mean: jax.Array
    spread: jax.Array

    def standardised(self, visible: Float[Array, "B V"]) -> Float[Array, "B V"]:
        """A batch in units."""
        return (visible - self.mean[None]) * (1 / self.spread)[None]


@dataclass(frozen=True)
class RBM(Prior):
    """Parameters `bias` b (V,), `hidden_bias` c (H,), `weights` W (V, H), and perhaps more."""

    bias: jax.Array
    hidden_bias: jax.Array
    weights: jax.Array

    @property
    def size(self) -> int:
        return self.bias.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.hidden_bias.shape[-1]

    def hidden_logits(self, visible: Float[Array, " V"]) -> Float[Array, " H"]:
        """Log-odds of h_j = 1 given v (Eq. 1)."""
        return self.hidden_bias + visible @ self.weights

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Float[Array, " H"]:
        return draws.bernoulli(key, self.hidden_logits(visible))

    def mean_hidden(self, visible: Float[Array, " V"]) -> Float[Array, " H"]:
        return jax.nn.sigmoid(self.hidden_logits(visible))

    @staticmethod
    def joined(
        visible: Float[Array, " V"], binary: Float[Array, " H"], key: Key[Array, ""] | None
    ) -> Float[Array, " H"]:
        """All hidden units, given the binary ones and v: there are no others."""
        return binary

    @staticmethod
    def binary_of(hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        """Those of the hidden units that a layer above sees."""
        return hidden

    def tempered(self: R, beta: float | jax.Array) -> R:
        """The same with a share of what the hidden units say: at 0 the visible ones are independent."""
        return replace(self, hidden_bias=beta * self.hidden_bias, weights=beta * self.weights)

    @abstractmethod
    def log_normaliser_untied(self) -> Float[Array, ""]:
        """log Σ exp(−E) of `tempered(0)`."""

    def mean_visible(self, hidden: Float[Array, " H"]) -> Float[Array, " V"]:
        """E(v | h)."""
        return self.top_down(hidden)[0]

    @abstractmethod
    def visible_of(self, hidden: Float[Array, " H"], words: UInt32[Array, " V"]) -> Float[Array, " V"]:
        """A draw of v given h, made of random words."""

    def sample_visible(self, key: Key[Array, ""], hidden: Float[Array, " H"], stream: int = 0) -> Float[Array, " V"]:
        """Draw v given h."""
        return self.visible_of(hidden, draws.bits(key, (self.size,), stream))

    def chain_step(self, key: Key[Array, ""], state: Float[Array, " V"]) -> Float[Array, " V"]:
        return self.sample_visible(key, self.sample_hidden(key, state), stream=1)

    def validate(self, name: str = "rbm") -> None:
        check_array(f"{name}.bias", self.bias, (self.size,))
        check_array(f"{name}.hidden_bias", self.hidden_bias, (self.hidden_size,))
        check_array(f"{name}.weights", self.weights, (self.size, self.hidden_size))

    # ---- What learning asks for. Here for binary visibles; a GRBM has more to say.

    def energy_gradient(
        self: R, visible: Float[Array, "B V"], hidden: Float[Array, "B H"], weights: Float[Array, " B"]
    ) -> R:
        """Σ_n w_n (−∂E/∂θ) over a batch, shaped like the RBM. The weights' part is one matrix product."""
        weighted = weights[:, None] * hidden
        return replace(
            self, bias=weights @ visible, hidden_bias=jnp.sum(weighted, axis=0), weights=(weighted.T @ visible).T
        )

    def ascent(self: R, gradient: R) -> R:
        """The direction to go, given the gradient."""
        return gradient

    def moved(self: R, step: R, variance_rate: Float[Array, ""] | None) -> R:
        """The RBM after a step; variances, where there are any, stay as they are if their rate is None."""
        return jax.tree.map(jnp.add, self, step)

    def bounded(self: R, low: Float[Array, ""], high: Float[Array, ""]) -> R:
        """The same with variances, where there are any, within bounds."""
        return self

    def units_of(self, data: Float[Array, "N V"], weights: Float[Array, " N"]) -> Units:
        """The units to learn in."""
        return Units(jnp.zeros(self.size), jnp.ones(self.size))

    def into_units(self: R, units: Units) -> R:
        """The same energy as a function of u = (v − m)/s."""
        return self

    def out_of_units(self: R, units: Units) -> R:
        """The same energy as a function of v = m + s u."""
        return self

    @abstractmethod
    def scores(self, visible: Float[Array, " V"], probes: Int[Array, " K"]) -> Float[Array, " _"]:
        """How badly the density fits, element by element: of all of them or, where that is much work, the `probes`."""

    def check_visible(self, name: str, visible: np.ndarray) -> None:
        """Refuse data that such an RBM cannot have made."""

    def figures(self) -> dict[str, Any]:
        """What a person who watches may want to know of the parameters."""
        return {"weight_size": jnp.mean(jnp.abs(self.weights))}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BinaryRBM(RBM):
    r"""A layer above the first in a deep belief net.

    $$E(v, h) = -b^\top v - c^\top h - v^\top W h, \qquad v_i, h_j \in \{0, 1\}$$
    """

    @classmethod
    def of_data(
        cls, key: Key[Array, ""], data: Float[Array, "N V"], hidden_size: int, scale: float = 0.01
    ) -> "BinaryRBM":
        """An RBM that knows the mean of each element of bits or probabilities; weights ~ N(0, scale²)."""
        mean = jnp.clip(jnp.mean(data, axis=0), 0.01, 0.99)
        weights = scale * draws.normal(key, (data.shape[1], hidden_size))
        return cls(jnp.log(mean) - jnp.log1p(-mean), jnp.zeros(hidden_size), weights)

    @property
    def centre(self) -> Float[Array, " V"]:
        return jax.nn.sigmoid(self.bias)

    def visible_logits(self, hidden: Float[Array, " H"]) -> Float[Array, " V"]:
        """Log-odds of v_i = 1 given h."""
        return self.bias + self.weights @ hidden

    def top_down(self, hidden: Float[Array, " H"]) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        mean = jax.nn.sigmoid(self.visible_logits(hidden))
        return mean, mean * (1 - mean)

    def visible_of(self, hidden: Float[Array, " H"], words: UInt32[Array, " V"]) -> Float[Array, " V"]:
        return draws.bernoulli_of(words, self.mean_visible(hidden))

    def energy(self, visible: Float[Array, " V"], hidden: Float[Array, " H"]) -> Float[Array, ""]:
        return -self.bias @ visible - self.hidden_logits(visible) @ hidden

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return -self.bias @ visible - jnp.sum(jax.nn.softplus(self.hidden_logits(visible)))

    def log_normaliser_untied(self) -> Float[Array, ""]:
        return jnp.sum(jax.nn.softplus(self.bias)) + self.hidden_size * jnp.log(2.0)

    def chain_start(self, key: Key[Array, ""]) -> Float[Array, " V"]:
        return draws.bernoulli(key, self.bias)

    def scores(self, visible: Float[Array, " V"], probes: Int[Array, " K"]) -> Float[Array, " K"]:
        """−log p(v_i | v_−i) of the elements `probes`: minus the pseudo-log-likelihood."""
        own, weights = visible[probes], self.weights[probes]
        off = self.hidden_logits(visible)[None] - own[:, None] * weights
        odds = self.bias[probes] + jnp.sum(jax.nn.softplus(off + weights) - jax.nn.softplus(off), axis=1)
        return jax.nn.softplus(odds) - own * odds

    def check_visible(self, name: str, visible: np.ndarray) -> None:
        low, high = visible.min(), visible.max()
        if low < 0 or high > 1:
            raise ValueError(f"{name}: expected bits or probabilities for a binary RBM, got {low:g} to {high:g}")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GRBM(RBM):
    r"""The Gaussian RBM (Sec. 2, Eq. 2, 7 and 8), with `variance` σ² (V,). Without hidden units: a diagonal Gaussian.

    $$E(v, h) = \tfrac12 \sum_i \frac{(v_i - b_i)^2}{\sigma_i^2} - \sum_j c_j h_j - \sum_{ij} W_{ij} v_i h_j$$

    Eq. 8 of the paper is Eq. 7 with its square expanded (and a constant dropped): one class serves both albedo
    (b, c, W) and normals (d, e, U).
    """

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

    def visible_energy(self, visible: Float[Array, " V"], hidden: Float[Array, " H"]) -> Float[Array, ""]:
        """−log p(v | h)."""
        mean, variance = self.top_down(hidden)
        return 0.5 * jnp.sum((visible - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))

    def expected_energy(self, visible: Float[Array, " V"], binary: Float[Array, " H"]) -> Float[Array, ""]:
        """The mean of −log p(v | h) over independent hidden units with these means."""
        spread = self.variance * (jnp.square(self.weights) @ (binary * (1 - binary)))  # Var(μ)/σ²
        return self.visible_energy(visible, binary) + 0.5 * jnp.sum(spread)

    def log_normaliser_untied(self) -> Float[Array, ""]:
        return 0.5 * jnp.sum(jnp.log(2 * jnp.pi * self.variance)) + self.hidden_size * jnp.log(2.0)

    def _quadratic(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum((visible - self.bias) ** 2 / self.variance)

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
