"""Figure 8 on ALOI (Sec. 4.4): generic objects from one held-out image, and how well that image predicts the others.

The paper shows pictures only. Here the held-out images that inference has not seen are predicted too, with nothing but
their light fitted, beside what the object's training images say without a model of shape; and objects are recognized:
which of all is it, by some of each one's held-out images, in those that are left?
Every stage is kept in the folder of the run, and is not computed again when it is there.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.data.aloi import load_aloi, parts_of, split_aloi
from deep_lambertian.experiments import few_images
from deep_lambertian.experiments.few_images import Choice, RecognitionTest, infer_kept
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.run import fingerprint
from deep_lambertian.learning.train import train
from deep_lambertian.model import DLN, load_model
from deep_lambertian.recognition.distances import linear_rmse, relighting_rmse
from deep_lambertian.support.run_folder import RunFolder
from deep_lambertian.tasks.baselines import RANK

OBJECTS, QUICK_OBJECTS = 50, 12
BATCH = 25  # objects at a time: surfaces are kept as they come
COUNTS = (1, 2, 4)  # of the five held-out images, by which an object is known
RESAMPLES = 4000
HIDDEN = {"albedo_hidden": (1000, 500), "normals_hidden": (1500, 500)}  # of the paper
SMOKE = {
    **{"iterations": 3, "albedo_hidden": (100, 30), "normals_hidden": (150, 30), "cd.epochs": 3},
    **{"e_step.iterations": 16, "e_step.burn_in": 8, "e_step.epochs": 2},
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Views:
    """One object: the image that inference sees, those it has to predict, those it was learned from, all (·, H, W).

    `mask` (H, W) holds the pixels that are the object's in every image: all methods are judged on these.
    """

    name: str
    photo_name: str
    photo: np.ndarray
    others: np.ndarray
    taught: np.ndarray
    mask: np.ndarray

    @classmethod
    def of(cls, learned: Dataset, held_out: Dataset) -> list["Views"]:
        """Of each object one held-out image, the lights taking turns from object to object, so that none is chosen."""
        found = []
        for s, (taught, tested) in enumerate(zip(learned.each(), held_out.each(), strict=True)):
            name, images, mask, _ = tested
            shown = s % len(images)
            seen = np.logical_and.reduce([*taught[2], *mask])
            others = np.delete(images, shown, axis=0)
            found.append(cls(name, held_out.image_names[s][shown], images[shown], others, taught[1], seen))
        return found


@dataclass(frozen=True)
class AloiFindings:
    """All that the figures are drawn from: `surfaces` are what the model makes of each object's one image."""

    results: dict[str, Any]
    model: DLN
    views: list[Views]
    surfaces: dict[str, np.ndarray]


# ---- Errors


def prediction_errors(views: Views, surfaces: dict[str, np.ndarray]) -> dict[str, float]:
    """Root mean square errors in the other held-out images; `surfaces` are scaled normals (V, 3) by method.

    Every method has the same pixels and the same images, and fits only what the light may change: of a surface the
    light of max(M ℓ, 0), of a subspace its coefficients, of an image its brightness.
    """
    seen = views.mask.reshape(-1)
    images = (views.photo, views.others, views.taught)
    photo, others, taught = (each.reshape(-1, seen.size)[:, seen].astype(np.float64) for each in images)
    found = {name: relighting_rmse(surface[seen], others) for name, surface in surfaces.items()}
    left, singular, _ = np.linalg.svd(taught.T, full_matrices=False)
    basis = (left * singular)[:, :RANK] / np.sqrt(len(taught))
    mean = taught.mean(axis=0)
    return found | {
        "svd": linear_rmse(basis, others),
        "svd_cone": relighting_rmse(basis, others),
        "mean_image": linear_rmse(mean[:, None], others),
        "mean_image_unscaled": float(np.sqrt(np.mean((others - mean) ** 2))),
        "input_image": linear_rmse(photo.T, others),
    }


