"""What is added in one place is known everywhere: a data set of one's own, listed, checked and trained from."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import deep_lambertian as dl
from deep_lambertian.cli import build_parser, main
from deep_lambertian.data.dataset import Dataset, View, stack_objects
from deep_lambertian.data.registry import KINDS, Kind, kinds, load

ROOT = Path(__file__).parent.parent


# A data set takes a loader, in a module of its own, an entry in `data/registry.py`, and a row in docs/data.md:
def load_discs(path: str | Path, size: int = 12) -> Dataset:
    """Discs of several greys, under two lights each: one number a line of a text file."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size * 2 - 1
    inside = x**2 + y**2 < 0.8
    greys = [float(line) for line in Path(path).read_text().split()]
    if not greys:
        raise ValueError(f"{path}: expected a grey in each line, got none")
    views = [[View(side, grey * inside * (1 + 0.2 * x * sign)) for side, sign in SIDES.items()] for grey in greys]
    return stack_objects([(f"disc{i}", row) for i, row in enumerate(views)], info={"kind": "discs"})


SIDES = {"left": -1, "right": 1}
DISCS = Kind(f"{__name__}:load_discs", "grey discs, one for each line of a file", 12)


@pytest.fixture
def discs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(KINDS, "discs", DISCS)
    (tmp_path / "greys.txt").write_text("0.3\n0.5\n0.8\n")
    return tmp_path / "greys.txt"


def test_a_new_kind_is_known_to_the_commands(discs: Path, capsys: pytest.CaptureFixture, tmp_path: Path):
    sheet = tmp_path / "sheet.png"
    assert main(["data", "check", "discs", str(discs), "--json", "--sheet", str(sheet)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["objects"], report["images"], report["size"]) == (3, 6, [12, 12])
    assert sheet.is_file()
    for command in (["data", "check"], ["train"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args([*command, "--help"])
        assert "grey discs, one for each line of a file (12×12)" in " ".join(capsys.readouterr().out.split())
    assert build_parser().parse_args(["train", "discs", str(discs), "--out", "run"]).kind == "discs"
    assert load("discs", discs, 8, training=True).shape == (8, 8)


def test_data_are_asked_for_in_words_that_say_what_is_missing():
    with pytest.raises(ValueError, match=r"unknown kind 'cats'; expected one of .*yaleb"):
        load("cats", None, None)
    with pytest.raises(ValueError, match="yaleb: expected the path of a folder or an archive, got none"):
        load("yaleb", None, None)


@pytest.mark.parametrize("name", list(KINDS))
def test_every_kind_is_public_documented_and_has_its_default_size(name: str):
    function = KINDS[name].loader.partition(":")[2]
    assert function in dir(dl.data)
    assert inspect.signature(getattr(dl.data, function)).parameters["size"].default == KINDS[name].size
    assert f"`{function}(" in (ROOT / "docs" / "data.md").read_text()


def test_only_what_has_several_images_of_an_object_is_for_training():
    assert set(kinds()) - set(kinds(training=True)) == {"faces"}


def test_drawn_data_follow_the_seed():
    one, same, other = (load("synthetic", None, 8, seed).images for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
