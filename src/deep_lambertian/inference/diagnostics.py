"""Has the chain converged? R-hat, effective sample size and acceptance, and what they mean in plain words."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from deep_lambertian.inference.convergence import ess, rhat

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
