r"""How far images are from what a surface may look like under any light: relighting and recognition (Sec. 4.2, 4.3).

The images of a surface with scaled normals M = a·n (V, 3) under all lights are the span of its three columns; with
attached shadows they are the cone {max(M ℓ, 0)} instead (Belhumeur & Kriegman, 1998).
"""

import numpy as np

from deep_lambertian.geometry import least_squares
from deep_lambertian.surface import illuminate

TAIL = 25.0  # variances of the noise: squares beyond them count less and less
ROUNDS = 15  # by then which pixels are lit no longer changes, or goes round in a circle


def fit_cone(surface: np.ndarray, probes: np.ndarray, precision: np.ndarray | None = None) -> np.ndarray:
    """The lights (N, 3) under which max(M ℓ, 0) comes nearest to each of the probes (N, V), M (V, 3) or (N, V, 3).

    By least squares over the pixels that the last light reaches, a few times over: pixels that it leaves dark cost
    something and do not pull. Of a basis (V, R) of other images the coefficients (N, R) are found in the same way.
    """
    precision = np.ones(probes.shape[1], probes.dtype) if precision is None else precision
    best = np.zeros((len(probes), surface.shape[-1]), probes.dtype)
    least, moving, lit = np.full(len(probes), np.inf), np.arange(len(probes)), np.ones(probes.shape, bool)
    for _ in range(ROUNDS + 1):
        lights = least_squares(surface, probes, lit * precision)
        predicted = (surface @ lights[..., None])[..., 0] if surface.ndim == 3 else lights @ surface.T
        cost = (probes - np.maximum(predicted, 0)) ** 2 @ precision
        better = cost < least[moving]
        best[moving[better]], least[moving[better]] = lights[better], cost[better]
        now = predicted > 0
        changed = np.any(now != lit, axis=1)  # the same pixels lit give the same light again
        if not changed.any():
            break
        moving, lit, probes = moving[changed], now[changed], probes[changed]
        surface = surface[changed] if surface.ndim == 3 else surface
    return best


def fit_cones(surfaces: np.ndarray, probes: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """The same (N, G, 3) for all of surfaces (G, V, 3) and probes (N, V); the fewer are taken one by one."""
    if len(probes) < len(surfaces):
        wide = (len(surfaces), probes.shape[1])
        return np.stack([fit_cone(surfaces, np.broadcast_to(probe, wide), precision) for probe in probes])
    return np.stack([fit_cone(surface, probes, precision) for surface in surfaces], axis=1)


def relighting_rmse(surface: np.ndarray, photos: np.ndarray) -> float:
    """Root mean square error of max(M ℓ, 0), M (V, 3), against photos (N, V), each with the light that suits best."""
    surface, photos = np.asarray(surface, np.float64), np.asarray(photos, np.float64)
    return float(np.sqrt(np.mean((photos - illuminate(surface, fit_cone(surface, photos))) ** 2)))


def linear_rmse(basis: np.ndarray, photos: np.ndarray) -> float:
    """Root mean square error of photos (N, V) against the nearest images in the span of a basis (V, R)."""
    coefficients = np.linalg.lstsq(basis, photos.T, rcond=None)[0]
    return float(np.sqrt(np.mean((photos.T - basis @ coefficients) ** 2)))


# ---- Whose image is this?


def subspace_distances(bases: np.ndarray, probes: np.ndarray) -> np.ndarray:
    """Squared distances (N, G) of probes (N, V) to the spans of bases (G, V, R), which need not be orthogonal."""
    probes = np.asarray(probes, np.float64)
    energy = np.sum(probes**2, axis=1)
    found = np.empty((len(probes), len(bases)))
    for g, basis in enumerate(np.asarray(bases, np.float64)):
        left, singular, _ = np.linalg.svd(basis, full_matrices=False)
        kept = left[:, singular > 1e-10 * max(singular[0], 1e-300)]
        found[:, g] = energy - np.sum((probes @ kept) ** 2, axis=1)
    return np.maximum(found, 0)


def cone_distances(scaled_normals: np.ndarray, probes: np.ndarray, noise_var: np.ndarray) -> np.ndarray:
    r"""How far probes (N, V) are from the cones of surfaces (G, V, 3), (N, G), the light being that of least squares,

    $$\sum_i \kappa \log\Bigl(1 + \frac{(v_i - \max(m_i^\top\ell, 0))^2}{\kappa\,\sigma_{v_i}^2}\Bigr)$$

    as a part of what a black image would leave. Highlights, cast shadows and what a surface gets wrong here and there
    are larger than noise ever is: squares would let a few such pixels decide.
    """
    surfaces, probes, variance = (np.asarray(each, np.float64) for each in (scaled_normals, probes, noise_var.ravel()))
    lights = fit_cones(surfaces, probes, 1 / variance)
    left = [tailed(probes - illuminate(surface, lights[:, g]), variance) for g, surface in enumerate(surfaces)]
    return np.stack(left, axis=1) / np.maximum(tailed(probes, variance), 1e-12)[:, None]


def tailed(residuals: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Sums over pixels (N,) of residuals (N, V), those of a Cauchy law: small ones as squares, large ones less."""
    return TAIL * np.sum(np.log1p(residuals**2 / (TAIL * variance)), axis=1)


def cone_residuals(surfaces: np.ndarray, lights: np.ndarray, probes: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Weighted squares (N, G) of what surfaces (G, V, 3) under lights (N, G, 3) leave of probes (N, V)."""
    found = [(probes - illuminate(surface, lights[:, g])) ** 2 @ precision for g, surface in enumerate(surfaces)]
    return np.stack(found, axis=1)


def nearest(distances: np.ndarray) -> np.ndarray:
    """The number of the nearest person for each probe (N,)."""
    return np.argmin(distances, axis=1)
