"""Contrastive divergence for Gaussian and binary RBMs (Hinton, 2002), plain and persistent (Tieleman, 2008).

What is followed is the gradient of `gradient`, in the `units` of the data: learning rates, decay and variance bounds
speak of these.

An epoch is one compiled scan over minibatches. Between epochs everything there is to know is in a `State`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian.learning.cd_settings import CD, Plan, Rates
from deep_lambertian.learning.gradient import RBM, Draws, advance, cd_gradient, hidden_mean, visible_mean
from deep_lambertian.learning.minibatches import batch_rows, minibatches, permutation
from deep_lambertian.learning.scores import Monitors, seen_scores, unseen_scores
from deep_lambertian.learning.units import Units, into_units, out_of_units, standardised, units_of
from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.rbm import BinaryRBM
from deep_lambertian.support import draws
from deep_lambertian.support.distributed import gather, place
from deep_lambertian.support.progress import track

MOST_LOG_STEP = 0.02  # of log σ² in one minibatch, whatever its gradient: σ is the touchy one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that the next epoch needs, as plain arrays: what is saved between two epochs goes on byte for byte.

    `params` and `best` are RBMs in `units`, with weights stored as (H, V): in that layout the matrix products
    of a minibatch take about a fifth less time than in the other.
    """

    params: Any
    optimiser: Any  # momenta, as optax keeps them
    chains: jax.Array  # (batch or samples, H): hidden states of the particles, or of the chains that show samples
    units: Units
    key: jax.Array  # (2,): never changes; what an epoch draws depends on it and on the epoch's number
    epoch: jax.Array
    best: Any
    best_score: jax.Array
    best_epoch: jax.Array


# ---- Epochs


def start(
    rbm: GRBM | BinaryRBM, data: jax.Array, config: CD, key: jax.Array, weights: jax.Array | None = None
) -> State:
    """The state before the first epoch. Chains start from samples of the data."""
    weights = jnp.ones(data.shape[0]) if weights is None else weights
    return _start(
        rbm, data, weights, config.rates, jax.random.key_data(key), config.plan(data.shape[0]), config.samples
    )


@partial(jax.jit, static_argnames=("plan", "samples"))
def _start(
    rbm: Any, data: jax.Array, weights: jax.Array, rates: Rates, key: jax.Array, plan: Plan, samples: int
) -> State:
    units = units_of(rbm, data, weights)
    params = _flip(into_units(rbm, units))
    if isinstance(rbm, GRBM) and plan.learn_variance:
        params = replace(params, variance=jnp.clip(params.variance, rates.variance_low, rates.variance_high))
    chains = batch_rows(data.shape[0], plan.batch_size)[1] if plan.persistent else samples
    chain_key = _epoch_key(key, 0)
    rows = jax.random.randint(chain_key, (chains,), 0, data.shape[0])
    up = hidden_mean(_flip(params), standardised(units, data[rows]))
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


def _flip(rbm: Any) -> Any:
    """Between the layout of the weights in a `State` and that of an RBM."""
    return replace(rbm, weights=rbm.weights.T)


def _epoch_key(key: jax.Array, epoch: Any) -> jax.Array:
    return draws.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), epoch)


def _optimiser(plan: Plan, rates: Rates) -> optax.GradientTransformation:
    """Ascent, so that decay is subtracted."""
    decay = optax.add_decayed_weights(
        cast(Any, -rates.weight_decay), mask=lambda p: replace(jax.tree.map(lambda _: False, p), weights=True)
    )
    if plan.optimiser == "sgd":
        steps = decay, optax.trace(cast(Any, rates.momentum))
    else:
        steps = optax.scale_by_adam(b1=cast(Any, rates.momentum)), decay
    return optax.chain(*steps, optax.scale(cast(Any, rates.learning_rate)))


