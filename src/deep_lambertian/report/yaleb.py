"""Figures 4 to 7 of a run on Yale B, as pictures, tables and one page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.experiments.yaleb import Run, Variant
from deep_lambertian.priors import DBN, Product
from deep_lambertian.priors.generate import generate
from deep_lambertian.report import experiment, figures
from deep_lambertian.support.pictures import save_png

SAMPLE_STEPS = 50_000  # Gibbs iterations of Figure 4
WIDE_STEPS = 2_000  # of a prior without layers above: each of its iterations passes through all visible units
SAMPLES, PEOPLE, SWEEPS = 10, 5, 50


def draw(run: Run, out: Path, *, say: Callable[[str], None] = print) -> Path:
    """Write every picture and table that the run's parts ask for, and the page that shows them."""
    sections: list[Any] = []
    parts, options = run.options.parts, run.options
    if "samples" in parts:
        for variant in run.variants:
            say(f"{variant.name}: samples of the prior")
            picture = out / f"figure4-{variant.name}.png"
            steps = _samples(run, variant, picture)
            sections.append(
                (
                    f"Figure 4: samples of the prior, {figures.name_of(variant.name)}",
                    f"After {steps:,} Gibbs iterations, one chain each; in the last row the albedo of the training "
                    "subject that is most like it, with their correlation: a prior that has learned by heart shows it.",
                    picture,
                    None,
                )
            )
    if "inference" in parts:
        variant = run.variants[0]
        say("Figure 5: one image, sweep by sweep")
        _sweeps(run, variant, out / "figure5.png")
        sections.append(
            (
                "Figure 5: a strongly side-lit image, sweep by sweep",
                "Single states of the chain, not averages; on the right photometric stereo from all photographs.",
                out / "figure5.png",
                None,
            )
        )
    if {"inference", "relighting"} & set(parts):
        say("Figure 6: albedo, normals and new lights")
        _people(run, run.variants[0], out / "figure6.png")
        table = experiment.surface_table(run.results)
        experiment.write_csv(out / "surfaces.csv", table)
        sections.append(
            (
                "Figure 6: held-out people from one and two images, relit",
                "Degrees are against photometric stereo of the same subject with known lights, as they are and after "
                "the one linear map that suits the training subjects best; the relighting error is that of the "
                "subject's real photographs of subsets 2 to 4, with only their light fitted.",
                out / "figure6.png",
                table,
            )
        )
    if "recognition" in parts:
        say("Figure 7: recognition")
        figures.recognition_curve(run.results["recognition"], out / "figure7.png")
        table = experiment.recognition_table(run.results["recognition"])
        experiment.write_csv(out / "recognition.csv", table)
        sections.append(
            (
                "Figure 7: recognition of images of subsets 2 to 4",
                "Error in per cent, given k images of subset 1 of each person. Shaded, and in brackets: 95 % interval "
                "of the mean over the choices of these images. Shadow-aware is the distance to max(M·ℓ, 0), weighted "
                "by the learned noise; all other DLN rows are distances to the span of M.",
                out / "figure7.png",
                table,
            )
        )
    experiment.write_json(out / "results.json", run.results)
    page = out / "report.html"
    people = run.results["subjects"]
    notes = [
        f"Yale B, protocol {options.protocol}: {len(people['train'])} training subjects, {len(people['test'])} test "
        f"subjects, {run.test.shape[0]}×{run.test.shape[1]} pixels, seed {options.seed}.",
        *([f"Missing subjects: {', '.join(people['missing'])}."] if people["missing"] else []),
        *(["A quick run: too short for its figures to be quoted."] if options.quick else []),
    ]
    experiment.write_page(page, "Deep Lambertian Networks on Yale B", notes, sections)
    return page


def _samples(run: Run, variant: Variant, path: Path) -> int:
    prior, (height, width) = variant.model.params.prior, variant.model.shape
    alone = isinstance(prior, Product)
    sampled = prior.albedo if alone else prior
    steps = SAMPLE_STEPS if isinstance(sampled, DBN) else WIDE_STEPS
    steps = 200 if run.options.quick else steps
    drawn = generate(sampled, seed=run.options.seed, steps=steps, chains=SAMPLES).samples
    albedo = drawn[:, : height * width]
    taught = np.linalg.norm(run.train_references, axis=-1).reshape(len(run.train), -1)
    similar = _standard(albedo) @ _standard(taught).T / albedo.shape[1]
    nearest = np.argmax(similar, axis=1)
    normals = None
    if not alone:
        normals = np.moveaxis(drawn[:, height * width :].reshape(-1, 3, height, width), 1, -1)
        normals = normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-9)
    shape = (-1, height, width)
    picture = figures.samples_sheet(albedo.reshape(shape), taught[nearest].reshape(shape), similar.max(axis=1), normals)
    save_png(path, picture)
    return steps


def _standard(rows: np.ndarray) -> np.ndarray:
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-9)


def _sweeps(run: Run, variant: Variant, path: Path) -> None:
    """The first test subject's image whose light comes most from the side and from below."""
    data = run.held_out
    assert data.lights is not None
    assert data.subsets is not None
    side = np.where((data.subsets[0] == 4) & data.present[0], np.abs(data.lights[0, :, 0]) - data.lights[0, :, 1], -9)
    photo = data.images[0, int(np.argmax(side))]
    post = variant.model.infer(photo, iterations=SWEEPS, burn_in=0, keep="all", seed=run.options.seed)
    save_png(path, figures.sweeps_sheet(photo, post.samples, run.references[0]))


def _people(run: Run, variant: Variant, path: Path) -> None:
    """The first people of the test, from their first image, and from that and the last."""
    people, shape = [], variant.model.shape
    lights = variant.model.sample_lights(3, run.options.seed)
    count = min(PEOPLE, len(run.test.names))
    photos = [images[[0, len(images) - 1]].reshape(2, *shape) for images in run.test.images[:count]]
    # One call for all: one shape is compiled.
    posts = variant.model.infer_many([each[:1] for each in photos] + photos, seed=run.options.seed, iterations=200)
    for person, (both, one, two) in enumerate(zip(photos, posts[:count], posts[count:], strict=True)):
        people.append(
            {
                "photos": list(both),
                "albedo": {1: one.albedo, 2: two.albedo},
                "normals": {1: one.normals, 2: two.normals},
                "truth": run.references[person],
                "relit": list(one.relight(lights)),
            }
        )
    save_png(path, figures.inference_sheet(people))
