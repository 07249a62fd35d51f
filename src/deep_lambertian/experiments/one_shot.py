"""Figure 7: recognition from k images of a person, by the DLN and by everything it is compared with."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deep_lambertian.experiments.trials import PROBES, Test, Trial
from deep_lambertian.tasks import baselines
from deep_lambertian.tasks.recognition import cone_distances, nearest, subspace_distances

Method = Callable[[Trial], np.ndarray]  # distances (N, G) of the probes to the people of a trial
Surfaces = Mapping[tuple[int, tuple[int, ...]], np.ndarray]  # scaled normals (V, 3) of (person, images)


def baseline_methods(test: Test) -> dict[str, Method]:
    """Those that need no training."""

    def plain(distances: Callable[..., np.ndarray]) -> Method:
        return lambda trial: distances(test.gallery(trial), test.probes)

    def filtered(transform: Callable[..., np.ndarray]) -> Method:
        images = [transform(each, test.shape) for each in test.images]
        probes = transform(test.probes, test.shape)

        def method(trial: Trial) -> np.ndarray:
            gallery = np.stack([row[chosen] for row, chosen in zip(images, trial.images, strict=True)])
            return baselines.correlation(gallery, probes)

        return method

    return {
        "nearest_neighbor": plain(baselines.nearest_neighbor),
        "correlation": plain(baselines.correlation),
        "svd": plain(baselines.svd),
        "tan_triggs": filtered(baselines.tan_triggs),
        "tan_triggs_fine": filtered(lambda images, shape: baselines.tan_triggs(images, shape, *baselines.FINE)),
        "gradientfaces": filtered(baselines.gradientfaces),
    }


def surface_methods(
    name: str, test: Test, surfaces: Surfaces, noise_var: np.ndarray | None = None
) -> dict[str, Method]:
    """Recognition by recovered surfaces: distances to their subspaces and, with `noise_var`, to their cones."""

    def bases(trial: Trial) -> np.ndarray:
        chosen = (tuple(sorted({int(j) for j in row})) for row in trial.images)
        return np.stack([surfaces[person, images] for person, images in enumerate(chosen)])

    methods: dict[str, Method] = {name: lambda trial: subspace_distances(bases(trial), test.probes)}
    if noise_var is not None:
        methods[f"{name}_shadow"] = lambda trial: cone_distances(bases(trial), test.probes, noise_var)
    return methods


def score(method: Method, test: Test, trials: list[Trial]) -> dict[str, Any]:
    """Errors in per cent by k: in all, by subset, and the 95 % interval of the mean over the choices of images."""
    by_k: dict[int, list[np.ndarray]] = {}
    for trial in trials:
        by_k.setdefault(trial.k, []).append(nearest(method(trial)) != test.people)
    return {str(k): _summary(np.stack(wrong), test.subsets) for k, wrong in by_k.items()}


def _summary(wrong: np.ndarray, subsets: np.ndarray) -> dict[str, Any]:
    """Of answers that were wrong (choices, N)."""
    errors = 100 * wrong.mean(axis=1)
    found = {
        "error": float(errors.mean()),
        "subsets": {str(s): float(100 * wrong[:, subsets == s].mean()) for s in PROBES if np.any(subsets == s)},
        "choices": len(errors),
    }
    if len(errors) > 1:
        from scipy.stats import t

        half = t.ppf(0.975, len(errors) - 1) * errors.std(ddof=1) / np.sqrt(len(errors))
        found["interval"] = [float(max(errors.mean() - half, 0)), float(errors.mean() + half)]
    return found
