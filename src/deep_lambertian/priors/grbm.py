r"""The Gaussian restricted Boltzmann machine (Sec. 2, Eq. 1, 2, 7 and 8).

$$E(v, h) = \tfrac12 \sum_i \frac{(v_i - b_i)^2}{\sigma_i^2} - \sum_j c_j h_j - \sum_{ij} W_{ij} v_i h_j$$

Eq. 8 of the paper is Eq. 7 with its square expanded (and a constant dropped): one class serves both albedo
(b, c, W) and normals (d, e, U). With no hidden units it is a diagonal Gaussian.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from deep_lambertian.priors.contract import Generative, check_array
from deep_lambertian.support import draws


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GRBM(Generative):
    """Parameters `bias` b (V,), `hidden_bias` c (H,), `weights` W (V, H), `variance` σ² (V,)."""

    bias: jax.Array
    hidden_bias: jax.Array
    weights: jax.Array
    variance: jax.Array

    @classmethod
    def random(cls, key: jax.Array, size: int, hidden_size: int, scale: float = 0.01) -> "GRBM":
        """Step 2 of Algorithm 1: weights ~ N(0, 0.01²), variances 1, biases 0."""
        return cls(
            bias=jnp.zeros(size),
            hidden_bias=jnp.zeros(hidden_size),
            weights=scale * draws.normal(key, (size, hidden_size)),
            variance=jnp.ones(size),
        )

    @property
    def size(self) -> int:
        return self.bias.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.hidden_bias.shape[-1]

    @property
    def centre(self) -> jax.Array:
        return self.bias

    def up(self, visible: jax.Array) -> jax.Array:
        """Σ_i v_i W_ij, what each hidden unit is told."""
        return visible @ self.weights

    def down(self, hidden: jax.Array) -> jax.Array:
        """Σ_j W_ij h_j, what each visible unit is told."""
        return self.weights @ hidden

    def hidden_logits(self, visible: jax.Array) -> jax.Array:
        """Log-odds of h_j = 1 given v (Eq. 1)."""
        return self.hidden_bias + self.up(visible)

    def sample_hidden(self, key: jax.Array, visible: jax.Array) -> jax.Array:
        return draws.bernoulli(key, self.hidden_logits(visible))

    def mean_hidden(self, visible: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(self.hidden_logits(visible))

    def top_down(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """μ_i = b_i + σ_i² Σ_j W_ij h_j, and σ_i² (Eq. 2)."""
        return self.bias + self.variance * self.down(hidden), self.variance

    def energy(self, visible: jax.Array, hidden: jax.Array) -> jax.Array:
        # W·h rather than v·W: the same product as in `top_down`, so that a sweep computes it once.
        return self._quadratic(visible) - self.hidden_bias @ hidden - visible @ self.down(hidden)

    def free_energy(self, visible: jax.Array) -> jax.Array:
        return self._quadratic(visible) - jnp.sum(jax.nn.softplus(self.hidden_logits(visible)))

    def _quadratic(self, visible: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum((visible - self.bias) ** 2 / self.variance)

    def sample_visible(self, key: jax.Array, hidden: jax.Array, stream: int = 0) -> jax.Array:
        """Draw v given h (Eq. 2)."""
        mean, variance = self.top_down(hidden)
        return mean + jnp.sqrt(variance) * draws.normal(key, mean.shape, stream)

    def chain_start(self, key: jax.Array) -> jax.Array:
        return self.bias

    def chain_step(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return self.sample_visible(key, self.sample_hidden(key, state), stream=1)

    def chain_visible(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return state

    def validate(self, name: str = "grbm") -> None:
        visible, hidden = self.size, self.hidden_size
        check_array(f"{name}.bias", self.bias, (visible,))
        check_array(f"{name}.hidden_bias", self.hidden_bias, (hidden,))
        check_array(f"{name}.weights", self.weights, (visible, hidden))
        check_array(f"{name}.variance", self.variance, (visible,), positive=True)
