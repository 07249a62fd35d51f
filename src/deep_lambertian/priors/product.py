"""Two independent priors, one of albedo and one of normals, as in the paper (Eq. 3)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from deep_lambertian.priors.contract import Normal, Prior
from deep_lambertian.support import draws

Pair = tuple[Any, Any]  # what belongs to albedo, and to normals


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Product(Prior):
    """p(x) = p(a) p(vec N) over the surface x = [a, vec(N)]; `hidden` is the pair (h, g)."""

    albedo: Prior
    normals: Prior

    @property
    def size(self) -> int:
        return self.albedo.size + self.normals.size

    @property
    def centre(self) -> Float[Array, " V"]:
        return jnp.concatenate([self.albedo.centre, self.normals.centre])

    def _split(self, visible: Float[Array, " V"]) -> tuple[Float[Array, " A"], Float[Array, " N"]]:
        return visible[: self.albedo.size], visible[self.albedo.size :]

    def _each(self, method: str, *pairs: tuple[Any, ...]) -> Pair:
        """What a method of each part makes of its own of every pair."""
        a, n = zip(*pairs, strict=True)
        return getattr(self.albedo, method)(*a), getattr(self.normals, method)(*n)

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Pair:
        return self._each("sample_hidden", draws.split(key, 2), self._split(visible))

    def mean_hidden(self, visible: Float[Array, " V"]) -> Pair:
        return self._each("mean_hidden", self._split(visible))

    def top_down(self, hidden: Pair) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        (mean_a, var_a), (mean_n, var_n) = self._each("top_down", hidden)
        return jnp.concatenate([mean_a, mean_n]), jnp.concatenate([var_a, var_n])

    def gaussian(self, hidden: Pair) -> Normal:
        (mean_a, var_a, some), (mean_n, var_n, others) = self._each("gaussian", hidden)
        factors = jnp.concatenate(
            [jnp.pad(some, ((0, 0), (0, others.shape[1]))), jnp.pad(others, ((0, 0), (some.shape[1], 0)))]
        )
        return jnp.concatenate([mean_a, mean_n]), jnp.concatenate([var_a, var_n]), factors

    def energy(self, visible: Float[Array, " V"], hidden: Pair) -> Float[Array, ""]:
        return jnp.add(*self._each("energy", self._split(visible), hidden))

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        return jnp.add(*self._each("free_energy", self._split(visible)))

    def chain_start(self, key: Key[Array, ""]) -> Pair:
        return self._each("chain_start", draws.split(key, 2))

    def chain_step(self, key: Key[Array, ""], state: Pair) -> Pair:
        return self._each("chain_step", draws.split(key, 2), state)

    def chain_visible(self, key: Key[Array, ""], state: Pair) -> Float[Array, " V"]:
        return jnp.concatenate(self._each("chain_visible", draws.split(key, 2), state))

    def validate(self, name: str = "prior") -> None:
        self.albedo.validate(f"{name}.albedo")
        self.normals.validate(f"{name}.normals")
        if self.normals.size != 3 * self.albedo.size:
            raise ValueError(
                f"{name}.normals: expected {3 * self.albedo.size} elements, three for each of the "
                f"{self.albedo.size} of the albedo prior, got {self.normals.size}"
            )
