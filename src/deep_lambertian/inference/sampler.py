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
from deep_lambertian.inference.gauge import GaugeMoves
from deep_lambertian.inference.hidden import draw_hidden, mean_hidden
from deep_lambertian.inference.lights import draw_lights, light_conditional
from deep_lambertian.inference.normals import DrawNormals
from deep_lambertian.inference.shadows import ShadowWeights
from deep_lambertian.support import draws
from deep_lambertian.support.settings import Count, Must, Positive, Share, Whole, check
from deep_lambertian.surface import Leaf, Surface, on_sphere


@dataclass(frozen=True)
class Sampler:
    """Settings of the Gibbs chains. The defaults are the paper's (Sec. 4.1).

    `chains` chains of `iterations` sweeps; those after `burn_in` are averaged. `keep` states of each chain are kept,
    evenly spread over the sweeps after the burn-in, or over all of them if there are more to keep than these. HMC draws
    momenta of mass `mass` and takes `epochs` trajectories of `leapfrogs` steps in every sweep. With a
    `target_acceptance`, each pixel's step size adapts to it in the burn-in. `hidden="mean"` replaces draws of the
    hidden units by their means. `anneal` multiplies the noise variance at the first sweep and falls geometrically to 1
    at the end of the burn-in. `start` is the visible biases as they are, or with their normals brought to unit length.
    `shadow` weighs pixels against shadows (see `shadows`), and `gauge_moves` are proposed in every sweep (see `gauge`).
    """

    iterations: Count = 50
    burn_in: int = 25
    step_size: Positive = 0.01
    leapfrogs: Count = 20
    epochs: Count = 10
    mass: Positive = 2.0
    target_acceptance: Share | None = None
    hidden: Literal["sample", "mean"] = "sample"
    shadow: ShadowWeights | None = None
    anneal: Annotated[float, Must("a temperature of at least 1", lambda x: x >= 1)] = 1.0
    start: Literal["bias", "sphere"] = "bias"
    gauge_moves: Whole = 0
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

    def override(self, **changes: Any) -> "Sampler":
        """The same with the given settings changed; None leaves a setting alone, `shadow=False` turns shadows off.

        A new number of iterations keeps the burn-in's share of them, unless that is given too.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        if changes.get("shadow") is False:
            changes["shadow"] = None
        known = sorted(self.__dataclass_fields__)
        if unknown := set(changes) - set(known):
            raise ValueError(f"unknown sampler setting {sorted(unknown)}; expected some of {known}")
        if "iterations" in changes and "burn_in" not in changes:
            changes["burn_in"] = int(changes["iterations"] * self.burn_in / self.iterations)
        return replace(self, **changes)


PRESETS: dict[str, Sampler] = {
    "paper": Sampler(),
    # Many sweeps of short trajectories: the average of many sweeps matters more than the HMC's step. Shadows cost
    # most of all where they are taken for shape. A start at a high temperature lets the prior have its say first.
    # Short chains find as much as one that is as long as all together, and show whether they agree; four in place of
    # two recognise better: 0.3 points on two folds of Yale B.
    "best": Sampler(
        iterations=200,
        burn_in=75,
        step_size=0.03,
        leapfrogs=7,
        epochs=3,
        target_acceptance=0.8,
        shadow=ShadowWeights(),
        anneal=100.0,
        start="sphere",
        chains=4,
    ),
    "quick": Sampler(iterations=60, burn_in=20, step_size=0.03, leapfrogs=7, epochs=2, start="sphere"),
}

BLOCKS = ("hidden", "albedo", "lights", "normals", "gauge", "shadows")  # a block's place among these makes its key


def blocks_of(sampler: Sampler, known: frozenset[str] = frozenset()) -> dict[str, Block]:
    """The blocks of a sweep in their order, but for those whose unknowns are known."""
    found: dict[str, Block] = {}
    if sampler.shadow is not None:
        found["shadows"] = sampler.shadow
    if sampler.gauge_moves and not known:  # what is known fixes the gauge
        found["gauge"] = GaugeMoves(sampler.gauge_moves)
    found["hidden"] = draw_hidden if sampler.hidden == "sample" else mean_hidden
    found["albedo"] = draw_albedo
    found["lights"] = draw_lights
    found["normals"] = DrawNormals(sampler.leapfrogs, sampler.epochs, sampler.mass)
    return {name: block for name, block in found.items() if name not in known}


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
    lights = given.get("lights")
    if lights is None:
        lights, _ = light_conditional(params, data, surface.scaled_normals)
    return State(
        surface=surface,
        lights=lights,
        hidden=params.prior.mean_hidden(surface.pack()),
        weights=data.weights,
        step_size=given.get("step_size", jnp.full_like(surface.albedo, sampler.step_size)),
        acceptance=jnp.ones_like(surface.albedo),
    )
