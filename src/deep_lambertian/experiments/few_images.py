"""What a few images of a held-out person give: surfaces (Sec. 4.1, 4.2), and recognition by them (Sec. 4.3, Figure 7).

Which images of each test subject are shown is chosen once: the same choices for every method. Surfaces are inferred
once, and used by every figure.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.geometry import angles, unit
from deep_lambertian.model import DLN, Layout
from deep_lambertian.recognition.detail import shifted
from deep_lambertian.recognition.distances import nearest, relighting_rmse
from deep_lambertian.recognition.known import Known, Rule, chance_known
from deep_lambertian.support.run_folder import RunFolder
from deep_lambertian.tasks import baselines

GALLERY, PROBES = 1, (2, 3, 4)  # subsets: images to learn a person from, and images to recognize
COUNTS = (1, 2, 4, 7)  # input images for which surfaces are judged
SWEEPS = 100  # of a chain: what is averaged over a test's many sets is found by then
BATCH = 70  # sets of images at a time: results are kept as they come
HALVES = 4  # random halves of the people, for every choice of images
ROC = tuple(float(t) for t in np.linspace(0, 1, 101))  # thresholds
Key = tuple[int, tuple[int, ...]]  # a person, and which of its gallery images
Surfaces = dict[Key, dict[str, np.ndarray]]  # what they give: scaled and unit normals (V, 3) and albedo (V,)


@dataclass(frozen=True)
class Choice:
    """One choice of k images of each of G people: their numbers (G, k) among the person's gallery images."""

    k: int
    images: np.ndarray

    def people(self) -> list[Key]:
        """The same, person by person, each image once."""
        return [(person, tuple(sorted({int(j) for j in row}))) for person, row in enumerate(self.images)]

    def of(self, rows: list[np.ndarray]) -> np.ndarray:
        """The chosen ones (G, k, …) of something that every gallery image has: rows[g] (p, …) are person g's."""
        return np.stack([each[chosen] for each, chosen in zip(rows, self.images, strict=True)])


@dataclass(frozen=True)
class RecognitionTest:
    """The gallery images of G people, and the probes of all of them.

    `images[g]` (p, V) are those of person g; `probes` (N, V), `people` (N,) whose they are, and `subsets` (N,) of which
    illumination subset. Where every image takes its turn in the gallery, `numbers` (N,) tell which of the person's
    images a probe is; `masks[g]` (H, W) is where an object is, if it does not fill its images.
    """

    names: tuple[str, ...]
    shape: tuple[int, int]
    images: list[np.ndarray]
    probes: np.ndarray
    people: np.ndarray
    subsets: np.ndarray
    numbers: np.ndarray | None = None
    masks: list[np.ndarray] | None = None

    @classmethod
    def of(cls, data: Dataset, probes: tuple[int, ...] = PROBES) -> "RecognitionTest":
        """From the test subjects' images of subset 1, and of the subsets of the probes."""
        if data.subsets is None:
            raise ValueError("expected images with illumination subsets, such as Yale B's, got some without")
        there = data.present
        gallery = (data.subsets == GALLERY) & there
        lacking = [name for name, row in zip(data.names, gallery, strict=True) if not row.any()]
        if lacking:
            raise ValueError(f"expected images of subset {GALLERY} of every test subject, got none of {lacking}")
        flat = data.images.reshape(*data.images.shape[:2], -1).astype(np.float64)
        people, number = np.nonzero(np.isin(data.subsets, probes) & there)
        if not len(people):
            raise ValueError(f"expected images of subsets {probes} to recognize, got none")
        images = [row[chosen] for row, chosen in zip(flat, gallery, strict=True)]
        return cls(data.names, data.shape, images, flat[people, number], people, data.subsets[people, number])

    def choices(self, most: int = 7, each: int = 10, seed: int = 0) -> list[Choice]:
        """For one image every choice, for all of them the only one, and in between `each` drawn at random.

        A person who has fewer images than are asked for shows all there are, some of them twice.
        """
        counts = [len(images) for images in self.images]
        most = min(most, max(counts))
        found = [Choice(1, np.array([[j % count] for count in counts])) for j in range(max(counts))]
        rng = np.random.default_rng(seed)
        for k in range(2, most):
            for _ in range(each):
                rows = [np.resize(np.sort(rng.permutation(count)[:k]), k) for count in counts]
                found.append(Choice(k, np.stack(rows)))
        if most > 1:
            found.append(Choice(most, np.stack([np.resize(np.arange(count), most) for count in counts])))
        return found

    def asked(self, choice: Choice) -> np.ndarray:
        """Which probes (N,) are to be recognized: those that are not in the gallery themselves."""
        if self.numbers is None:
            return np.ones(len(self.people), bool)
        return np.all(choice.images[self.people] != self.numbers[:, None], axis=1)

    def shown(self, choices: list[Choice]) -> list[Key]:
        """Every (person, images) that occurs in some choice, once: what has to be inferred."""
        sets = {key for choice in choices for key in choice.people()}
        return sorted(sets, key=lambda each: (len(each[1]), each))


