"""Models that come with the package are found by name, listed with their cards, and stored compactly."""

import json

import jax
import numpy as np
import pytest

import deep_lambertian as dl
from conftest import tiny_grbm
from deep_lambertian import models
from deep_lambertian.cli import main


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
