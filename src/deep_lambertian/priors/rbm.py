r"""The binary restricted Boltzmann machine, a layer above the first in a deep belief net.

$$E(v, h) = -b^\top v - c^\top h - v^\top W h, \qquad v_i, h_j \in \{0, 1\}$$
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from deep_lambertian.priors.contract import Generative, check_array
from deep_lambertian.support import draws


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BinaryRBM(Generative):
    """Parameters `bias` b (V,), `hidden_bias` c (H,), `weights` W (V, H)."""

    bias: jax.Array
    hidden_bias: jax.Array
    weights: jax.Array

    @property
    def size(self) -> int:
        return self.bias.shape[-1]

    @property
    def hidden_size(self) -> int:
        return self.hidden_bias.shape[-1]

    @property
    def centre(self) -> jax.Array:
        return jax.nn.sigmoid(self.bias)

    def hidden_logits(self, visible: jax.Array) -> jax.Array:
        """Log-odds of h_j = 1 given v (Eq. 1)."""
        return self.hidden_bias + visible @ self.weights

    def visible_logits(self, hidden: jax.Array) -> jax.Array:
        """Log-odds of v_i = 1 given h."""
        return self.bias + self.weights @ hidden

    def sample_hidden(self, key: jax.Array, visible: jax.Array) -> jax.Array:
        return draws.bernoulli(key, self.hidden_logits(visible))

    def mean_hidden(self, visible: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(self.hidden_logits(visible))

    def top_down(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jax.nn.sigmoid(self.visible_logits(hidden))
        return mean, mean * (1 - mean)

    def energy(self, visible: jax.Array, hidden: jax.Array) -> jax.Array:
        return -self.bias @ visible - self.hidden_logits(visible) @ hidden

    def free_energy(self, visible: jax.Array) -> jax.Array:
        return -self.bias @ visible - jnp.sum(jax.nn.softplus(self.hidden_logits(visible)))

    def chain_start(self, key: jax.Array) -> jax.Array:
        return draws.bernoulli(key, self.bias)

    def chain_step(self, key: jax.Array, state: jax.Array) -> jax.Array:
        hidden = self.sample_hidden(key, state)
        return draws.bernoulli(key, self.visible_logits(hidden), stream=1)

    def chain_visible(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return state

    def validate(self, name: str = "rbm") -> None:
        visible, hidden = self.size, self.hidden_size
        check_array(f"{name}.bias", self.bias, (visible,))
        check_array(f"{name}.hidden_bias", self.hidden_bias, (hidden,))
        check_array(f"{name}.weights", self.weights, (visible, hidden))
