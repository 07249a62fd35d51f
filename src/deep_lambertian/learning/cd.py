r"""Contrastive divergence for Gaussian and binary RBMs (Hinton, 2002), plain and persistent (Tieleman, 2008).

$$\nabla_\theta \log p(v) = \langle -\partial E/\partial\theta \rangle_{\text{data}}
                          - \langle -\partial E/\partial\theta \rangle_{\text{model}}$$

The second mean is taken over `steps` alternating Gibbs steps: from the data (CD-k), or from particles that live on from
one minibatch to the next (persistent CD). Gaussian visibles are learned in the units of the data, u = (v − m)/s for
the mean m and the spread s of each element, and given back in those of v: with b̃ = (b − m)/s, c̃ = c + Wᵀm, W̃ = s∘W and
σ̃² = σ²/s² the energy is the same number. Learning rates, decay and variance bounds speak of these units.

An epoch is one compiled scan over minibatches. Between epochs everything there is to know is in a `State`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from deep_lambertian import draws
from deep_lambertian.distributed import gather, place
from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.rbm import BinaryRBM
from deep_lambertian.progress import track

RBM = TypeVar("RBM", GRBM, BinaryRBM)
Monitors = dict[str, Any]

LEAST_SPREAD = 0.05  # of the root mean square spread: the unit of an element that hardly varies
MOST_LOG_STEP = 0.02  # of log σ² in one minibatch, whatever its gradient: σ is the touchy one
DEAD, SATURATED = 0.01, 0.99  # mean activation below or above which a hidden unit says nothing
PROBES = 16  # elements of a binary vector that its pseudo-likelihood looks at


@dataclass(frozen=True)
class CD:
    """How to learn. `momentum` is Adam's first decay too; `weight_decay` is on the weights only.

    `variance_bounds` are in units of each element's variance in the data, and a start outside them is moved inside;
    `variance_rate` is the learning rate of log σ² in units of `learning_rate`. With `patience` and held-out data,
    learning stops after that many epochs without a better held-out score (see `held_out_score`), and the best
    parameters are returned. `samples` chains, moved on `sample_steps` an epoch, show what the model itself believes;
    persistent CD shows its particles instead.
    """

    epochs: int = 30
    batch_size: int = 100
    steps: int = 1
    persistent: bool = False
    optimiser: str = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 2e-4
    learn_variance: bool = True
    variance_rate: float = 0.1
    variance_bounds: tuple[float, float] = (1e-3, 10.0)
    patience: int | None = None
    samples: int = 16
    sample_steps: int = 10

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "steps", "samples", "sample_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"CD.{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "weight_decay", "variance_rate"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"CD.{name}: expected a finite number, not negative, got {getattr(self, name)}")
        if self.optimiser not in ("sgd", "adam"):
            raise ValueError(f'CD.optimiser: expected "sgd" or "adam", got {self.optimiser!r}')
        if not 0 <= self.momentum < 1:
            raise ValueError(f"CD.momentum: expected a number in [0, 1), got {self.momentum}")
        low, high = self.variance_bounds
        if not 0 < low <= high:
            raise ValueError(f"CD.variance_bounds: expected 0 < low ≤ high, got {self.variance_bounds}")

    @property
    def rates(self) -> "Rates":
        """The numbers that may change without compiling anew."""
        numbers = (self.learning_rate, self.momentum, self.weight_decay, self.variance_rate, *self.variance_bounds)
        return Rates(*(jnp.float32(number) for number in numbers))

    def plan(self, count: int) -> "Plan":
        """What the compiled program for `count` samples depends on."""
        batch_size = min(self.batch_size, count)
        return Plan(batch_size, self.steps, self.persistent, self.optimiser, self.learn_variance)


class Rates(NamedTuple):
    learning_rate: jax.Array
    momentum: jax.Array
    weight_decay: jax.Array
    variance_rate: jax.Array
    variance_low: jax.Array
    variance_high: jax.Array


class Plan(NamedTuple):
    batch_size: int
    steps: int
    persistent: bool
    optimiser: str
    learn_variance: bool


class Units(NamedTuple):
    """Visibles are learned as u = (v − mean)/spread, each (V,); mean 0 and spread 1 for a binary RBM."""

    mean: jax.Array
    spread: jax.Array


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


# ---- The gradient


def cd_gradient(
    rbm: RBM,
    batch: jax.Array,
    key: jax.Array,
    steps: int = 1,
    *,
    weights: jax.Array | None = None,
    particles: jax.Array | None = None,
    axis_name: str | None = None,
) -> tuple[RBM, jax.Array, jax.Array]:
    """An estimate of the gradient of the mean log-likelihood of a batch (B, V), shaped like the RBM.

    Also returned are the chains' last hidden states and their last visible ones. `weights` (B,) are those of the
    samples in the mean. The chains start from the data or, if they are given, from `particles`, hidden states (C, H).
    Within a `shard_map` over `axis_name`, batch, weights and particles are a device's rows; the gradient is that
    of all rows, and the draws depend on a row's place among them, so that the number of devices does not matter.
    """
    draw = _Draws(rbm, key, axis_name)
    psum = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    weights = jnp.ones(batch.shape[0]) if weights is None else weights
    weights = weights / jnp.maximum(psum(jnp.sum(weights)), jnp.finfo(jnp.float32).tiny)
    up = hidden_mean(rbm, batch)
    if particles is None:
        hidden, fantasy_weights = draw.hidden(up, 0), weights
    else:
        hidden = particles
        fantasy_weights = jnp.full(hidden.shape[0], 1 / hidden.shape[0]) / psum(jnp.ones(()))

    def gibbs(t: Any, hidden: jax.Array) -> jax.Array:
        return draw.hidden(hidden_mean(rbm, draw.visible(hidden, 2 * t + 1)), 2 * t + 2)

    if steps > 1:
        hidden = lax.fori_loop(0, steps - 1, gibbs, hidden)
    fantasy = draw.visible(hidden, 2 * steps - 1)
    fantasy_up = hidden_mean(rbm, fantasy)
    # Both phases in one product of a batch twice as long; the hidden probabilities rather than draws, for less noise.
    gradient = energy_gradient(
        rbm,
        jnp.concatenate([batch, fantasy]),
        jnp.concatenate([up, fantasy_up]),
        jnp.concatenate([weights, -fantasy_weights]),
    )
    return psum(gradient), draw.hidden(fantasy_up, 2 * steps), fantasy


def energy_gradient(rbm: RBM, visible: jax.Array, hidden: jax.Array, weights: jax.Array) -> RBM:
    """Σ_n w_n (−∂E/∂θ) at pairs of visible (B, V) and hidden (B, H), shaped like the RBM."""
    weighted = weights[:, None] * hidden
    common = {"hidden_bias": jnp.sum(weighted, axis=0), "weights": (weighted.T @ visible).T}
    if isinstance(rbm, BinaryRBM):
        return replace(rbm, bias=weights @ visible, **common)
    off = visible - rbm.bias[None]
    bias = (weights @ off) / rbm.variance
    return replace(rbm, bias=bias, variance=0.5 * (weights @ off**2) / rbm.variance**2, **common)


def hidden_mean(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    """p(h = 1 | v) for a batch (Eq. 1)."""
    return jax.nn.sigmoid(hidden_logits(rbm, visible))


def hidden_logits(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    return rbm.hidden_bias[None] + visible @ rbm.weights


def visible_mean(rbm: GRBM | BinaryRBM, hidden: jax.Array) -> jax.Array:
    """E(v | h) for a batch (Eq. 2)."""
    field = hidden @ rbm.weights.T
    if isinstance(rbm, BinaryRBM):
        return jax.nn.sigmoid(rbm.bias[None] + field)
    return rbm.bias[None] + rbm.variance[None] * field


class _Draws(NamedTuple):
    """Draws for a batch, of which each number depends on the key, the stream and its place among the rows of all
    devices."""

    rbm: GRBM | BinaryRBM
    key: jax.Array
    axis_name: str | None = None

    def hidden(self, probability: jax.Array, stream: Any) -> jax.Array:
        return _bernoulli(self._bits(probability.shape, stream), probability)

    def visible(self, hidden: jax.Array, stream: Any) -> jax.Array:
        mean = visible_mean(self.rbm, hidden)
        bits = self._bits(mean.shape, stream)
        if isinstance(self.rbm, BinaryRBM):
            return _bernoulli(bits, mean)
        return mean + jnp.sqrt(self.rbm.variance)[None] * draws.gaussian(bits)

    def _bits(self, shape: tuple[int, ...], stream: Any) -> jax.Array:
        first = lax.axis_index(self.axis_name) * shape[0] if self.axis_name else 0
        row = lax.broadcasted_iota(jnp.uint32, shape, 0) + jnp.asarray(first, jnp.uint32)
        counter = row * jnp.uint32(shape[1]) + lax.broadcasted_iota(jnp.uint32, shape, 1)
        return draws.threefry(*draws.key_words(self.key), counter, jnp.full_like(counter, stream))[0]


def _bernoulli(bits: jax.Array, probability: jax.Array) -> jax.Array:
    return (draws.unit_interval(bits) < probability).astype(probability.dtype)


# ---- Units


def units_of(rbm: GRBM | BinaryRBM, data: jax.Array, weights: jax.Array) -> Units:
    """The mean and spread of each element, the spread not less than a share of what is usual."""
    if isinstance(rbm, BinaryRBM):
        return Units(jnp.zeros(rbm.size), jnp.ones(rbm.size))
    share = weights / jnp.sum(weights)
    mean = share @ data
    variance = share @ (data - mean[None]) ** 2
    usual = jnp.mean(variance)
    spread = jnp.sqrt(jnp.maximum(variance, LEAST_SPREAD**2 * usual))
    return Units(mean, jnp.where(usual > 0, spread, 1.0))


def into_units(rbm: RBM, units: Units) -> RBM:
    """The same energy as a function of u = (v − m)/s."""
    if isinstance(rbm, BinaryRBM):
        return rbm
    return replace(
        rbm,
        bias=(rbm.bias - units.mean) / units.spread,
        hidden_bias=rbm.hidden_bias + units.mean @ rbm.weights,
        weights=units.spread[:, None] * rbm.weights,
        variance=rbm.variance / units.spread**2,
    )


def out_of_units(rbm: RBM, units: Units) -> RBM:
    """The same energy as a function of v = m + s u."""
    if isinstance(rbm, BinaryRBM):
        return rbm
    weights = rbm.weights / units.spread[:, None]
    return replace(
        rbm,
        bias=units.mean + units.spread * rbm.bias,
        hidden_bias=rbm.hidden_bias - units.mean @ weights,
        weights=weights,
        variance=rbm.variance * units.spread**2,
    )


def _flip(rbm: Any) -> Any:
    return replace(rbm, weights=rbm.weights.T)


def _standardised(units: Units, visible: jax.Array) -> jax.Array:
    return (visible - units.mean[None]) * (1 / units.spread)[None]


def initial(key: jax.Array, data: jax.Array, hidden_size: int, *, binary: bool = False, scale: float = 0.01) -> Any:
    """An RBM that knows each element's mean and, of real data, its variance; weights ~ N(0, scale²) in units."""
    mean, size = jnp.mean(data, axis=0), data.shape[1]
    weights = scale * draws.normal(key, (size, hidden_size))
    if binary:
        mean = jnp.clip(mean, 0.01, 0.99)
        return BinaryRBM(jnp.log(mean) - jnp.log1p(-mean), jnp.zeros(hidden_size), weights)
    rbm = GRBM(jnp.zeros(size), jnp.zeros(hidden_size), weights, jnp.ones(size))
    return out_of_units(rbm, units_of(rbm, data, jnp.ones(data.shape[0])))


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
    chains = _batch_rows(data.shape[0], plan.batch_size)[1] if plan.persistent else samples
    chain_key = _epoch_key(key, 0)
    rows = jax.random.randint(chain_key, (chains,), 0, data.shape[0])
    up = hidden_mean(_flip(params), _standardised(units, data[rows]))
    return State(
        params=params,
        optimiser=_optimiser(plan, rates).init(params),
        chains=_Draws(params, chain_key).hidden(up, 1),
        units=units,
        key=key,
        epoch=jnp.int32(0),
        best=params,
        best_score=jnp.float32(jnp.inf),
        best_epoch=jnp.int32(0),
    )


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
    order = _minibatches(_permutation(order_key, data.shape[0]), plan.batch_size, axis_name)
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
            _standardised(state.units, data[rows]),
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


