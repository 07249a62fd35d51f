"""How long recognition takes, by the size of the gallery: one probe alone, and many together.

Twenty people are drawn from the prior of a bundled model, each known by one photo, and are repeated to fill the
gallery; probes are of them, under other lights.
"""

import resource
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.timing import fastest
from deep_lambertian import load_model
from deep_lambertian.models import names
from deep_lambertian.recognition.known import Known

TOGETHER = 64  # probes, as the command takes them
DRAWN = 20  # different people


def run(quick: bool = False, seed: int = 0) -> Iterator[tuple[str, dict[str, float]]]:
    """Groups of figures as they are measured: milliseconds for a probe, and megabytes in use at most so far."""
    for name in names():
        for count in (20,) if quick else (100, 1000):
            known, probes = people(name, count, seed)
            known.distances(probes[:1])  # what is prepared once
            calls = {"alone": partial(known.distances, probes[:1]), "of_64": partial(known.distances, probes)}
            taken = fastest(calls, seconds=0.1 if quick else 5.0)
            place = f"recognition.{name}.people_{count}"
            yield (
                f"{name}, {count} people",
                {
                    f"{place}.alone_ms": 1000 * taken["alone"],
                    f"{place}.of_64_ms": 1000 * taken["of_64"] / TOGETHER,
                    f"{place}.memory_mb": _megabytes(),
                },
            )


def people(name: str, count: int, seed: int) -> tuple[Known, np.ndarray]:
    """So many people of a model's prior, and probes (64, V) of some of them."""
    model = load_model(name)
    drawn = model.sample(DRAWN, images=1 + TOGETHER // DRAWN + 1, seed=seed, iterations=60)
    flat = drawn.images.reshape(*drawn.images.shape[:2], -1)
    surfaces = (drawn.albedo[..., None] * drawn.normals).reshape(DRAWN, -1, 3)
    chosen = np.arange(count) % DRAWN
    probes = flat[:, 1:].reshape(-1, flat.shape[2])[:TOGETHER]
    return Known(
        surfaces[chosen], [flat[g, :1] for g in chosen], model.shape, np.asarray(model.params.noise_var)
    ), probes


def _megabytes() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024**2 if sys.platform == "darwin" else 1024)
