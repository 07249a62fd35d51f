"""R-hat and effective sample size are those of ArviZ."""

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from deep_lambertian.inference.observers import ess, rhat


def chains(kind: str, count: int, length: int) -> np.ndarray:
    """Draws (count, length, 12) that are independent, correlated, apart, drifting, or often the same."""
    draws = np.random.default_rng(length).standard_normal((count, length, 12))
    if kind in ("sticky", "alternating"):
        for t in range(1, length):
            draws[:, t] += (0.9 if kind == "sticky" else -0.6) * draws[:, t - 1]
    if kind == "apart":
        draws += np.arange(count)[:, None, None]
    if kind == "drifting":
        draws += np.linspace(0, 3, length)[:, None]
    return np.round(draws) if kind == "tied" else draws


@pytest.mark.parametrize(("count", "length"), [(4, 125), (4, 126), (2, 51), (3, 512)])
@pytest.mark.parametrize("kind", ["independent", "sticky", "alternating", "apart", "drifting", "tied"])
def test_figures_are_those_of_arviz(kind, count, length):
    draws = chains(kind, count, length)
    axes = {"chain_axis": 0, "draw_axis": 1}
    np.testing.assert_allclose(rhat(draws), array_stats.rhat(draws, **axes), rtol=1e-9)
    np.testing.assert_allclose(ess(draws), array_stats.ess(draws, **axes), rtol=1e-9)


def test_one_chain_is_judged_by_its_halves():
    steady, drifting = (rhat(chains(kind, 1, 400)) for kind in ("independent", "drifting"))
    assert steady.max() < 1.05
    assert drifting.min() > 1.3


def test_few_draws_give_numbers():
    draws = chains("independent", 2, 8)
    assert np.isfinite(rhat(draws)).all()
    assert np.isfinite(ess(draws)).all()