def _permutation(key: jax.Array, count: int) -> jax.Array:
    return jnp.argsort(draws.bits(key, (count,)))


def _batch_rows(count: int, batch_size: int) -> tuple[int, int]:
    """How many minibatches, and of how many rows: all alike but for a row, rather than a short one at the end."""
    batches = -(-count // batch_size)
    return batches, -(-count // batches)


def _minibatches(order: jax.Array, batch_size: int, axis_name: str | None = None) -> jax.Array:
    """Row numbers (batches, rows), or a device's share of them; −1 where there is no sample left."""
    batches, rows = _batch_rows(order.shape[0], batch_size)
    missing = batches * rows - order.shape[0]  # fewer than `batches`: at most one of them in each
    order = jnp.pad(order, (0, missing), constant_values=-1).reshape(rows, batches).T
    if axis_name is None:
        return order
    devices = lax.axis_size(axis_name)
    share = -(-rows // devices)
    order = jnp.pad(order, ((0, 0), (0, devices * share - rows)), constant_values=-1)
    return lax.dynamic_slice_in_dim(order, lax.axis_index(axis_name) * share, share, axis=1)


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


def _advance(rbm: GRBM | BinaryRBM, chains: jax.Array, key: jax.Array, steps: int) -> jax.Array:
    draw = _Draws(rbm, key)

    def gibbs(t: jax.Array, hidden: jax.Array) -> jax.Array:
        return draw.hidden(hidden_mean(rbm, draw.visible(hidden, 2 * t)), 2 * t + 1)

    return lax.fori_loop(0, steps, gibbs, chains)


# ---- Monitors


def monitor(state: State, train: jax.Array, held_out: jax.Array | None, sample_steps: int) -> tuple[State, Monitors]:
    """What a person wants to see, from samples of the training data and all held-out ones.

    The state that is returned has its chains moved on by `sample_steps`, and knows the best parameters so far.

    `reconstruction` is the mean squared error, in units of the spread, of one mean-field pass up and down;
    `free_energy_gap` is F(held-out) − F(train), which grows when learning by heart sets in; `sample_mean_error` the
    distance of the mean of the model's own samples from the data's, which shows what reconstructions do not;
    `dead` and `saturated` the shares of hidden units that are nearly always off or on.
    """
    rbm = _flip(state.params)
    if sample_steps:
        chain_key = draws.split(_epoch_key(state.key, state.epoch), 3)[2]
        state = replace(state, chains=_advance(rbm, state.chains, chain_key, sample_steps))
    train = _standardised(state.units, train)
    activation = jnp.mean(hidden_mean(rbm, train), axis=0)
    samples = jnp.mean(visible_mean(rbm, state.chains), axis=0)
    monitors: Monitors = {
        "epoch": state.epoch,
        "reconstruction": _reconstruction(rbm, train),
        "sample_mean_error": jnp.sqrt(jnp.mean((samples - jnp.mean(train, axis=0)) ** 2)),
        "weight_size": jnp.mean(jnp.abs(rbm.weights)),
        "dead": jnp.mean(activation < DEAD),
        "saturated": jnp.mean(activation > SATURATED),
        "score": held_out_score(rbm, train),
    }
    if isinstance(rbm, GRBM):
        monitors |= {"variance_low": jnp.min(rbm.variance), "variance_high": jnp.max(rbm.variance)}
    if held_out is not None:
        held_out = _standardised(state.units, held_out)
        score = held_out_score(rbm, held_out)
        gap = jnp.mean(free_energy(rbm, held_out)) - jnp.mean(free_energy(rbm, train))
        monitors |= {
            "held_out_reconstruction": _reconstruction(rbm, held_out),
            "held_out_score": score,
            "free_energy_gap": gap,
        }
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


def free_energy(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    return jax.vmap(rbm.free_energy)(visible)


def _reconstruction(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    return jnp.mean((visible - visible_mean(rbm, hidden_mean(rbm, visible))) ** 2)


def held_out_score(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    r"""How badly the RBM's density fits samples, per element: less is better, and nothing beats the true density.

    Both scores need neither the normaliser nor samples. Neither the free energy, known up to a constant that moves
    while learning, nor the reconstruction error, of which a model of quite wrong density may be proud, can do that.
    For Gaussian visibles it is Hyvärinen's (2005), $\frac12 g_i^2 + \partial g_i/\partial v_i$ with
    $g = \nabla_v \log p(v) = -(v - b)/\sigma^2 + W q$; for binary ones minus the pseudo-log-likelihood
    $\log p(v_i \mid v_{-i})$, of `PROBES` elements spread over each sample.
    """
    logits = hidden_logits(rbm, visible)
    if isinstance(rbm, GRBM):
        q = jax.nn.sigmoid(logits)
        slope = q @ rbm.weights.T - (visible - rbm.bias[None]) / rbm.variance[None]
        curvature = (q * (1 - q)) @ (rbm.weights.T) ** 2 - 1 / rbm.variance[None]
        return jnp.mean(0.5 * slope**2 + curvature)
    i = jnp.asarray(_probes(*visible.shape))
    own = jnp.take_along_axis(visible, i, axis=1)  # (N, K)
    weights = rbm.weights[i]  # (N, K, H)
    off = logits[:, None] - own[..., None] * weights
    odds = rbm.bias[i] + jnp.sum(jax.nn.softplus(off + weights) - jax.nn.softplus(off), axis=2)
    return jnp.mean(jax.nn.softplus(odds) - own * odds)


def _probes(count: int, size: int) -> np.ndarray:
    """Which elements of each sample to look at, (N, K): every one has its turn, and the same ones in every epoch."""
    golden = np.arange(count * PROBES) * ((np.sqrt(5) - 1) / 2) % 1
    return (golden * size).astype(np.int32).reshape(count, PROBES)


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
    progress: bool = False,
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
    for _ in track(range(config.epochs), "contrastive divergence", progress):
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
