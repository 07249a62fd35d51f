"""Gibbs chains over many objects at once, with running moments and short traces of what a person watches.

Objects and chains are batched with `vmap`, and objects are shared out over the devices at hand. Every chain draws
from a key of its own, made from the seed and its own numbers: how the batch is laid out does not change a result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference import gibbs
from deep_lambertian.inference.sampler import Block, Sampler
from deep_lambertian.support import compiled as traces
from deep_lambertian.support import draws
from deep_lambertian.support.distributed import gather, is_shared, place
from deep_lambertian.support.moments import Moments
from deep_lambertian.support.progress import chunks
from deep_lambertian.surface import scale_normals

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


traces.register(gibbs.State, Moments, Carry)
Layout = dict[str, tuple[int, ...]]  # names and shapes of what lies in a flat row, in the order of the names


def observed(pixels: int, images: int) -> Layout:
    """The quantities whose posterior means and spreads are asked for."""
    return {
        "acceptance": (pixels,),
        "albedo": (pixels,),
        "directions": (3, pixels),
        "lights": (images, 3),
        "scaled_normals": (3, pixels),
    }


def observe(state: gibbs.State, info: gibbs.Info) -> jax.Array:
    values = {
        "albedo": state.albedo,
        "directions": gibbs.on_sphere(state.normals),
        "scaled_normals": scale_normals(state.albedo, state.normals),
        "lights": state.lights,
        "acceptance": info.acceptance,
    }
    return fold(values, observed(len(state.albedo), len(state.lights)))


def watched(pixels: int, images: int) -> Layout:
    """The few numbers of a sweep that are traced, for convergence diagnostics."""
    probes = len(range(0, pixels, _stride(pixels)))
    return {
        "acceptance": (),
        "albedo": (probes,),
        "energy": (),
        "lights": (images, 3),
        "normals": (3, probes),
        "residual": (),
    }


def watch(state: gibbs.State, info: gibbs.Info) -> jax.Array:
    stride = _stride(len(state.albedo))
    values = {
        "energy": info.energy,
        "residual": info.residual,
        "acceptance": jnp.mean(info.acceptance),
        "lights": state.lights,
        "albedo": state.albedo[::stride],
        "normals": state.normals[:, ::stride],
    }
    return fold(values, watched(len(state.albedo), len(state.lights)))


def _stride(pixels: int) -> int:
    return -(-pixels // PROBES)


def fold(values: dict[str, jax.Array], layout: Layout) -> jax.Array:
    """Named arrays as one flat row."""
    if {name: value.shape for name, value in values.items()} != layout:
        raise ValueError(f"expected arrays of {layout}, got {jax.tree.map(jnp.shape, values)}")
    return jnp.concatenate([values[name].reshape(-1) for name in layout])


def unfold(layout: Layout, rows: np.ndarray) -> dict[str, Any]:
    """The named arrays (..., shape) of flat rows (..., R)."""
    ends = np.cumsum([math.prod(shape) for shape in layout.values()])
    parts = zip(layout.items(), np.split(rows, ends[:-1], axis=-1), strict=True)
    return {name: part.reshape(*rows.shape[:-1], *shape) for (name, shape), part in parts}


def keep(state: gibbs.State) -> dict[str, jax.Array]:
    """What of a state is kept where samples are asked for."""
    return {"albedo": state.albedo, "normals": state.normals, "lights": state.lights}


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
    moments = carry.moments.add(observe(state, info), counts)
    record = t * TRACE_LENGTH // jnp.maximum(schedule.iterations, TRACE_LENGTH)
    trace = put(carry.trace, watch(state, info), record, 0)
    kept = carry.kept
    if slots:
        slot = (t - schedule.keep_from) * slots // jnp.maximum(schedule.iterations - schedule.keep_from, 1)
        slot = jnp.maximum(slot, 0)  # what comes too early is overwritten
        kept = {name: put(kept[name], value, slot, 0) for name, value in keep(state).items()}
    return Carry(state, moments, trace, kept)


@partial(jax.jit, static_argnames=("sampler", "chains", "mesh"))
def _start_all(params, data, given, sampler: Sampler, chains: int, mesh: Mesh) -> gibbs.State:
    def one_device(params: Params, data: Observation, given: dict[str, jax.Array]) -> gibbs.State:
        state = jax.vmap(lambda data, given: gibbs.start(params, data, sampler, **given))(data, given)
        return jax.tree.map(lambda x: jnp.repeat(x[:, None], chains, axis=1), state)

    return _share_out(one_device, mesh, "all objects objects")(params, data, given)


@partial(jax.jit, static_argnames=("kernel", "clamped", "mesh"), donate_argnames="carry")
def _advance_all(
    params, data, keys, carry: Carry, schedule: Schedule, bounds, kernel: Sampler, clamped, mesh: Mesh
) -> Carry:
    def one_device(params, data, keys, carry, schedule, bounds):
        keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
        one = partial(_sweep, kernel=kernel, clamped=clamped)
        batch = jax.vmap(one, in_axes=(None, None, 0, 0, None, None))
        alone = keys.shape[0] == 1
        if alone:  # one object is no batch: a batch of batches takes half as long again to trace
            data, keys, carry = jax.tree.map(lambda x: x[0], (data, keys, carry))
        else:
            batch = jax.vmap(batch, in_axes=(None, 0, 0, 0, None, None))
        # The loop is around the batch, not within it: a loop that is batched twice is traced four times.
        first, end = bounds
        carry = lax.fori_loop(first, end, lambda t, carry: batch(params, data, keys, carry, schedule, t), carry)
        return jax.tree.map(lambda x: x[None], carry) if alone else carry

    run = _share_out(one_device, mesh, "all objects objects objects all all")
    return run(params, data, keys, carry, schedule, bounds)


def _share_out(one_device: Any, mesh: Mesh, arguments: str) -> Any:
    """The function with its objects shared out over the mesh; `arguments` says which of them hold objects."""
    if mesh.size == 1:
        return one_device
    objects, all_alike = PartitionSpec("objects"), PartitionSpec()
    specs = tuple(objects if word == "objects" else all_alike for word in arguments.split())
    return jax.shard_map(one_device, mesh=mesh, in_specs=specs, out_specs=objects, check_vma=False)


def chain_keys(seed: int, objects: Sequence[int], chains: int) -> np.ndarray:
    """A key's words for every chain of every object (S, C, 2), from their own numbers alone.

    They are those of `fold_in` twice, worked out by NumPy: a handful of numbers is not worth a compilation.
    """
    key0, key1 = np.array([[0], [seed & 0xFFFFFFFF]], np.uint32)  # what `make_key` makes of a seed
    number, chain = (np.array(n).astype(np.uint32) for n in (objects, range(chains)))
    key0, key1 = draws.threefry_words(key0, key1, np.zeros_like(number), number)
    rows = draws.threefry_words(key0[:, None], key1[:, None], np.zeros_like(chain), chain)
    return np.stack(rows, axis=-1)


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
    quick: bool = False,
) -> Carry:
    """Run `chains` chains for each of S objects: `data` and `given` have a leading axis S, the answer (S, C).

    `given` holds the starts of blocks that do not start from the prior; `keep` states are kept, evenly spread over the
    sweeps from `keep_from` (the end of the burn-in unless told). `numbers`, 0 … S−1 unless told, make the objects'
    keys: an object that keeps its number keeps its draws, whatever it is run with. With many processes, each of which
    calls this with the same arguments, objects are shared out over all of them, and every one is given the whole
    answer; on `devices` that are all its own, a process works by itself. `quick` compiles the chains of a single object
    quickly rather than well (see `traces`).
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
    keys = chain_keys(seed, numbers, chains)
    spare = -objects % len(devices)  # devices take equal shares: repeat the last object to fill up
    padded = jax.tree.map(lambda x: _extend(x, spare), (data, given or {}, keys))
    data, given, keys = place(padded, mesh, PartitionSpec("objects"))
    params = place(params, mesh, PartitionSpec())
    kernel = replace(sampler, iterations=1, burn_in=0, anneal=1.0)  # what only the schedule needs is traced
    nothing = _nothing_yet(data.images.shape, chains, keep)
    nothing = place(nothing, mesh, PartitionSpec("objects")) if shared else jax.device_put(nothing)
    keep_from = sampler.burn_in if keep_from is None else keep_from
    schedule = Schedule(sampler.iterations, sampler.burn_in, sampler.anneal, keep_from)
    first = {"sampler": kernel, "chains": chains, "mesh": mesh}
    then = {"kernel": replace(kernel, step_size=1.0, start="bias"), "clamped": tuple(sorted(clamped)), "mesh": mesh}
    start, advance = partial(_start_all, **first), partial(_advance_all, **then)
    alone = objects == 1 and jax.process_count() == 1 and list(devices) == jax.devices()[:1]
    if alone:  # someone may be waiting for it: nothing that an earlier process has traced is traced again
        start = traces.program(_start_all, params, data, given, quick=quick, **first)
        example = (params, data, keys, Carry(start.shapes, *nothing), schedule, (0, 1))
        advance = traces.program(_advance_all, *example, donated=3, quick=quick, **then)
    carry = Carry(start(params, data, given), *nothing)
    for begin, stop in chunks(sampler.iterations, "sampling"):
        for piece in range(begin, stop, PIECE):
            bounds = piece, min(piece + PIECE, stop)
            carry = advance(params, data, keys, carry, schedule, bounds)
            jax.block_until_ready(carry)
    if shared:
        carry = gather(carry)
    return jax.tree.map(lambda x: x[:objects], carry) if spare else carry


def _nothing_yet(shape: tuple[int, ...], chains: int, slots: int) -> tuple[Moments, Any, dict[str, Any]]:
    """Moments, trace and kept states before the first sweep, by NumPy: nothing is compiled for them."""
    objects, images, pixels = shape

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros((objects, chains, *shape), np.float32)

    def length(layout: Layout) -> int:
        return sum(math.prod(shape) for shape in layout.values())

    row = length(observed(pixels, images))
    shapes = {"albedo": (pixels,), "normals": (3, pixels), "lights": (images, 3)}
    return (
        Moments(zeros(), zeros(row), zeros(row)),  # pyright: ignore[reportArgumentType]
        zeros(TRACE_LENGTH, length(watched(pixels, images))),
        {name: zeros(slots, *shape) for name, shape in shapes.items()},
    )


def _extend(x: Any, spare: int) -> Any:
    return jnp.concatenate([x, jnp.repeat(x[-1:], spare, axis=0)]) if spare else x


def trace_length(iterations: int) -> int:
    """How many records of a trace a chain of this length has filled."""
    return min(iterations, TRACE_LENGTH)
