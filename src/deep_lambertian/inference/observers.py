"""What is accumulated and traced while chains run, and whether that says that they have converged.

Each observer owns its state, and makes arrays with names of it.

An observer sees one chain, after every sweep; batches of chains and of objects are made around it. What it keeps does
not grow with the length of the chain. It begins with NumPy's zeros, for which nothing is compiled, and ends with NumPy
arrays (..., objects, chains first).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deep_lambertian.energy import Observation, Params, State, joint_energy
from deep_lambertian.priors.contract import Moments
from deep_lambertian.surface import on_sphere, render

TRACE_LENGTH = 1024  # a longer chain is thinned to this many records, so that memory does not grow with it
PROBES = 8  # at most so many pixels, spread evenly, whose albedo and normal are traced
BRIGHT = 4.0  # times the mean of what is dark: brighter than that hardly any shadow is
LOST = 5.0  # nats: about what a label takes from the likelihood of a pixel that is neither lit nor dark
Row = dict[str, tuple[int, ...]]  # names and shapes of what lies in a flat row, which one operation updates
Found = dict[str, np.ndarray]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Schedule:
    """How long chains run and what of them counts; numbers that are traced, so that one compilation serves any."""

    iterations: int
    until: int
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
            "shadows": (sizes.images, sizes.pixels),
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
            "shadows": jnp.where(now.data.weights > 0, 1.0, 0.0) - jnp.where(state.weights > 0, 1.0, 0.0),
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
            "surprise": (),
        }

    def begin(self, sizes: Sizes) -> Any:
        return sizes.zeros(TRACE_LENGTH, row_length(self.row(sizes)))

    def see(self, seen: jax.Array, now: Moment) -> jax.Array:
        data, state, surface = now.data, now.state, now.state.surface
        stride = _stride(len(surface.albedo))
        believed = Observation(data.images, state.weights)
        squares = state.weights * (data.images - render(surface, state.lights)) ** 2
        values = {
            "acceptance": jnp.mean(state.acceptance),
            "albedo": surface.albedo[::stride],
            "energy": joint_energy(now.params, believed, surface, state.lights, state.hidden),
            "lights": state.lights,
            "normals": surface.normals[:, ::stride],
            "residual": jnp.sqrt(jnp.sum(squares) / jnp.maximum(jnp.sum(state.weights), 1e-6)),
            "surprise": surprise(now.params, data, state),
        }
        record = now.t * TRACE_LENGTH // jnp.maximum(now.schedule.until, TRACE_LENGTH)
        return lax.dynamic_update_index_in_dim(seen, fold(values), record, 0)

    def finish(self, seen: np.ndarray, sizes: Sizes, iterations: int, until: int) -> Found:
        """Records (objects, chains, records, ...) by name: those that so many sweeps, of `until`, have filled."""
        return unfold(self.row(sizes), np.asarray(seen)[:, :, : record_of(iterations - 1, until) + 1])


def surprise(params: Params, data: Observation, state: State) -> jax.Array:
    """How little the model expected what it sees, in nats a pixel: the prior's energy of the surface, and LOST for each
    pixel that is too bright for a shadow, and yet not lit by the surface.
    """
    lost = (data.images > BRIGHT * params.dark_mean) & (data.weights > 0) & (state.weights == 0)
    energy = params.prior.energy(state.surface.pack(), state.hidden)
    return (energy + LOST * jnp.sum(lost.astype(energy.dtype)) / len(data.images)) / params.pixels


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


def record_of(t: int, until: int) -> int:
    """The record of a trace that sweep t is in, where there are to be at most `until`."""
    return t * TRACE_LENGTH // max(until, TRACE_LENGTH)


def _stride(pixels: int) -> int:
    return -(-pixels // PROBES)


def row_length(row: Row) -> int:
    return sum(math.prod(shape) for shape in row.values())


def fold(values: dict[str, jax.Array]) -> jax.Array:
    """Named arrays as one flat row, in the order of their names."""
    return jnp.concatenate([values[name].reshape(-1) for name in sorted(values)])


def unfold(row: Row, rows: Any) -> dict[str, Any]:
    """The named arrays (..., shape) of flat rows (..., R)."""
    found, first = {}, 0
    for name in sorted(row):
        end = first + math.prod(row[name])
        found[name] = rows[..., first:end].reshape(*rows.shape[:-1], *row[name])
        first = end
    return found


# ---- Have the chains converged? R-hat and effective sample size are by ranks, after Vehtari, Gelman, Simpson,
# Carpenter & Bürkner (2021), "Rank-normalization, folding, and localization: an improved R-hat for assessing
# convergence of MCMC", Bayesian Analysis 16(2), who advise the limits, too. ArviZ has the same figures, which the tests
# compare these with; but importing it takes longer than all chains of a photo.

RHAT_LIMIT = 1.01
ESS_LIMIT = 400.0
ACCEPTANCE_LIMIT = 0.2
STUCK_SHARE = 0.01


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of one object's chains, over the sweeps after the burn-in.

    `trace` holds, for each chain, the energy, residual, acceptance, surprise, lights, and the albedo and normals of a
    few pixels at up to 1024 sweeps; the first `burn_in` records do not count. `acceptance` (H, W) is HMC's at each
    pixel.
    """

    trace: dict[str, np.ndarray] = field(repr=False)  # (chains, records, ...)
    burn_in: int
    acceptance: np.ndarray = field(repr=False)

    def _kept(self, name: str) -> np.ndarray:
        return np.asarray(self.trace[name][:, self.burn_in :], np.float64)

    @cached_property
    def _worst(self) -> dict[str, tuple[float, float]]:
        return worst(self.trace, self.burn_in)

    @property
    def rhat(self) -> dict[str, float]:
        """The largest R-hat of each traced quantity: of the chains, or of the halves of a single one; 1 is best."""
        return {name: worst[0] for name, worst in self._worst.items()}

    @property
    def ess(self) -> dict[str, float]:
        """The smallest effective sample size of each traced quantity: how many independent draws it is worth."""
        return {name: worst[1] for name, worst in self._worst.items()}

    @property
    def energy(self) -> np.ndarray:
        """The joint energy (Eq. 6) of each chain, from the first sweep on."""
        return self.trace["energy"]

    @property
    def residual(self) -> float:
        """Root mean square of what the model leaves unexplained."""
        return float(np.mean(self._kept("residual")))

    @property
    def surprise(self) -> float:
        """How little the model expected what it was shown, in nats a pixel (see `observers.surprise`)."""
        return float(np.mean(self._kept("surprise")))

    @property
    def stuck(self) -> float:
        """Share of pixels whose normals hardly move."""
        return float(np.mean(self.acceptance < ACCEPTANCE_LIMIT))

    @property
    def warnings(self) -> list[str]:
        """What is wrong, each in a sentence that says what to do; empty where nothing is."""
        found = []
        off = {name: value for name, value in self.rhat.items() if not value <= RHAT_LIMIT}
        if off:
            listed = ", ".join(f"{name} {value:.2f}" for name, value in off.items())
            found.append(f"the chain has not converged (R-hat over {RHAT_LIMIT}: {listed}): take more iterations")
        few = {name: value for name, value in self.ess.items() if not value >= ESS_LIMIT}
        if few:
            listed = ", ".join(f"{name} {value:.0f}" for name, value in few.items())
            found.append(f"few independent samples ({listed}): the spreads are rough, take more iterations")
        if self.stuck > STUCK_SHARE:
            found.append(
                f"the normals of {self.stuck:.0%} of the pixels hardly move: take a smaller step_size, "
                "or a target_acceptance"
            )
        return found

    @property
    def converged(self) -> bool:
        return not self.warnings


