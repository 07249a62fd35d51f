r"""Whose image is this? Distances of images to what each person may look like under any light (Sec. 4.3).

The images of a surface with scaled normals M = a·n (V, 3) under all lights are the span of its three columns; with
attached shadows they are the cone {max(M ℓ, 0)} instead (Belhumeur & Kriegman, 1998).
"""

import numpy as np

from deep_lambertian.tasks.relighting import fit_cone


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
    r"""$\min_\ell \sum_i (v_i - \max(m_i^\top\ell, 0))^2 / \sigma_{v_i}^2$, (N, G), for each of G surfaces (G, V, 3).

    The best light is found by least squares over the pixels that the last light reaches, a few times over: pixels
    that it leaves dark cost $v_i^2/\sigma_i^2$ and do not pull.
    """
    probes, precision = np.asarray(probes, np.float64), 1 / np.asarray(noise_var, np.float64).reshape(-1)
    found = np.empty((len(probes), len(scaled_normals)))
    for g, surface in enumerate(np.asarray(scaled_normals, np.float64)):
        lights = fit_cone(surface, probes, precision)
        found[:, g] = (probes - np.maximum(lights @ surface.T, 0)) ** 2 @ precision
    return found


def nearest(distances: np.ndarray) -> np.ndarray:
    """The number of the nearest person for each probe (N,)."""
    return np.argmin(distances, axis=1)
