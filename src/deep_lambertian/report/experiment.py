"""What experiments leave behind: plots, tables, and the one page that shows them all."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from deep_lambertian.support.files import atomic_write, write_csv, write_json, write_text

QUICK = "A quick run: too short for its figures to be quoted."


@dataclass(frozen=True)
class Table:
    """Heads, and rows of cells."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of the page: a picture that has been written, and a table with the name of the CSV that it goes to too."""

    heading: str
    text: str
    picture: Path
    table: Table | None = None
    csv: str = ""


@contextmanager
def plot(path: Path, width: float, height: float) -> Iterator[Any]:
    """Axes to draw on; the plot is written as PNG in the end."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    yield figure.subplots()
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)


def render(template: str, **values: Any) -> str:
    """One of the package's pages, filled in."""
    environment = Environment(
        loader=PackageLoader("deep_lambertian.report"), autoescape=select_autoescape(["html"]), trim_blocks=True
    )
    return environment.get_template(template).render(**values)


def write_report(
    out: Path, title: str, notes: Sequence[str], sections: Sequence[Section], results: Mapping[str, Any]
) -> Path:
    """Write the tables, the figures as results.json, and one HTML file with everything in it, which is returned."""
    for section in sections:
        if section.table is not None:
            write_csv(out / section.csv, [section.table.heads, *section.table.rows])
    write_json(out / "results.json", results)
    pictures = [base64.b64encode(section.picture.read_bytes()).decode() for section in sections]
    page = out / "report.html"
    shown = list(zip(sections, pictures, strict=True))
    write_text(page, render("experiment.html", title=title, notes=notes, sections=shown))
    return page
