r"""The prior of the preset `best`: a Gaussian with the covariance of the surfaces, regularised.

Few objects say little about the covariance of thousands of elements, so it is kept local, multiplied by
$\exp(-d^2/2r^2)$ in the distance d of two pixels, and shrunk towards its diagonal. Measured in units of the standard
deviations σ of what is left to each element alone, its main directions u with eigenvalues λ then give a `Gaussian`
with factors $\sigma u\sqrt{\lambda - 1}$, whose covariance along u is λ exactly.
"""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from scipy import linalg

from deep_lambertian.priors import Gaussian
from deep_lambertian.support.settings import Count, Must, Positive, Share, check

EXACT = 4000  # up to so many elements, eigenvectors are computed exactly


@dataclass(frozen=True)
class CovarianceOptions:
    """How the covariance is regularised.

    `reach` is r as a share of the images' height (`None` leaves the covariance as it is), `shrinkage` how far it is
    shrunk to its diagonal, `noise_share` the part of each element's variance that no direction explains, `least` the
    smallest eigenvalue of a direction, in units of that part, and `directions` the greatest number of them.
    """

    reach: Positive | None = 0.5
    shrinkage: Share = 0.7
    noise_share: Share = 0.3
    least: Annotated[float, Must("a number above 1", lambda x: x > 1)] = 2.0
    directions: Count = 200

    def __post_init__(self) -> None:
        check(self)


def local_covariance(data: np.ndarray, shape: tuple[int, int], options: CovarianceOptions) -> np.ndarray:
    """The covariance of rows of `data` (N, D), kept local and shrunk. D is a multiple of the pixels of `shape`."""
    covariance = np.cov(data, rowvar=False, bias=True).astype(np.float32)
    if options.reach is not None:
        height, width = shape
        rows, columns = np.divmod(np.arange(height * width, dtype=np.float32), width)
        square = (rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2
        kernel = np.exp(-square / (2 * (options.reach * height) ** 2)).astype(np.float32)
        parts = len(covariance) // (height * width)
        # By blocks: the kernel is the same for every pair of components.
        blocks = covariance.reshape(parts, height * width, parts, height * width)
        blocks *= kernel[None, :, None, :]
    diagonal = np.diag(covariance).copy()
    covariance *= 1 - options.shrinkage
    covariance[np.diag_indices_from(covariance)] = diagonal
    return covariance


def covariance_gaussian(
    data: np.ndarray, shape: tuple[int, int], options: CovarianceOptions, floor: float = 1e-4, seed: int = 0
) -> Gaussian:
    """The Gaussian of the directions of `data` (N, D) of more than `least` times the variance left to each element.

    Elements that hardly vary, such as those outside of every object's mask, are given the variance `floor`.
    """
    if data.ndim != 2 or len(data) < 2:
        raise ValueError(f"data: expected at least two rows, got shape {data.shape}")
    covariance = local_covariance(data, shape, options)
    variance = options.noise_share * np.maximum(np.diag(covariance), floor)
    scale = 1 / np.sqrt(variance)
    covariance *= scale[:, None]
    covariance *= scale[None, :]
    values, vectors = _largest(covariance, min(options.directions, len(covariance)), seed)
    keep = values > options.least
    factors = np.sqrt(variance)[:, None] * vectors[:, keep] * np.sqrt(values[keep] - 1)
    return Gaussian(*(jnp.asarray(x, jnp.float32) for x in (data.mean(axis=0), variance, factors)))


def _largest(matrix: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a symmetric matrix, in falling order, and their vectors."""
    size = len(matrix)
    if size <= EXACT:
        values, vectors = linalg.eigh(matrix, subset_by_index=[size - count, size - 1], overwrite_a=True)
    else:  # subspace iteration with some vectors to spare: a handful of matrix products
        block = np.random.default_rng(seed).standard_normal((size, count + 64), np.float32)
        for _ in range(12):
            block = np.linalg.qr(matrix @ block).Q
        values, rotation = linalg.eigh(block.T @ (matrix @ block))
        vectors = block @ rotation
    signs = np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])])
    return values[::-1][:count], (vectors * signs)[:, ::-1][:, :count]
