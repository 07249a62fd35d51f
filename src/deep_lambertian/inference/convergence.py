"""R-hat and effective sample size by ranks, after Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021).

"Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of MCMC", Bayesian
Analysis 16(2). ArviZ has the same figures, which the tests compare these with; but importing it takes longer than all
chains of a photo.
"""

import numpy as np


def rhat(draws: np.ndarray) -> np.ndarray:
    """The rank-normalised split R-hat of each quantity of (chains, draws, Q), or of its folding if that is larger."""
    halves = _split(draws)
    return np.maximum(_plain_rhat(_normal_scores(halves)), _plain_rhat(_normal_scores(_fold(halves))))


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
    draws_in_all = chains * length
    return draws_in_all / np.maximum(time, 1 / np.log10(draws_in_all))


def _split(draws: np.ndarray) -> np.ndarray:
    """Each chain as two of half its length, so that one that drifts disagrees with itself."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _fold(draws: np.ndarray) -> np.ndarray:
    """Distances from the median: chains of one centre and different spreads differ in these."""
    return np.abs(draws - np.median(draws, axis=(0, 1)))


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
