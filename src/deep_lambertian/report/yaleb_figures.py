"""Figures 4 to 7 of a run on Yale B, as pictures, tables and one page."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data.images import grey, normal_colours, save_png, sheet
from deep_lambertian.experiments.yaleb import YalebFindings
from deep_lambertian.geometry import unit
from deep_lambertian.priors import DBN, Product, generate
from deep_lambertian.report.experiment import QUICK, Section, Table, plot, write_report
from deep_lambertian.report.recognition import NAMES, recognition_section, strangers_section
from deep_lambertian.surface import Surface, as_picture

SAMPLE_STEPS = 50_000  # Gibbs iterations of Figure 4
WIDE_STEPS = 2_000  # of a prior without layers above: each of its iterations passes through all visible units
SAMPLES, PEOPLE, SWEEPS = 10, 10, 50
SHOWN = (1, 2, 5, 10, 20, 30, 40, 50)  # sweeps of Figure 5
PRIOR_NAMES = {
    "gaussian": "Gaussian",
    "gaussian_binary": "Gaussian and binary units",
    "grbm": "Gaussian RBMs",
    "dbn": "deep belief nets",
}
FIGURE7 = (
    "Figure 7: recognition of images of subsets 2 to 4",
    "Error in per cent, given k images of subset 1 of each person. Subset 5, where little is lit, is an extra, and in "
    "no other column.",
)


def draw(found: YalebFindings, out: Path, *, say: Callable[[str], None] = print) -> Path:
    """Write every picture and table that the parts of the run ask for, and the page that shows them."""
    parts, sections = set(found.options.parts), []
    if "samples" in parts:
        for name in found.models:
            say(f"{name}: samples of the prior")
            sections.append(_samples(found, name, out / f"figure4-{name}.png"))
    for name in found.models if {"inference", "relighting"} & parts else ():
        beside = "" if name == "dln" else f"-{name}"
        if "inference" in parts:
            say(f"{name}: Figure 5, one image, sweep by sweep")
            sections.append(_sweeps(found, name, out / f"figure5{beside}.png"))
        say(f"{name}: Figure 6, albedo, normals and new lights")
        sections.append(_people(found, name, out / f"figure6{beside}.png"))
    if "recognition" in parts:
        say("Figure 7: recognition")
        sections.append(recognition_section(found.results["recognition"], *FIGURE7, out / "figure7.png"))
        if "strangers" in found.results:
            sections.append(strangers_section(found.results["strangers"], out / "strangers.png"))
    if "calibration" in parts:
        say("calibration")
        sections.append(_calibration(found.results, out / "calibration.png"))
    if "density" in parts:
        say("densities and samples of priors")
        sections.append(_densities(found, out / "density.png"))
    people, (height, width) = found.results["subjects"], found.test.shape
    notes = [
        f"Yale B, protocol {found.options.protocol}: {len(people['train'])} training subjects, {len(people['test'])} "
        f"test subjects, {height}×{width} pixels, seed {found.options.seed}.",
        *([f"Missing subjects: {', '.join(people['missing'])}."] if people["missing"] else []),
        *([QUICK] if found.options.quick else []),
    ]
    return write_report(out, "Deep Lambertian Networks on Yale B", notes, sections, found.results)


def _samples(found: YalebFindings, name: str, path: Path) -> Section:
    """Samples of the prior, and below each the training face that is most like it."""
    prior, (height, width) = found.models[name].params.prior, found.models[name].shape
    alone = isinstance(prior, Product)
    sampled = prior.albedo if alone else prior
    steps = 200 if found.options.quick else SAMPLE_STEPS if isinstance(sampled, DBN) else WIDE_STEPS
    drawn = generate(sampled, seed=found.options.seed, steps=steps, chains=SAMPLES).samples
    albedo = drawn[:, : height * width]
    taught = np.linalg.norm(found.train_references, axis=-1).reshape(len(found.train), -1)
    similar = np.corrcoef(albedo, taught)[:SAMPLES, SAMPLES:]
    brightest, shape = float(np.quantile(albedo, 0.995)), (-1, height, width)
    rows = [[(f"sample {i + 1}", grey(image, brightest)) for i, image in enumerate(albedo.reshape(shape))]]
    if not alone:
        normals = np.moveaxis(drawn[:, height * width :].reshape(-1, 3, height, width), 1, -1)
        rows.append([("its normals", normal_colours(unit(image))) for image in normals])
    nearest = zip(taught[similar.argmax(axis=1)].reshape(shape), similar.max(axis=1), strict=True)
    rows.append([(f"nearest, r = {r:.2f}", grey(image, float(image.max()))) for image, r in nearest])
    save_png(path, sheet(rows, tile=96))
    return Section(
        f"Figure 4: samples of the prior, {NAMES[name]}",
        f"After {steps:,} Gibbs iterations, one chain each; in the last row the albedo of the training subject that is "
        "most like it, with their correlation: a prior that has learned by heart shows it.",
        path,
    )


def _sweeps(found: YalebFindings, name: str, path: Path) -> Section:
    """The first test subject's image whose light comes most from the side and from below."""
    data, model = found.held_out, found.models[name]
    assert data.lights is not None
    assert data.subsets is not None
    side = np.where((data.subsets[0] == 4) & data.present[0], np.abs(data.lights[0, :, 0]) - data.lights[0, :, 1], -9)
    photo = data.images[0, int(np.argmax(side))]
    sampler = model.sampler.override(iterations=SWEEPS, burn_in=0, keep=SWEEPS)
    post = model.infer(photo, seed=found.options.seed, sampler=sampler)
    albedo, normals = post.samples["albedo"][0], unit(post.samples["normals"][0])
    rows = [[("photo", grey(photo, float(photo.max())))], [("", np.full((8, 8, 3), 255, np.uint8))]]
    for sweep in SHOWN:
        rows[0].append((f"albedo, sweep {sweep}", grey(albedo[sweep - 1])))
        rows[1].append((f"normals, {sweep}", normal_colours(normals[sweep - 1])))
    truth = found.references[0]
    scale = np.linalg.norm(truth, axis=-1)
    rows[0].append(("stereo, 45 photos", grey(scale, float(scale.max()))))
    rows[1].append(("stereo, 45 photos", normal_colours(unit(truth))))
    save_png(path, sheet(rows, tile=104))
    return Section(
        f"Figure 5: a strongly side-lit image, sweep by sweep, {NAMES[name]}",
        "Single states of the chain, not averages; on the right photometric stereo from all photographs.",
        path,
    )


