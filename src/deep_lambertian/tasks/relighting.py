"""How well a recovered surface predicts an object's other photographs, when only their light is fitted."""

import numpy as np

from deep_lambertian.tasks.recognition import fit_cone


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
