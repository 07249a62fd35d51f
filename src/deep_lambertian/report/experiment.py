"""The page, the table and the pictures that an experiment leaves behind."""

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from deep_lambertian.report.figures import name_of
from deep_lambertian.support.files import atomic_write

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # heads, and rows of cells


def recognition_table(recognition: Mapping[str, Mapping[str, Any]]) -> Table:
    """Errors by method: with one image in all and by subset, and for the other numbers of images."""
    counts = sorted({int(k) for table in recognition.values() for k in table})
    subsets = sorted({s for table in recognition.values() for s in table["1"]["subsets"]})
    heads = ["method", "k = 1", *(f"subset {s}" for s in subsets), *(f"k = {k}" for k in counts if k > 1)]
    rows = []
    for name in sorted(recognition, key=lambda name: recognition[name]["1"]["error"]):
        table = recognition[name]
        one = table["1"]
        spread = one.get("interval")
        first = f"{one['error']:.1f}" + (f" ({spread[0]:.1f}–{spread[1]:.1f})" if spread else "")
        cells = [name_of(name), first, *(f"{one['subsets'][s]:.1f}" for s in subsets)]
        rows.append(cells + [f"{table[str(k)]['error']:.1f}" if str(k) in table else "" for k in counts if k > 1])
    return heads, rows


def surface_table(results: Mapping[str, Any]) -> Table:
    """Normals, albedo and relighting by method and number of images."""
    heads = ["method", "images", "normals °", "median °", "mapped °", "mapped median °", "albedo r", "relighting rmse"]
    rows = []
    for name, table in results["normals_deg"].items():
        for count, degrees in table.items():
            cells = [degrees.get(each) for each in ("mean", "median", "mapped_mean", "mapped_median")]
            rows.append(
                [
                    name_of(name),
                    count,
                    *("" if cell is None else f"{cell:.2f}" for cell in cells),
                    f"{results['albedo_correlation'][name][count]:.3f}",
                    f"{results['relighting_rmse'][name][count]:.4f}",
                ]
            )
    return heads, rows


def write_csv(path: Path, table: Table) -> None:
    text = io.StringIO()
    heads, rows = table
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(results, indent=2) + "\n").encode())


def write_page(
    path: Path, title: str, notes: Sequence[str], sections: Sequence[tuple[str, str, Path | None, Table | None]]
) -> None:
    """One HTML file with everything in it. A section: heading, text, a picture or none, a table or none."""
    environment = Environment(
        loader=PackageLoader("deep_lambertian.report"), autoescape=select_autoescape(["html"]), trim_blocks=True
    )
    shown = [
        {
            "heading": heading,
            "text": text,
            "picture": None if picture is None else base64.b64encode(picture.read_bytes()).decode(),
            "table": table,
        }
        for heading, text, picture, table in sections
    ]
    page = environment.get_template("experiment.html").render(title=title, notes=notes, sections=shown)
    with atomic_write(path) as file:
        file.write(page.encode())
