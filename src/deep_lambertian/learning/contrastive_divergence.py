"""Contrastive divergence for Gaussian and binary RBMs (Hinton, 2002), plain and persistent (Tieleman, 2008).

It is how the M-step follows Eq. 9 for the parameters of a net (steps 4 and 5 of Algorithm 1), and how nets are learned
before that (step 1). What is followed is the gradient of `gradient`, in the units of the data: learning rates, decay
and variance bounds speak of these.

An epoch is one compiled scan over minibatches. Between epochs everything there is to know is in a `State`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, Key, UInt32
from numpy.typing import ArrayLike

from deep_lambertian.learning.gradient import Draws, advance, batch_rows, cd_gradient, minibatches, permutation
from deep_lambertian.learning.scores import Monitors, all_scores
from deep_lambertian.priors.rbm import RBM, Units
from deep_lambertian.support import draws
from deep_lambertian.support.distributed import gather, place
from deep_lambertian.support.progress import track
from deep_lambertian.support.settings import Count, Must, NotNegative, check

R = TypeVar("R", bound=RBM)


@dataclass(frozen=True)
class CD:
    """How to learn. `momentum` is Adam's first decay too; `weight_decay` is on the weights only.

    `variance_bounds` are in units of each element's variance in the data, and a start outside them is moved inside;
    `variance_rate` is the learning rate of log σ² in units of `learning_rate`. With `patience` and held-out data,
    learning stops after that many epochs without a better held-out score (see `scores.held_out_score`), and the best
    parameters are returned. `samples` chains, moved on `sample_steps` an epoch, show what the model itself believes;
    persistent CD shows its particles instead.
    """

    epochs: Count = 30
    batch_size: Count = 100
    steps: Count = 1
    persistent: bool = False
    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: NotNegative = 1e-3
    momentum: Annotated[float, Must("a number in [0, 1)", lambda x: 0 <= x < 1)] = 0.9
    weight_decay: NotNegative = 2e-4
    learn_variance: bool = True
    variance_rate: NotNegative = 0.1
    variance_bounds: Annotated[tuple[float, float], Must("0 < low ≤ high", lambda x: 0 < x[0] <= x[1])] = (1e-3, 10.0)
    patience: int | None = None
    samples: Count = 16
    sample_steps: Count = 10

    def __post_init__(self) -> None:
        check(self, "CD.")

    @property
    def rates(self) -> "Rates":
        """The numbers that may change without compiling anew."""
        names = ("learning_rate", "momentum", "weight_decay", "variance_rate", "variance_bounds")
        return {name: jnp.asarray(getattr(self, name), jnp.float32) for name in names}

    def plan(self, count: int) -> "CD":
        """What the compiled program for `count` samples depends on; all else is as if it had not been told."""
        kept = {name: getattr(self, name) for name in ("steps", "persistent", "optimiser", "learn_variance", "samples")}
        return CD(batch_size=min(self.batch_size, count), **kept)


Rates = dict[str, Any]  # float32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that the next epoch needs, as plain arrays: what is saved between two epochs goes on byte for byte.

    `params` and `best` are RBMs in `units`, with weights stored as (H, V): in that layout the matrix products
    of a minibatch take about a fifth less time than in the other.
    """

    params: RBM
    optimiser: Any  # momenta, as optax keeps them
    chains: jax.Array  # (batch or samples, H): hidden states of the particles, or of the chains that show samples
    units: Units
    key: jax.Array  # (2,): never changes; what an epoch draws depends on it and on the epoch's number
    epoch: jax.Array
    best: RBM
    best_score: jax.Array
    best_epoch: jax.Array


# ---- Epochs


def start(
    rbm: RBM, data: Float[Array, "N V"], config: CD, key: Key[Array, ""], weights: Float[Array, " N"] | None = None
) -> State:
    """The state before the first epoch. Chains start from samples of the data."""
    weights = jnp.ones(data.shape[0]) if weights is None else weights
    return _start(rbm, data, weights, config.rates, jax.random.key_data(key), config.plan(data.shape[0]))


