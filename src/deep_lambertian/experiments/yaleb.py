"""Sections 4.1 to 4.3 on Yale B: samples, inference, relighting and one-shot recognition of held-out people.

Every stage is kept in the folder of the run, and is not computed again when it is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset, load_faces, load_yaleb
from deep_lambertian.data.yaleb import PROTOCOLS
from deep_lambertian.experiments import calibration, density, few_images
from deep_lambertian.experiments.few_images import (
    Choice,
    RecognitionTest,
    Surfaces,
    common_map,
    infer_sets,
    judge,
    stranger_errors,
)
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.run import fingerprint
from deep_lambertian.learning.stereo import reference_surfaces
from deep_lambertian.learning.train import train
from deep_lambertian.model import DLN, load_model
from deep_lambertian.recognition.known import odds_of
from deep_lambertian.support.files import part
from deep_lambertian.support.run_folder import RunFolder
from deep_lambertian.tasks.baselines import features, learn_features, mean_normals, svm_distances

PARTS = ("samples", "inference", "relighting", "recognition", "calibration", "density")
BESIDE = ("paper", "separate")
DARK = 5  # a subset with most of a face in shadow: not one of the paper's tests
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What to run. `beside` are other ways to train, whose figures stand beside: as published, and with two priors.

    `parts` are some of `PARTS`; `quick` is a smoke run: fewer sweeps, choices and subjects, and figures not to quote.
    """

    protocol: str = "dev"
    preset: str = "best"
    settings: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    faces: str | None = None
    beside: tuple[str, ...] = BESIDE
    parts: tuple[str, ...] = PARTS
    seed: int = 0
    size: int = 24
    quick: bool = False
    allow_missing: bool = False
    chains: int | None = None
    most: int = 7  # training images of a person in recognition

    def __post_init__(self) -> None:
        for what, given, known in (("parts", self.parts, PARTS), ("beside", self.beside, BESIDE)):
            unknown = [each for each in given if each not in known]
            if unknown:
                raise ValueError(f"{what}: expected some of {', '.join(known)}, got {', '.join(unknown)}")


@dataclass(frozen=True)
class YalebFindings:
    """All that the figures are drawn from.

    `models` by their names in the tables; `surfaces` that they, and the average normals of the training subjects
    (`mean_shape`), make of the test's sets of images. References are by photometric stereo.
    """

    options: Options
    train: Dataset
    held_out: Dataset
    test: RecognitionTest
    dark: RecognitionTest | None  # the same people, to be recognized in images of subset 5
    choices: list[Choice]
    references: np.ndarray  # of the test subjects
    train_references: np.ndarray
    models: dict[str, DLN]
    surfaces: dict[str, Surfaces]
    results: dict[str, Any]
    prior_samples: dict[str, np.ndarray] = field(default_factory=dict)  # (n, 4V), by the names of `density`


def subjects(data: Dataset, name: str, allow_missing: bool) -> tuple[Dataset, Dataset, list[str]]:
    """Training and test subjects of a protocol, and which of them are missing, for which leave must be given."""
    missing = [subject for names in PROTOCOLS[name] for subject in names if subject not in data.names]
    if missing and not allow_missing:
        raise ValueError(
            f"protocol {name!r} needs subjects that are not there: {', '.join(missing)}; "
            "give the whole database, or run on what is there with --allow-missing"
        )
    train, test = ([subject for subject in names if subject in data.names] for names in PROTOCOLS[name])
    for what, names in (("train", train), ("test", test)):
        if len(names) < 2:
            lacking = f"; missing are {', '.join(missing)}" if missing else ""
            raise ValueError(f"protocol {name!r}: expected at least two {what} subjects, found {len(names)}{lacking}")
    check_subsets(data.objects(train + test), allow_missing)
    return data.objects(train), data.objects(test), missing


def check_subsets(data: Dataset, allow_missing: bool) -> None:
    """Every subject must have images of subsets 1 to 4, or leave be given to do without."""
    assert data.subsets is not None
    absent = {name: {1, 2, 3, 4} - set(row.tolist()) for name, row in zip(data.names, data.subsets, strict=True)}
    lacking = [f"{name} (subset {', '.join(map(str, sorted(each)))})" for name, each in absent.items() if each]
    if lacking and not allow_missing:
        raise ValueError(
            f"images are missing: none of {', '.join(lacking[:5])}{' …' if len(lacking) > 5 else ''}; "
            "run on what is there with --allow-missing"
        )