def worst(trace: dict[str, np.ndarray], burn_in: int) -> dict[str, tuple[float, float]]:
    """The largest R-hat and smallest effective sample size of each quantity of a trace (chains, records, ...)."""
    names = [name for name in sorted(trace) if name != "acceptance" and trace[name].size]
    return {name: _rhat_and_ess(np.asarray(trace[name][:, burn_in:], np.float64)) for name in names}


def converged(trace: dict[str, np.ndarray], burn_in: int) -> bool:
    """Whether all of them are within the limits."""
    return all(rhat <= RHAT_LIMIT and ess >= ESS_LIMIT for rhat, ess in worst(trace, burn_in).values())


def _rhat_and_ess(draws: np.ndarray) -> tuple[float, float]:
    """The largest R-hat and smallest effective sample size of (chains, draws, ...).

    NaN where there are too few draws to tell. A quantity that does not move at all, such as a clamped light, has
    nothing to converge.
    """
    if draws.shape[1] < 8:
        return np.nan, np.nan
    draws = draws.reshape(*draws.shape[:2], -1)
    moving = draws[..., np.ptp(draws, axis=(0, 1)) > 0]
    if not moving.shape[-1]:
        return 1.0, float(draws.shape[0] * draws.shape[1])
    return float(np.max(rhat(moving))), float(np.min(ess(moving)))


