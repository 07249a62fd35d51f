"""Has the chain converged? R-hat, effective sample size and acceptance, and what they mean in plain words."""

from dataclasses import dataclass, field

import numpy as np

RHAT_LIMIT = 1.1
ESS_LIMIT = 10.0
ACCEPTANCE_LIMIT = 0.2
STUCK_SHARE = 0.01


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of one object's chains, over the sweeps after the burn-in.

    `rhat` and `ess` are the worst of each traced quantity: energy, residual, lights, and the albedo and normals
    of a few pixels. R-hat compares the chains with each other, or the halves of a single one. `acceptance` (H, W)
    is HMC's, `residual` the root mean square of what the model leaves unexplained.
    """

    rhat: dict[str, float]
    ess: dict[str, float]
    acceptance: np.ndarray = field(repr=False)
    residual: float
    energy: np.ndarray = field(repr=False)  # (chains, records), the whole trace

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


def diagnose(trace: dict[str, np.ndarray], acceptance: np.ndarray, burn_in: int) -> Diagnostics:
    """Diagnostics from the traces (chains, records, ...) of one object, of which `burn_in` records do not count."""
    kept = {name: np.asarray(values[:, burn_in:], np.float64) for name, values in trace.items()}
    rhat, ess = {}, {}
    for name, values in kept.items():
        if name != "acceptance" and values.size:
            rhat[name], ess[name] = _worst(values.reshape(*values.shape[:2], -1))
    return Diagnostics(rhat, ess, acceptance, float(np.mean(kept["residual"])), trace["energy"])


def _worst(draws: np.ndarray) -> tuple[float, float]:
    """The largest R-hat and smallest effective sample size of (chains, draws, quantities).

    NaN where there are too few draws to tell. A quantity that does not move at all, such as a clamped light, has
    nothing to converge.
    """
    from arviz_stats.base.array import array_stats

    if draws.shape[1] < 4:
        return np.nan, np.nan
    moving = draws[..., np.ptp(draws, axis=(0, 1)) > 0]
    if not moving.shape[-1]:
        return 1.0, float(draws.shape[0] * draws.shape[1])
    rhat = np.asarray(array_stats.rhat(moving, chain_axis=0, draw_axis=1))
    ess = np.asarray(array_stats.ess(moving, chain_axis=0, draw_axis=1))
    return float(np.max(rhat)), float(np.min(ess))
