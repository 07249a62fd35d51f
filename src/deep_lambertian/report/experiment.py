"""What experiments leave behind: plots, tables, and the one page that shows them all."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from deep_lambertian.data.images import grey, normal_colours, sheet
from deep_lambertian.experiments.demonstration import Demonstration
from deep_lambertian.report.photo import Page, render
from deep_lambertian.support.files import atomic_write, write_csv, write_json, write_text

QUICK = "A quick run: too short for its figures to be quoted."
Table = Sequence[Sequence[str]]  # a row of heads, and rows of cells


@dataclass(frozen=True)
class Section:
    """A part of the page: a picture that has been written, and a table with the name of the CSV that it goes to too."""

    heading: str
    text: str
    picture: Path
    table: Table = ()
    csv: str = ""


@contextmanager
def plot(path: Path, width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Axes to draw on, in an array if they are several; the plot is written as PNG in the end."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    yield figure.subplots(rows, columns)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)


def write_report(
    out: Path, title: str, notes: Sequence[str], sections: Sequence[Section], results: Mapping[str, Any]
) -> Path:
    """Write the tables, the figures as results.json, and one HTML file with everything in it, which is returned."""
    for section in sections:
        if section.table:
            write_csv(out / section.csv, section.table)
    write_json(out / "results.json", results)
    shown = [(section, base64.b64encode(section.picture.read_bytes()).decode()) for section in sections]
    write_text(out / "report.html", render("experiment.html", title=title, notes=notes, sections=shown))
    return out / "report.html"


# ---- The demonstration: a page about one stranger, and a sheet of several beside the truth


def demonstration_page(found: Demonstration, number: int = 0) -> Page:
    """The report about one stranger."""
    people, post = found.strangers, found.posts[number]
    notes = [
        "The face was made by the program, and the model has never seen it: it was trained on other such faces.",
        "Over {count} strangers, from one image each: normals are off by {normals_deg:.1f}° (mean shape "
        "{normals_deg_mean_shape:.1f}°), other images are predicted to {relighting_rmse:.3f} (mean shape "
        "{relighting_rmse_mean_shape:.3f}), and {one_shot_error:.1f} % of them are given to the wrong person "
        "(nearest neighbour {one_shot_error_nearest_neighbor:.1f} %).".format(count=len(found.posts), **found.figures),
    ]
    pictures = [("true albedo", grey(people.albedo[number])), ("true normals", normal_colours(people.normals[number]))]
    for i, (light, real) in enumerate(zip(people.lights[number, 1:4], people.images[number, 1:4], strict=True)):
        pictures += [(f"relit, light {i + 1}", grey(post.relight(light))), (f"true, light {i + 1}", grey(real))]
    inputs, words = [("the one image", grey(people.images[number, 0]))], "A face from one image"
    return Page(words, inputs, pictures, post.scaled_normals, colour=None, srgb=True, posterior=post, notes=notes)


def demonstration_picture(found: Demonstration, count: int = 3) -> Image.Image:
    """A sheet: what one image of each of some strangers gives, beside the truth."""
    rows = []
    for number in range(count):
        people, post = found.strangers, found.posts[number]
        most = float(post.normals_std.max())
        row = [("the one image", grey(people.images[number, 0]))]
        row += [("albedo", grey(post.albedo)), ("true albedo", grey(people.albedo[number]))]
        row += [("normals", normal_colours(post.normals)), ("true normals", normal_colours(people.normals[number]))]
        row += [(f"spread 0-{most:.0f}°", grey(post.normals_std, most))]
        for light, real in zip(people.lights[number, 1:3], people.images[number, 1:3], strict=True):
            row += [("relit", grey(post.relight(light))), ("true", grey(real))]
        rows.append(row)
    return sheet(rows, tile=112)
