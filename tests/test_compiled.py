"""What was traced is traced once, and only for what it was traced for."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep_lambertian.cli import _warn, cache, keep_compilations, main
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


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_a_flipped_bit_anywhere_is_noticed(folder, monkeypatch, at):
    """StableHLO is parsed long after the file was read: only the checksum knows in time."""
    x = np.arange(3, dtype=np.float32)
    compiled.program(twice, x)
    (path,) = folder.glob("traced-*")
    whole = bytearray(path.read_bytes())
    whole[at * len(whole) // 100] ^= 4
    path.write_bytes(whole)
    forget(monkeypatch)
    np.testing.assert_array_equal(compiled.program(twice, x)(x)["twice"], 2 * x)
    assert LOG == ["traced"]
    assert path.read_bytes() != whole


def test_what_is_whole_but_of_no_use_is_traced_anew(folder, monkeypatch):
    x, y = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)
    compiled.program(twice, x)
    (path,) = folder.glob("traced-*")
    exported, once = compiled._lowered, []

    def fails_once(*arguments):
        once.append(path.exists())
        return exported(*arguments) if len(once) > 1 else pytest.fail.Exception  # no pair

    monkeypatch.setattr(compiled, "_lowered", fails_once)
    forget(monkeypatch)
    np.testing.assert_array_equal(compiled.program(twice, x)(x)["twice"], 2 * x)
    assert LOG == ["traced"]
    assert once == [True, True]
    assert compiled.program(twice, y)(y)["twice"].shape == (4,)


def test_the_cache_is_private_pruned_shown_and_cleared(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place, umask = tmp_path / "deep_lambertian" / "compiled", os.umask(0o000)
    try:
        keep_compilations()
    finally:
        os.umask(umask)
    assert os.environ.pop(cache.VARIABLE) == str(place)
    assert place.stat().st_mode & 0o777 == place.parent.stat().st_mode & 0o777 == 0o700
    for age, name in enumerate(("traced-b", "x-cache", "traced-a", "notes.txt")):
        (place / name).write_bytes(bytes(100))
        os.utime(place / name, (1000 - age, 1000 - age))
    assert cache.prune(place, most=200) == cache.Contents(str(place), 1, 100)
    assert sorted(path.name for path in place.iterdir()) == ["notes.txt", "traced-b", "x-cache"]  # the oldest went
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(place), "files": 2, "bytes": 200, "cleared": False}
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{place}: removed 2 files, 0.0 MB\n"
    assert [path.name for path in place.iterdir()] == ["notes.txt"]


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "deep_lambertian" / "compiled"
    place.mkdir(parents=True)
    place.chmod(0o775)
    keep_compilations()
    keep_compilations(quiet=True)
    assert "expected that nobody else may write there" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    place.chmod(0o700)
    place.parent.chmod(0o777)  # where it could be replaced as a whole
    keep_compilations()
    assert f"{place.parent}: expected that nobody else" in capsys.readouterr().err
    place.parent.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    keep_compilations()
    assert "expected a folder of your own" in capsys.readouterr().err
    assert cache.VARIABLE not in os.environ


def test_programs_that_jax_finds_damaged_are_removed(tmp_path, monkeypatch, capsys):
    """It would warn of them for ever, and compile anew every time."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    for name in ("jit_call-1-cache", "jit_call-2-cache", "jit_other-1-cache"):
        (tmp_path / name).write_bytes(b"damaged")
    _warn("Error reading persistent compilation cache entry for 'jit_call': error: Error -3 while decompressing")
    assert [path.name for path in tmp_path.iterdir()] == ["jit_other-1-cache"]
    _warn("another\nwarning")
    assert capsys.readouterr().err == "dln: another warning\n"


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
