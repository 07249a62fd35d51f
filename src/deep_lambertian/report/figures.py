"""The paper's figures, drawn from a run of its experiments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.support.files import atomic_write
from deep_lambertian.support.pictures import grey, normal_colours, sheet

SHOWN = (1, 2, 5, 10, 20, 30, 40, 50)  # sweeps of Figure 5
NAMES = {
    "nearest_neighbor": "nearest neighbour",
    "dbn_svm": "DBN + linear SVM",
    "correlation": "normalised correlation",
    "svd": "SVD subspace",
    "dln": "DLN",
    "dln_shadow": "DLN, shadow-aware",
    "dln_separate": "DLN, two priors",
    "dln_separate_shadow": "DLN, two priors, shadow-aware",
    "dln_paper": "DLN as published",
    "dln_paper_shadow": "DLN as published, shadow-aware",
    "mean_shape": "mean shape",
    "tan_triggs": "Tan–Triggs",
    "tan_triggs_fine": "Tan–Triggs, finest filter",
    "gradientfaces": "Gradientfaces",
}


def name_of(method: str) -> str:
    return NAMES.get(method, method)


def samples_sheet(
    samples: np.ndarray, nearest: np.ndarray, similar: np.ndarray, normals: np.ndarray | None
) -> Image.Image:
    """Figure 4: samples of the albedo prior (n, H, W), and below each the training face that is most like it."""
    brightest = float(np.quantile(samples, 0.995))
    rows = [
        [(f"sample {i + 1}", grey(image, brightest)) for i, image in enumerate(samples)],
        [(f"nearest, r = {r:.2f}", grey(image, float(image.max()))) for image, r in zip(nearest, similar, strict=True)],
    ]
    if normals is not None:
        rows.insert(1, [("its normals", normal_colours(image)) for image in normals])
    return sheet(rows, tile=96)


def sweeps_sheet(photo: np.ndarray, samples: Mapping[str, np.ndarray], truth: np.ndarray) -> Image.Image:
    """Figure 5: a strongly side-lit image, and albedo and normals at sweeps 1 to 50; `truth` (H, W, 3) from stereo."""
    albedo, normals = samples["albedo"][0], samples["normals"][0]
    unit = normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-9)
    scale, reference = np.linalg.norm(truth, axis=-1), truth / np.linalg.norm(truth, axis=-1, keepdims=True)
    shown = [sweep for sweep in SHOWN if sweep <= len(albedo)]
    rows = [[("photo", grey(photo, float(photo.max())))], [("", np.full((8, 8, 3), 255, np.uint8))]]
    for sweep in shown:
        rows[0].append((f"albedo, sweep {sweep}", grey(albedo[sweep - 1])))
        rows[1].append((f"normals, {sweep}", normal_colours(unit[sweep - 1])))
    rows[0].append(("stereo, 45 photos", grey(scale, float(scale.max()))))
    rows[1].append(("stereo, 45 photos", normal_colours(reference)))
    return sheet(rows, tile=104)


def inference_sheet(people: list[dict[str, Any]]) -> Image.Image:
    """Figure 6: for held-out people, what one image gives, what two give, and new lights drawn from the prior.

    Each person: `photos` [(H, W), …], `albedo` and `normals` by number of images, `truth` (H, W, 3), `relit` [(H, W)].
    """
    rows = []
    for person in people:
        row = [(f"photo {i + 1}", grey(photo, float(photo.max()))) for i, photo in enumerate(person["photos"])]
        for count in (1, 2):
            albedo = person["albedo"][count]
            row.append((f"albedo, {count} image{'s' * (count > 1)}", grey(albedo, float(np.quantile(albedo, 0.99)))))
            row.append((f"normals, {count}", normal_colours(person["normals"][count])))
        truth = person["truth"]
        scale = np.linalg.norm(truth, axis=-1)
        row.append(("stereo: albedo", grey(scale, float(np.quantile(scale, 0.99)))))
        row.append(("stereo: normals", normal_colours(truth / np.maximum(scale[..., None], 1e-9))))
        row += [
            (f"relit {i + 1}", grey(image, float(max(image.max(), 0.1)))) for i, image in enumerate(person["relit"])
        ]
        rows.append(row)
    return sheet(rows, tile=96)


def recognition_curve(recognition: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Figure 7: error against the number of training images, with the interval over their choices."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    order = sorted(recognition, key=lambda name: recognition[name]["1"]["error"])
    for number, name in enumerate(order):
        table = recognition[name]
        counts = sorted(int(k) for k in table)
        errors = np.array([table[str(k)]["error"] for k in counts])
        ours = name.startswith("dln")
        (line,) = axes.plot(
            counts,
            errors,
            label=name_of(name),
            marker="osv^D<>p*hXd"[number % 12],
            markersize=4,
            linewidth=2.4 if name in ("dln", "dln_shadow") else 1.2,
            linestyle="-" if ours else "--",
        )
        low, high = np.array([table[str(k)].get("interval", [e, e]) for k, e in zip(counts, errors, strict=True)]).T
        axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(xlabel="training images of each person", ylabel="error (%)", ylim=(0, None))
    axes.set_xticks(sorted({int(k) for table in recognition.values() for k in table}))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper right", ncols=2)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)