def rhat(draws: np.ndarray) -> np.ndarray:
    """The rank-normalised split R-hat of each quantity of (chains, draws, Q), or of its folding if that is larger."""
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))  # in which chains of one centre, unlike spreads, differ
    return np.maximum(_plain_rhat(_normal_scores(halves)), _plain_rhat(_normal_scores(folded)))


def ess(draws: np.ndarray) -> np.ndarray:
    """The effective sample size for the bulk of each quantity of (chains, draws, Q)."""
    scores = _normal_scores(_split(draws))
    chains, length = scores.shape[:2]
    within, total = _variances(scores)
    covariance = _autocovariance(scores).mean(axis=0)
    rho = 1 - (within - covariance) / total
    rho[0] = 1
    # Geyer's initial monotone sequence: sums of neighbouring pairs are positive and fall, but for noise.
    most = max((length - 3) // 2, 1)  # the last lags are too few draws to tell anything
    pairs = rho[: 2 * most].reshape(most, 2, -1).sum(axis=1)
    positive = np.cumprod(pairs > 0, axis=0)
    count = positive.sum(axis=0)
    last = np.maximum(np.take_along_axis(rho, 2 * count[None], axis=0)[0], 0)
    time = -1 + 2 * np.sum(np.minimum.accumulate(pairs, axis=0) * positive, axis=0) + last
    return chains * length / np.maximum(time, 1 / np.log10(chains * length))


def _split(draws: np.ndarray) -> np.ndarray:
    """Each chain as two of half its length, so that one that drifts disagrees with itself."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Each draw's place in the order of all draws, as a quantile of the normal distribution; equals share a place."""
    from scipy.special import ndtri  # a third of a second, which can wait until chains have run

    flat = draws.reshape(-1, draws.shape[-1])
    ranks = np.empty_like(flat)
    for q, column in enumerate(flat.T):
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, q] = (np.cumsum(count) - (count - 1) / 2)[place]
    return ndtri((ranks - 3 / 8) / (len(flat) + 1 / 4)).reshape(draws.shape)


def _variances(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean variance within chains, and the variance that their differences speak for."""
    length = scores.shape[1]
    within = scores.var(axis=1, ddof=1).mean(axis=0)
    return within, within * (length - 1) / length + scores.mean(axis=1).var(axis=0, ddof=1)


def _plain_rhat(scores: np.ndarray) -> np.ndarray:
    within, total = _variances(scores)
    return np.sqrt(total / within)


def _autocovariance(scores: np.ndarray) -> np.ndarray:
    """Of each chain at lags 0 … N−1, by the Fourier transform."""
    length = scores.shape[1]
    spectrum = np.fft.rfft(scores - scores.mean(axis=1, keepdims=True), 2 * length, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * length, axis=1)[:, :length] / length