def _people(found: YalebFindings, name: str, path: Path) -> Section:
    """The people of the test, from an image drawn at random, from that and another (Figure 6a, b), and under lights
    that the model draws: images of its own, noise included, of the surface from two (Figure 6c).
    """
    rows, model, data = [], found.models[name], found.held_out
    rng, count = np.random.default_rng(found.options.seed), min(PEOPLE, len(found.test.names))
    shown = [rng.permutation(np.nonzero(there)[0])[:2] for there in data.present[:count]]
    photos = [images[chosen] for images, chosen in zip(data.images, shown, strict=False)]
    lights, noise = model.sample_lights(3, found.options.seed), np.sqrt(as_picture(model.params.noise_var, model.shape))
    # One call for all: one shape is compiled.
    posts = model.infer_many([each[:1] for each in photos] + photos, seed=found.options.seed, iterations=200)
    for both, one, two, truth in zip(photos, posts[:count], posts[count:], found.references, strict=False):
        row = [(f"photo {i + 1}", grey(photo, float(photo.max()))) for i, photo in enumerate(both)]
        surfaces = [(f"{n} image{'s' * (n > 1)}", post.albedo, post.normals) for n, post in ((1, one), (2, two))]
        for words, albedo, normals in (*surfaces, ("stereo", np.linalg.norm(truth, axis=-1), unit(truth))):
            row.append((f"albedo, {words}", grey(albedo, float(np.quantile(albedo, 0.99)))))
            row.append((f"normals, {words}", normal_colours(normals)))
        relit = np.maximum(two.relight(lights) + noise * rng.standard_normal((3, *model.shape)), 0)
        row += [(f"relit {i + 1}", grey(image, float(max(image.max(), 0.1)))) for i, image in enumerate(relit)]
        rows.append(row)
    save_png(path, sheet(rows, tile=104))
    words = (
        "Images drawn at random from all that there are of each person. Degrees are against photometric stereo of the "
        "same subject with known lights, as they are and after the one linear map that suits the training subjects "
        "best; the relighting error is that of the subject's real photographs of subsets 2 to 4, with only their light "
        "fitted."
    )
    heading = f"Figure 6: held-out people from one and two images, relit, {NAMES[name]}"
    if name != "dln":
        return Section(heading, words, path)
    return Section(heading, words, path, surface_table(found.results), "surfaces.csv")


