"""How well a recovered surface predicts an object's other photographs, when only their light is fitted (Sec. 4.2)."""

import numpy as np

ROUNDS = 15  # by then which pixels are lit no longer changes, or goes round in a circle
RIDGE = 1e-9


def fit_cone(surface: np.ndarray, probes: np.ndarray, precision: np.ndarray | None = None) -> np.ndarray:
    """The lights (N, 3) under which max(M ℓ, 0) comes nearest to each of the probes (N, V)"""
    precision = np.ones(len(surface)) if precision is None else precision
    outer = np.einsum("vi,vj->vij", surface, surface).reshape(-1, 9)
    best, least = np.zeros((len(probes), 3)), np.full(len(probes), np.inf)
    moving, lit = np.arange(len(probes)), np.ones(probes.shape, bool)
    for _ in range(ROUNDS + 1):
        seen, active = probes[moving], lit * precision
        system = (active @ outer).reshape(-1, 3, 3) + RIDGE * np.eye(3)
        lights = np.linalg.solve(system, ((active * seen) @ surface)[..., None])[..., 0]
        predicted = lights @ surface.T
        cost = (seen - np.maximum(predicted, 0)) ** 2 @ precision
        better = cost < least[moving]
        best[moving[better]], least[moving[better]] = lights[better], cost[better]
        now = predicted > 0
        changed = np.any(now != lit, axis=1)  # the same pixels lit give the same light again
        moving, lit = moving[changed], now[changed]
        if not len(moving):
            break
    return best


def relighting_rmse(surface: np.ndarray, photos: np.ndarray, mask: np.ndarray | None = None) -> float:
    """Root mean square error of max(M ℓ, 0), M (V, 3), against photos (N, V), each with the light that suits it best.

    `mask` (N, V) says which pixels count.
    """
    surface, photos = np.asarray(surface, np.float64), np.asarray(photos, np.float64)
    if mask is None:
        off = photos - np.maximum(fit_cone(surface, photos) @ surface.T, 0)
        return float(np.sqrt(np.mean(off**2)))
    squares = count = 0.0
    for photo, seen in zip(photos, np.asarray(mask, bool), strict=True):
        squares += len(photo[seen]) * relighting_rmse(surface[seen], photo[seen][None]) ** 2
        count += len(photo[seen])
    return float(np.sqrt(squares / count))


def linear_rmse(basis: np.ndarray, photos: np.ndarray) -> float:
    """Root mean square error of photos (N, V) against the nearest images in the span of a basis (V, R)."""
    coefficients = np.linalg.lstsq(basis, photos.T, rcond=None)[0]
    return float(np.sqrt(np.mean((photos.T - basis @ coefficients) ** 2)))
