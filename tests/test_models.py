"""Models that come with the package are found by name, listed with their cards, stored compactly, and know faces."""

import json
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

import deep_lambertian as dl
from conftest import tiny_grbm
from deep_lambertian import models
from deep_lambertian.cli import main
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.scenes import shade

MOST_BYTES = 10_000_000


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder of bundled models with one in it."""
    folder = tmp_path / "shelf"
    model = dl.DLN.build(tiny_grbm(0, 16, 5), (2, 2), preset="quick", info={"objects": ["a", "b"]})
    model.save(folder / "small.safetensors", compact=True)
    (folder / "small.md").write_text("# small\n\nTwo things that nobody has seen.\n\n## Limits\n\nMany.\n")
    monkeypatch.setattr(models, "FOLDER", folder)
    return model


def test_a_bundled_model_is_loaded_by_its_name(shelf, tmp_path, monkeypatch):
    assert dl.load_model("small").info == shelf.info
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected a model file or the name of a bundled model \(small\)"):
        dl.load_model("large")
    with pytest.raises(FileNotFoundError, match="expected a model file, found nothing"):
        dl.load_model(tmp_path / "small")


def test_every_bundled_model_is_small_and_has_a_card_that_names_its_data_and_terms():
    assert {"faces48", "yaleb24", "yaleb48"} <= set(models.names())
    for model in models.bundled():
        assert model.path.stat().st_size <= MOST_BYTES
        card = model.card.read_text()
        anyones = model.name == "faces48"
        made = ("Apache-2.0", "MIT", "tools.train_faces48") if anyones else ("for research only", "dln train")
        for word in (*made, "Yale", "## Limits", "## Figures"):
            assert word in card, (model.name, word)


def test_the_model_that_anyone_may_use_has_learned_from_nobody_and_carries_the_notice_of_its_heads():
    model = dl.load_model("faces48")
    assert model.shape == (48, 48)
    assert model.info["objects"] == []
    assert model.info["licence"] == "Apache-2.0"
    root = Path(__file__).parents[1]
    assert "Copyright (c) 2020 USC Institute for Creative Technologies" in model.info["notice"]
    assert model.info["notice"].strip() in (root / "NOTICE").read_text()
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "NOTICE" in project["project"]["license-files"]
    assert "/NOTICE" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


@pytest.mark.parametrize("size", [24, 48])
def test_the_face_models_have_not_seen_the_subjects_that_the_paper_is_tested_on(size):
    model = dl.load_model(f"yaleb{size}")
    assert model.shape == (size, size)
    assert model.preset == "best"
    assert len(model.info["objects"]) == 28
    assert not {f"yaleB{i:02}" for i in range(1, 11)} & set(model.info["objects"])


@pytest.mark.parametrize("name", ["faces48", "yaleb24", "yaleb48"])
def test_the_face_models_recover_a_synthetic_face_that_they_have_never_seen(name):
    model = dl.load_model(name)
    people = draw_faces(1, images=1, size=model.shape[0], seed=5, noise=0)
    photo = shade(people.albedo[0], people.normals[0], np.array([[0.3, 0.1, 0.9]]))[0]
    post = model.infer(photo, iterations=60, seed=0)
    cosine = np.clip(np.sum(post.normals * people.normals[0], axis=-1), -1, 1)
    assert (
        np.degrees(np.arccos(cosine)).mean() < 30
    )  # other faces, drawn by a formula: roughly right is all one can ask
    assert np.sqrt(np.mean((post.relight(post.lights[0]) - photo) ** 2)) < 0.06


def test_compact_files_are_half_as_large_and_hardly_different(tmp_path):
    model = dl.DLN.build(tiny_grbm(0, 4 * 64, 300), (8, 8), preset="quick")
    model.save(tmp_path / "whole.safetensors")
    model.save(tmp_path / "compact.safetensors", compact=True)
    whole, compact = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "compact"))
    assert compact < 0.6 * whole
    again = dl.load_model(tmp_path / "compact.safetensors")
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(again.params))
    np.testing.assert_allclose(again.params.prior.weights, model.params.prior.weights, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(again.params.prior.hidden_bias, model.params.prior.hidden_bias)
    assert again.checksum != model.checksum
    assert again.checksum == dl.load_model(tmp_path / "compact.safetensors").checksum


def test_models_are_listed(shelf, capsys):
    assert main(["models"]) == 0
    assert "small  2×2" in capsys.readouterr().out
    assert main(["models", "small"]) == 0
    assert "## Limits" in capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "small"
    assert main(["models", "nobody"]) == 1
    assert "expected one of the bundled models, small" in capsys.readouterr().err
