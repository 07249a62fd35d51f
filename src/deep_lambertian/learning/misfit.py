"""What the model cannot know of itself, measured on objects left out of the prior (see `inference.posterior`).

Two objects at a time are left out, the prior is learned from the others' surfaces, and the two are inferred from single
images, and from these together. Their errors are told by photometric stereo where lights are known. Where they are not,
the surfaces that all images of the object gave have to do: what these have wrong in common stays unseen, and what is
found is a lower bound. The same surfaces, of one image each, tell how strangers differ from those who are known.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.optimize import nnls

from deep_lambertian.energy import Params
from deep_lambertian.geometry import angles
from deep_lambertian.inference.posterior import QUANTITIES, Misfit, Posterior, growing, level_of_angle, level_of_error
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.m_step import prior_step
from deep_lambertian.learning.stereo import photometric_stereo
from deep_lambertian.learning.task import Task
from deep_lambertian.model import DLN
from deep_lambertian.recognition.known import Known, learn_odds
from deep_lambertian.support.progress import track
from deep_lambertian.surface import Shape, Surface, as_field

TOGETHER = 2  # objects that are left out at a time
TIMES = 14  # at most: of more objects some, evenly spread, say as much
IMAGES = 4  # of each of them, inferred one by one
SWEEPS = 80  # of their chains
SMOOTH = 1 / 24  # of the images' height: errors of neighbouring pixels are alike
MATCHED = 0.5, 0.9  # levels at which intervals are to cover what they say
TAIL = 2.5  # standard deviations above the mean log surprise at which an object is called unlike the others
SCALES = np.exp(np.linspace(-2, 2, 161))

PROBES = 24  # images, at most, by which each of them is to be recognized
Errors = dict[str, list[np.ndarray]]
Gallery = dict[int, tuple[int, np.ndarray]]  # of left-out objects: an image's number, and the scaled normals it gave


def measure_misfit(params: Params, mean: np.ndarray, task: Task, config: Config) -> Misfit:
    """The misfit of a model with these parameters, whose prior was learned from surfaces `mean` (S, 4V)."""

    def unaware(left: range) -> DLN:
        rest = np.delete(mean, left, axis=0)
        nothing = np.zeros((len(rest), 0, rest.shape[1]), rest.dtype)
        without, _ = prior_step(params, rest, nothing, config, task.shape, config.iterations, len(rest))
        return DLN(without, task.shape, config.preset)

    return _measure(params, mean, task, config, unaware, 1 - TOGETHER / len(mean))


def misfit_of_others(model: DLN, mean: np.ndarray, task: Task, config: Config) -> Misfit:
    """The misfit of a model that has seen none of the task's objects, whose surfaces are `mean` (S, 4V)."""
    return _measure(model.params, mean, task, config, lambda _: model, 1.0)


def _measure(
    params: Params, mean: np.ndarray, task: Task, config: Config, unaware: Callable[[range], DLN], share: float
) -> Misfit:
    """By models that have not seen the objects of a range, but a `share` of all that there are."""
    found: Errors = {f"{what}.{name}": [] for name in QUANTITIES for what in ("error", "spread", "images", "shadow")}
    found |= {"light": [], "surprise": []}
    gallery: Gallery = {}
    count = len(mean)
    starts = np.arange(0, count, TOGETHER)
    chosen = np.unique(np.linspace(0, len(starts) - 1, min(TIMES, len(starts))).round().astype(int))
    for first in track(starts[chosen].tolist(), "leaving out"):
        left = range(first, min(first + TOGETHER, count))
        for s, shown, post in _inferred(unaware(left), task, left, config):
            _compare(found, post, *_truth(task, mean, s, shown))
            if len(shown) == 1:  # the first is the one that is bright all over
                gallery.setdefault(s, (shown[0], post.scaled_normals.reshape(-1, 3)))
    misfit = _fit(found, task.shape, share, min(TOGETHER * len(chosen), count))
    return replace(misfit, strangers=_strangers(gallery, task, params, config))


def _inferred(model: DLN, task: Task, which: range, config: Config) -> Iterator[tuple[int, list[int], Posterior]]:
    """Posteriors of single images of the objects, evenly spread over those that each has, as they are ordered by light,
    and of the same images together.
    """
    rng = np.random.default_rng(seed_of(config.seed, "misfit", which.start))
    alone, together = [], []
    for s in which:
        there = np.nonzero(task.there[s])[0]
        parts = np.array_split(there[_by_light(task, s, there)], min(IMAGES, len(there)))
        chosen = [int(rng.choice(part)) for part in parts]
        alone += [(s, [p]) for p in chosen]
        together += [(s, chosen)] if len(chosen) > 1 else []
    for group in (alone, together):
        if group:
            images, masks = (
                [np.asarray(each[s])[shown].reshape(-1, *task.shape) for s, shown in group]
                for each in (task.data.images, task.data.weights)
            )
            posts = model.infer_many(images, mask=masks, iterations=SWEEPS, seed=seed_of(config.seed, "misfit"))
            yield from ((*each, post) for each, post in zip(group, posts, strict=True))


