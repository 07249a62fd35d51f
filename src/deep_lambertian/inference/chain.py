"""Gibbs chains over many objects at once.

Objects and chains are batched with `vmap`, and objects are shared out over the devices at hand. Every chain draws
from a key of its own, made from the seed and its own numbers: how the batch is laid out does not change a result.
Around the sweeps lie annealing, which multiplies the noise, and adaptation, which moves HMC's step sizes.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian.energy import Block, Observation, Params, State
from deep_lambertian.inference.observers import (
    Averages,
    Found,
    Kept,
    Moment,
    Schedule,
    Sizes,
    Trace,
    converged,
    record_of,
    unfold,
)
from deep_lambertian.inference.sampler import Sampler, blocks_of, is_whole, start, start_near, sweep
from deep_lambertian.inference.whole_surface import Near, gaussian_at
from deep_lambertian.priors.contract import Moments
from deep_lambertian.support import compiled, draws
from deep_lambertian.support.distributed import gather, is_shared, place
from deep_lambertian.support.progress import chunks, looked
from deep_lambertian.support.run_folder import check_agreement
from deep_lambertian.surface import Leaf, Surface

PIECE = 25  # sweeps after which Python looks up: a key that stops the program is heard within seconds
MORE = 100  # sweeps by which chains that have not converged go on
SHORT = 1000  # sweeps: compiling well is worth the time for a longer chain, or for many objects
AVERAGES, TRACE = Averages(), Trace()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Carry:
    """A chain under way: where it stands, and what the observers have of it."""

    state: State
    averages: Moments
    trace: Any
    kept: dict[str, Any]


compiled.register(Surface, State, Moments, Near, Carry)


@dataclass(frozen=True)
class Layout:
    """How a batch of objects is laid out, which does not change what is found but for rounding.

    `numbers`, 0, 1, … unless told, make the objects' keys: an object that keeps its number keeps its draws, whatever it
    is run with. Batches filled up to one `size` (objects, images) share one compilation, and rounding too. `devices`
    are all there are, of all processes, unless told.
    """

    numbers: Sequence[int] | None = None
    size: tuple[int, int] | None = None
    devices: Sequence[Any] | None = None


@dataclass(frozen=True)
class Sampled:
    """What C chains of each of S objects have found in so many `iterations`, in NumPy arrays (S, C, ...) by name; see
    `observers`.
    """

    iterations: int
    state: State
    mean: Found
    variance: Found
    trace: Found
    kept: Found


def run(
    params: Params,
    data: Observation,
    sampler: Sampler,
    *,
    seed: int = 0,
    given: dict[str, Leaf] | None = None,
    known: frozenset[str] = frozenset(),
    layout: Layout | None = None,
) -> Sampled:
    """Run the sampler's chains for each of S objects: `data` and `given` have a leading axis S.

    `given` holds the starts of what does not start from the prior, `known` the names of those that stay there. With
    many processes, each of which calls this with the same arguments, objects are shared out over all of them, and every
    one is given the whole answer; on devices that are all its own, a process works by itself.
    """
    layout = layout or Layout()
    objects, images, pixels = data.images.shape
    numbers = range(objects) if layout.numbers is None else layout.numbers
    if len(numbers) != objects:
        raise ValueError(f"numbers: expected one for each of {objects} objects, got {len(numbers)}")
    mesh, shared = _mesh(layout.devices, objects)
    spare = -objects % mesh.size  # devices take equal shares: the last object fills up
    inputs = data, given or {}, chain_keys(seed, numbers, sampler.chains)
    if spare:
        inputs = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], spare, axis=0)]), inputs)
    sizes = Sizes(objects + spare, sampler.chains, images, pixels)
    observed = AVERAGES.begin(sizes), TRACE.begin(sizes), Kept(sampler.keep).begin(sizes)
    if shared:
        given_all = [np.asarray(leaf) for leaf in jax.tree.leaves((params, inputs))]
        sums = [f"{each.shape} {zlib.crc32(np.ascontiguousarray(each).tobytes()):08x}" for each in given_all]
        check_agreement({"seed": seed, "known": sorted(known), "sampler": asdict(sampler), "arrays": sums})
        inputs, observed = place((inputs, observed), mesh, PartitionSpec("objects"))
        params = place(params, mesh, PartitionSpec())
    else:
        observed = jax.device_put(observed)

    def finish(carry: Carry, done: int) -> Sampled:  # copies: whoever looks on the way keeps what he has seen
        carry = jax.tree.map(lambda x: np.array(x)[:objects], gather(carry) if shared else carry)
        mean, variance = AVERAGES.finish(carry.averages, sizes)
        trace = TRACE.finish(carry.trace, sizes, done, sampler.most)
        return Sampled(done, carry.state, mean, variance, trace, carry.kept)

    return _advance(mesh, params, inputs, observed, sampler, known, finish)


def _advance(
    mesh: Mesh,
    params: Params,
    inputs: tuple[Observation, dict[str, Any], Any],
    observed: tuple[Any, Any, Any],
    sampler: Sampler,
    known: frozenset[str],
    finish: Callable[[Carry, int], Sampled],
) -> Sampled:
    """Start all chains, with data, starts and keys as `inputs`, and run them to their end, piece by piece."""
    data, given, keys = inputs
    # What only the schedule needs is traced: neither it nor how many chains there are makes another program.
    kernel = replace(sampler, iterations=1, burn_in=0, anneal=1.0, keep=0, chains=1, until=0)
    whole = is_whole(sampler, known)
    anneal = 1.0 if whole else sampler.anneal
    schedule = Schedule(sampler.iterations, sampler.most, sampler.burn_in, anneal, sampler.keep_from)
    options: dict[str, Any] = {"mesh": None if mesh.size == 1 else mesh}
    options["quick"] = len(data.images) == 1 and sampler.iterations <= SHORT
    first = replace(kernel, anneal=sampler.anneal) if whole else kernel
    begin = compiled.program(_start_all, params, data, given, keys, **options, sampler=first, whole=whole)
    kernel = replace(kernel, step_size=1.0, start="bias")  # which have done their part
    near, state = begin.shapes
    example = params, replace(data, near=near), keys, Carry(state, *observed), schedule, (0, 1)
    go_on = compiled.program(_advance_all, *example, **options, donated=3, kernel=kernel, known=tuple(sorted(known)))
    near, state = begin(params, data, given, keys)
    data, carry = replace(data, near=near), Carry(state, *observed)
    looked(0, sampler.most, partial(finish, carry, 0))  # where chains start is near the mode, and soon there

    def advance(carry: Carry, first: int, stop: int, schedule: Schedule) -> Carry:
        for piece in range(first, stop, PIECE):
            carry = go_on(params, data, keys, carry, schedule, (piece, min(piece + PIECE, stop)))
            jax.block_until_ready(carry)
            now = min(piece + PIECE, stop)
            looked(now, sampler.most, partial(finish, carry, now))
        return carry

    turn = sampler.burn_in // 2 if whole else 0
    if turn:  # the mode lies off the middle of what chains visit: by then they tell where that is
        recentre = compiled.program(_recentre_all, params, data, observed[0], **options, known_lights="lights" in known)
        carry = advance(carry, 0, turn, replace(schedule, burn_in=turn // 2))
        data = replace(data, near=recentre(params, data, carry.averages))
        carry = replace(carry, averages=jax.tree.map(jnp.zeros_like, carry.averages))
    for first, stop in chunks(sampler.iterations, "sampling"):
        carry = advance(carry, max(first, turn), stop, schedule)
    done = sampler.iterations
    while done < sampler.most and not _converged(carry, data, sampler, done):
        carry = advance(carry, done, min(done + MORE, sampler.most), schedule)
        done = min(done + MORE, sampler.most)
    return finish(carry, done)


def _converged(carry: Carry, data: Observation, sampler: Sampler, done: int) -> bool:
    """Whether the chains of every object have, after so many sweeps."""
    trace = gather(carry.trace) if jax.process_count() > 1 else carry.trace
    sizes = Sizes(len(trace), sampler.chains, *data.images.shape[1:])
    found = TRACE.finish(np.asarray(trace), sizes, done, sampler.most)
    burn_in = record_of(sampler.burn_in, sampler.most)
    return all(converged({name: rows[s] for name, rows in found.items()}, burn_in) for s in range(len(trace)))


def _mesh(devices: Sequence[Any] | None, objects: int) -> tuple[Mesh, bool]:
    """The devices to share objects out over, no more than there are objects unless some are of other processes; and
    whether some are.
    """
    mesh = Mesh(np.array(jax.devices() if devices is None else devices), ("objects",))
    if jax.process_count() > 1 and is_shared(mesh):
        return mesh, True
    return Mesh(mesh.devices[: max(1, min(mesh.size, objects))], ("objects",)), False


def _start_all(
    params: Params, data: Observation, given: dict, keys: Any, sampler: Sampler, whole: bool
) -> tuple[Near | None, State]:
    keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
    if whole:  # one by one: each has large matrices of its own
        return lax.map(lambda each: start_near(each[2], params, each[0], sampler, each[1]), (data, given, keys))
    state = jax.vmap(lambda data, given: start(params, data, sampler, given))(data, given)
    return None, jax.tree.map(lambda x: jnp.repeat(x[:, None], keys.shape[1], axis=1), state)


def _recentre_all(params: Params, data: Observation, averages: Moments, known_lights: bool) -> Near:
    """The Gaussian about the mean of what all chains of an object have visited. Mean directions are a little shorter
    than normals, as their mean is.
    """

    def one(each: tuple[Observation, Moments]) -> Near:
        data, seen = each
        sizes = Sizes(1, 1, *data.images.shape)
        found = unfold(AVERAGES.row(sizes), jnp.mean(seen.mean, axis=0))
        x = jnp.concatenate([found["albedo"][None], found["directions"]])
        believed = Observation(data.images, data.weights * (1 - found["shadows"]))
        return gaussian_at(params, believed, x, found["lights"] if known_lights else None)

    return lax.map(one, (data, averages))


def _advance_all(
    params: Params, data: Observation, keys: Any, carry: Carry, schedule: Schedule, bounds: Any, kernel: Sampler, known
) -> Carry:
    """Sweeps from the first to the last of `bounds`, of all chains of all objects."""
    keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
    one = partial(_sweep, blocks=blocks_of(kernel, frozenset(known)), target_acceptance=kernel.target_acceptance)
    chains = jax.vmap(one, in_axes=(None, None, 0, 0, None, None))

    def loop(batch: Any, data: Observation, keys: Any, carry: Carry) -> Carry:
        # The loop is around the batch, not within it: a loop that is batched twice is traced four times.
        first, end = bounds
        return lax.fori_loop(first, end, lambda t, carry: batch(params, data, keys, carry, schedule, t), carry)

    if keys.shape[0] == 1:  # one object is no batch: a batch of batches takes half as long again to trace
        data, keys, carry = jax.tree.map(lambda x: x[0], (data, keys, carry))
        return jax.tree.map(lambda x: x[None], loop(chains, data, keys, carry))
    if data.near is not None:  # products of large matrices, which are no faster for many objects than for one
        return lax.map(lambda each: loop(chains, *each), (data, keys, carry))
    return loop(jax.vmap(chains, in_axes=(None, 0, 0, 0, None, None)), data, keys, carry)


def _sweep(
    params: Params,
    data: Observation,
    key: jax.Array,
    carry: Carry,
    schedule: Schedule,
    t: jax.Array,
    blocks: dict[str, Block],
    target_acceptance: float | None,
) -> Carry:
    """Sweep t of one chain, with annealing and adaptation around it, and the observers behind."""
    heat = 1 - t.astype(jnp.float32) / jnp.maximum(schedule.burn_in, 1)
    temperature = jnp.power(schedule.anneal, jnp.maximum(heat, 0.0))
    annealed = replace(params, noise_var=params.noise_var * temperature)
    state = sweep(draws.fold_in(key, t), annealed, data, carry.state, blocks)
    if target_acceptance is not None:
        rate = jnp.where(t < schedule.burn_in, 0.5 / jnp.sqrt(1.0 + t.astype(jnp.float32)), 0.0)
        state = replace(state, step_size=state.step_size * jnp.exp(rate * (state.acceptance - target_acceptance)))
    now = Moment(t, schedule, params, data, state)
    slots = carry.kept["albedo"].shape[0]
    seen = AVERAGES.see(carry.averages, now), TRACE.see(carry.trace, now), Kept(slots).see(carry.kept, now)
    return Carry(state, *seen)


def chain_keys(seed: int, objects: Sequence[int], chains: int) -> np.ndarray:
    """A key's words for every chain of every object (S, C, 2), from their own numbers alone.

    They are those of `fold_in` twice, worked out by NumPy: a handful of numbers is not worth a compilation.
    """
    key0, key1 = np.array([[0], [seed & 0xFFFFFFFF]], np.uint32)  # what `make_key` makes of a seed
    number, chain = (np.array(n).astype(np.uint32) for n in (objects, range(chains)))
    key0, key1 = draws.threefry_words(key0, key1, np.zeros_like(number), number)
    rows = draws.threefry_words(key0[:, None], key1[:, None], np.zeros_like(chain), chain)
    return np.stack(rows, axis=-1)