def learn(
    state: State, data: jax.Array, weights: jax.Array, rates: Rates, plan: Plan, axis_name: str | None = None
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
            standardised(state.units, data[rows]),
            draws.fold_in(batch_key, number),
            plan.steps,
            weights=weight,
            particles=chains if plan.persistent else None,
            axis_name=axis_name,
        )
        # A minibatch whose samples weigh more than usual moves the parameters more.
        heft = psum(jnp.sum(weight)) / psum(jnp.sum(real))
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a rate to the power of a count
            updates, momenta = optimiser.update(_conditioned(_flip(gradient), params, heft), momenta, params)
        return (_apply(params, updates, rates, plan), momenta, moved if plan.persistent else chains), None

    carry = state.params, state.optimiser, state.chains
    (params, momenta, chains), _ = lax.scan(minibatch, carry, (jnp.arange(order.shape[0]), order))
    return replace(state, params=params, optimiser=momenta, chains=chains, epoch=state.epoch + 1)


def _conditioned(gradient: Any, params: Any, heft: jax.Array) -> Any:
    """The direction of ascent: for Gaussian visibles that of log σ², and for b freed of its 1/σ²."""
    gradient = jax.tree.map(lambda g: heft * g, gradient)
    if isinstance(params, BinaryRBM):
        return gradient
    return replace(gradient, bias=gradient.bias * params.variance, variance=gradient.variance * params.variance)


def _apply(params: Any, updates: Any, rates: Rates, plan: Plan) -> Any:
    moved = jax.tree.map(jnp.add, params, updates)
    if isinstance(params, BinaryRBM):
        return moved
    if not plan.learn_variance:
        return replace(moved, variance=params.variance)
    step = jnp.clip(rates.variance_rate * updates.variance, -MOST_LOG_STEP, MOST_LOG_STEP)
    variance = jnp.clip(params.variance * jnp.exp(step), rates.variance_low, rates.variance_high)
    return replace(moved, variance=variance)


# ---- Monitors


def monitor(state: State, train: jax.Array, held_out: jax.Array | None, sample_steps: int) -> tuple[State, Monitors]:
    """What a person wants to see (`scores`), from samples of the training data and all held-out ones.

    The state that is returned has its chains moved on by `sample_steps`, and knows the best parameters so far.
    """
    rbm = _flip(state.params)
    if sample_steps:
        chain_key = draws.split(_epoch_key(state.key, state.epoch), 3)[2]
        state = replace(state, chains=advance(rbm, state.chains, chain_key, sample_steps))
    train = standardised(state.units, train)
    monitors: Monitors = {"epoch": state.epoch, **seen_scores(rbm, train, state.chains)}
    if held_out is not None:
        monitors |= unseen_scores(rbm, train, standardised(state.units, held_out))
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
    state: State, data: jax.Array, config: CD, *, held_out: jax.Array | None = None, weights: jax.Array | None = None
) -> tuple[State, Monitors]:
    """One epoch and its monitors; with several devices or processes, each takes its rows of every minibatch."""
    weights = jnp.ones(data.shape[0]) if weights is None else weights
    return look(_learn_everywhere(state, data, weights, config), data, config, held_out)


def _learn_everywhere(state: State, data: jax.Array, weights: jax.Array, config: CD) -> State:
    plan, devices = config.plan(data.shape[0]), jax.devices()
    rates, chains = config.rates, state.chains.shape[0]
    if len(devices) == 1 or (plan.persistent and chains % len(devices)):  # particles must share out evenly
        return learn_compiled(state, data, weights, rates, plan)
    mesh = Mesh(np.array(devices), ("rows",))
    everywhere = place((state, data, weights, rates), mesh, PartitionSpec())
    if plan.persistent:
        shared = place(state.chains, mesh, PartitionSpec("rows"))
        everywhere = (replace(everywhere[0], chains=shared), *everywhere[1:])
    learned = _learn_shared(*everywhere, plan=plan, mesh=mesh)
    return learned if jax.process_count() == 1 else jax.tree.map(jnp.asarray, gather(learned))


@partial(jax.jit, static_argnames=("plan", "mesh"))
def _learn_shared(state: State, data: jax.Array, weights: jax.Array, rates: Rates, plan: Plan, mesh: Mesh) -> State:
    alike = PartitionSpec()
    specs = replace(jax.tree.map(lambda _: alike, state), chains=PartitionSpec("rows") if plan.persistent else alike)
    run = jax.shard_map(
        partial(learn, plan=plan, axis_name="rows"),
        mesh=mesh,
        in_specs=(specs, alike, alike, alike),
        out_specs=specs,
        check_vma=False,
    )
    return run(state, data, weights, rates)


