r"""The deep belief net: a Gaussian RBM with binary RBMs stacked on it (Hinton, Osindero & Teh, 2006), or the same on
the binary units of a Gaussian that has some.

$$p(v, h^1, \dots, h^L) = p(v \mid h^1)\, p(h^1 \mid h^2) \cdots p(h^{L-1}, h^L)$$

The top two layers are an RBM; what lies below is directed downwards. Inference goes up with each layer's own
weights (Eq. 1), as in the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from deep_lambertian.priors.contract import Hidden, Normal, Prior
from deep_lambertian.priors.gaussian_binary import GaussianBinary
from deep_lambertian.priors.rbm import GRBM, RBM, BinaryRBM
from deep_lambertian.support import draws


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DBN(Prior):
    """A `base` below `layers` of binary RBMs, lowest first; without layers it is the base.

    `top_steps` alternating steps are taken in the top RBM between going up and coming down. `top_weight` is the
    share of the message from above in the log-odds of h¹, the rest being the layer's own bottom-up message: 1 is
    the deep belief net of the paper, 0 the plain GRBM. (With no data term below, up-down passes alone forget
    what the image said.)
    """

    base: GRBM | GaussianBinary
    layers: tuple[BinaryRBM, ...]
    top_steps: int = field(default=1, metadata={"static": True})
    top_weight: float = field(default=1.0, metadata={"static": True})

    @classmethod
    def random(cls, key: Key[Array, ""], size: int, hidden_sizes: tuple[int, ...], scale: float = 0.01) -> "DBN":
        """Step 2 of Algorithm 1 for a net of any depth."""
        first, *rest = draws.split(key, len(hidden_sizes))
        layers = tuple(
            BinaryRBM(jnp.zeros(below), jnp.zeros(above), scale * draws.normal(k, (below, above)))
            for k, (below, above) in zip(rest, pairwise(hidden_sizes), strict=True)
        )
        return cls(GRBM.random(first, size, hidden_sizes[0], scale), layers)

    @property
    def size(self) -> int:
        return self.base.size

    @property
    def centre(self) -> Float[Array, " V"]:
        return self.base.centre

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Hidden:
        """Up through the layers, `top_steps` in the top RBM, and down again to h¹."""
        streams = count()
        binary = self._pass(visible, lambda logits: draws.bernoulli(key, logits, next(streams)))
        return self.base.joined(visible, binary, draws.fold_in(key, 1))

    def mean_hidden(self, visible: Float[Array, " V"]) -> Hidden:
        return self.base.joined(visible, self._pass(visible, jax.nn.sigmoid), None)

    def _pass(self, visible: Float[Array, " V"], draw: Callable[[jax.Array], jax.Array]) -> Float[Array, " H"]:
        bottom_up = self.base.hidden_logits(visible)
        state = draw(bottom_up)
        if not self.layers:
            return state
        for layer in self.layers[:-1]:
            state = draw(layer.hidden_logits(state))
        top, below = self.layers[-1], self.layers[:-1]
        logits = bottom_up
        for step in range(self.top_steps):
            logits = top.visible_logits(draw(top.hidden_logits(state)))
            if step + 1 < self.top_steps:  # the last draw is made below, where messages are mixed
                state = draw(logits)
        for layer in reversed(below):
            logits = layer.visible_logits(draw(logits))
        return draw(self.top_weight * logits + (1 - self.top_weight) * bottom_up)

    def top_down(self, hidden: Hidden) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        return self.base.top_down(hidden)

    def gaussian(self, hidden: Hidden) -> Normal:
        return self.base.gaussian(hidden)

    def energy(self, visible: Float[Array, " V"], hidden: Hidden) -> Float[Array, ""]:
        """−log p(v|h¹) + F(h¹), the layers above h¹ summed out: exactly for two layers, bounded for more."""
        if not self.layers:
            return self.base.energy(visible, hidden)
        return self.base.visible_energy(visible, hidden) + self._free_energy_above(self.base.binary_of(hidden))

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        """The variational upper bound of −log p̃(v) whose q goes up layer by layer with Eq. 1."""
        if not self.layers:
            return self.base.free_energy(visible)
        q = jax.nn.sigmoid(self.base.hidden_logits(visible))
        return self.base.expected_energy(visible, q) - _entropy(q) + self._free_energy_above(q)

    def _free_energy_above(self, q: Float[Array, " H"]) -> Float[Array, ""]:
        """Upper bound of E_q[−log p̃(h¹)], q being independent units with these means.

        The top RBM's free energy is concave, so F(E h) ≥ E F(h), with equality for 0 and 1; and
        E softplus(x) ≤ softplus(log E eˣ), where E exp(Wh) is a product over units.
        """
        bound = jnp.zeros(())
        for layer in self.layers[:-1]:
            above = layer.mean_hidden(q)
            log_mgf = layer.bias + jnp.sum(jnp.log1p(above[None] * jnp.expm1(layer.weights)), axis=1)
            bound += jnp.sum(jax.nn.softplus(log_mgf)) - layer.visible_logits(above) @ q - _entropy(above)
            q = above
        return bound + self.layers[-1].free_energy(q)

    @property
    def _top(self) -> RBM | GaussianBinary:
        return self.layers[-1] if self.layers else self.base

    def chain_start(self, key: Key[Array, ""]) -> Float[Array, " T"]:
        return self._top.chain_start(key)

    def chain_step(self, key: Key[Array, ""], state: Float[Array, " T"]) -> Float[Array, " T"]:
        """Alternate in the top RBM; what lies below is drawn only when it is looked at."""
        return self._top.chain_step(key, state)

    def chain_visible(self, key: Key[Array, ""], state: Float[Array, " T"]) -> Float[Array, " V"]:
        if not self.layers:
            return state
        for stream, layer in enumerate(reversed(self.layers[:-1]), start=1):
            state = draws.bernoulli(key, layer.visible_logits(state), stream)
        return self.base.sample_visible(key, state)

    def validate(self, name: str = "dbn") -> None:
        self.base.validate(f"{name}.base")
        if self.top_steps < 1 or not 0 <= self.top_weight <= 1:
            raise ValueError(
                f"{name}: expected top_steps of at least 1 and top_weight in [0, 1], "
                f"got {self.top_steps} and {self.top_weight}"
            )
        below = self.base.hidden_size
        for i, layer in enumerate(self.layers):
            place, size = f"{name}.layers[{i}]", layer.size
            layer.validate(place)
            if size != below:
                raise ValueError(f"{place}: expected {below} visible units, the size of the layer below, got {size}")
            below = layer.hidden_size


def _entropy(q: Float[Array, " H"]) -> Float[Array, ""]:
    """Entropy of independent binary units, 0 log 0 being 0."""
    return -jnp.sum(jax.scipy.special.xlogy(q, q) + jax.scipy.special.xlog1py(1 - q, -q))
