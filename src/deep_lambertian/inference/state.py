"""Where a chain stands, and what a block of a sweep is.

A block draws one group of unknowns given all others: `(key, params, data, state) -> state`, pure, and knowing nothing
of the blocks beside it. `sweep` lists them; a new light model or likelihood is a new block in that list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from deep_lambertian.energy import Observation, Params
from deep_lambertian.surface import Leaf, Surface


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """The unknowns, and what blocks hand from one sweep to the next.

    `weights` say how far each pixel of each image is believed: those of the data, or what the block of shadows makes of
    them. `step_size` and `acceptance` are HMC's at each pixel.
    """

    surface: Surface
    lights: Leaf  # (P, 3)
    hidden: Any
    weights: Leaf  # (P, V)
    step_size: Leaf  # (V,)
    acceptance: Leaf  # (V,)


Block = Callable[[jax.Array, Params, Observation, State], State]