def reproduce(
    path: str | Path, out: str | Path, options: Options, *, restart: bool = False, say: Say = print
) -> YalebFindings:
    """Train, infer, relight and recognize; the figures are in `results`."""
    model = None if options.model is None else load_model(options.model)
    say("reading images")
    data = load_yaleb(path, options.size if model is None else model.shape)
    learners, held_out, lacking = subjects(data, options.protocol, options.allow_missing)
    if options.quick:
        held_out = held_out.objects(range(min(4, len(held_out))))
    folder = RunFolder(out, "experiment", _description(options, data, model), restart=restart)
    test = RecognitionTest.of(held_out)
    more = load_yaleb(path, data.shape, held_out.names, (few_images.GALLERY, DARK))
    there = more.subsets is not None and np.any(more.subsets == DARK)
    dark = RecognitionTest.of(more, (DARK,)) if there and more.names == held_out.names else None
    choices = _choices(test, options)
    references, train_references = reference_surfaces(held_out), reference_surfaces(learners)
    models = _models(learners, options, Path(out), model, restart, say)
    sets = test.shown(choices)
    needed = sets if set(options.parts) - {"samples", "calibration", "density"} else sets[:1]
    settings = {"seed": options.seed} | ({"chains": options.chains} if options.chains else {})
    settings["iterations"] = 40 if options.quick else few_images.SWEEPS
    surfaces = {}
    for name, each in models.items():
        say(f"{name}: surfaces from {len(needed)} sets of images")
        surfaces[name] = infer_sets(each, test, needed, folder, name, **settings)
    surfaces["mean_shape"] = few_images.mean_shape_sets(mean_normals(train_references), test, sets)
    results: dict[str, Any] = {
        "protocol": options.protocol,
        "preset": options.preset if model is None else model.preset,
        "subjects": {"train": list(learners.names), "test": list(held_out.names), "missing": lacking},
        "quick": options.quick,
        "seed": options.seed,
    }
    found = YalebFindings(
        options, learners, held_out, test, dark, choices, references, train_references, models, surfaces, results
    )
    if {"inference", "relighting"} & set(options.parts):
        results |= _judge(found, folder, say)
    if "recognition" in options.parts:
        results["recognition"] = _recognize(found, folder, say)
        results |= _strangers(found, folder, say)
    if "calibration" in options.parts:
        results |= _calibrate(found, folder, say)
    if "density" in options.parts:
        results |= _densities(found, folder, say)
    return found


def _choices(test: RecognitionTest, options: Options) -> list[Choice]:
    """The choices of images that the parts of the run need."""
    drawn = test.choices(each=3 if options.quick else 10, seed=options.seed)
    choices = [choice for choice in drawn if choice.k <= options.most]
    if options.quick:
        choices = [choice for k in (1, 2) for choice in [each for each in choices if each.k == k][:3]]
    if "recognition" not in options.parts:  # surfaces are judged for these numbers of images only
        choices = [choice for choice in choices if choice.k in few_images.COUNTS]
    return choices


def _description(options: Options, data: Dataset, model: DLN | None) -> dict[str, Any]:
    """What makes two runs the same: all but the parts, which share their stages."""
    shared = ("parts", "beside", "model", "faces", "allow_missing")
    return {name: value for name, value in vars(options).items() if name not in shared} | {
        "data": fingerprint(data),
        "faces": None if options.faces is None else Path(options.faces).name,
        "model": None if model is None else model.checksum,
    }


def configs(options: Options) -> dict[str, Config]:
    """The settings of every model that the run trains, by its name in the tables."""
    preset = "quick" if options.quick else options.preset
    main = Config.of_preset(preset).override(seed=options.seed, **options.settings)
    found = {"dln": main}
    if "separate" in options.beside and options.preset == "best" and main.prior == "joint":
        found["dln_separate"] = main.override(prior="separate")
    if "paper" in options.beside and options.preset != "paper":
        found["dln_paper"] = Config.of_preset("paper").override(seed=options.seed)
    return {"dln": main} if options.quick else found


def _models(
    learners: Dataset, options: Options, out: Path, model: DLN | None, restart: bool, say: Say
) -> dict[str, DLN]:
    if model is not None:
        seen = set(model.info.get("objects", [])) & set(PROTOCOLS[options.protocol][1])
        if seen:
            say(f"note: {options.model} has been trained on {len(seen)} of the test subjects: its figures flatter it")
        return {"dln": model}
    found = {}
    for name, config in configs(options).items():
        say(f"{name}: training on {len(learners)} subjects")
        faces = None
        if options.faces is not None and config.start == "random" and config.prior == "separate":
            faces = load_faces(options.faces, size=learners.shape[0])
        found[name] = train(learners, config, faces=faces, out=out / f"training-{name}", restart=restart)
    return found