def look(state: State, data: jax.Array, config: CD, held_out: jax.Array | None = None) -> tuple[State, Monitors]:
    """The monitors, on as many training samples as there are held-out ones, evenly spread."""
    count = min(data.shape[0], config.batch_size if held_out is None else held_out.shape[0])
    train = data[np.arange(count) * data.shape[0] // count]
    return _monitor(state, train, held_out, 0 if config.persistent else config.sample_steps)


def parameters(state: State, *, best: bool = False) -> Any:
    """The RBM of a state, in the units of the data it learns from."""
    return out_of_units(_flip(state.best if best else state.params), state.units)


def samples(state: State) -> jax.Array:
    """What the chains show: E(v | h) of each, (chains, V), in the units of the data."""
    return state.units.mean[None] + state.units.spread[None] * visible_mean(_flip(state.params), state.chains)


def finished(state: State, config: CD) -> bool:
    """Whether all epochs are done, or the held-out score has not improved for `patience` of them."""
    at = int(state.epoch)
    if at >= config.epochs:
        return True
    return config.patience is not None and at - int(state.best_epoch) >= config.patience


def fit(
    rbm: RBM,
    data: Any,
    config: CD | None = None,
    key: jax.Array | None = None,
    *,
    held_out: Any = None,
    weights: Any = None,
) -> tuple[RBM, list[dict[str, float]]]:
    """Learn from data (N, V), and return the RBM and the monitors before the first and after each epoch.

    Data are real for a GRBM, and bits or probabilities for a binary RBM. `weights` (N,) say how much each sample
    counts. With `patience` the RBM is that of the best held-out score, which may be the one that was given.
    """
    config = config or CD()
    data, held_out, weights = _check(rbm, data, held_out, weights, config)
    state = start(rbm, data, config, draws.make_key(0) if key is None else key, weights)
    state, monitors = look(state, data, config, held_out)
    history = [read(monitors)]
    for _ in track(range(config.epochs), "contrastive divergence"):
        state, monitors = epoch(state, data, config, held_out=held_out, weights=weights)
        history.append(read(monitors))
        if finished(state, config):
            break
    return parameters(state, best=config.patience is not None), history


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


def _check(rbm: GRBM | BinaryRBM, data: Any, held_out: Any, weights: Any, config: CD) -> tuple[Any, Any, Any]:
    rbm.validate("rbm")
    data = _check_samples("data", data, rbm, least=2)
    if config.patience is not None and held_out is None:
        raise ValueError("held_out: expected samples, as CD.patience asks to stop by their score, got None")
    if held_out is not None:
        held_out = _check_samples("held_out", held_out, rbm, least=1)
    weights = np.ones(len(data), np.float32) if weights is None else np.asarray(weights, np.float32)
    if weights.shape != (len(data),):
        raise ValueError(f"weights: expected shape ({len(data)},), one for each sample, got {weights.shape}")
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.sum() > 0):
        raise ValueError("weights: expected finite numbers, none negative and not all zero")
    return jnp.asarray(data), None if held_out is None else jnp.asarray(held_out), jnp.asarray(weights)


def _check_samples(name: str, value: Any, rbm: GRBM | BinaryRBM, least: int) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if array.ndim != 2 or array.shape[1] != rbm.size:
        raise ValueError(f"{name}: expected shape (samples, {rbm.size}), got {array.shape}")
    if len(array) < least:
        raise ValueError(f"{name}: expected at least {least} samples, got {len(array)}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: expected finite numbers, got {np.sum(~np.isfinite(array))} that are not")
    if isinstance(rbm, BinaryRBM) and (array.min() < 0 or array.max() > 1):
        raise ValueError(
            f"{name}: expected bits or probabilities for a binary RBM, got {array.min():g} to {array.max():g}"
        )
    return array