@partial(jax.jit, static_argnames="plan")
def _start(
    rbm: RBM, data: Float[Array, "N V"], weights: Float[Array, " N"], rates: Rates, key: UInt32[Array, "2"], plan: CD
) -> State:
    units = rbm.units_of(data, weights)
    params = _flip(rbm.into_units(units))
    if plan.learn_variance:
        params = params.bounded(*rates["variance_bounds"])
    chains = batch_rows(data.shape[0], plan.batch_size)[1] if plan.persistent else plan.samples
    chain_key = _epoch_key(key, 0)
    rows = jax.random.randint(chain_key, (chains,), 0, data.shape[0])
    up = jax.vmap(_flip(params).mean_hidden)(units.standardised(data[rows]))
    return State(
        params=params,
        optimiser=_optimiser(plan, rates).init(params),
        chains=Draws(params, chain_key).hidden(up, 1),
        units=units,
        key=key,
        epoch=jnp.int32(0),
        best=params,
        best_score=jnp.float32(jnp.inf),
        best_epoch=jnp.int32(0),
    )


def _flip(rbm: R) -> R:
    """Between the layout of the weights in a `State` and that of an RBM."""
    return replace(rbm, weights=rbm.weights.T)


def _epoch_key(key: UInt32[Array, "2"], epoch: Int[Array, ""] | int) -> Key[Array, ""]:
    return draws.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), epoch)


def _optimiser(plan: CD, rates: Rates) -> Any:
    """Ascent, so that decay is subtracted."""
    import optax  # here, so that who only reads settings need not wait for it

    only_weights = partial(jax.tree_util.tree_map_with_path, lambda path, _: path[-1].name == "weights")
    decay = optax.add_decayed_weights(-rates["weight_decay"], mask=only_weights)
    if plan.optimiser == "sgd":
        steps = decay, optax.trace(rates["momentum"])
    else:
        steps = optax.scale_by_adam(b1=rates["momentum"]), decay
    return optax.chain(*steps, optax.scale(rates["learning_rate"]))


def learn(
    state: State, data: Float[Array, "N V"], weights: Float[Array, " N"], rates: Rates, plan: CD, axis_name: Any = None
) -> State:
    """One epoch: a scan over the minibatches of a new permutation of the samples.

    Within a `shard_map` over `axis_name` every device is given the same, but for its rows of `state.chains` in
    persistent CD, and takes its rows of every minibatch.
    """
    order_key, batch_key, _ = draws.split(_epoch_key(state.key, state.epoch + 1), 3)
    order = minibatches(permutation(order_key, data.shape[0]), plan.batch_size, axis_name)
    weights = weights / jnp.mean(weights)
    psum = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    optimiser = _optimiser(plan, rates)

    def minibatch(carry: Any, now: Any) -> Any:
        params, momenta, chains = carry
        number, rows = now
        real = (rows >= 0).astype(jnp.float32)
        weight = real * weights[rows]
        gradient, moved, _ = cd_gradient(
            _flip(params),
            state.units.standardised(data[rows]),
            draws.fold_in(batch_key, number),
            plan.steps,
            weights=weight,
            particles=chains if plan.persistent else None,
            axis_name=axis_name,
        )
        # A minibatch whose samples weigh more than usual moves the parameters more.
        share = psum(jnp.sum(weight)) / psum(jnp.sum(real))
        direction = params.ascent(jax.tree.map(lambda g: share * g, _flip(gradient)))
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a rate to the power of a count
            step, momenta = optimiser.update(direction, momenta, params)
        params = params.moved(step, rates["variance_rate"] if plan.learn_variance else None)
        if plan.learn_variance:
            params = params.bounded(*rates["variance_bounds"])
        return (params, momenta, moved if plan.persistent else chains), None

    carry = state.params, state.optimiser, state.chains
    (params, momenta, chains), _ = lax.scan(minibatch, carry, (jnp.arange(order.shape[0]), order))
    return replace(state, params=params, optimiser=momenta, chains=chains, epoch=state.epoch + 1)