# ---- Surfaces, and how good they are


def infer_kept(
    model: DLN,
    images: Sequence[np.ndarray],
    folder: RunFolder,
    name: str,
    batch: int,
    *,
    masks: Sequence[np.ndarray] | None = None,
    numbers: Sequence[int] | None = None,
    **settings: Any,
) -> dict[str, np.ndarray]:
    """Scaled and unit normals (S, V, 3) and albedo (S, V) of S objects, in batches of one shape that are kept."""
    numbers = range(len(images)) if numbers is None else numbers
    size = min(batch, len(images)), max(len(each) for each in images)
    parts = []
    for first in range(0, len(images), batch):
        here = slice(first, min(first + batch, len(images)))

        def infer(here: slice = here) -> dict[str, np.ndarray]:
            mask = None if masks is None else masks[here]
            posts = model.infer_many(images[here], mask=mask, layout=Layout(numbers[here], size), **settings)
            return {
                "scaled": np.stack([post.scaled_normals.reshape(-1, 3) for post in posts]),
                "normals": np.stack([post.normals.reshape(-1, 3) for post in posts]),
                "albedo": np.stack([post.albedo.reshape(-1) for post in posts]),
            }

        parts.append(folder.arrays(f"surfaces-{name}-{first:04}", infer))
    return {what: np.concatenate([part[what] for part in parts]) for what in parts[0]}


def infer_sets(
    model: DLN, test: RecognitionTest, sets: list[Key], folder: RunFolder, name: str, **settings: Any
) -> Surfaces:
    """What every set of images gives. Nothing is seen outside of an object's mask.

    The more images, the less there is to average over: unless given, the preset's chains are shared by the images of a
    set. Sets with as many chains share a shape, so that few shapes are compiled.
    """
    given, found = settings.pop("chains", None), {}
    ordered = sorted(sets, key=lambda key: len(key[1]))
    for chains, group in groupby(ordered, lambda key: given or math.ceil(model.sampler.chains / len(key[1]))):
        alike = list(group)
        images = [test.images[person][list(chosen)].reshape(-1, *test.shape) for person, chosen in alike]
        shared = {"numbers": [sets.index(key) for key in alike], "chains": chains} | settings
        masks = None if test.masks is None else [test.masks[person] for person, _ in alike]
        arrays = infer_kept(model, images, folder, f"{name}-{chains}", BATCH, masks=masks, **shared)
        if masks is not None:
            arrays["scaled"] = arrays["scaled"] * np.reshape(masks, (len(masks), -1, 1))
        found |= {key: {what: values[i] for what, values in arrays.items()} for i, key in enumerate(alike)}
    return found


