"""What inference returns: albedo, normals and lights of one object, with their uncertainty; and whether the chains that
found them have converged.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.inference.chain import Sampled
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.support.files import load_arrays, part, save_arrays
from deep_lambertian.surface import Shape, as_field, as_picture, illuminate

FORMAT = "deep_lambertian posterior"
RHAT_LIMIT = 1.1
ESS_LIMIT = 10.0
ACCEPTANCE_LIMIT = 0.2
STUCK_SHARE = 0.01


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of one object's chains, over the sweeps after the burn-in.

    `trace` holds, for each chain, the energy, residual, acceptance, lights, and the albedo and normals of a few pixels
    at up to 512 sweeps; the first `burn_in` records do not count. `acceptance` (H, W) is HMC's at each pixel.
    """

    trace: dict[str, np.ndarray] = field(repr=False)  # (chains, records, ...)
    burn_in: int
    acceptance: np.ndarray = field(repr=False)

    def _kept(self, name: str) -> np.ndarray:
        return np.asarray(self.trace[name][:, self.burn_in :], np.float64)

    @cached_property
    def _worst(self) -> dict[str, tuple[float, float]]:
        names = [name for name in sorted(self.trace) if name != "acceptance" and self.trace[name].size]
        return {name: _rhat_and_ess(self._kept(name)) for name in names}

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


@dataclass(frozen=True)
class Posterior:
    """Posterior means and standard deviations over the sweeps after the burn-in, of all chains together.

    `albedo`, `albedo_std` (H, W); `normals` (H, W, 3) of unit length, `normals_std` (H, W) their angular spread in
    degrees; `lights`, `lights_std` (P, 3); `scaled_normals` (H, W, 3), the mean of a·n, which spans the images of
    the object under any light. `samples` holds the kept states, if any were asked for:
    `albedo` (C, K, H, W), `normals` (C, K, H, W, 3), `lights` (C, K, P, 3).
    """

    albedo: np.ndarray
    albedo_std: np.ndarray
    normals: np.ndarray
    normals_std: np.ndarray
    lights: np.ndarray
    lights_std: np.ndarray
    scaled_normals: np.ndarray
    diagnostics: Diagnostics
    samples: dict[str, np.ndarray]
    info: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.albedo.shape
        return height, width

    def relight(self, light: ArrayLike, *, shadows: bool = True) -> np.ndarray:
        """The object's image (H, W) under a new light (3,), or images (P, H, W) under several (P, 3).

        It is the posterior mean of a n·ℓ; where the surface turns away from the light it is dark, unless `shadows` is
        false, as in Eq. 5.
        """
        light = np.asarray(light, np.float32)
        if light.shape[-1:] != (3,) or light.ndim not in (1, 2) or not np.all(np.isfinite(light)):
            raise ValueError(f"light: expected three finite numbers, or several such rows, got shape {light.shape}")
        return illuminate(self.scaled_normals, light, shadows=shadows)

    def header_and_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything, as JSON and as named arrays, from which `restore` makes the same posterior."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"samples/{name}": value for name, value in self.samples.items()}
        arrays |= {f"trace/{name}": value for name, value in self.diagnostics.trace.items()}
        header = {"info": self.info, "burn_in": self.diagnostics.burn_in}
        return header, arrays | {"acceptance": self.diagnostics.acceptance}

    @classmethod
    def restore(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Posterior":
        """The opposite of `header_and_arrays`, or a ValueError that says what is missing."""
        try:
            diagnostics = Diagnostics(part(arrays, "trace/"), int(header["burn_in"]), arrays["acceptance"])
            values = {name: arrays[name] for name in _ARRAYS}
            return cls(**values, diagnostics=diagnostics, samples=part(arrays, "samples/"), info=header["info"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected a whole posterior, got one without {error}") from error

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file."""
        save_arrays(path, FORMAT, *self.header_and_arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        """Read a file that `save` wrote. Nothing in the file is executed."""
        return cls.restore(*load_arrays(path, FORMAT))


_ARRAYS = tuple(f.name for f in fields(Posterior) if f.name not in ("diagnostics", "samples", "info"))


def summarise(
    found: Sampled, index: int, shape: Shape, images: int, sampler: Sampler, info: dict[str, Any]
) -> Posterior:
    """The posterior of object `index` of a finished run; images that only filled it up are cut off."""

    def pooled(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean over all chains, and the standard deviation within and between them."""
        within, mean = np.mean(found.variance[name][index], axis=0), found.mean[name][index].astype(np.float64)
        return np.mean(mean, axis=0), np.sqrt(within + np.var(mean, axis=0))

    albedo, albedo_std = pooled("albedo")
    lights, lights_std = pooled("lights")
    direction, _ = pooled("directions")
    resultant = np.linalg.norm(direction, axis=0)
    trace = {name: values[index] for name, values in found.trace.items()}
    trace["lights"] = trace["lights"][:, :, :images]
    burn_in = sampler.burn_in * trace["energy"].shape[1] // sampler.iterations
    samples = {}
    if sampler.keep:
        kept = {name: values[index] for name, values in found.kept.items()}
        samples = {
            "albedo": as_picture(kept["albedo"], shape),
            "normals": as_field(kept["normals"], shape),
            "lights": kept["lights"][:, :, :images],
        }
    return Posterior(
        albedo=as_picture(albedo, shape),
        albedo_std=as_picture(albedo_std, shape),
        normals=as_field(direction / np.maximum(resultant, 1e-9), shape),
        # The mean cosine to the mean direction is the length of the mean unit vector.
        normals_std=as_picture(np.degrees(np.arccos(np.clip(resultant, 0.0, 1.0))), shape),
        lights=lights[:images].astype(np.float32),
        lights_std=lights_std[:images].astype(np.float32),
        scaled_normals=as_field(pooled("scaled_normals")[0], shape),
        diagnostics=Diagnostics(trace, burn_in, as_picture(pooled("acceptance")[0], shape)),
        samples=samples,
        info=info,
    )


# ---- R-hat and effective sample size, by ranks, after Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021),
# "Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of MCMC", Bayesian
# Analysis 16(2). ArviZ has the same figures, which the tests compare these with; but importing it takes longer than all
# chains of a photo.


def _rhat_and_ess(draws: np.ndarray) -> tuple[float, float]:
    """The largest R-hat and smallest effective sample size of (chains, draws, ...).

    NaN where there are too few draws to tell. A quantity that does not move at all, such as a clamped light, has
    nothing to converge.
    """
    draws = draws.reshape(*draws.shape[:2], -1)
    if draws.shape[1] < 8:
        return np.nan, np.nan
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
