"""One Gibbs sweep over a DLN's unknowns: a list of blocks, the conditionals of Sec. 3.2 in turn, and where it starts.

To add a block, such as another light model or likelihood, write it in a file of its own, give it a place in `blocks_of`
and, at its end, a name in `BLOCKS`: nothing else changes, not even the numbers that the other blocks draw.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference.albedo import draw_albedo
from deep_lambertian.inference.gauge import GaugeMoves
from deep_lambertian.inference.hidden import draw_hidden, mean_hidden
from deep_lambertian.inference.lights import draw_lights, light_conditional
from deep_lambertian.inference.normals import DrawNormals
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.inference.state import Block, State
from deep_lambertian.support import draws
from deep_lambertian.surface import Leaf, Surface, on_sphere

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
