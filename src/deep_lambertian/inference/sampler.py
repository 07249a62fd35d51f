"""The Gibbs sampler: its settings and presets, the blocks of a sweep (the conditionals of Sec. 3.2 in turn), its start.

To add a block, such as another light model or likelihood, write it in a file of its own, give it a place in `blocks_of`
and, at its end, a name in `BLOCKS`: nothing else changes, not even the numbers that the other blocks draw.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp

from deep_lambertian.energy import Block, Observation, Params, State
from deep_lambertian.inference.albedo import draw_albedo
from deep_lambertian.inference.hidden import draw_hidden, mean_hidden
from deep_lambertian.inference.lights import draw_lights, light_conditional
from deep_lambertian.inference.normals import DrawNormals
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.inference.whole_surface import DrawSurface, Near, find_near
from deep_lambertian.support import draws
from deep_lambertian.support.settings import Count, Must, Positive, Share, Whole, check
from deep_lambertian.surface import Leaf, Surface, on_sphere


@dataclass(frozen=True)
class Sampler:
    """Settings of the Gibbs chains. The defaults are the paper's (Sec. 4.1).

    `chains` chains of `iterations` sweeps; those after `burn_in` are averaged. Where they have not converged by then,
    they go on, to at most `until` sweeps. `keep` states of each chain are kept, evenly spread over the sweeps after the
    burn-in, or over all of them if there are more to keep than these.

    `surface` is drawn by the paper's conditionals 2 and 4 in turn, or whole (see `whole_surface`). By conditionals, HMC
    draws momenta of mass `mass` and takes `epochs` trajectories of `leapfrogs` steps in every sweep; `anneal`
    multiplies the noise variance at the first sweep and falls geometrically to 1 at the end of the burn-in; `start` is
    the visible biases as they are, or with their normals brought to unit length. As a whole, a sweep has one trajectory
    of `leapfrogs` steps, which are radians; chains start near the mode, and the search for that is annealed. Half-way
    through the burn-in they tell how the surface varies about their mean.
    With a `target_acceptance`, step sizes adapt to it in the burn-in. `hidden="mean"` replaces draws of the hidden
    units by their means. `shadow` has labels for pixels that are not lit (see `shadows`).
    """

    iterations: Count = 50
    burn_in: int = 25
    step_size: Positive = 0.01
    leapfrogs: Count = 20
    epochs: Count = 10
    mass: Positive = 2.0
    target_acceptance: Share | None = None
    hidden: Literal["sample", "mean"] = "sample"
    shadow: ShadowLabels | None = None
    anneal: Annotated[float, Must("a temperature of at least 1", lambda x: x >= 1)] = 1.0
    start: Literal["bias", "sphere"] = "bias"
    surface: Literal["conditionals", "whole"] = "conditionals"
    until: Whole = 0
    chains: Count = 1
    keep: int = 0

    def __post_init__(self) -> None:
        check(self)
        if not 0 <= self.burn_in < self.iterations:
            raise ValueError(
                f"burn_in: expected at least 0 and fewer than the {self.iterations} iterations, got {self.burn_in}"
            )
        if not isinstance(self.keep, int) or not 0 <= self.keep <= self.iterations:
            raise ValueError(f"keep: expected 0 to {self.iterations}, the number of iterations, got {self.keep!r}")

    @classmethod
    def of_preset(cls, name: str) -> "Sampler":
        """One of `paper`, `best` and `quick`."""
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; expected one of {sorted(PRESETS)}")
        return PRESETS[name]

    @property
    def keep_from(self) -> int:
        """The first sweep whose state may be kept."""
        return self.burn_in if self.keep <= self.iterations - self.burn_in else 0

    @property
    def most(self) -> int:
        """How many sweeps there may be."""
        return max(self.iterations, self.until)

    def override(self, **changes: Any) -> "Sampler":
        """The same with the given settings changed; None leaves a setting alone, `shadow=False` turns shadows off.

        A new number of iterations keeps the burn-in's share of them, and is the last word, unless `burn_in` and `until`
        are given too.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        if changes.get("shadow") is False:
            changes["shadow"] = None
        known = sorted(self.__dataclass_fields__)
        if unknown := set(changes) - set(known):
            raise ValueError(f"unknown sampler setting {sorted(unknown)}; expected some of {known}")
        if "iterations" in changes and "burn_in" not in changes:
            changes["burn_in"] = int(changes["iterations"] * self.burn_in / self.iterations)
        if "iterations" in changes:
            changes.setdefault("until", 0)
        return replace(self, **changes)


