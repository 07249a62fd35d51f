r"""Gaussian and binary hidden units together: what a Gaussian says of surfaces, and what binary units say beyond it.

$$E(x, z, h) = \tfrac12 \lVert x - \mu - F z \rVert^2_{\sigma^{-2}} + \tfrac12 z^\top z
  - c^\top h - (x - \mu)^\top W h$$

Given x, all of z and h are independent; given z and h, so are the elements of x. With z integrated out, x given h is a
Gaussian of the one covariance $\Sigma = \mathrm{diag}\,\sigma^2 + FF^\top$ about $\mu + \Sigma W h$: a Gaussian RBM
whose visible noise is correlated. Without weights it is the Gaussian alone.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from deep_lambertian.priors.contract import Normal, Prior, check_array
from deep_lambertian.priors.gaussian import Gaussian
from deep_lambertian.support import draws

Both = tuple[Float[Array, " K"], Float[Array, " H"]]  # z and h


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GaussianBinary(Prior):
    """A `base` Gaussian with μ, σ² and F, `hidden_bias` c (H,) and `weights` W (V, H); `hidden` is the pair (z, h)."""

    base: Gaussian
    hidden_bias: jax.Array
    weights: jax.Array

    @property
    def size(self) -> int:
        return self.base.size

    @property
    def hidden_size(self) -> int:
        return self.hidden_bias.shape[-1]

    @property
    def centre(self) -> Float[Array, " V"]:
        return self.base.mean

    def hidden_logits(self, visible: Float[Array, " V"]) -> Float[Array, " H"]:
        """Log-odds of h_j = 1 given x."""
        return self.hidden_bias + (visible - self.base.mean) @ self.weights

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Both:
        binary, gaussian = draws.split(key, 2)
        return self.joined(visible, draws.bernoulli(binary, self.hidden_logits(visible)), gaussian)

    def mean_hidden(self, visible: Float[Array, " V"]) -> Both:
        return self.joined(visible, jax.nn.sigmoid(self.hidden_logits(visible)), None)

    def joined(self, visible: Float[Array, " V"], binary: Float[Array, " H"], key: Key[Array, ""] | None) -> Both:
        """Binary units, however they were found, and the Gaussian ones given x: a draw, or without a key their mean."""
        found = self.base.mean_hidden(visible) if key is None else self.base.sample_hidden(key, visible)
        return found, binary

    def top_down(self, hidden: Both) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        factors, binary = hidden
        mean, variance = self.base.top_down(factors)
        return mean + variance * (self.weights @ binary), variance

    def gaussian(self, hidden: Both) -> Normal:
        return self.base.mean + self.pull(hidden[1]), self.base.variance, self.base.factors

    def pull(self, binary: Float[Array, " H"]) -> Float[Array, " V"]:
        """ΣWh, by which binary units move the mean of x."""
        push = self.weights @ binary
        return self.base.variance * push + self.base.factors @ (push @ self.base.factors)

    def energy(self, visible: Float[Array, " V"], hidden: Both) -> Float[Array, ""]:
        factors, binary = hidden
        return self.base.energy(visible, factors) - self.hidden_logits(visible) @ binary

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return self.base.free_energy(visible) - jnp.sum(jax.nn.softplus(self.hidden_logits(visible)))

    def chain_step(self, key: Key[Array, ""], state: Float[Array, " V"]) -> Float[Array, " V"]:
        """h given x, then x given h alone: a step crosses all of the Gaussian at once."""
        binary, visible = draws.split(key, 2)
        return self.sample_visible(visible, draws.bernoulli(binary, self.hidden_logits(state)))

    def sample_visible(self, key: Key[Array, ""], binary: Float[Array, " H"]) -> Float[Array, " V"]:
        """Draw x given h."""
        return self.base.chain_step(key, self.centre) + self.pull(binary)

    def visible_energy(self, visible: Float[Array, " V"], hidden: Both) -> Float[Array, ""]:
        """−log p(x, z | h)."""
        factors, binary = hidden
        mean, variance = self.top_down(hidden)
        off = factors - (self.weights @ binary) @ self.base.factors
        return 0.5 * (jnp.sum((visible - mean) ** 2 / variance) + off @ off) + self.base.log_normaliser()

    def expected_energy(self, visible: Float[Array, " V"], binary: Float[Array, " H"]) -> Float[Array, ""]:
        """The mean of −log p(x | h) over independent binary units with these means."""
        about = self.base.free_energy(visible - self.pull(binary)) + self.base.log_normaliser()
        spread = jnp.sum(self.weights * jax.vmap(self.pull, 1, 1)(jnp.eye(self.hidden_size)), axis=0)  # WᵀΣW's diagonal
        return about + 0.5 * spread @ (binary * (1 - binary))

    def tempered(self, beta: float | jax.Array) -> "GaussianBinary":
        """The same with a share of what the binary units say: at 0 the Gaussian alone."""
        return replace(self, hidden_bias=beta * self.hidden_bias, weights=beta * self.weights)

    def log_normaliser_untied(self) -> Float[Array, ""]:
        """log Σ exp(−E) of `tempered(0)`."""
        return self.base.log_normaliser() + self.hidden_size * jnp.log(2.0)

    @staticmethod
    def binary_of(hidden: Both) -> Float[Array, " H"]:
        """Those of the hidden units that a layer above sees."""
        return hidden[1]

    def validate(self, name: str = "gaussian_binary") -> None:
        self.base.validate(f"{name}.base")
        check_array(f"{name}.hidden_bias", self.hidden_bias, (self.hidden_size,))
        check_array(f"{name}.weights", self.weights, (self.size, self.hidden_size))
