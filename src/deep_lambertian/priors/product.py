"""Two independent priors, one of albedo and one of normals, as in the paper (Eq. 3)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from deep_lambertian.priors.contract import Generative, Prior
from deep_lambertian.support import draws

Pair = tuple[Any, Any]  # what belongs to albedo, and to normals


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Product(Generative):
    """p(x) = p(a) p(vec N) over the surface x = [a, vec(N)]; `hidden` is the pair (h, g)."""

    albedo: Prior
    normals: Prior

    @property
    def size(self) -> int:
        return self.albedo.size + self.normals.size

    @property
    def _parts(self) -> tuple[Prior, Prior]:
        return self.albedo, self.normals

    def _split(self, visible: Float[Array, " V"]) -> tuple[Float[Array, " A"], Float[Array, " N"]]:
        return visible[: self.albedo.size], visible[self.albedo.size :]

    def _apart(self, key: Key[Array, ""], method: str, values: Pair) -> Pair:
        """Call a method of both parts, each with a key and a value of its own."""
        keys = draws.split(key, 2)
        a, n = (getattr(p, method)(k, v) for p, k, v in zip(self._parts, keys, values, strict=True))
        return a, n

    @property
    def centre(self) -> Float[Array, " V"]:
        return jnp.concatenate([self.albedo.centre, self.normals.centre])

    def sample_hidden(self, key: Key[Array, ""], visible: Float[Array, " V"]) -> Pair:
        return self._apart(key, "sample_hidden", self._split(visible))

    def mean_hidden(self, visible: Float[Array, " V"]) -> Pair:
        a, n = self._split(visible)
        return self.albedo.mean_hidden(a), self.normals.mean_hidden(n)

    def top_down(self, hidden: Pair) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        (mean_a, var_a), (mean_n, var_n) = (p.top_down(h) for p, h in zip(self._parts, hidden, strict=True))
        return jnp.concatenate([mean_a, mean_n]), jnp.concatenate([var_a, var_n])

    def energy(self, visible: Float[Array, " V"], hidden: Pair) -> Float[Array, ""]:
        a, n = self._split(visible)
        return self.albedo.energy(a, hidden[0]) + self.normals.energy(n, hidden[1])

    def free_energy(self, visible: Float[Array, " V"]) -> Float[Array, ""]:
        a, n = self._split(visible)
        return self.albedo.free_energy(a) + self.normals.free_energy(n)

    def chain_start(self, key: Key[Array, ""]) -> Pair:
        a, n = draws.split(key, 2)
        return self.albedo.chain_start(a), self.normals.chain_start(n)

    def chain_step(self, key: Key[Array, ""], state: Pair) -> Pair:
        return self._apart(key, "chain_step", state)

    def chain_visible(self, key: Key[Array, ""], state: Pair) -> Float[Array, " V"]:
        return jnp.concatenate(self._apart(key, "chain_visible", state))

    def validate(self, name: str = "prior") -> None:
        self.albedo.validate(f"{name}.albedo")
        self.normals.validate(f"{name}.normals")
        if self.normals.size != 3 * self.albedo.size:
            raise ValueError(
                f"{name}.normals: expected {3 * self.albedo.size} elements, three for each of the "
                f"{self.albedo.size} of the albedo prior, got {self.normals.size}"
            )
