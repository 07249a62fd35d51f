"""Gibbs chains over many objects at once.

Objects and chains are batched with `vmap`, and objects are shared out over the devices at hand. Every chain draws
from a key of its own, made from the seed and its own numbers: how the batch is laid out does not change a result.
Around the sweeps lie annealing, which multiplies the noise, and adaptation, which moves HMC's step sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian.energy import Block, Observation, Params, State
from deep_lambertian.inference.observers import Averages, Found, Kept, Moment, Schedule, Sizes, Trace
from deep_lambertian.inference.sampler import Sampler, blocks_of, start, sweep
from deep_lambertian.priors.contract import Moments
from deep_lambertian.support import compiled, draws
from deep_lambertian.support.distributed import gather, is_shared, place
from deep_lambertian.support.progress import chunks
from deep_lambertian.surface import Leaf, Surface

PIECE = 25  # sweeps after which Python looks up: a key that stops the program is heard within seconds
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


compiled.register(Surface, State, Moments, Carry)


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
    """What C chains of each of S objects have found, in NumPy arrays (S, C, ...) by name; see `observers`."""

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
        inputs, observed = place((inputs, observed), mesh, PartitionSpec("objects"))
        params = place(params, mesh, PartitionSpec())
    else:
        observed = jax.device_put(observed)
    carry = _advance(mesh, params, inputs, observed, sampler, known)
    carry = jax.tree.map(lambda x: np.asarray(x)[:objects], gather(carry) if shared else carry)
    mean, variance = AVERAGES.finish(carry.averages, sizes)
    trace = TRACE.finish(carry.trace, sizes, sampler.iterations)
    return Sampled(carry.state, mean, variance, trace, carry.kept)


def _advance(
    mesh: Mesh,
    params: Params,
    inputs: tuple[Observation, dict[str, Any], Any],
    observed: tuple[Any, Any, Any],
    sampler: Sampler,
    known: frozenset[str],
) -> Carry:
    """Start all chains, with data, starts and keys as `inputs`, and run them to their end, piece by piece."""
    data, given, keys = inputs
    # What only the schedule needs is traced: neither it nor how many chains there are makes another program.
    kernel = replace(sampler, iterations=1, burn_in=0, anneal=1.0, keep=0, chains=1)
    schedule = Schedule(sampler.iterations, sampler.burn_in, sampler.anneal, sampler.keep_from)
    options = {"mesh": None if mesh.size == 1 else mesh, "quick": len(data.images) == 1 and sampler.iterations <= SHORT}
    begin = compiled.program(_start_all, params, data, given, **options, sampler=kernel, chains=sampler.chains)
    kernel = replace(kernel, step_size=1.0, start="bias")  # which have done their part
    example = params, data, keys, Carry(begin.shapes, *observed), schedule, (0, 1)
    go_on = compiled.program(_advance_all, *example, **options, donated=3, kernel=kernel, known=tuple(sorted(known)))
    carry = Carry(begin(params, data, given), *observed)
    for first, stop in chunks(sampler.iterations, "sampling"):
        for piece in range(first, stop, PIECE):
            carry = go_on(params, data, keys, carry, schedule, (piece, min(piece + PIECE, stop)))
            jax.block_until_ready(carry)
    return carry


def _mesh(devices: Sequence[Any] | None, objects: int) -> tuple[Mesh, bool]:
    """The devices to share objects out over, no more than there are objects unless some are of other processes; and
    whether some are.
    """
    mesh = Mesh(np.array(jax.devices() if devices is None else devices), ("objects",))
    if jax.process_count() > 1 and is_shared(mesh):
        return mesh, True
    return Mesh(mesh.devices[: max(1, min(mesh.size, objects))], ("objects",)), False


def _start_all(params: Params, data: Observation, given: dict, sampler: Sampler, chains: int) -> State:
    state = jax.vmap(lambda data, given: start(params, data, sampler, given))(data, given)
    return jax.tree.map(lambda x: jnp.repeat(x[:, None], chains, axis=1), state)


def _advance_all(
    params: Params, data: Observation, keys: Any, carry: Carry, schedule: Schedule, bounds: Any, kernel: Sampler, known
) -> Carry:
    """Sweeps from the first to the last of `bounds`, of all chains of all objects."""
    keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
    one = partial(_sweep, blocks=blocks_of(kernel, frozenset(known)), target_acceptance=kernel.target_acceptance)
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
