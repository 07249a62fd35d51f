"""What was traced is traced once, and only for what it was traced for."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep_lambertian.inference import chain
from deep_lambertian.support import compiled

LOG: list[str] = []


@jax.jit
def twice(x):
    LOG.append("traced")
    return {"twice": 2 * x}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of this test's own, and a process that has traced nothing yet."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    forget(monkeypatch)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def forget(monkeypatch):
    monkeypatch.setattr(compiled, "_programs", {})
    jax.clear_caches()
    LOG.clear()


@pytest.mark.parametrize("quick", [False, True])
def test_a_program_is_traced_once_for_all_processes(folder, monkeypatch, quick):
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(compiled.program(twice, x, quick=quick)(x)["twice"], 2 * x)
    assert LOG == ["traced"]
    assert [path.name.startswith("traced-") for path in folder.iterdir()].count(True) == 1
    forget(monkeypatch)
    again = compiled.program(twice, x, quick=quick)
    np.testing.assert_array_equal(again(x + 1)["twice"], 2 * x + 2)
    assert again.shapes["twice"].shape == (3,)
    assert LOG == []


def test_other_shapes_types_and_settings_are_other_programs(folder, monkeypatch):
    x = np.arange(3, dtype=np.float32)
    compiled.program(twice, x)
    for other in (np.arange(4, dtype=np.float32), np.arange(3, dtype=np.int32)):
        LOG.clear()
        np.testing.assert_array_equal(compiled.program(twice, other)(other)["twice"], 2 * other)
        assert LOG == ["traced"]
    forget(monkeypatch)
    monkeypatch.setattr(compiled, "_code", lambda: "another version")
    compiled.program(twice, x)
    assert LOG == ["traced"]


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_written_anew(folder, monkeypatch, damage):
    x = np.arange(3, dtype=np.float32)
    compiled.program(twice, x)
    (path,) = folder.glob("traced-*")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    forget(monkeypatch)
    np.testing.assert_array_equal(compiled.program(twice, x)(x)["twice"], 2 * x)
    assert LOG == ["traced"]
    assert len(path.read_bytes()) == len(whole)


def test_a_folder_that_is_none_does_not_matter(folder, monkeypatch):
    (folder / "file").write_text("not a folder")
    jax.config.update("jax_compilation_cache_dir", str(folder / "file"))
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        x = np.ones(2, np.float32)
        np.testing.assert_array_equal(compiled.program(twice, x)(x)["twice"], 2 * x)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)


def test_donated_memory_is_used(folder):
    add = jax.jit(lambda x, y: x + y)
    x, y = jnp.ones(1000), jnp.ones(1000)
    total = compiled.program(add, x, y, donated=1)(x, y)
    assert y.is_deleted()
    assert not x.is_deleted()
    np.testing.assert_array_equal(total, 2)


def test_compiled_quickly_or_well_it_is_the_same_chain(small, monkeypatch):
    """Where the tests themselves compile quickly, both are one program; `make test` runs this as users do, too."""
    images = small.sample(1, images=2, seed=3).images[0]
    found = {}
    for short in (chain.SHORT, 0):
        monkeypatch.setattr(chain, "SHORT", short)
        monkeypatch.setattr(compiled, "_programs", {})
        found[short] = small.infer(images, iterations=6)
        texts = [program._compiled.as_text() for program in compiled._programs.values()]
        found[short, "text"] = sorted(texts)
    np.testing.assert_allclose(found[0].albedo, found[1000].albedo, rtol=1e-3)
    np.testing.assert_allclose(found[0].lights, found[1000].lights, rtol=1e-3, atol=1e-4)
    if not os.environ.get("XLA_FLAGS"):
        assert found[0, "text"] != found[1000, "text"]