def mean_shape_sets(normals: np.ndarray, test: RecognitionTest, sets: list[Key]) -> Surfaces:
    """The same by the average normals (H, W, 3) of other people."""
    flat, found = normals.reshape(-1, 3), {}
    for person, chosen in sets:
        scaled = baselines.mean_shape(flat, test.images[person][list(chosen)])
        found[person, chosen] = {"scaled": scaled, "normals": flat, "albedo": np.linalg.norm(scaled, axis=1)}
    return found


def common_map(model: DLN, train: Dataset, references: np.ndarray, seed: int) -> np.ndarray:
    """The one linear map (3, 3) that brings the model's normals of its training subjects nearest to the references.

    Images alone leave such a map open, and with it what a model that was shown no light calls straight ahead.
    """
    images, masks = zip(*((images, mask) for _, images, mask, _ in train.each()), strict=True)
    posts = model.infer_many(images, mask=masks, seed=seed, iterations=100)
    found = np.concatenate([post.normals.reshape(-1, 3) for post in posts])
    return np.linalg.lstsq(found, unit(references.reshape(-1, 3)), rcond=None)[0]


def judge(
    surfaces: Surfaces, test: RecognitionTest, references: np.ndarray, mapped: np.ndarray | None = None
) -> dict[str, dict[str, Any]]:
    """By number of images: normals' errors in degrees, albedo's correlation, and the error in predicting the probes.

    `references` (G, H, W, 3) are from photometric stereo with known lights.
    """
    found: dict[str, dict[str, Any]] = {"normals_deg": {}, "albedo_correlation": {}, "relighting_rmse": {}}
    flat = references.reshape(len(references), -1, 3)
    for count in COUNTS:
        chosen = [(flat[person], person, value) for (person, shown), value in surfaces.items() if len(shown) == count]
        if not chosen:
            continue
        degrees = {}
        for prefix, turn in (("", np.eye(3, dtype=np.float32)), ("mapped_", mapped)):
            if turn is not None:
                off = np.stack([angles(value["normals"] @ turn, truth, axis=-1) for truth, _, value in chosen])
                degrees |= {f"{prefix}mean": float(off.mean()), f"{prefix}median": float(np.median(off))}
        alike = [np.corrcoef(value["albedo"], np.linalg.norm(truth, axis=1))[0, 1] for truth, _, value in chosen]
        errors = [relighting_rmse(value["scaled"], test.probes[test.people == who]) for _, who, value in chosen]
        found["normals_deg"][str(count)] = degrees
        found["albedo_correlation"][str(count)] = float(np.mean(alike))
        found["relighting_rmse"][str(count)] = float(np.mean(errors))
    return found


# ---- Methods of recognition, and their errors

Method = Callable[[Choice], np.ndarray]  # distances (N, G) of the probes to the people of a choice


def baseline_methods(test: RecognitionTest) -> dict[str, Method]:
    """Those that need no training. Where pixels are fine, a probe may be moved by one, as for the rule with detail."""
    moved = shifted(test.probes.reshape(-1, *test.shape)).reshape(-1, *test.probes.shape)

    def by(transform: Callable[[np.ndarray], np.ndarray], distances: Callable[..., np.ndarray]) -> Method:
        images, probes = [transform(each) for each in test.images], [transform(each) for each in moved]
        return lambda choice: np.min([distances(choice.of(images), each) for each in probes], axis=0)

    def filtered(transform: Callable[..., np.ndarray]) -> Method:
        return by(lambda images: transform(images, test.shape), baselines.correlation)

    return {
        "nearest_neighbor": by(lambda images: images, baselines.nearest_neighbor),
        "correlation": by(lambda images: images, baselines.correlation),
        "svd": by(lambda images: images, baselines.svd),
        "tan_triggs": filtered(baselines.tan_triggs),
        "tan_triggs_fine": filtered(lambda images, shape: baselines.tan_triggs(images, shape, *baselines.FINE)),
        "gradientfaces": filtered(baselines.gradientfaces),
        "photo_detail": filtered(baselines.detail_features),
    }


