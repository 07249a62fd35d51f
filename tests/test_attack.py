"""The attack finds what is planted: a loader with an odd error, one that reads something else, one that never ends."""

import random
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tools.attack import bad_bytes, by_hand, coverage, jobs, kills, quarrels, runs, studio, uploads, worker
from tools.attack.formats import FORMATS, Format, attempt, digest
from tools.attack.originals import objects, write_originals, write_zip
from tools.attack.tally import CLEAN, HANG, TRACEBACK, UNHARMED, WRONG, Tally
from tools.attack.worker import Catalogue, mutated

SOUND = b"a sound file, of some forty bytes or so"


def odd(path: Path) -> bytes:
    if path.read_bytes() != SOUND:
        raise KeyError("odd")
    return SOUND


def careless(path: Path) -> bytes:
    return path.read_bytes()


def careful(path: Path) -> bytes:
    if path.read_bytes() != SOUND:
        raise ValueError("damaged")
    return SOUND


def endless(path: Path) -> bytes:
    if path.read_bytes() != SOUND:
        time.sleep(3600)
    return SOUND


def quick_formats() -> dict[str, Format]:
    return {each.__name__: Format(each.__name__, "", each, sealed=True) for each in (odd, careless, careful)}


def endless_formats() -> dict[str, Format]:
    return {"endless": Format("endless", "", endless, sealed=True)}


def write(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("odd", "careless", "careful", "endless")
    for name in names:
        (folder / name).write_bytes(SOUND)
    return {name: folder / name for name in names}


def write_quick(folder: Path) -> dict[str, Path]:
    return {name: path for name, path in write(folder).items() if name != "endless"}


def write_endless(folder: Path) -> dict[str, Path]:
    return {"endless": write(folder)["endless"]}


def attack(folder: Path, catalogue: Catalogue, seconds: float = 600.0, most: int = 1) -> Tally:
    tally = Tally()
    quiet = lambda _: None
    bad_bytes.run(tally, 0, seconds, folder, most=most, catalogue=catalogue, hand_made=False, say=quiet)
    return tally


def test_planted_errors_and_other_results_are_found(tmp_path):
    tally = attack(tmp_path, Catalogue(quick_formats, write_quick))
    assert tally.counts["odd"][TRACEBACK] > 50
    assert tally.counts["careless"][WRONG] > 50
    assert tally.counts["careful"][CLEAN] > 50
    assert not tally.counts["careful"][TRACEBACK] + tally.counts["careful"][WRONG]
    assert any("KeyError: 'odd'" in line for line in tally.defects)
    assert "| odd " in tally.table()
    kept = next((tmp_path / "found").glob("odd-*"))  # what showed a defect is put aside, and shows it again
    number = int(kept.name.rpartition("-")[2])
    assert kept.read_bytes() == mutated(quick_formats()["odd"], SOUND, 0, number)
    assert attempt(quick_formats()["odd"], kept, digest(SOUND))[0] == TRACEBACK


def test_a_planted_hang_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "LONGEST", 1.0)
    tally = attack(tmp_path, Catalogue(endless_formats, write_endless), seconds=1)
    assert tally.counts["endless"][HANG] >= 1


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_seed_mutates_in_the_same_way(name):
    form, data = FORMATS[name], b"PK" + bytes(range(200))
    form = Format(form.name, form.suffix, form.read, form.sealed)
    assert [mutated(form, data, 3, i) for i in range(20)] == [mutated(form, data, 3, i) for i in range(20)]


def test_hand_made_archives_are_refused_or_read_without_harm(tmp_path):
    """Those that take no seconds; the campaign tries all of them."""
    for i, (name, suffix, data) in enumerate((*by_hand._names(), *by_hand._links(), *by_hand._lies())):
        path = tmp_path / f"{i}{suffix}"
        path.write_bytes(data)
        outcome, told = attempt(FORMATS[f"objects {suffix[1:]}"], path, "")
        assert outcome in (CLEAN, UNHARMED), (name, suffix, told)


def test_what_differs_between_runs_is_named(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same").write_bytes(b"1")
        (tmp_path / name / "log.jsonl").write_text(f'{{"x": 1, "seconds_e_step": {len(name) + ord(name)}}}\n')
    assert runs.difference(runs.contents(tmp_path / "a"), runs.contents(tmp_path / "b")) == ""
    (tmp_path / "b" / "same").write_bytes(b"2")
    (tmp_path / "b" / "more").write_bytes(b"2")
    assert runs.difference(runs.contents(tmp_path / "b"), runs.contents(tmp_path / "a")) == "also more, same"


def test_faults_between_processes_are_of_all_kinds():
    names = {fault.name for fault in quarrels.faults(random.Random(0))}
    assert {"killed in work", "told to end in work", "late", "too late", "another seed", "strangers"} <= names
    assert {"fsync", "replace"} <= set(kills.MOMENTS)


def test_files_of_objects_make_an_archive_that_is_read(tmp_path):
    write_zip(tmp_path / "o.zip", objects())
    assert FORMATS["objects zip"].read(tmp_path / "o.zip").shape == (3, 3, 8, 8)


def test_the_attack_led_by_coverage_says_that_it_is_skipped_without_atheris(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "find_spec", lambda _: None)
    tally = Tally()
    coverage.run(tally, 0, 600, tmp_path)
    assert tally.notes == ["coverage: skipped (atheris is not installed: pip install atheris)"]
    assert not tally.defects


def test_the_attack_led_by_coverage_reads_and_is_over_in_time(tmp_path):
    pytest.importorskip("atheris")
    write_originals(tmp_path / "originals")
    tally = Tally()
    coverage._drive(tally, "lights txt", 0, 3, tmp_path)
    assert tally.counts["coverage: lights txt"].total() > 100
    assert not tally.defects


@pytest.mark.parametrize(("code", "outcome"), [(500, TRACEBACK), (415, CLEAN), (200, UNHARMED)])
def test_what_a_studio_answers_is_judged(code, outcome):
    assert uploads.judge(SimpleNamespace(), httpx.Response(code, text="words"))[0] == outcome


@pytest.mark.parametrize(("text", "outcome"), [("it shows nothing", CLEAN), ("", WRONG)])
def test_a_job_of_a_studio_fails_with_a_word(text, outcome):
    served = SimpleNamespace(ended=lambda name: {"state": "failed", "text": text})
    assert uploads.judge(served, httpx.Response(202, json={"id": "a"}))[0] == outcome


def test_what_a_killed_studio_keeps_is_whole(tmp_path):
    siege = studio.Siege.__new__(studio.Siege)
    siege.wanted = [{"a.png": b"one"}, {"a.png": b"two"}]
    (tmp_path / "job" / "files").mkdir(parents=True)
    kept = tmp_path / "job" / "files" / "a.png"
    kept.write_bytes(b"two")
    assert siege.halves(tmp_path) == []
    kept.write_bytes(b"tw")
    assert siege.halves(tmp_path) == [f"half of {kept}"]


def test_memory_that_grows_is_seen():
    assert jobs.compared([*range(50, 100), *[100] * 50, *[101] * 50])[1] == pytest.approx(0.01)
    assert jobs.compared(list(range(1000, 1300)))[1] > 0.05
