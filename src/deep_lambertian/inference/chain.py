"""Gibbs chains over many objects at once, with running moments and short traces of what a person watches.

Objects and chains are batched with `vmap`, and objects are shared out over the devices at hand. Every chain draws
from a key of its own, made from the seed and its own numbers: how the batch is laid out does not change a result.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian import draws
from deep_lambertian.distributed import gather, is_shared, place
from deep_lambertian.inference import gibbs
from deep_lambertian.inference.sampler import Block, Sampler
from deep_lambertian.lambertian import scale_normals
from deep_lambertian.moments import Moments
from deep_lambertian.params import Observation, Params
from deep_lambertian.progress import chunks

TRACE_LENGTH = 512  # a longer chain is thinned to this many records, so that memory does not grow with it
PROBES = 8  # at most so many pixels, spread evenly, whose albedo and normal are traced
PIECE = 25  # sweeps after which Python looks up: a key that stops the program is heard within seconds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Schedule:
    """How long to run and what to keep; numbers that are traced, so that one compilation serves any length.

    Iterations from `keep_from` on fill the slots of the kept states evenly; the last of a slot stays.
    """

    iterations: int
    burn_in: int
    anneal: float
    keep_from: int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Carry:
    """A chain under way. What is observed and traced lies in flat rows, which one operation updates; see `unfold`."""

    state: gibbs.State
    moments: Moments
    trace: jax.Array
    kept: dict[str, jax.Array]


def observe(state: gibbs.State, info: gibbs.Info) -> dict[str, jax.Array]:
    """The quantities whose posterior means and spreads are asked for."""
    return {
        "albedo": state.albedo,
        "directions": gibbs.on_sphere(state.normals),
        "scaled_normals": scale_normals(state.albedo, state.normals),
        "lights": state.lights,
        "acceptance": info.acceptance,
    }


def watch(state: gibbs.State, info: gibbs.Info) -> dict[str, jax.Array]:
    """The few numbers of a sweep that are traced, for convergence diagnostics."""
    stride = -(-state.albedo.shape[0] // PROBES)
    return {
        "energy": info.energy,
        "residual": info.residual,
        "acceptance": jnp.mean(info.acceptance),
        "lights": state.lights,
        "albedo": state.albedo[::stride],
        "normals": state.normals[:, ::stride],
    }


def fold(values: dict[str, jax.Array]) -> jax.Array:
    """Named arrays as one flat row, in the order of their names."""
    return jnp.concatenate([values[name].reshape(-1) for name in sorted(values)])


@lru_cache
def _shapes(look: Callable[..., dict[str, jax.Array]], pixels: int, images: int) -> dict[str, tuple[int, ...]]:
    """The shapes of what `look` sees, in the order in which `fold` puts them."""

    def example(row: jax.Array) -> dict[str, jax.Array]:
        state = gibbs.State(row, jnp.stack([row, row, row]), jnp.zeros((images, 3)), (), row)
        return look(state, gibbs.Info(row[0], row[0], row))

    return {name: value.shape for name, value in sorted(jax.eval_shape(example, jnp.zeros(pixels)).items())}


def unfold(look: Callable[..., dict[str, jax.Array]], rows: np.ndarray, pixels: int, images: int) -> dict[str, Any]:
    """The named arrays (..., shape) of the flat rows (..., R) into which `look`, one of the two above, was folded."""
    shapes = _shapes(look, pixels, images)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = zip(shapes.items(), np.split(rows, ends[:-1], axis=-1), strict=True)
    return {name: part.reshape(*rows.shape[:-1], *shape) for (name, shape), part in parts}


def keep(state: gibbs.State) -> dict[str, jax.Array]:
    """What of a state is kept where samples are asked for."""
    return {"albedo": state.albedo, "normals": state.normals, "lights": state.lights}


def _first(params: Params, data: Observation, given: dict[str, jax.Array], sampler: Sampler, slots: int) -> Carry:
    """The start of one chain."""
    state = gibbs.start(params, data, sampler, **given)
    info = gibbs.Info(jnp.zeros(()), jnp.zeros(()), jnp.zeros_like(state.albedo))
    seen, watched = fold(observe(state, info)), fold(watch(state, info))
    kept = {name: jnp.zeros((slots, *value.shape)) for name, value in keep(state).items()}
    return Carry(state, Moments.zeros(seen.shape), jnp.zeros((TRACE_LENGTH, *watched.shape)), kept)


def _sweep(
    params: Params,
    data: Observation,
    key: jax.Array,
    carry: Carry,
    schedule: Schedule,
    t: jax.Array,
    kernel: Sampler,
    clamped: frozenset[Block],
) -> Carry:
    """Sweep t of one chain."""
    slots = next(iter(carry.kept.values())).shape[0]
    put = lax.dynamic_update_index_in_dim
    heat = 1 - t.astype(jnp.float32) / jnp.maximum(schedule.burn_in, 1)
    state, info = gibbs.step(
        draws.fold_in(key, t),
        params,
        data,
        carry.state,
        kernel,
        clamped,
        temperature=jnp.power(schedule.anneal, jnp.maximum(heat, 0.0)),
        adapt_rate=jnp.where(t < schedule.burn_in, 0.5 / jnp.sqrt(1.0 + t.astype(jnp.float32)), 0.0),
    )
    counts = (t >= schedule.burn_in).astype(jnp.float32)
    moments = carry.moments.add(fold(observe(state, info)), counts)
    record = t * TRACE_LENGTH // jnp.maximum(schedule.iterations, TRACE_LENGTH)
    trace = put(carry.trace, fold(watch(state, info)), record, 0)
    kept = carry.kept
    if slots:
        slot = (t - schedule.keep_from) * slots // jnp.maximum(schedule.iterations - schedule.keep_from, 1)
        slot = jnp.maximum(slot, 0)  # what comes too early is overwritten
        kept = {name: put(kept[name], value, slot, 0) for name, value in keep(state).items()}
    return Carry(state, moments, trace, kept)


@partial(jax.jit, static_argnames=("sampler", "slots", "chains", "mesh"))
def _start_all(params, data, given, sampler: Sampler, slots: int, chains: int, mesh: Mesh) -> Carry:
    def one_device(params: Params, data: Observation, given: dict[str, jax.Array]) -> Carry:
        first = partial(_first, params, sampler=sampler, slots=slots)
        carry = jax.vmap(first)(data, given)
        return jax.tree.map(lambda x: jnp.repeat(x[:, None], chains, axis=1), carry)

    objects = PartitionSpec("objects")
    specs = (PartitionSpec(), objects, objects)
    return jax.shard_map(one_device, mesh=mesh, in_specs=specs, out_specs=objects, check_vma=False)(params, data, given)


@partial(jax.jit, static_argnames=("kernel", "clamped", "mesh"), donate_argnames="carry")
def _advance_all(
    params, data, keys, carry: Carry, schedule: Schedule, bounds, kernel: Sampler, clamped, mesh: Mesh
) -> Carry:
    def one_device(params, data, keys, carry, schedule, bounds):
        keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
        one = partial(_sweep, kernel=kernel, clamped=clamped)
        chains = jax.vmap(one, in_axes=(None, None, 0, 0, None, None))
        objects = jax.vmap(chains, in_axes=(None, 0, 0, 0, None, None))
        # The loop is around the batch, not within it: a loop that is batched twice is traced four times.
        first, end = bounds
        return lax.fori_loop(first, end, lambda t, carry: objects(params, data, keys, carry, schedule, t), carry)

    objects, all_alike = PartitionSpec("objects"), PartitionSpec()
    specs = (all_alike, objects, objects, objects, all_alike, all_alike)
    run = jax.shard_map(one_device, mesh=mesh, in_specs=specs, out_specs=objects, check_vma=False)
    return run(params, data, keys, carry, schedule, bounds)


@partial(jax.jit, static_argnames="chains")
def chain_keys(seed: int, objects: jax.Array, chains: int) -> jax.Array:
    """A key's words for every chain of every object (S, C, 2), from their own numbers alone."""
    of_object = jax.vmap(partial(draws.fold_in, draws.make_key(seed)))(objects)
    keys = jax.vmap(jax.vmap(draws.fold_in, (None, 0)), (0, None))(of_object, jnp.arange(chains))
    return jax.random.key_data(keys)