def _strangers(gallery: Gallery, task: Task, params: Params, config: Config) -> np.ndarray:
    """The odds of strangers, by probes of all left-out objects; the darkest quarter of their images is left out."""
    images, numbers = np.asarray(task.data.images), list(gallery)
    probes, people = [], []
    for place, s in enumerate(numbers):
        there = np.nonzero(task.there[s])[0]
        bright = there[_by_light(task, s, there)][: max(2, 3 * len(there) // 4)]
        others = bright[bright != gallery[s][0]]
        chosen = others[np.unique(np.linspace(0, len(others) - 1, min(PROBES, len(others))).round().astype(int))]
        probes.append(images[s, chosen])
        people += [place] * len(chosen)
    surfaces = np.stack([scaled for _, scaled in gallery.values()])
    photos = [images[s, [shown]] for s, (shown, _) in gallery.items()]
    known = Known(surfaces, photos, task.shape, np.asarray(params.noise_var))
    return learn_odds(known.terms(np.concatenate(probes)), np.array(people), seed_of(config.seed, "strangers"))


def _by_light(task: Task, s: int, there: np.ndarray) -> np.ndarray:
    """The order of an object's images from those that are bright all over to those that are mostly dark."""
    return np.argsort([-np.median(np.asarray(task.data.images[s, p])) for p in there], kind="stable")


def _truth(task: Task, mean: np.ndarray, s: int, shown: list[int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Scaled normals (H, W, 3) of object s, and the directions of the lights of the images shown, where known."""
    there = task.there[s]
    if task.truth is not None and np.isfinite(task.truth[s][there]).all():
        images = np.asarray(task.data.images[s])[there].reshape(-1, *task.shape)
        mask = np.asarray(task.data.weights[s])[there].reshape(-1, *task.shape) > 0
        return photometric_stereo(images, task.truth[s][there], mask), task.truth[s, shown]
    surface = Surface.unpack(mean[s])
    return as_field(surface.scaled_normals, task.shape), None


def _compare(found: Errors, post: Posterior, truth: np.ndarray, lights: np.ndarray | None) -> None:
    """Add the errors of a posterior, and its spreads. Brightness is the light's or the object's: it is made equal."""
    length = np.linalg.norm(truth, axis=-1)
    scale = float(np.sum(post.albedo * length) / max(float(np.sum(length**2)), 1e-12))
    errors = {
        "albedo": (post.albedo - scale * length).ravel(),
        "normals": angles(post.normals, truth, axis=-1).ravel(),
        "scaled_normals": np.moveaxis(post.scaled_normals - scale * truth, -1, 0).reshape(3, -1),
    }
    spreads = {
        "albedo": post.spread["albedo"].ravel(),
        "normals": post.spread["normals"].ravel(),
        "scaled_normals": np.moveaxis(post.spread["scaled_normals"], -1, 0).reshape(3, -1),
    }
    images = len(post.lights)
    found["surprise"].append(np.array(post.diagnostics.surprise))
    if images == 1 and lights is not None:
        errors["lights"] = light_error(post.lights[0], lights[0])
        spreads["lights"] = post.spread["lights"][0]
        found["light"].append(post.lights[0])
    for name, error in errors.items():
        found[f"error.{name}"].append(error)
        found[f"spread.{name}"].append(spreads[name])
        found[f"images.{name}"].append(np.array(images))
        found[f"shadow.{name}"].append(post.shadows.mean(axis=0).ravel())


def light_error(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The error (3,) of a light as a direction: the true one is given the length of what was found."""
    return found - truth * (np.linalg.norm(found) / max(float(np.linalg.norm(truth)), 1e-12))


def _fit(found: Errors, shape: Shape, share: float, objects: int) -> Misfit:
    """α, B and γ of every quantity by least squares on squared errors; κ and ρ by how their logarithms follow shadow
    and surprise from photo to photo, which a few large errors do not decide; then one factor that makes intervals of
    single images cover what they say, as errors have longer tails than Gauss's law. Of lights neither tells much.

    The prior has learned from a `share` of the objects only. What it lacks of a surface falls with their number. Lights
    are off by about the same in all images of an object: three variances were fitted to as many errors as `objects`.
    """
    wider = objects / max(objects - 3, 1)
    surprise, unlike = _usual_surprise(found)
    values, growth, lasting, shaded, following = {}, [], [], [], []
    for name in QUANTITIES:
        errors, spreads = (np.array(found[f"{what}.{name}"], np.float64) for what in ("error", "spread"))
        images = np.array(found[f"images.{name}"])
        alpha, gamma, kappa, rho, factor = 1.0, 1.0, 0.0, 0.0, 1.0
        beyond, added = np.zeros((3, 3)), np.zeros_like(spreads)
        if name == "lights" and len(errors):
            lights = np.array(found["light"], np.float64) ** 2
            excess, size = np.maximum(errors**2 - spreads**2, 0), np.sqrt(lights.sum(axis=1))
            beyond = np.stack([nnls(lights / size[:, None], excess[:, c] / size)[0] for c in range(3)])
            added = lights @ beyond.T
        elif name != "lights":
            usual = _smooth((errors[images == 1] ** 2).mean(axis=0), shape)
            one, many = np.ones_like(errors) * usual, usual / images.reshape(-1, *[1] * usual.ndim)
            columns = np.stack([each.ravel() for each in (spreads**2, one, many)], axis=1)
            weight = 1 / np.maximum(columns[:, :2].sum(axis=1), 1e-12)
            alpha, stays, goes = nnls(columns * weight[:, None], (errors**2).ravel() * weight)[0]
            gamma, beyond = stays / max(stays + goes, 1e-12), (stays + goes) * usual
            added = beyond + np.zeros_like(spreads)
        if len(errors):
            single = images == 1
            off, variance = errors[single], (alpha * spreads**2 + added)[single]
            if name != "lights":
                dark = np.array(found[f"shadow.{name}"])[single]
                kappa, rho = _following(off**2 / np.maximum(variance, 1e-12), dark, unlike)
                variance += kappa * dark.reshape(len(off), *[1] * (off.ndim - 2), -1) * beyond
                variance *= growing(rho, unlike).reshape(-1, *[1] * (off.ndim - 1))
            level = level_of_angle if name == "normals" else level_of_error
            factor = _matching(level, off, np.sqrt(variance), MATCHED) * (wider if name == "lights" else share)
        values[name] = factor * beyond
        growth.append(factor * alpha)
        lasting.append(gamma)
        shaded.append(kappa)
        following.append(rho)
    arrays = {name: value.astype(np.float32) for name, value in values.items()}
    of_each = {"growth": growth, "lasting": lasting, "shaded": shaded, "unlike": following}
    numbers = {name: np.array(each, np.float32) for name, each in of_each.items()} | {"surprise": surprise}
    numbers["strangers"] = np.zeros(7, np.float32)
    return Misfit(**arrays, **numbers)


def _following(ratios: np.ndarray, dark: np.ndarray, unlike: np.ndarray) -> tuple[float, float]:
    """κ and ρ, by which the ratios (N, …) of squared errors to variances grow with shadow and with u."""
    mean = np.log(ratios.reshape(len(ratios), -1).mean(axis=1))
    columns = np.stack([np.ones(len(mean)), dark.mean(axis=1), unlike], axis=1)
    _, kappa, rho = np.linalg.lstsq(columns, mean, rcond=None)[0]
    return max(float(kappa), 0.0), max(float(rho), 0.0)


def _usual_surprise(found: Errors) -> tuple[np.ndarray, np.ndarray]:
    """What is usual (see `Misfit`), and u of each single image. Shadows alone surprise a little, and many images less
    than one.
    """
    logs = np.log(np.maximum(np.array(found["surprise"], np.float64), 1e-12))
    dark, images = (np.array([np.mean(each) for each in found[f"{name}.albedo"]]) for name in ("shadow", "images"))
    columns = np.stack([np.ones_like(dark), dark, 1 - 1 / images], axis=1)
    usual = np.linalg.lstsq(columns, logs, rcond=None)[0]
    off = (logs - columns @ usual)[images == 1]
    reach = TAIL * max(float(off.std()), 1e-6)
    return np.array([*usual, reach], np.float32), off / reach


def _smooth(variance: np.ndarray, shape: Shape) -> np.ndarray:
    """A map (..., V), or several, the same from left and right, and smooth."""
    pictures = variance.reshape(-1, *shape)
    pictures = (pictures + pictures[..., ::-1]) / 2
    width = SMOOTH * shape[0]
    return gaussian_filter(pictures, (0, width, width), mode="nearest").reshape(variance.shape)


def _matching(level, errors: np.ndarray, spread: np.ndarray, levels: tuple[float, ...]) -> float:
    """The factor of variances by which intervals of some levels come nearest to covering what they say."""
    off = [
        sum((np.mean(level(errors, spread * np.sqrt(scale)) < nominal) - nominal) ** 2 for nominal in levels)
        for scale in SCALES
    ]
    return float(SCALES[int(np.argmin(off))])
