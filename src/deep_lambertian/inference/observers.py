"""What is accumulated and traced while chains run. Each observer owns its state, and makes arrays with names of it.

An observer sees one chain, after every sweep; batches of chains and of objects are made around it. What it keeps does
not grow with the length of the chain. It begins with NumPy's zeros, for which nothing is compiled, and ends with NumPy
arrays (..., objects, chains first).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deep_lambertian.energy import Observation, Params, State, joint_energy
from deep_lambertian.priors.contract import Moments
from deep_lambertian.surface import on_sphere, render

TRACE_LENGTH = 512  # a longer chain is thinned to this many records, so that memory does not grow with it
PROBES = 8  # at most so many pixels, spread evenly, whose albedo and normal are traced
Row = dict[str, tuple[int, ...]]  # names and shapes of what lies in a flat row, which one operation updates
Found = dict[str, np.ndarray]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Schedule:
    """How long chains run and what of them counts; numbers that are traced, so that one compilation serves any."""

    iterations: int
    burn_in: int
    anneal: float
    keep_from: int


class Moment(NamedTuple):
    """A chain after sweep `t`: all that an observer may look at."""

    t: jax.Array
    schedule: Schedule
    params: Params
    data: Observation
    state: State


class Sizes(NamedTuple):
    """How many chains are observed, of how many objects, and how large each is."""

    objects: int
    chains: int
    images: int
    pixels: int

    def zeros(self, *shape: int) -> Any:
        return np.zeros((self.objects, self.chains, *shape), np.float32)


class Averages:
    """Means and variances over the sweeps after the burn-in."""

    def row(self, sizes: Sizes) -> Row:
        return {
            "acceptance": (sizes.pixels,),
            "albedo": (sizes.pixels,),
            "directions": (3, sizes.pixels),
            "lights": (sizes.images, 3),
            "scaled_normals": (3, sizes.pixels),
        }

    def begin(self, sizes: Sizes) -> Moments:
        length = row_length(self.row(sizes))
        return Moments(sizes.zeros(), sizes.zeros(length), sizes.zeros(length))

    def see(self, seen: Moments, now: Moment) -> Moments:
        state = now.state
        values = {
            "acceptance": state.acceptance,
            "albedo": state.surface.albedo,
            "directions": on_sphere(state.surface.normals),
            "lights": state.lights,
            "scaled_normals": state.surface.scaled_normals,
        }
        return seen.add(fold(values), (now.t >= now.schedule.burn_in).astype(jnp.float32))

    def finish(self, seen: Moments, sizes: Sizes) -> tuple[Found, Found]:
        """Means and variances, by name."""
        count = np.maximum(np.asarray(seen.count)[..., None], 1.0)
        row = self.row(sizes)
        return unfold(row, np.asarray(seen.mean)), unfold(row, np.asarray(seen.square) / count)


class Trace:
    """The few numbers of a sweep that a person watches, and that tell whether chains have converged."""

    def row(self, sizes: Sizes) -> Row:
        probes = len(range(0, sizes.pixels, _stride(sizes.pixels)))
        return {
            "acceptance": (),
            "albedo": (probes,),
            "energy": (),
            "lights": (sizes.images, 3),
            "normals": (3, probes),
            "residual": (),
        }

    def begin(self, sizes: Sizes) -> Any:
        return sizes.zeros(TRACE_LENGTH, row_length(self.row(sizes)))

    def see(self, seen: jax.Array, now: Moment) -> jax.Array:
        data, state, surface = now.data, now.state, now.state.surface
        stride = _stride(len(surface.albedo))
        believed = Observation(data.images, state.weights)
        squares = data.weights * (data.images - render(surface, state.lights)) ** 2
        values = {
            "acceptance": jnp.mean(state.acceptance),
            "albedo": surface.albedo[::stride],
            "energy": joint_energy(now.params, believed, surface, state.lights, state.hidden),
            "lights": state.lights,
            "normals": surface.normals[:, ::stride],
            "residual": jnp.sqrt(jnp.sum(squares) / jnp.maximum(jnp.sum(data.weights), 1e-6)),
        }
        record = now.t * TRACE_LENGTH // jnp.maximum(now.schedule.iterations, TRACE_LENGTH)
        return lax.dynamic_update_index_in_dim(seen, fold(values), record, 0)

    def finish(self, seen: np.ndarray, sizes: Sizes, iterations: int) -> Found:
        """Records (objects, chains, records, ...) by name: those that a chain of this length has filled."""
        return unfold(self.row(sizes), np.asarray(seen)[:, :, : min(iterations, TRACE_LENGTH)])


@dataclass(frozen=True)
class Kept:
    """Whole states, as many as there are slots, evenly spread over the sweeps that may be kept; of those that come to a
    slot the last one stays.
    """

    slots: int

    def begin(self, sizes: Sizes) -> dict[str, Any]:
        shapes = {"albedo": (sizes.pixels,), "normals": (3, sizes.pixels), "lights": (sizes.images, 3)}
        return {name: sizes.zeros(self.slots, *shape) for name, shape in shapes.items()}

    def see(self, seen: dict[str, Any], now: Moment) -> dict[str, Any]:
        if not self.slots:
            return seen
        first = now.schedule.keep_from
        slot = (now.t - first) * self.slots // jnp.maximum(now.schedule.iterations - first, 1)
        slot = jnp.maximum(slot, 0)  # what comes too early is overwritten
        values = vars(now.state.surface) | {"lights": now.state.lights}
        return {name: lax.dynamic_update_index_in_dim(seen[name], values[name], slot, 0) for name in seen}


def _stride(pixels: int) -> int:
    return -(-pixels // PROBES)


def row_length(row: Row) -> int:
    return sum(math.prod(shape) for shape in row.values())


def fold(values: dict[str, jax.Array]) -> jax.Array:
    """Named arrays as one flat row, in the order of their names."""
    return jnp.concatenate([values[name].reshape(-1) for name in sorted(values)])


def unfold(row: Row, rows: np.ndarray) -> Found:
    """The named arrays (..., shape) of flat rows (..., R)."""
    shapes = [row[name] for name in sorted(row)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = zip(sorted(row), shapes, np.split(rows, ends[:-1], axis=-1), strict=True)
    return {name: part.reshape(*rows.shape[:-1], *shape) for name, shape, part in parts}