def summary(errors: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Mean and median over objects, and the 95 % interval of the mean by resampling the objects."""
    chosen = np.random.default_rng(seed).integers(len(errors), size=(RESAMPLES, len(errors)))
    low, high = np.quantile(errors[chosen].mean(axis=1), [0.025, 0.975])
    return {"mean": float(errors.mean()), "median": float(np.median(errors)), "interval": [float(low), float(high)]}


def summaries(rows: Sequence[dict[str, float]], seed: int) -> dict[str, Any]:
    """Every method's errors, and how much larger the DLN's are on the same objects, whose own spread then cancels."""
    errors = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {
        "prediction_rmse": {name: summary(each, seed) for name, each in errors.items()},
        "dln_minus": {name: summary(errors["dln"] - each, seed) for name, each in errors.items() if name != "dln"},
    }


# ---- Stages


def reproduce(
    path: str | Path,
    out: str | Path,
    *,
    model: str | None = None,
    size: int = 48,
    seed: int = 0,
    quick: bool = False,
    restart: bool = False,
    say: Say = print,
) -> AloiFindings:
    """Train on ten images of each of 50 objects, infer from one of the other five, and predict the rest.

    The figures are in `results`. With `model`, a name or a path, nothing is trained, and its size
    counts, not `size`. `quick` is a smoke run: few objects, small nets, and figures not to quote.
    """
    given = None if model is None else load_model(model)
    config = config_of(seed, quick)
    say("reading images")
    numbers = range(1, (QUICK_OBJECTS if quick else OBJECTS) + 1)
    data = load_aloi(path, size if given is None else _square(given), numbers)
    learned, held_out = split_aloi(data)
    description = {
        **{"protocol": "aloi", "size": data.shape[0], "seed": seed, "quick": quick, "data": fingerprint(data)},
        "model": None if given is None else given.checksum,
        "settings": asdict(config) if given is None else None,
    }
    folder = RunFolder(out, "experiment", description, restart=restart)
    dln = given or _train(learned, config, folder.path / "training", restart, say)
    views = Views.of(learned, held_out)
    settings: dict[str, Any] = {"seed": seed} | ({"iterations": 20} if quick else {})
    surfaces = {}
    for name, images in (("dln", [v.photo[None] for v in views]), ("dln_training", [v.taught for v in views])):
        say(f"{name}: surfaces of {len(views)} objects from {sum(map(len, images))} images")
        surfaces[name] = infer_kept(dln, images, folder, name, BATCH, masks=[v.mask for v in views], **settings)
    say("predicting the other held-out images")
    scaled = {name: found["scaled"] for name, found in surfaces.items()}
    rows = [prediction_errors(v, {name: each[i] for name, each in scaled.items()}) for i, v in enumerate(views)]
    predicted = sum(len(each.others) for each in views)
    results: dict[str, Any] = {
        "protocol": "aloi",
        "objects": len(views),
        "size": data.shape[0],
        "images": {"train": int(learned.present.sum()), "input": len(views), "predicted": predicted},
        "preset": dln.preset,
        "trained_on": {"objects": len(dln.info.get("objects", [])), "images": dln.info.get("images")},
        "given_model": given is not None,
        "quick": quick,
        "seed": seed,
        **summaries(rows, seed),
        "per_object": {each.name: {"input": each.photo_name, **row} for each, row in zip(views, rows, strict=True)},
    }
    _, whole = split_aloi(load_aloi(path, data.shape[0], numbers, backdrop=True))
    test = test_of(whole)
    chosen = choices(test, COUNTS[:1] if quick else COUNTS)
    results["recognition"] = _recognize(dln, test, chosen, folder, settings, say)
    return AloiFindings(results, dln, views, surfaces["dln"])


# ---- Which object is it?


def test_of(held_out: Dataset) -> RecognitionTest:
    """Every held-out image takes its turn in the gallery, and is a probe when it has none; groups are lights."""
    count = held_out.images.shape[1]
    flat = held_out.images.reshape(len(held_out), count, -1).astype(np.float64)
    objects, number = np.divmod(np.arange(len(held_out) * count), count)
    lights = [parts_of(name)[1] for row in held_out.image_names for name in row]
    probes, masks = flat.reshape(-1, flat.shape[2]), [mask.all(axis=0) for mask in held_out.mask]
    return RecognitionTest(held_out.names, held_out.shape, list(flat), probes, objects, np.array(lights), number, masks)


def choices(test: RecognitionTest, counts: Sequence[int]) -> list[Choice]:
    """All choices of so many of the five lights, the same for every object."""
    images, objects = range(len(test.images[0])), len(test.names)
    return [Choice(k, np.tile(chosen, (objects, 1))) for k in counts for chosen in combinations(images, k)]


def _recognize(
    model: DLN, test: RecognitionTest, chosen: list[Choice], folder: RunFolder, settings: dict[str, Any], say: Say
) -> dict[str, Any]:
    """The errors of all methods by numbers of images."""
    sets = test.shown(chosen)
    say(f"recognition: surfaces from {len(sets)} sets of images")
    surfaces = few_images.infer_sets(model, test, sets, folder, "recognition", **settings)
    methods = few_images.surface_methods("dln", test, surfaces, np.asarray(model.params.noise_var))
    found = {}
    for name, method in (methods | few_images.baseline_methods(test)).items():
        say(f"recognition: {name}")
        judged = lambda method=method: few_images.recognition_errors(method, test, chosen)
        found[name] = folder.figures(f"recognition-{name}", judged)
    return found


def config_of(seed: int, quick: bool) -> Config:
    """Algorithm 1 as published, with the layers of this experiment; for a smoke run small ones."""
    return Config.of_preset("paper").override(seed=seed, **(SMOKE if quick else HIDDEN))


def _train(learned: Dataset, config: Config, folder: Path, restart: bool, say: Say) -> DLN:
    """The model of this run; one that is finished comes from its last checkpoint."""
    say(f"training on {int(learned.present.sum())} images of {len(learned)} objects")

    def on_step(monitors: dict[str, Any]) -> None:
        seconds = sum(value for name, value in monitors.items() if name.startswith("seconds"))
        say(f"  EM {monitors['iteration']}: noise {monitors['noise']:.4f}, {seconds:.0f} s")

    return train(learned, config, out=folder, restart=restart, on_step=on_step)


def _square(model: DLN) -> int:
    height, width = model.shape
    if height != width:
        raise ValueError(
            f"model: expected one of square images, as ALOI's objects are cropped, got {height}×{width}; "
            "give another one, or none to train it"
        )
    return height