def _judge(found: YalebFindings, folder: RunFolder, say: Say) -> dict[str, Any]:
    """Normals, albedo and relighting for each number of images, of every model and of the mean shape."""
    tables: dict[str, dict[str, Any]] = {}
    for name, surfaces in found.surfaces.items():
        say(f"{name}: normals, albedo and relighting")

        def make(name: str = name, surfaces: Surfaces = surfaces) -> dict[str, Any]:
            if name not in found.models:
                return judge(surfaces, found.test, found.references)
            mapped = common_map(found.models[name], found.train, found.train_references, found.options.seed)
            return judge(surfaces, found.test, found.references, mapped) | {"common_map": mapped.tolist()}

        tables[name] = folder.figures(f"judged-{name}", make)
    return {
        what: {name: table[what] for name, table in tables.items()}
        for what in ("normals_deg", "albedo_correlation", "relighting_rmse")
    }


def _calibrate(found: YalebFindings, folder: RunFolder, say: Say) -> dict[str, Any]:
    """Whether the uncertainties that the model reports are right, of people and of what it draws itself."""
    model, options = found.models["dln"], found.options
    say("calibration: errors of held-out people against what is reported of them")
    sweeps, count = (40, 16) if options.quick else (calibration.SWEEPS, calibration.OBJECTS)
    judged = lambda: calibration.judge(model, found.held_out, found.references, options.seed, sweeps)
    simulated = lambda: {"simulation": calibration.simulation(model, options.seed, count, say)}
    return folder.figures("calibration", judged) | folder.figures("simulation", simulated)


def _densities(found: YalebFindings, folder: RunFolder, say: Say) -> dict[str, Any]:
    """What priors that the training subjects' surfaces teach believe of the others', as the model finds them."""
    model, options = found.models["dln"], found.options
    main, paper = (Config.of_preset(name).override(seed=options.seed) for name in ("best", "paper"))
    if options.quick:
        main = main.override(**{"binary.units": 5, "binary.cd.epochs": 1})
        paper = paper.override(**{"albedo_hidden": (8, 4), "normals_hidden": (8, 4), "cd.epochs": 1})

    def surfaces() -> dict[str, np.ndarray]:
        say("density: surfaces from all images of each person")
        both = {"taught": found.train, "unseen": found.held_out}
        return {name: density.surfaces_of(model, data, options.seed) for name, data in both.items()}

    def answers() -> dict[str, np.ndarray]:
        priors = density.priors_of(known["taught"], model.shape, main, paper)
        return density.ask_priors(priors, known["unseen"], options.seed, say, 20 if options.quick else density.STEPS)

    known = folder.arrays("density-surfaces", surfaces)
    found.prior_samples.update(part(asked := folder.arrays("density", answers), "samples."))
    return density.judge_answers(asked, known["unseen"], model.shape, options.seed)


def _recognize(found: YalebFindings, folder: RunFolder, say: Say) -> dict[str, Any]:
    """The errors of all methods."""
    methods = _methods(found, found.test) | {"dbn_svm": _dbn_svm(found)}
    dark = {} if found.dark is None else _methods(found, found.dark)
    one = [choice for choice in found.choices if choice.k == 1]

    def judged(name: str) -> dict[str, Any]:
        errors = few_images.recognition_errors(methods[name], found.test, found.choices)
        if name in dark and found.dark is not None:
            errors["1"]["subsets"] |= few_images.recognition_errors(dark[name], found.dark, one)["1"]["subsets"]
        return errors

    errors = {}
    for name in methods:
        say(f"recognition: {name}")
        errors[name] = folder.figures(f"recognition-{name}", lambda name=name: judged(name))
    return errors


def _methods(found: YalebFindings, test: RecognitionTest) -> dict[str, few_images.Method]:
    """By images alone, and by the surfaces that every model found."""
    methods = few_images.baseline_methods(test)
    for name, surfaces in found.surfaces.items():
        model = found.models.get(name)
        noise = None if model is None else np.asarray(model.params.noise_var)
        methods |= few_images.surface_methods(name, test, surfaces, noise)
    return methods


def _strangers(found: YalebFindings, folder: RunFolder, say: Say) -> dict[str, Any]:
    """How well strangers are told, where the model has learned that."""
    model = found.models["dln"]
    odds, noise = odds_of(model.misfit), np.asarray(model.params.noise_var)
    if odds is None:
        return {}
    say("recognition: strangers")
    shown = found.test, found.choices, found.surfaces["dln"]
    return {"strangers": folder.figures("strangers", lambda: stranger_errors(*shown, noise, odds, found.options.seed))}


def _dbn_svm(found: YalebFindings) -> few_images.Method:
    """Learns its features when it is first asked for something."""
    options, test = found.options, found.test

    @cache
    def learned() -> tuple[list[np.ndarray], np.ndarray]:
        images = np.concatenate([images.reshape(len(images), -1) for _, images, _, _ in found.train.each()])
        layers = learn_features(images, epochs=2 if options.quick else 30, seed=options.seed)
        return [features(layers, rows) for rows in test.images], features(layers, test.probes)

    def method(choice: Choice) -> np.ndarray:
        images, probes = learned()
        return svm_distances(choice.of(images), probes, options.seed)

    return method
