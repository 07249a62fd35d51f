r"""Restricted Boltzmann machines: what the Gaussian and the binary one have in common, and the binary one.

$$p(h_j = 1 \mid v) = \mathrm{sigmoid}\Big(c_j + \sum_i v_i W_{ij}\Big) \qquad \text{(Eq. 1)}$$

Methods take a single vector, and batches are made with `jax.vmap`, but for the few that speak of a whole batch.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from deep_lambertian.priors.contract import Generative, check_array
from deep_lambertian.support import draws

R = TypeVar("R", bound="RBM")


class Units(NamedTuple):
    """What visibles are measured in while learning: u = (v − mean)/spread, each (V,)."""

    mean: jax.Array
    spread: jax.Array

    def standardised(self, visible: Float[Array, "B V"]) -> Float[Array, "B V"]:
        """A batch in units."""
        return (visible - self.mean[None]) * (1 / self.spread)[None]


class RBM(Generative, ABC):
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

    @abstractmethod
    def top_down(self, hidden: Float[Array, " H"]) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """Mean and variance of v given h."""

    @abstractmethod
    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        """F(v) = −log Σ_h exp(−E(v, h))."""

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

    def chain_visible(self, key: Key[Array, ""], state: Float[Array, " V"]) -> Float[Array, " V"]:
        return state

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
            self,  # type: ignore[type-var]
            bias=weights @ visible,
            hidden_bias=jnp.sum(weighted, axis=0),
            weights=(weighted.T @ visible).T,
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

    bias: jax.Array
    hidden_bias: jax.Array
    weights: jax.Array

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

    def chain_start(self, key: Key[Array, ""]) -> Float[Array, " V"]:
        return draws.bernoulli(key, self.bias)

    def scores(self, visible: Float[Array, " V"], probes: Int[Array, " K"]) -> Float[Array, " K"]:
        """−log p(v_i | v_−i) of the elements `probes`: minus the pseudo-log-likelihood."""
        own, weights = visible[probes], self.weights[probes]
        off = self.hidden_logits(visible)[None] - own[:, None] * weights
        odds = self.bias[probes] + jnp.sum(jax.nn.softplus(off + weights) - jax.nn.softplus(off), axis=1)
        return jax.nn.softplus(odds) - own * odds

    def check_visible(self, name: str, visible: np.ndarray) -> None:
        if visible.min() < 0 or visible.max() > 1:
            raise ValueError(
                f"{name}: expected bits or probabilities for a binary RBM, got {visible.min():g} to {visible.max():g}"
            )
