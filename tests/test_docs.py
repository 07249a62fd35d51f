"""What the README, the docs and the examples show is run: all Python, and the commands that tests can afford."""

import contextlib
import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import deep_lambertian as dl
from deep_lambertian.cli import COMMANDS, build_parser, main
from deep_lambertian.data.images import save_png
from test_morphable import ball

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WALKED = ("tutorial.md", "photos.md", "objects.md", "lights.md")  # commands and Python run as one story
LARGEST, LARGEST_MOVING = 150_000, 2_000_000  # bytes of a picture


def fenced(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The blocks of some languages, in order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def commands(text: str) -> list[list[str]]:
    """The arguments of each `dln` of a block of shell; `srun` and the like may stand before it."""
    lines = [shlex.split(line.partition(" > ")[0], comments=True) for line in text.splitlines()]
    return [line[line.index("dln") + 1 :] for line in lines if "dln" in line and "…" not in line]


ELSEWHERE = ("studio.md",)  # whose program test_studio.py runs, with a studio at hand
WITH_PYTHON = [page for page in PAGES if fenced(page, "python") and page.name not in WALKED + ELSEWHERE]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("ict_face.npz", **{name: np.array(value) for name, value in vars(ball(24)).items()})
    names: dict = {"__name__": "__main__"}
    for _, block in fenced(page, "python"):
        exec(compile(block, str(page), "exec"), names)


# The shapes and the sampler of test_learning.py, so that what is compiled there serves here.
FEW = {
    "iterations": 1,
    "e_step.iterations": 8,
    "e_step.burn_in": 4,
    "e_step.leapfrogs": 3,
    "e_step.epochs": 1,
    "covariance.directions": 20,
}
SHORT_CHAINS = ["--iterations", "16", "--chains", "1"]
SHORTER = {
    "infer": SHORT_CHAINS,
    "recognize": SHORT_CHAINS,
    "train": [*(word for name, value in FEW.items() for word in ("--set", f"{name}={value}")), "--size", "12"],
}
SMALLER = {
    "draw_portrait(seed=0)": "draw_portrait(seed=0, size=(240, 320))",
    "count=40, images=6, size=16": "count=8, images=4, size=12",
    'of_preset("quick")': f'of_preset("quick").override(**{FEW})',
}


@pytest.mark.parametrize("name", WALKED)
def test_the_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    """Commands as they stand, but for shorter chains and trainings; those for `make` and `pip` are left out."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / name
    names: dict = {"__name__": "__main__"}
    for language, block in fenced(page, "python", "sh"):
        if language == "python":
            for said, smaller in SMALLER.items():
                block = block.replace(said, smaller)
            exec(compile(block, str(page), "exec"), names)
            continue
        for command, *arguments in commands(block):
            if command == "train" and not Path(arguments[1]).exists():
                continue  # test_training_from_a_folder_runs_as_shown has such a folder
            code = main([command, *arguments, *SHORTER.get(command, [])])
            assert code == 0, (command, arguments, capsys.readouterr().err)
    written = {
        "tutorial.md": ["portrait-dln/report.html", "portrait-dln/relit.png", "portrait-dln/sweep.gif", "answers.csv"],
        "photos.md": ["photo-dln/report.html", "everybody/face-2/report.html", "me/relit.png", "masked/lights.json"],
        "objects.md": ["objects.png", "my-run/pictures/em-001.png", "one/relit.png", "results/summary.csv"],
        "lights.md": ["stereo/lights.json", "results/one/albedo.png"],
    }
    for path in written[name]:
        assert Path(path).is_file(), path


def test_the_files_of_a_result_are_those_that_the_page_lists(tmp_path, monkeypatch):
    """`dln infer` writes what docs/photos.md says, and nothing else."""
    monkeypatch.chdir(tmp_path)
    image = dl.data.make_faces(count=1, images=1, size=24, seed=0).images[0, 0]
    Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save("face.png")
    assert main(["infer", "yaleb24", "face.png", "--out", "out", *SHORT_CHAINS]) == 0
    table = (ROOT / "docs" / "photos.md").read_text().partition("## What it writes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, flags=re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)} | {"relit_1.png"}
    assert listed == {path.name for path in Path("out").iterdir()}


def test_training_from_a_folder_runs_as_shown(tmp_path, monkeypatch, capsys):
    """The commands of the pages on small objects; what they say about sizes and settings is overruled."""
    monkeypatch.chdir(tmp_path)
    solids = dl.data.make_solids(8, images=4, size=12)
    assert solids.lights is not None
    for name, images, lights in zip(solids.names, solids.images, solids.lights, strict=True):
        for number, image in enumerate(images):
            save_png(
                Path("my-objects", name, f"{number}.png"), Image.fromarray((255 * image.clip(0, 1)).astype("uint8"))
            )
        np.savetxt(Path("my-objects", name, "lights.txt"), lights)
    shown = {
        tuple(line)
        for page in PAGES
        for _, block in fenced(page, "sh")
        for line in commands(block)
        if line[:2] == ["train", "folder"] and not {"--coordinator", "/shared/run"} & set(line)
    }
    assert shown
    for arguments in sorted(shown):
        out = arguments[arguments.index("--out") + 1]
        assert main([*arguments, *SHORTER["train"], "--restart"]) == 0, capsys.readouterr().err
        model = dl.load_model(Path(out, "model.safetensors"))
        assert model.shape == (12, 12)
        assert sorted(model.info["objects"]) == sorted(solids.names)


def test_every_command_shown_is_one_that_there_is():
    parser = build_parser()
    for page in PAGES:
        for _, block in fenced(page, "sh"):
            for arguments in commands(block):
                try:
                    with contextlib.redirect_stderr(None):
                        parser.parse_args(arguments)
                except SystemExit:
                    pytest.fail(f"{page.name}: dln {' '.join(arguments)}")


def test_every_command_is_in_the_reference():
    page = (ROOT / "docs" / "commands.md").read_text()
    for name in COMMANDS:
        assert f"](#dln-{name})" in page, name
        assert f"\n## dln {name}\n" in page, name
        assert f"\n<!-- help: {name} -->\n" in page, name


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^::: deep_lambertian\.(\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    assert set(dl.__all__) - {"data"} <= listed
    assert {f"data.{name}" for name in dl.data.__all__} <= listed


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there_and_is_named_by_the_command_that_makes_it():
    figures = load(ROOT / "docs" / "figures.py").FIGURES
    shown = set()
    for page in PAGES[1:]:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            path = page.parent / target
            assert path.is_file(), f"{page.name}: {target}"
            if path.suffix == ".gif":
                assert path.stat().st_size < LARGEST_MOVING
                assert f"`dln relight {path.stem}-dln --sweep 24 --gif`" in page.read_text()
                continue
            assert path.stat().st_size < LARGEST, f"{path.name}: {path.stat().st_size} bytes"
            assert f"`python docs/figures.py {path.stem}`" in page.read_text(), f"{page.name}: what makes {path.name}?"
            shown.add(path.stem)
    assert shown == set(figures)


@pytest.mark.parametrize("name", ["rendering", "ambiguity"])
def test_a_picture_is_made_as_the_page_says(name, tmp_path, monkeypatch):
    figures = load(ROOT / "docs" / "figures.py")
    monkeypatch.setattr(sys, "argv", ["figures.py", name, "--out", str(tmp_path)])
    figures.main()
    made, kept = (Image.open(folder / f"{name}.png") for folder in (tmp_path, ROOT / "docs" / "images"))
    assert made.size == kept.size
    assert np.abs(np.asarray(made.convert("RGB"), float) - np.asarray(kept.convert("RGB"), float)).mean() < 2


SMALL = {
    "one_photo.py": {"SWEEPS": "16", "CHAINS": "1"},
    "own_objects.py": {"SWEEPS": "16", "OBJECTS": "10", "SIZE": "12", "ITERATIONS": "1"},
}


def test_there_is_a_test_for_each_example():
    assert set(SMALL) == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("name", SMALL)
def test_the_example_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for variable, value in SMALL[name].items():
        monkeypatch.setenv(variable, value)
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert "°" in capsys.readouterr().out


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {path.stem: path.read_text() for path in (tmp_path / "site").glob("*.html")}
    assert {page.stem for page in PAGES[1:]} <= set(pages)
    assert "<math" in pages["model"]
    assert all(f"usage: dln {name}" in pages["commands"] for name in COMMANDS)
    for name, text in pages.items():
        assert "arithmatex" not in text, name
        assert not re.search(r'(?:src|stylesheet" href)="(?:https?:)?//', text), name


def test_readme_has_code():
    assert fenced(ROOT / "README.md", "python")
    assert (ROOT / "README.md").stat().st_size > 500
