"""Are uncertainties right? Intervals against the errors made on people whom the model has never seen, and
simulation-based calibration (Talts, Betancourt, Simpson, Vehtari & Gelman, 2018) on objects that it draws itself.

An interval of level p should cover the truth in a share p of all cases. Of the model's own draws it must, if the
sampler is right: the rank of the truth among draws of its posterior is then as likely to be any number as any other.
Of people it need not: their truth is photometric stereo with known lights, up to the brightness that one photo leaves
open.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.geometry import angles, angles_of, direction
from deep_lambertian.inference.posterior import Posterior, level_of_angle, level_of_error
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.learning.misfit import light_error
from deep_lambertian.model import DLN
from deep_lambertian.recognition.distances import fit_cone

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
COUNTS, SUBSETS = (1, 2, 4, 7), (1, 2, 3, 4)
PHOTOS = 3  # of each subject and subset, inferred one by one
OBJECTS, RANKS, BINS = 128, 63, 8  # of the simulation: with so many draws there are so many ranks and one more
THIN = 4  # sweeps between the draws of a rank
SWEEPS = 100
Levels = dict[str, np.ndarray]  # of each quantity: the levels at which the truth is just covered


def levels_of(post: Posterior, truth: np.ndarray, data: Dataset, person: int, shown: list[int], noise: float) -> Levels:
    """Of one posterior from the photos `shown`, against scaled normals (H, W, 3).

    Light is judged in two angles, to the side and up; relit pixels under the light of another photo, fitted to it.
    """
    assert data.lights is not None
    length = np.linalg.norm(truth, axis=-1)
    scale = float(np.sum(post.albedo * length) / np.sum(length**2))
    lights = []
    for found, spread, p in zip(post.lights, post.lights_std, shown, strict=True):
        azimuth, elevation = angles_of(found)
        # Unit vectors along which the light moves when it goes to the side, and up.
        side, up = direction(azimuth + 90, 0), direction(azimuth, elevation + 90)
        error = light_error(found, data.lights[person, p])
        lights += [level_of_error(error @ each, np.sqrt(spread**2 @ each**2)) for each in (side, up)]
    others = [p for p in np.nonzero(data.present[person])[0] if p not in shown][:: max(1, data.present.shape[1] // 4)]
    photos = data.images[person, others].reshape(len(others), -1)
    fitted = fit_cone(post.scaled_normals.reshape(-1, 3).astype(np.float64), photos.astype(np.float64))
    relit = []
    for photo, light in zip(photos, fitted, strict=True):
        error = photo - post.relight(light).ravel()
        relit.append(level_of_error(error, np.sqrt(post.relight_std(light).ravel() ** 2 + noise)))
    return {
        "normals": level_of_angle(angles(post.normals, truth, axis=-1), post.normals_std).ravel(),
        "albedo": level_of_error(post.albedo - scale * length, post.albedo_std).ravel(),
        "light": np.array(lights),
        "relit": np.concatenate(relit),
    }


def sets_of(data: Dataset, seed: int) -> list[tuple[str, int, list[int]]]:
    """Sets of photos: of every subset some that are shown alone, and k of the first; by name, person and photos."""
    assert data.subsets is not None
    rng, found = np.random.default_rng(seed), []
    for person in range(len(data)):
        of = {s: np.nonzero((data.subsets[person] == s) & data.present[person])[0] for s in SUBSETS}
        for subset, photos in of.items():
            chosen = rng.permutation(photos)[:PHOTOS]
            found += [(f"subset {subset}", person, [int(p)]) for p in chosen]
        found += [(f"k {k}", person, sorted(rng.permutation(of[1])[:k].tolist())) for k in COUNTS if k > 1]
    return found


def judge(model: DLN, data: Dataset, references: np.ndarray, seed: int, sweeps: int = SWEEPS) -> dict[str, Any]:
    """Shares covered at every level: by number of images of subset 1, and by subset from one image; their standard
    errors, which say how much another choice of people would change them; and sharpness, the mean of what is reported,
    without which an interval may cover by being wide.
    """
    sets = sets_of(data, seed)
    noise = float(np.mean(np.asarray(model.params.noise_var)))
    pooled: dict[str, dict[str, dict[int, list[np.ndarray]]]] = {}
    sharp: dict[str, dict[str, list[float]]] = {}
    for count in sorted({len(shown) for _, _, shown in sets}):
        alike = [each for each in sets if len(each[2]) == count]
        posts = model.infer_many(
            [data.images[person, shown] for _, person, shown in alike], seed=seed, iterations=sweeps
        )
        for (name, person, shown), post in zip(alike, posts, strict=True):
            found = levels_of(post, references[person], data, person, shown, noise)
            widths = {"normals": post.normals_std, "albedo": post.albedo_std, "light": post.lights_std}
            for quantity, level in found.items():
                pooled.setdefault(quantity, {}).setdefault(name, {}).setdefault(person, []).append(level)
            for quantity, width in widths.items():
                sharp.setdefault(quantity, {}).setdefault(name, []).append(float(np.mean(width)))
    result: dict[str, Any] = {"sharpness": {}}
    for quantity, by_name in pooled.items():
        covered = {
            name: shares_of([np.concatenate(levels) for levels in people.values()]) for name, people in by_name.items()
        }
        for which, ending in enumerate(("", "_error")):
            shares = {name: each[which] for name, each in covered.items()}
            result.setdefault(f"calibration{ending}", {})[quantity] = {"1": shares["subset 1"]} | {
                str(k): shares[f"k {k}"] for k in COUNTS if f"k {k}" in shares
            }
            result.setdefault(f"calibration_subsets{ending}", {})[quantity] = {
                str(s): shares[f"subset {s}"] for s in SUBSETS
            }
        if quantity in sharp:
            result["sharpness"][quantity] = {name: float(np.mean(each)) for name, each in sharp[quantity].items()}
    return result


def shares_of(people: list[np.ndarray]) -> tuple[dict[str, float], dict[str, float]]:
    """Shares covered at every level, and their standard errors: people are independent, the numbers of one are not."""
    covered, errors = {}, {}
    for level in LEVELS:
        each = [float(np.mean(levels <= level)) for levels in people]
        covered[f"{level:g}"] = float(np.mean(np.concatenate(people) <= level))
        errors[f"{level:g}"] = float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")
    return covered, errors


# ---- Simulation


def simulate(model: DLN, count: int, seed: int, prior: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """Images (S, H, W) drawn from the model, shadows among them, and what was drawn."""
    drawn = model.sample(count, seed=seed, iterations=SWEEPS)
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(prior, count)
    label = (rng.uniform(size=(count, model.params.pixels, 1)) > np.cumsum(shares, axis=1)[:, None]).sum(axis=-1)
    others = [rng.exponential(float(model.params.dark_mean), label.shape), rng.uniform(size=label.shape)]
    images = np.select([label == 1, label == 2], others, drawn.images.reshape(count, -1))
    return images.reshape(count, *model.shape).astype(np.float32), drawn


def simulation(
    model: DLN, seed: int = 0, count: int = OBJECTS, say: Callable[[str], None] = print
) -> dict[str, dict[str, Any]]:
    """Histograms of the ranks of what was drawn among draws of its posterior, and how likely such uneven ones are."""
    say(f"simulation: posteriors of {count} objects that the model drew")
    images, drawn = simulate(model, count, seed, ShadowLabels().prior)
    return ranks_of(model, images, drawn, seed + 1)


def ranks_of(model: DLN, images: np.ndarray, drawn: Any, seed: int) -> dict[str, dict[str, Any]]:
    """The same of images (S, H, W) and what they were drawn from.

    Quantities are lights, and the albedo and normals of a few pixels. They hang together: of a group the least p is
    given, times their number.
    """
    from scipy.stats import chisquare

    count, options = len(images), ShadowLabels(unlit=-np.inf)  # no rule of thumb here: a model drew these images
    sweeps = {"iterations": (RANKS + 10) * THIN, "burn_in": 10 * THIN, "keep": RANKS, "chains": 1}
    sampler: Sampler = replace(model.sampler.override(**sweeps), shadow=options)
    posts = model.infer_many(list(images), seed=seed, sampler=sampler)
    probes = np.linspace(0, model.params.pixels - 1, 6).astype(int)[1:-1]
    truths = {
        "light": drawn.lights[:, 0],
        "albedo": drawn.albedo.reshape(count, -1)[:, probes],
        "normals": drawn.normals.reshape(count, -1, 3)[:, probes].reshape(count, -1),
    }
    draws = {
        "light": np.stack([post.samples["lights"][0, :, 0] for post in posts]),
        "albedo": np.stack([post.samples["albedo"][0].reshape(RANKS, -1)[:, probes] for post in posts]),
        "normals": np.stack([post.samples["normals"][0].reshape(RANKS, -1, 3)[:, probes] for post in posts]),
    }
    found = {}
    for name, truth in truths.items():
        ranks = np.sum(draws[name].reshape(count, RANKS, -1) < truth[:, None], axis=1)  # (S, Q), 0 … RANKS
        counts = np.stack([np.bincount(row * BINS // (RANKS + 1), minlength=BINS) for row in ranks.T])
        p = [float(chisquare(row).pvalue) for row in counts]
        found[name] = {"histogram": counts.sum(axis=0).tolist(), "p": min(1.0, min(p) * len(p)), "quantities": len(p)}
    return found