def known_by(test: RecognitionTest, choice: Choice, surfaces: Surfaces, noise_var: np.ndarray) -> Known:
    """The people of a test, by the images that are chosen of each."""
    bases = np.stack([surfaces[key]["scaled"] for key in choice.people()])
    photos = [test.images[person][list(chosen)] for person, chosen in choice.people()]
    return Known(bases, photos, test.shape, noise_var)


def surface_methods(
    name: str, test: RecognitionTest, surfaces: Surfaces, noise_var: np.ndarray | None = None
) -> dict[str, Method]:
    """Recognition by recovered surfaces, by the three rules; without `noise_var` all pixels count alike."""
    noise = np.ones(test.probes.shape[1]) if noise_var is None else noise_var

    def by(rule: Rule) -> Method:
        return lambda choice: known_by(test, choice, surfaces, noise).distances(test.probes, rule)

    return {name: by("plain"), f"{name}_shadow": by("shadow"), f"{name}_detail": by("detail")}


def recognition_errors(method: Method, test: RecognitionTest, choices: list[Choice]) -> dict[str, Any]:
    """Errors in per cent by k: in all, by subset, and the 95 % interval of the mean over the choices of images."""
    by_k: dict[int, list[np.ndarray]] = {}
    for choice in choices:
        wrong = nearest(method(choice)) != test.people
        by_k.setdefault(choice.k, []).append(np.where(test.asked(choice), wrong, np.nan))
    return {str(k): _summary(np.stack(wrong), test.subsets) for k, wrong in by_k.items()}


def _summary(wrong: np.ndarray, subsets: np.ndarray) -> dict[str, Any]:
    """Of answers that were wrong (choices, N), 1 or 0, or not a number where nothing was asked."""
    errors = 100 * np.nanmean(wrong, axis=1)
    found = {
        "error": float(errors.mean()),
        "subsets": {str(s): float(100 * np.nanmean(wrong[:, subsets == s])) for s in np.unique(subsets).tolist()},
        "choices": len(errors),
    }
    if len(errors) > 1:
        from scipy.stats import t

        half = t.ppf(0.975, len(errors) - 1) * errors.std(ddof=1) / np.sqrt(len(errors))
        found["interval"] = [float(max(errors.mean() - half, 0)), float(errors.mean() + half)]
    return found


# ---- Strangers: half of the people are known, the probes are of all


def stranger_errors(
    test: RecognitionTest, choices: list[Choice], surfaces: Surfaces, noise_var: np.ndarray, odds: np.ndarray, seed: int
) -> dict[str, Any]:
    """How well those who are known are told from strangers, from one image of each, over random halves of the people.

    `false_acceptance` and `false_rejection` in per cent at the thresholds of `ROC`; and at one half, and where one
    stranger in a hundred is taken for somebody.
    """
    rng = np.random.default_rng(seed)
    chances, known = [], []
    for choice in (each for each in choices if each.k == 1):
        terms = known_by(test, choice, surfaces, noise_var).terms(test.probes)
        for _ in range(HALVES):
            half = rng.permutation(len(test.names))[: len(test.names) // 2]
            chances.append(chance_known(odds, terms[:, :, half]))
            known.append(np.isin(test.people, half))
    chance, here = np.concatenate(chances), np.concatenate(known)
    strangers, friends = np.sort(chance[~here]), np.sort(chance[here])
    levels = {"half": 0.5, "one_percent": float(np.quantile(strangers, 0.99))}
    accepted = lambda level: 100 * float(np.mean(strangers >= level))
    rejected = lambda level: 100 * float(np.mean(friends < level))
    found: dict[str, Any] = {
        name: {"threshold": level, "false_acceptance": accepted(level), "false_rejection": rejected(level)}
        for name, level in levels.items()
    }
    roc = {"false_acceptance": [accepted(t) for t in ROC], "false_rejection": [rejected(t) for t in ROC]}
    below = np.searchsorted(strangers, friends, side="left") / len(strangers)
    return found | {"roc": roc, "area": float(below.mean()), "probes": len(chance)}