# ---- Monitors


def monitor(
    state: State, train: Float[Array, "N V"], held_out: Float[Array, "M V"] | None, sample_steps: int
) -> tuple[State, Monitors]:
    """What a person wants to see (`scores`), from samples of the training data and all held-out ones.

    The state that is returned has its chains moved on by `sample_steps`, and knows the best parameters so far.
    """
    rbm = _flip(state.params)
    if sample_steps:
        chain_key = draws.split(_epoch_key(state.key, state.epoch), 3)[2]
        state = replace(state, chains=advance(rbm, state.chains, chain_key, sample_steps))
    train = state.units.standardised(train)
    unseen = None if held_out is None else state.units.standardised(held_out)
    monitors: Monitors = {"epoch": state.epoch, **all_scores(rbm, train, unseen, state.chains)}
    if held_out is not None:
        score = monitors["held_out_score"]
        better = score < state.best_score
        state = replace(
            state,
            best=jax.tree.map(partial(jnp.where, better), state.params, state.best),
            best_score=jnp.where(better, score, state.best_score),
            best_epoch=jnp.where(better, state.epoch, state.best_epoch),
        )
    # The sum is finite only where every number is: one pass, and no array of booleans.
    finite = {name: jnp.isfinite(jnp.sum(value)) for name, value in vars(rbm).items()}
    return state, monitors | {"finite": finite}


# ---- The loop

learn_compiled = jax.jit(learn, static_argnames=("plan", "axis_name"))
_monitor = jax.jit(monitor, static_argnames="sample_steps")


def epoch(
    state: State,
    data: Float[Array, "N V"],
    config: CD,
    *,
    held_out: Float[Array, "M V"] | None = None,
    weights: Float[Array, " N"] | None = None,
) -> tuple[State, Monitors]:
    """One epoch and its monitors; with several devices or processes, each takes its rows of every minibatch."""
    weights = jnp.ones(data.shape[0]) if weights is None else weights
    plan, rates, devices = config.plan(data.shape[0]), config.rates, jax.devices()
    if len(devices) == 1 or (plan.persistent and state.chains.shape[0] % len(devices)):  # particles must share out
        return look(learn_compiled(state, data, weights, rates, plan), data, config, held_out)
    mesh = Mesh(np.array(devices), ("rows",))
    everywhere = place((state, data, weights, rates), mesh, PartitionSpec())
    if plan.persistent:
        shared = place(state.chains, mesh, PartitionSpec("rows"))
        everywhere = (replace(everywhere[0], chains=shared), *everywhere[1:])
    learned = _learn_shared(*everywhere, plan=plan, mesh=mesh)
    if jax.process_count() > 1:
        learned = jax.tree.map(jnp.asarray, gather(learned))
    return look(learned, data, config, held_out)


@partial(jax.jit, static_argnames=("plan", "mesh"))
def _learn_shared(state: State, data: jax.Array, weights: jax.Array, rates: Rates, plan: CD, mesh: Mesh) -> State:
    alike = PartitionSpec()
    chains = PartitionSpec("rows") if plan.persistent else alike
    specs = jax.tree_util.tree_map_with_path(lambda path, _: chains if path[0].name == "chains" else alike, state)
    run, inputs = partial(learn, plan=plan, axis_name="rows"), (specs, alike, alike, alike)
    shared = jax.shard_map(run, mesh=mesh, in_specs=inputs, out_specs=specs, check_vma=False)
    return shared(state, data, weights, rates)


