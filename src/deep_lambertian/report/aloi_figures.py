"""Figure 8 and the prediction of other images, as pictures, tables and one page."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.data.images import grey, normal_colours, save_png, sheet
from deep_lambertian.experiments.aloi import AloiFindings, Views
from deep_lambertian.report.experiment import QUICK, Section, Table, plot, write_report
from deep_lambertian.report.recognition import recognition_section
from deep_lambertian.support.files import write_csv
from deep_lambertian.surface import illuminate

SHOWN, LIGHTS = 10, 3  # objects of the picture, and lights drawn for each
SURROUND = 225  # grey of what is not the object
RECOGNITION = (
    "Which object is it?",
    "Error in per cent in naming the held-out images that are left, given k held-out images of each object. Images are "
    "as they were photographed, backdrop and all, in the box of the object: by the mask alone, which all images of an "
    "object share, it would be told from the others. Light 1 to 5 is that of the probe.",
)
LABELS = {
    "dln": "DLN, one held-out image",
    "dln_training": "DLN, the training images",
    "svd": "SVD of the training images",
    "svd_cone": "SVD of the training images, max(·, 0)",
    "mean_image": "mean training image, scaled",
    "mean_image_unscaled": "mean training image as it is",
    "input_image": "the one held-out image, scaled",
}


def draw(found: AloiFindings, out: Path) -> Path:
    """Write pictures, tables and figures, and the page that shows them."""
    results, views = found.results, found.views
    lights = found.model.sample_lights(LIGHTS, results["seed"])
    save_png(out / "figure8.png", objects_sheet(views, found.surfaces, lights))
    prediction_plot(results, out / "prediction.png")
    names = list(results["prediction_rmse"])
    errors = ([name, row["input"], *(f"{row[n]:.6f}" for n in names)] for name, row in results["per_object"].items())
    write_csv(out / "objects.csv", [["object", "input", *names], *errors])
    most = max(len(each.others) for each in views)
    sections = [
        Section(
            "Figure 8: objects from one held-out image",
            "From above: the image, the inferred albedo, the inferred normals, and the object under three lights drawn "
            "from the learned prior of lights, the same for all. Each tile is as bright as its brightest pixels allow.",
            out / "figure8.png",
        ),
        Section(
            f"Predicting the object's other {most} held-out images",
            "Root mean square error within the mask, intensities from 0 to 1; only the light is fitted: that of "
            "max(M·ℓ, 0) for surfaces, three coefficients for the SVD, one factor for images. Each dot is an object, "
            "bars are the 95 % interval of the mean over objects. The last column is object by object: "
            "where it is below 0, the DLN that sees one held-out image does better. It learned its prior from the "
            "training images of the same objects, but infers from the one image alone.",
            out / "prediction.png",
            prediction_table(results),
            "prediction.csv",
        ),
        recognition_section(results["recognition"], *RECOGNITION, out / "recognition.png", "light"),
    ]
    return write_report(out, "Deep Lambertian Networks on ALOI", _notes(results), sections, results)


def _notes(results: dict[str, Any]) -> list[str]:
    counts, trained = results["images"], results["trained_on"]
    given = (
        f"The model was given, not trained here: on {trained['objects']} objects, {trained['images']} images. "
        "If held-out images were among them, its figures flatter it."
    )
    return [
        f"ALOI, {results['objects']} objects, {results['size']}×{results['size']} pixels, seed {results['seed']}: "
        f"{counts['train']} images to learn from, {counts['input']} to infer from, {counts['predicted']} to predict.",
        "Intensities are the files' own, not linear light, as in the paper; masks are derived from the images.",
        *([given] if results["given_model"] else []),
        *([QUICK] if results["quick"] else []),
    ]


def objects_sheet(views: list[Views], surfaces: dict[str, np.ndarray], lights: np.ndarray) -> Image.Image:
    """Figure 8: a column for each of some objects, from the first to the last; below, each under new lights."""
    rows: list[list[tuple[str, np.ndarray]]] = [[] for _ in range(3 + len(lights))]
    for i in np.unique(np.linspace(0, len(views) - 1, min(SHOWN, len(views))).astype(int)):
        view = views[i]
        relit = illuminate(surfaces["scaled"][i], lights)
        cells = [
            (f"object {view.name}", _shown(view.photo, view.mask)),
            ("albedo", _shown(surfaces["albedo"][i], view.mask)),
            ("normals", _on_grey(normal_colours(surfaces["normals"][i].reshape(*view.mask.shape, 3)), view.mask)),
            *((f"light {k + 1}", _shown(image, view.mask)) for k, image in enumerate(relit)),
        ]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return sheet(rows, tile=96)


def _shown(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """As bright as most of the object allows; `grey` takes linear light, which the database's files are not."""
    image = np.maximum(image.reshape(mask.shape), 0)
    brightest = max(float(np.quantile(image[mask], 0.99)), 1e-3)
    return _on_grey(grey(np.minimum(image / brightest, 1) ** 2.2), mask)


def _on_grey(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask[..., None], picture, np.uint8(SURROUND))


def prediction_plot(results: dict[str, Any], path: Path) -> None:
    """Each object's error by method, and their mean with its interval."""
    names = _order(results)
    apart = np.linspace(-0.22, 0.22, results["objects"])
    with plot(path, 8.5, 4.2) as axes:
        for row, name in enumerate(names):
            errors = [each[name] for each in results["per_object"].values()]
            found = results["prediction_rmse"][name]
            colour = "tab:blue" if name.startswith("dln") else "tab:gray"
            axes.plot(errors, row + apart, ".", color=colour, alpha=0.4, markersize=4)
            axes.plot(found["interval"], [row, row], color=colour, linewidth=3)
            axes.plot(found["mean"], row, "D", color=colour, markeredgecolor="white", markersize=8)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names])
        axes.invert_yaxis()
        axes.set(xlabel="root mean square error in held-out images", xlim=(0, None))
        axes.grid(axis="x", alpha=0.3)


def prediction_table(results: dict[str, Any]) -> Table:
    """Errors by method, the least first."""
    rows = [["prediction from", "mean", "95 % interval", "median", "DLN from one image minus this"]]
    for name in _order(results):
        found, less = results["prediction_rmse"][name], results["dln_minus"].get(name)
        low, high = found["interval"]
        cells = [LABELS[name], f"{found['mean']:.4f}", f"{low:.4f}–{high:.4f}", f"{found['median']:.4f}", ""]
        if less is not None:
            cells[-1] = f"{less['mean']:+.4f} ({less['interval'][0]:+.4f} to {less['interval'][1]:+.4f})"
        rows.append(cells)
    return rows


def _order(results: dict[str, Any]) -> list[str]:
    return sorted(results["prediction_rmse"], key=lambda name: results["prediction_rmse"][name]["mean"])