def run(
    params: Params,
    data: Observation,
    sampler: Sampler,
    *,
    seed: int = 0,
    chains: int = 1,
    clamped: frozenset[Block] = frozenset(),
    given: dict[str, jax.Array] | None = None,
    keep: int = 0,
    keep_from: int | None = None,
    numbers: Sequence[int] | None = None,
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> Carry:
    """Run `chains` chains for each of S objects: `data` and `given` have a leading axis S, the answer (S, C).

    `given` holds the starts of blocks that do not start from the prior; `keep` states are kept, evenly spread over the
    sweeps from `keep_from` (the end of the burn-in unless told). `numbers`, 0 … S−1 unless told, make the objects'
    keys: an object that keeps its number keeps its draws, whatever it is run with. With many processes, each of which
    calls this with the same arguments, objects are shared out over all of them, and every one is given the whole
    answer; on `devices` that are all its own, a process works by itself.
    """
    objects = data.images.shape[0]
    devices = jax.devices() if devices is None else devices
    mesh = Mesh(np.array(devices), ("objects",))
    shared = is_shared(mesh)
    if not shared:
        devices = devices[: max(1, min(len(devices), objects))]
        mesh = Mesh(np.array(devices), ("objects",))
    numbers = range(objects) if numbers is None else numbers
    if len(numbers) != objects:
        raise ValueError(f"numbers: expected one for each of {objects} objects, got {len(numbers)}")
    keys = chain_keys(seed, jnp.asarray(list(numbers), jnp.int32), chains)
    spare = -objects % len(devices)  # devices take equal shares: repeat the last object to fill up
    padded = jax.tree.map(lambda x: _extend(x, spare), (data, given or {}, keys))
    data, given, keys = place(padded, mesh, PartitionSpec("objects"))
    params = place(params, mesh, PartitionSpec())
    kernel = replace(sampler, iterations=1, burn_in=0, anneal=1.0)  # what only the schedule needs is traced
    carry = _start_all(params, data, given, kernel, keep, chains, mesh)
    kernel = replace(kernel, step_size=1.0, start="bias")
    keep_from = sampler.burn_in if keep_from is None else keep_from
    schedule = Schedule(sampler.iterations, sampler.burn_in, sampler.anneal, keep_from)
    for start, stop in chunks(sampler.iterations, "sampling", progress):
        for first in range(start, stop, PIECE):
            bounds = first, min(first + PIECE, stop)
            carry = _advance_all(params, data, keys, carry, schedule, bounds, kernel, clamped, mesh)
            jax.block_until_ready(carry)
    if shared:
        carry = gather(carry)
    return jax.tree.map(lambda x: x[:objects], carry) if spare else carry


def _extend(x: Any, spare: int) -> Any:
    return jnp.concatenate([x, jnp.repeat(x[-1:], spare, axis=0)]) if spare else x


def trace_length(iterations: int) -> int:
    """How many records of a trace a chain of this length has filled."""
    return min(iterations, TRACE_LENGTH)