def look(
    state: State, data: Float[Array, "N V"], config: CD, held_out: Float[Array, "M V"] | None = None
) -> tuple[State, Monitors]:
    """The monitors, on as many training samples as there are held-out ones, evenly spread."""
    count = min(data.shape[0], config.batch_size if held_out is None else held_out.shape[0])
    train = data[np.arange(count) * data.shape[0] // count]
    return _monitor(state, train, held_out, 0 if config.persistent else config.sample_steps)


def parameters(state: State, *, best: bool = False) -> Any:
    """The RBM of a state, in the units of the data it learns from."""
    return _flip(state.best if best else state.params).out_of_units(state.units)


def fit(
    rbm: R,
    data: ArrayLike,
    config: CD | None = None,
    key: Key[Array, ""] | None = None,
    *,
    held_out: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> tuple[R, list[dict[str, float]]]:
    """Learn from data (N, V), and return the RBM and the monitors before the first and after each epoch.

    Data are real for a GRBM, and bits or probabilities for a binary RBM. `weights` (N,) say how much each sample
    counts. With `patience` the RBM is that of the best held-out score, which may be the one that was given.
    """
    config = config or CD()
    data, held_out, weights = _check(rbm, data, held_out, weights, config)
    state = start(rbm, data, config, draws.make_key(0) if key is None else key, weights)
    state, monitors = look(state, data, config, held_out)
    history = [read(monitors)]
    for after, numbers in epochs(state, data, config, held_out=held_out, weights=weights):
        state = after
        history.append(numbers)
    return parameters(state, best=config.patience is not None), history


def epochs(
    state: State,
    data: jax.Array,
    config: CD,
    *,
    held_out: jax.Array | None = None,
    weights: jax.Array | None = None,
    what: str = "contrastive divergence",
) -> Iterator[tuple[State, dict[str, float]]]:
    """The epochs that are left: after each of them its state, and the monitors as numbers.

    None is left once the held-out score has not improved for `patience` of them.
    """
    for number in track(range(int(state.epoch), config.epochs), what):
        if config.patience is not None and number - int(state.best_epoch) >= config.patience:
            return
        state, monitors = epoch(state, data, config, held_out=held_out, weights=weights)
        yield state, read(monitors)


def read(monitors: Monitors) -> dict[str, float]:
    """The monitors as numbers, once they are there; an error where learning has run away."""
    values = jax.device_get(monitors)
    bad = [name for name, finite in values.pop("finite").items() if not finite]
    if bad:
        raise FloatingPointError(
            f"contrastive divergence: {', '.join(bad)} no longer finite after epoch {values['epoch']}; "
            f"a smaller learning rate may help"
        )
    return {name: value.item() for name, value in values.items()}


def _check(
    rbm: RBM, data: ArrayLike, held_out: ArrayLike | None, weights: ArrayLike | None, config: CD
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    rbm.validate("rbm")
    rows = _check_samples("data", data, rbm, least=2)
    if config.patience is not None and held_out is None:
        raise ValueError("held_out: expected samples, as CD.patience asks to stop by their score, got None")
    unseen = None if held_out is None else jnp.asarray(_check_samples("held_out", held_out, rbm, least=1))
    shares = np.ones(len(rows), np.float32) if weights is None else np.asarray(weights, np.float32)
    if shares.shape != (len(rows),):
        raise ValueError(f"weights: expected shape ({len(rows)},), one for each sample, got {shares.shape}")
    if not (np.all(np.isfinite(shares)) and np.all(shares >= 0) and shares.sum() > 0):
        raise ValueError("weights: expected finite numbers, none negative and not all zero")
    return jnp.asarray(rows), unseen, jnp.asarray(shares)


def _check_samples(name: str, value: ArrayLike, rbm: RBM, least: int) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if array.ndim != 2 or array.shape[1] != rbm.size:
        raise ValueError(f"{name}: expected shape (samples, {rbm.size}), got {array.shape}")
    if len(array) < least:
        raise ValueError(f"{name}: expected at least {least} samples, got {len(array)}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: expected finite numbers, got {np.sum(~np.isfinite(array))} that are not")
    rbm.check_visible(name, array)
    return array
