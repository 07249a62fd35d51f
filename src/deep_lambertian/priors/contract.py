"""What inference asks of a prior, and nothing more; and what a prior says by itself.

A prior speaks of one vector of real numbers, `visible`: the albedo a, the normals vec(N), or the whole surface
x = [a, vec(N)] (see `surface`). It knows nothing of images or lights. All methods take a single
vector; batches are made with `jax.vmap`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from deep_lambertian.support import draws
from deep_lambertian.support.progress import chunks

LARGEST, SMALLEST = 1e15, 1e-30  # sizes with which single precision can still compute: it squares and divides them
Hidden = Any  # a pytree: an array, or a pair for a product of priors
Normal = tuple[Float[Array, " V"], Float[Array, " V"], Float[Array, "V K"]]  # mean, variance, factors
Chain = Any  # likewise: the state of a chain that generates from a prior


class Prior(ABC):
    """A density over `visible` through hidden variables that make its elements independent."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of `visible`."""

    @property
    @abstractmethod
    def centre(self) -> Float[Array, " V"]:
        """Where a chain starts: the visible biases."""

    @abstractmethod
    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Hidden:
        """Draw the hidden variables given the visible ones (conditional 1)."""

    @abstractmethod
    def mean_hidden(self, visible: Float[Array, " V"]) -> Hidden:
        """The mean of the same, for mean-field sweeps."""

    @abstractmethod
    def top_down(self, hidden: Hidden) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """Mean φ and variance σ² of each visible element given the hidden ones (Eq. 2)."""

    def gaussian(self, hidden: Hidden) -> Normal:
        """Mean μ, variance σ² and factors F of N(μ, diag σ² + FFᵀ), the visible elements given such hidden variables as
        are not Gaussian themselves: those that are, are integrated out. Factors are orthogonal in units of σ.
        """
        mean, variance = self.top_down(hidden)
        return mean, variance, jnp.zeros((self.size, 0))

    @abstractmethod
    def energy(self, visible: Float[Array, " V"], hidden: Hidden) -> Float[Array, ""]:
        """E(v, h), the negative log of the unnormalised joint density."""

    @abstractmethod
    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        """F(v) = −log Σ_h exp(−E(v, h)); for a deep belief net an upper bound of it."""

    def chain_start(self, key: Key[Array, ""]) -> Chain:
        """The first state of a chain that generates from the prior alone."""
        return self.centre

    @abstractmethod
    def chain_step(self, key: Key[Array, ""], state: Chain) -> Chain:
        """One alternating Gibbs iteration of that chain."""

    def chain_visible(self, key: Key[Array, ""], state: Chain) -> Float[Array, " V"]:
        """Draw the visible vector of a chain's state: most often the state itself."""
        return state

    def sample(self, key: Key[Array, ""], steps: int) -> Float[Array, " V"]:
        """Draw a visible vector after `steps` alternating Gibbs iterations."""
        start_key, step_key, last_key = draws.split(key, 3)
        step = lambda t, state: self.chain_step(draws.fold_in(step_key, t), state)
        state = jax.lax.fori_loop(0, steps, step, self.chain_start(start_key))
        return self.chain_visible(last_key, state)

    @abstractmethod
    def validate(self, name: str = ...) -> None:
        """Refuse parameters that are no distribution: a ValueError says which, what was got and what was expected."""


def check_array(name: str, value: Any, shape: tuple[int, ...], *, positive: bool = False) -> None:
    """Refuse a parameter of the wrong shape, one that is not finite, or not positive where it must be, and sizes with
    which single precision cannot compute.
    """
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: expected finite numbers, got {np.sum(~np.isfinite(array))} that are not")
    if positive and not np.all(array > 0):
        raise ValueError(f"{name}: expected positive numbers, got a smallest of {array.min():g}")
    if np.abs(array).max(initial=0) > LARGEST:
        raise ValueError(f"{name}: expected numbers of at most {LARGEST:g} in size, got {np.abs(array).max():g}")
    if positive and array.min(initial=1) < SMALLEST:
        raise ValueError(f"{name}: expected numbers of at least {SMALLEST:g}, got a smallest of {array.min():g}")


# ---- Long-run generation from a prior alone


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """Welford's sums: `count` of values, their `mean`, and `square`, the sum of squared deviations from it.

    With them a long chain needs no more memory than a short one.
    """

    count: jax.Array
    mean: jax.Array
    square: jax.Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))

    def add(self, value: jax.Array, weight: jax.Array | float = 1.0) -> "Moments":
        """Count one more value; a weight of 0 leaves everything as it was."""
        count = self.count + weight
        delta = value - self.mean
        mean = self.mean + delta * (weight / jnp.maximum(count, 1.0))
        return Moments(count, mean, self.square + weight * delta * (value - mean))

    @property
    def std(self) -> jax.Array:
        """Standard deviation of the values, 0 where fewer than two have come."""
        return jnp.sqrt(self.square / jnp.maximum(self.count - 1, 1.0))


Run = tuple[Chain, Moments]
Count = int | Int[Array, ""]  # traced within a compiled function


@dataclass(frozen=True)
class Generated:
    """Draws of the last iteration, and the moments of every kept iteration of each chain: all (chains, size)."""

    samples: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def generate(
    prior: Prior, seed: int = 0, steps: int = 50_000, chains: int = 16, burn_in: int | None = None, thin: int = 10
) -> Generated:
    """Run `chains` alternating Gibbs chains in parallel for `steps` iterations (the paper's Figure 4 has 50,000).

    Every `thin`-th iteration after `burn_in` (half of them unless told) enters the moments. Memory does not
    grow with `steps`.
    """
    if steps < 1 or chains < 1 or thin < 1:
        raise ValueError(f"expected positive steps, chains and thin, got {steps}, {chains} and {thin}")
    burn_in = steps // 2 if burn_in is None else burn_in
    keys = jax.vmap(partial(draws.fold_in, draws.make_key(seed)))(jnp.arange(chains))
    state = jax.vmap(lambda key: prior.chain_start(draws.fold_in(key, 0)))(keys)
    carry = state, Moments.zeros((chains, prior.size))
    for start, stop in chunks(steps, "sampling the prior"):
        carry = _advance(prior, keys, carry, start, stop, burn_in, thin)
    state, moments = carry
    samples = jax.vmap(lambda key, s: prior.chain_visible(draws.fold_in(key, 1), s))(keys, state)
    return Generated(np.asarray(samples), np.asarray(moments.mean), np.asarray(moments.std))


@partial(jax.jit, donate_argnames="carry")
def _advance(
    prior: Prior, keys: Key[Array, " C"], carry: Run, start: Count, stop: Count, burn_in: Count, thin: Count
) -> Run:
    """Iterations start … stop−1 of every chain; the bounds are traced, so one compilation serves all."""

    def step(t: Count, carry: Run) -> Run:
        state, moments = carry
        step_keys, look_keys = jax.vmap(lambda key: draws.split(draws.fold_in(key, t + 2), 2))(keys)
        state = jax.vmap(prior.chain_step)(step_keys, state)
        look = lambda moments: moments.add(jax.vmap(prior.chain_visible)(look_keys, state))
        kept = (t >= burn_in) & ((t - burn_in) % thin == 0)
        return state, jax.lax.cond(kept, look, lambda m: m, moments)

    return jax.lax.fori_loop(start, stop, step, carry)