def _calibration(results: Mapping[str, Any], path: Path) -> Section:
    """Reliability diagrams by number of images and by subset, and histograms of the simulation's ranks."""
    quantities, simulated = list(results["calibration"]), results["simulation"]
    with plot(path, 11.5, 8.2, 3, len(quantities)) as axes:
        for column, quantity in enumerate(quantities):
            tables = ("calibration", "k = {}"), ("calibration_subsets", "subset {}")
            for (key, label), panel in zip(tables, axes[:2, column], strict=True):
                panel.plot([0, 1], [0, 1], color="0.6", linewidth=1)
                for name, shares in results[key][quantity].items():
                    panel.plot(
                        [float(level) for level in shares], list(shares.values()), ".-", label=label.format(name)
                    )
                panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="level of the interval")
                panel.set_title(quantity, fontsize=9)
            ranks = axes[2, column]
            ranks.set_axis_off()
            if quantity in simulated:
                counts = np.array(simulated[quantity]["histogram"])
                ranks.set_axis_on()
                ranks.bar(range(len(counts)), counts, width=0.9)
                ranks.axhline(counts.mean(), color="0.3", linewidth=1)
                ranks.set_title(f"simulation: {quantity}, p = {simulated[quantity]['p']:.2f}", fontsize=9)
                ranks.set(xlabel="rank of the truth among draws", xticks=[])
        for panel in axes[:2, 0]:
            panel.set_ylabel("share covered")
            panel.legend(fontsize=7)
    return Section(
        "Calibration: does an interval cover what it says?",
        "Held-out people, against photometric stereo with known lights: above from k images of subset 1, below from "
        "one image of each subset. A line below the diagonal is too sure of itself. Last, objects that the model drew "
        "itself: if the sampler is right, every rank is as likely as any other.",
        path,
        calibration_table(results),
        "calibration.csv",
    )


def _densities(found: YalebFindings, path: Path) -> Section:
    """Samples of every prior, what it believes of people left out, and how well a classifier tells them apart."""
    results, shape, pictures = found.results, found.test.shape, []
    for name, samples in found.prior_samples.items():
        albedo, normals = Surface.unpack(samples[:SAMPLES]).pictures(shape)
        bright = float(np.quantile(albedo, 0.995))
        pictures.append([(f"{name}, {i + 1}"[:18], grey(image, bright)) for i, image in enumerate(albedo)])
        pictures.append([("its normals", normal_colours(unit(image))) for image in normals])
    save_png(path, sheet(pictures, tile=96))
    rows = [["prior", "nats a pixel", "error of annealing", "samples told apart (0.5: not at all)"]]
    for name, nats in results["density"].items():
        cells = f"{nats:.3f}", f"{results['density_error'][name]:.4f}", f"{results['samples_auc'][name]:.2f}"
        rows.append([PRIOR_NAMES[name], *cells])
    return Section(
        "Densities: what priors believe of people left out",
        "All are taught by the same surfaces, those of the training subjects from all of their images. Log density of "
        "the held-out subjects' surfaces, by annealed importance sampling; of nets with upper layers a lower bound. "
        "Last, the area under the curve of a classifier between samples and held-out surfaces.",
        path,
        rows,
        "density.csv",
    )


def calibration_table(results: Mapping[str, Any]) -> Table:
    """Shares covered by intervals of 50 and 90 %, in per cent, with their standard errors over people, and what is
    reported on average (sharpness).
    """
    rows = [["quantity", "images", "50 %", "90 %", "mean of what is reported"]]
    for quantity in results["calibration"]:
        tables = ("calibration", "k {}", "k = {}"), ("calibration_subsets", "subset {}", "one of subset {}")
        for key, name, label in tables:
            for which, shares in results[key][quantity].items():
                known = results["sharpness"].get(quantity, {})
                width = known.get(name.format(which), known.get("subset 1") if which == "1" else None)
                errors = results[f"{key}_error"][quantity][which]
                covered = [f"{100 * shares[level]:.0f} ± {100 * errors[level]:.0f}" for level in ("0.5", "0.9")]
                rows.append([quantity, label.format(which), *covered, "" if width is None else f"{width:.3g}"])
    return rows


def surface_table(results: Mapping[str, Any]) -> Table:
    """Normals, albedo and relighting by method and number of images."""
    heads = ["method", "images", "normals °", "median °", "mapped °", "mapped median °", "albedo r", "relighting rmse"]
    rows = [heads]
    for name, table in results["normals_deg"].items():
        for count, degrees in table.items():
            cells = [degrees.get(each) for each in ("mean", "median", "mapped_mean", "mapped_median")]
            shown = ["" if cell is None else f"{cell:.2f}" for cell in cells]
            albedo, relit = results["albedo_correlation"][name][count], results["relighting_rmse"][name][count]
            rows.append([NAMES[name], count, *shown, f"{albedo:.3f}", f"{relit:.4f}"])
    return rows
