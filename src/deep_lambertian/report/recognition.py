"""Errors of recognition, and how strangers are told, as plots and tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.report.experiment import Section, Table, plot

NAMES = {
    "nearest_neighbor": "nearest neighbour",
    "dbn_svm": "DBN + linear SVM",
    "correlation": "normalised correlation",
    "svd": "SVD subspace",
    "dln": "DLN",
    "dln_shadow": "DLN, shadow-aware",
    "dln_detail": "DLN, with detail",
    "dln_separate": "DLN, two priors",
    "dln_separate_shadow": "DLN, two priors, shadow-aware",
    "dln_separate_detail": "DLN, two priors, with detail",
    "dln_paper": "DLN as published",
    "dln_paper_shadow": "DLN as published, shadow-aware",
    "dln_paper_detail": "DLN as published, with detail",
    "mean_shape": "mean shape",
    "mean_shape_shadow": "mean shape, shadow-aware",
    "mean_shape_detail": "mean shape, with detail",
    "tan_triggs": "Tan–Triggs",
    "tan_triggs_fine": "Tan–Triggs, finest filter",
    "gradientfaces": "Gradientfaces",
    "photo_detail": "detail of the photos alone",
}
TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)
Errors = Mapping[str, Mapping[str, Any]]  # of each method, by the number of images (`few_images.recognition_errors`)


def recognition_section(recognition: Errors, heading: str, text: str, path: Path, group: str = "subset") -> Section:
    """Error against the number of images, with the interval over their choices; probes are in groups called so."""
    with plot(path, 10.5, 5.2) as axes:
        for number, name in enumerate(_best_first(recognition)):
            table = recognition[name]
            counts = sorted(int(k) for k in table)
            errors = np.array([table[str(k)]["error"] for k in counts])
            wide, style = (
                2.4 if name in ("dln", "dln_shadow", "dln_detail") else 1.2,
                "-" if name.startswith("dln") else "--",
            )
            marker = {"marker": "osv^D<>p*hXd"[number % 12], "markersize": 4}
            (line,) = axes.plot(counts, errors, label=NAMES[name], linewidth=wide, linestyle=style, **marker)
            low, high = np.array([table[str(k)].get("interval", [e, e]) for k, e in zip(counts, errors, strict=True)]).T
            axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        axes.set(xlabel="images of each", ylabel="error (%)")
        axes.set_yscale("symlog", linthresh=1)  # the best lie below one per cent, the others far above
        axes.set_ylim(0, 100)
        axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axes.set_xticks(_counts(recognition))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return Section(
        heading,
        f"{text} Shaded, and in brackets: 95 % interval of the mean over the choices of these images. Shadow-aware is "
        "the distance to max(M·ℓ, 0), weighted by the learned noise; with detail, that and how alike the photos are "
        "under the probe's light; all other rows of surfaces are distances to the span of M.",
        path,
        recognition_table(recognition, group),
        "recognition.csv",
    )


def strangers_section(found: Mapping[str, Any], path: Path) -> Section:
    """Who is turned away against who is let in, as the threshold moves."""
    with plot(path, 5.5, 4.4) as axes:
        axes.plot(found["roc"]["false_acceptance"], found["roc"]["false_rejection"], ".-")
        half = found["half"]
        axes.plot(half["false_acceptance"], half["false_rejection"], "o", label="threshold one half")
        axes.set(xlabel="strangers who are named (%)", ylabel="known people who are not (%)", ylim=(0, None))
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    rows = [["threshold", "strangers who are named, %", "known people who are not, %"]]
    for name in ("half", "one_percent"):
        row = found[name]
        rows.append([f"{row[key]:.2f}" for key in ("threshold", "false_acceptance", "false_rejection")])
    return Section(
        "Strangers",
        "Half of the test subjects are known, from one image each; the probes, of subsets 2 to 4, are of all. The odds "
        f"were learned from training subjects left out of the prior. Area under the curve: {found['area']:.4f}.",
        path,
        rows,
        "strangers.csv",
    )


def recognition_table(recognition: Errors, group: str = "subset") -> Table:
    """Errors by method: with one image in all and by groups of probes, and for the other numbers of images."""
    more = [k for k in _counts(recognition) if k > 1]
    subsets = sorted({s for table in recognition.values() for s in table["1"]["subsets"]})
    rows = [["method", "k = 1", *(f"{group} {s}" for s in subsets), *(f"k = {k}" for k in more)]]
    for name in _best_first(recognition):
        table = recognition[name]
        one = table["1"]
        spread = one.get("interval")
        first = _shown(one["error"]) + (f" ({_shown(spread[0])}–{_shown(spread[1])})" if spread else "")
        cells = [NAMES[name], first, *(_shown(one["subsets"][s]) if s in one["subsets"] else "" for s in subsets)]
        rows.append(cells + [_shown(table[str(k)]["error"]) if str(k) in table else "" for k in more])
    return rows


def _shown(percent: float) -> str:
    """With two digits below one per cent, where the best methods are."""
    return f"{percent:.2f}" if 0 < percent < 1 else f"{percent:.1f}"


def _best_first(recognition: Errors) -> list[str]:
    return sorted(recognition, key=lambda name: recognition[name]["1"]["error"])


def _counts(recognition: Errors) -> list[int]:
    return sorted({int(k) for table in recognition.values() for k in table})
