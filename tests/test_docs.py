"""What the README and the docs show is run: every piece of Python, page by page, and commands that tests can afford."""

import os
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from deep_lambertian import load_model
from deep_lambertian.cli import main
from deep_lambertian.data import make_solids
from deep_lambertian.report.pictures import save_png

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for block in blocks(page):
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


def test_training_from_a_folder_runs_as_shown(tmp_path, monkeypatch, capsys):
    """The commands of the pages on small objects; what they say about sizes and settings is overruled."""
    monkeypatch.chdir(tmp_path)
    solids = make_solids(8, images=4, size=12)
    for name, images in zip(solids.names, solids.images, strict=True):
        for number, image in enumerate(images):
            save_png(
                Path("my-objects", name, f"{number}.png"), Image.fromarray((255 * image.clip(0, 1)).astype("uint8"))
            )
    shown = {line for page in PAGES for line in re.findall(r"^dln train folder .*", page.read_text(), re.MULTILINE)}
    assert shown
    for command in sorted(shown):
        _, *arguments = shlex.split(command, comments=True)
        out = arguments[arguments.index("--out") + 1]
        settings = [word for name, value in FEW.items() for word in ("--set", f"{name}={value}")]
        assert main([*arguments, *settings, "--size", "12", "--restart"]) == 0, capsys.readouterr().err
        model = load_model(Path(out, "model.safetensors"))
        assert model.shape == (12, 12)
        assert sorted(model.info["objects"]) == sorted(solids.names)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_has_code():
    assert blocks(ROOT / "README.md")
    assert os.path.getsize(ROOT / "README.md") > 500  # noqa: PTH202
