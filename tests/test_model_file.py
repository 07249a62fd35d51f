"""Model files: what is saved comes back; what is no model is refused, in one sentence, without harm."""

import json
import os
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import deep_lambertian as dl
from conftest import tiny_grbm
from deep_lambertian import models
from deep_lambertian.support import files

PRIORS = {
    "product": dl.Product(tiny_grbm(0, 4, 3), tiny_grbm(1, 12, 2)),
    "joint": tiny_grbm(0, 16, 5),
    "dbn": dl.DBN(tiny_grbm(0, 16, 5), (dl.BinaryRBM(jnp.zeros(5), jnp.ones(2), jnp.ones((5, 2))),), 2, 0.3),
    "gaussian": dl.Gaussian.of_factors(np.zeros(16), np.ones(16), np.arange(32.0).reshape(16, 2)),
}


def build(kind: str = "product") -> dl.DLN:
    return dl.DLN.build(PRIORS[kind], (2, 2), noise_var=0.1, info={"trained on": "nothing: a test"}, preset="quick")


@pytest.mark.parametrize("kind", PRIORS)
def test_what_is_saved_comes_back(kind, tmp_path):
    model = build(kind)
    model.save(tmp_path / "sub" / "model.safetensors")
    again = dl.load_model(tmp_path / "sub" / "model.safetensors")
    assert (again.shape, again.preset, again.info) == (model.shape, model.preset, model.info)
    assert jax.tree.structure(again.params) == jax.tree.structure(model.params)
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    model.save(tmp_path / "twice")
    assert (tmp_path / "twice").read_bytes() == (tmp_path / "sub" / "model.safetensors").read_bytes()


@pytest.fixture
def saved(tmp_path) -> Path:
    build().save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path: Path, header=None, tensors=None) -> None:
    """Change a model file's description or its tensors; it has no checksum then, like files of before."""
    content = load_file(path)
    with models.safe_open(path, framework="numpy") as file:
        described = json.loads(file.metadata()[models.KEY])
    described.pop("checksum", None)
    described["version"] = 1
    (header or (lambda d: None))(described)
    (tensors or (lambda d: None))(content)
    save_file(content, path, metadata={models.KEY: json.dumps(described)})


def test_a_newer_version_is_refused(saved):
    rewrite(saved, header=lambda d: d.update(version=99))
    with pytest.raises(dl.ModelFileError, match="version 99 of the format, this program knows up to 2; update"):
        dl.load_model(saved)


@pytest.mark.parametrize(
    ("header", "tensors", "message"),
    [
        (None, lambda t: t.update(noise_var=-t["noise_var"]), "noise_var: expected positive"),
        (None, lambda t: t.update(noise_var=np.ones(5, np.float32)), r"prior: expected 20 elements.*got 16"),
        (None, lambda t: t.pop("light_mean"), "no tensor 'light_mean'"),
        (None, lambda t: t.update(stray=np.ones(2, np.float32)), r"do not belong to it: \['stray'\]"),
        (None, lambda t: t.update({"prior.albedo.weights": np.ones((4, 9), np.float32)}), r"expected shape \(4, 3\)"),
        (lambda d: d.update(shape=[3, 3]), None, "expected 4 pixels, as the parameters have, got 3×3"),
        (lambda d: d.update(preset="magic"), None, "unknown preset 'magic'"),
        (lambda d: d.update(prior={"kind": "os.system"}), None, "os.system"),
        (lambda d: d.pop("shape"), None, "shape"),
        (lambda d: d.update(prior=3), None, "consistent"),
        (lambda d: d.update(shape=[-2, -2]), None, "expected 4 pixels, as the parameters have, got -2×-2"),
        (lambda d: d.update(version=[]), None, "consistent"),
    ],
)
def test_wrong_contents_are_refused(saved, header, tensors, message):
    rewrite(saved, header, tensors)
    with pytest.raises(dl.ModelFileError, match=message) as caught:
        dl.load_model(saved)
    assert str(saved) in str(caught.value)


def test_a_changed_bit_is_noticed_and_files_of_before_are_read(saved):
    whole = saved.read_bytes()
    rewrite(saved)
    dl.load_model(saved)  # without a checksum
    for version in (2, True, 0, 1.5):
        rewrite(saved, header=lambda d, version=version: d.update(version=version))
        with pytest.raises(dl.ModelFileError, match="expected a checksum, got none"):
            dl.load_model(saved)
    saved.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(dl.ModelFileError, match="its checksum is not that of its contents"):
        dl.load_model(saved)
    save_file({"x": np.ones(1)}, saved, metadata={models.KEY: '{"a":' * 10_000 + "1" + "}" * 10_000})
    with pytest.raises(dl.ModelFileError, match="nested without end"):
        dl.load_model(saved)


def test_foreign_files_are_refused(tmp_path):
    save_file({"x": np.ones(3, np.float32)}, tmp_path / "other")
    with pytest.raises(dl.ModelFileError, match="something else"):
        dl.load_model(tmp_path / "other")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"model": 1}))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("not a model")
    for name in ("pickle", "empty", "text"):
        with pytest.raises(dl.ModelFileError, match="damaged or foreign"):
            dl.load_model(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="found nothing"):
        dl.load_model(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="found a folder"):
        dl.load_model(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_never_gives_anything_but_the_one_error(saved, data):
    """Truncated anywhere, or with a byte of its header changed: a ModelFileError, or a model that passes its checks."""
    whole = saved.read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
        must_fail = True
    else:
        at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
        damaged, must_fail = whole[:at] + bytes([value]) + whole[at + 1 :], False
    path = saved.with_name("damaged")
    path.write_bytes(damaged)
    try:
        model = dl.load_model(path)
    except dl.ModelFileError:
        return
    assert not must_fail
    model.params.validate()


def test_a_failed_write_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        build("joint").save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_atomic_write_leaves_nothing_half_done(tmp_path):
    def interrupted() -> None:
        with files.atomic_write(tmp_path / "file") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
