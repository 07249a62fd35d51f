"""What inference asks of a prior, and nothing more.

A prior speaks of one vector of real numbers, `visible`: the albedo a, the normals vec(N), or the whole surface
x = [a, vec(N)] (see `surface`). It knows nothing of images or lights. All methods take a single
vector; batches are made with `jax.vmap`.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from deep_lambertian.support import draws

Hidden = Any  # a pytree: an array, or a pair for a product of priors
Chain = Any  # likewise: the state of a chain that generates from a prior


@runtime_checkable
class Prior(Protocol):
    """A density over `visible` through hidden variables that make its elements independent."""

    @property
    def size(self) -> int:
        """Length of `visible`."""
        ...

    @property
    def centre(self) -> Float[Array, " V"]:
        """Where a chain starts: the visible biases."""
        ...

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Hidden:
        """Draw the hidden variables given the visible ones (conditional 1)."""
        ...

    def mean_hidden(self, visible: Float[Array, " V"]) -> Hidden:
        """The mean of the same, for mean-field sweeps."""
        ...

    def top_down(self, hidden: Hidden) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """Mean φ and variance σ² of each visible element given the hidden ones (Eq. 2)."""
        ...

    def energy(self, visible: Float[Array, " V"], hidden: Hidden) -> Float[Array, ""]:
        """E(v, h), the negative log of the unnormalised joint density."""
        ...

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        """F(v) = −log Σ_h exp(−E(v, h)); for a deep belief net an upper bound of it."""
        ...

    def chain_start(self, key: Key[Array, ""]) -> Chain:
        """The first state of a chain that generates from the prior alone."""
        ...

    def chain_step(self, key: Key[Array, ""], state: Chain) -> Chain:
        """One alternating Gibbs iteration of that chain."""
        ...

    def chain_visible(self, key: Key[Array, ""], state: Chain) -> Float[Array, " V"]:
        """Draw the visible vector of a chain's state."""
        ...

    def sample(self, key: Key[Array, ""], steps: int) -> Float[Array, " V"]:
        """Draw a visible vector after `steps` alternating Gibbs iterations."""
        ...

    def validate(self, name: str = ...) -> None:
        """Refuse parameters that are no distribution: a ValueError says which, what was got and what was expected."""
        ...


class Generative:
    """`sample`, the same for every prior that has the three `chain_*` methods."""

    def sample(self: Prior, key: Key[Array, ""], steps: int) -> Float[Array, " V"]:
        start_key, step_key, last_key = draws.split(key, 3)

        def step(t: Int[Array, ""], state: Chain) -> Chain:
            return self.chain_step(draws.fold_in(step_key, t), state)

        state = jax.lax.fori_loop(0, steps, step, self.chain_start(start_key))
        return self.chain_visible(last_key, state)


def check_array(name: str, value: Any, shape: tuple[int, ...], *, positive: bool = False) -> None:
    """Refuse a parameter of the wrong shape, or one that is not finite, or not positive where it must be."""
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: expected finite numbers, got {np.sum(~np.isfinite(array))} that are not")
    if positive and not np.all(array > 0):
        raise ValueError(f"{name}: expected positive numbers, got a smallest of {array.min():g}")
