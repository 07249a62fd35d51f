"""The plan of the house: imports go one way, files and functions stay small, and few modules meet a photo."""

import ast
import inspect
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType

import jax
import numpy as np
import pytest
from PIL import Image

from deep_lambertian.cli import main
from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.support import compiled
from deep_lambertian.synthetic.portrait import draw_portrait

SOURCE = Path(__file__).parents[1] / "src" / "deep_lambertian"
# Data flows from the first to the last: a module imports from its own room and from those before it.
ROOMS = (
    *("support", "geometry", "surface", "priors", "energy", "inference", "models", "model", "data"),
    *("recognition", "learning", "faces", "synthetic", "photos", "tasks", "experiments", "report", "studio", "cli"),
)
MOST_MODULES, MOST_LINES, MOST_OF_A_PHOTO = 114, 16_250, 30
MOST_FILE, MOST_FUNCTION, MOST_PARAMETERS = 400, 60, 8
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[str]:
    """The rooms that a module imports from, for type checking alone or when it runs."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "deep_lambertian":
            names = [f"deep_lambertian.{each.name}" for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        for name in names:
            room = name.split(".")[1] if name.startswith("deep_lambertian.") else ""
            if room and not room.startswith("__"):
                yield room


def test_every_room_is_in_the_plan():
    rooms = {room_of(path) for path in MODULES} - {"__init__"}
    assert rooms <= set(ROOMS), f"rooms without a place in ROOMS: {sorted(rooms - set(ROOMS))}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_go_one_way(path):
    home = room_of(path)
    if home == "__init__":  # the public names, which live everywhere
        return
    # The names of dl.data are public: where they live is told in strings, and for type checkers.
    facade = {"faces", "synthetic"} if path == SOURCE / "data" / "__init__.py" else set()
    against = {room for room in imported(ast.parse(path.read_text())) if ROOMS.index(room) > ROOMS.index(home)}
    assert against <= facade


def test_files_and_functions_are_small():
    found = []
    for path in MODULES:
        text, name = path.read_text(), path.relative_to(SOURCE).as_posix()
        if text.count("\n") > MOST_FILE:
            found.append(f"{name} has {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(each.arg not in ("self", "cls") for each in arguments)
                count += (node.args.vararg is not None) + (node.args.kwarg is not None)
                if lines > MOST_FUNCTION or count > MOST_PARAMETERS:
                    found.append(f"{name}: {node.name} has {lines} lines and {count} parameters")
    assert not found


def test_the_house_is_of_a_size_to_be_known():
    lines = sum(path.read_text().count("\n") for path in MODULES)
    assert len(MODULES) <= MOST_MODULES
    assert lines <= MOST_LINES


def test_a_photo_passes_through_few_modules(tmp_path, monkeypatch):
    """Those in which a function runs while `dln infer` has a photo; of the command line, its own module alone."""
    for path in MODULES:  # before the count: what runs when a module is imported is no part of a photo's way
        name = ".".join(("deep_lambertian", *path.relative_to(SOURCE).with_suffix("").parts))
        if path.stem != "__main__":
            import_module(name.removesuffix(".__init__"))
    photo = np.round(255 * linear_to_srgb(draw_portrait(0).photo)).astype(np.uint8)
    Image.fromarray(photo).save(tmp_path / "me.png")
    # Programs are traced here and now, not found as other tests have left them.
    monkeypatch.setattr(compiled, "_programs", {})
    monkeypatch.setattr(compiled, "_exported", lambda run, leaves, _: jax.export.export(jax.jit(run))(*leaves))
    seen = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a class's body
            seen.add(frame.f_globals.get("__name__") or "")

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        code = main(["infer", "yaleb24", str(tmp_path / "me.png"), "--out", str(tmp_path / "out"), "--quiet"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert code == 0
    ours = {name for name in seen if name.startswith("deep_lambertian.")}
    met = {name for name in ours if name == "deep_lambertian.cli.infer" or not name.startswith("deep_lambertian.cli")}
    assert {"deep_lambertian.inference.whole_surface", "deep_lambertian.report.photo"} < met  # it has come to its end
    assert len(met) <= MOST_OF_A_PHOTO, sorted(met)