PRESETS: dict[str, Sampler] = {
    "paper": Sampler(),
    # Short chains find as much as one that is as long as all together, and show whether they agree; six take little
    # longer than four, whose time goes into reading the same matrices.
    "best": Sampler(
        iterations=240,
        burn_in=40,
        until=2000,
        step_size=0.3,
        leapfrogs=6,
        target_acceptance=0.85,
        surface="whole",
        shadow=ShadowLabels(),
        anneal=100.0,
        chains=6,
    ),
    "quick": Sampler(iterations=60, burn_in=20, step_size=0.03, leapfrogs=7, epochs=2, start="sphere"),
}

# A block's place among these makes its key.
BLOCKS = ("hidden", "albedo", "lights", "normals", "surface", "shadows")
LAST = 2**31 - 1
SURFACE = frozenset(["albedo", "normals"])


def blocks_of(sampler: Sampler, known: frozenset[str] = frozenset()) -> dict[str, Block]:
    """The blocks of a sweep in their order, but for those whose unknowns are known."""
    found: dict[str, Block] = {}
    hidden = draw_hidden if sampler.hidden == "sample" else mean_hidden
    whole = is_whole(sampler, known)
    if not whole:
        found["hidden"] = hidden
    if sampler.shadow is not None:
        found["shadows"] = sampler.shadow.given_albedo if "albedo" in known else sampler.shadow
    if sampler.shadow is not None or not whole:
        found["albedo"] = draw_albedo  # next after the labels, which have been drawn without it
    if whole:
        found["surface"] = DrawSurface(sampler.leapfrogs, "lights" in known)
    found["lights"] = draw_lights
    if whole:
        found["hidden"] = hidden  # afterwards: those that are Gaussian have been integrated out
    else:
        found["normals"] = DrawNormals(sampler.leapfrogs, sampler.epochs, sampler.mass)
    return {name: block for name, block in found.items() if name not in known}


def is_whole(sampler: Sampler, known: frozenset[str]) -> bool:
    """Whether the surface is drawn as a whole: not if any of it is known."""
    return sampler.surface == "whole" and not known & SURFACE


def sweep(key: jax.Array, params: Params, data: Observation, state: State, blocks: dict[str, Block]) -> State:
    """Each block once, in turn, given all the others."""
    keys = draws.split(key, len(BLOCKS))
    for name, block in blocks.items():
        state = block(keys[BLOCKS.index(name)], params, data, state)
    return state


def start(params: Params, data: Observation, sampler: Sampler, given: dict[str, Leaf]) -> State:
    """The surface at the prior's visible biases, the lights where conditional 3 then expects them.

    What is `given`, of albedo, normals, lights and step_size, starts there instead.
    """
    centre = Surface.unpack(params.prior.centre)
    if sampler.start == "sphere":
        centre = replace(centre, normals=on_sphere(centre.normals))
    surface = Surface(given.get("albedo", centre.albedo), given.get("normals", centre.normals))
    options = sampler.shadow or ShadowLabels()
    state = _state(params, data, surface, data.weights, options.expected(len(data.images)), given)
    return replace(state, step_size=given.get("step_size", jnp.full_like(surface.albedo, sampler.step_size)))


def start_near(
    keys: Leaf, params: Params, data: Observation, sampler: Sampler, given: dict[str, Leaf]
) -> tuple[Near, State]:
    """A Gaussian near the posterior, and states of as many chains as there are `keys`, drawn from it."""
    near, weights, proportions = find_near(params, data, given.get("lights"), sampler.shadow, sampler.anneal)

    def one(key: jax.Array) -> State:
        x = near.start(draws.fold_in(key, LAST))  # sweeps have the numbers before it
        state = _state(params, data, Surface(x[0], x[1:]), weights, proportions, given)
        return replace(state, step_size=jnp.full_like(x[0], sampler.step_size))

    return near, jax.vmap(one)(keys)


def _state(
    params: Params, data: Observation, surface: Surface, weights: Leaf, proportions: Leaf, given: dict[str, Leaf]
) -> State:
    lights = given.get("lights")
    if lights is None:
        lights, _ = light_conditional(params, Observation(data.images, weights), surface.scaled_normals)
    hidden, unmoved = params.prior.mean_hidden(surface.pack()), jnp.ones_like(surface.albedo)
    return State(surface, lights, hidden, weights, proportions, unmoved, unmoved)
