"""Work that can be resumed: what is there is not made again, and what belongs to something else is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from deep_lambertian.support.run_folder import KEY, RunFolder, differences


def test_a_stage_is_made_once(tmp_path):
    made = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"x": np.arange(3)}

    for _ in range(2):
        found = RunFolder(tmp_path, "experiment", {"seed": 0}).arrays("stage", make)
        np.testing.assert_array_equal(found["x"], [0, 1, 2])
    assert len(made) == 1
    with pytest.raises(ValueError, match=r"another run: seed was 0, now 1; go on .* another folder, .*--restart"):
        RunFolder(tmp_path, "experiment", {"seed": 1})
    RunFolder(tmp_path, "experiment", {"seed": 1}, restart=True).arrays("stage", make)
    assert len(made) == 2


def test_figures_are_the_same_whether_made_or_read(tmp_path):
    folder = RunFolder(tmp_path, "experiment", {})
    first = folder.figures("stage", lambda: {"1": (2, 3.5)})
    assert first == folder.figures("stage", lambda: pytest.fail("made again")) == {"1": [2, 3.5]}


def test_results_of_nobody_knows_what_are_refused(tmp_path):
    RunFolder(tmp_path, "batch", {"a": 1}).figures("stage", dict)
    place = tmp_path / "batch.json"
    place.write_text("{")
    with pytest.raises(ValueError, match=r"a batch\.json that cannot be read .*--restart"):
        RunFolder(tmp_path, "batch", {"a": 1})
    place.write_text('{"a":' * 700 + "1" + "}" * 700)
    with pytest.raises(ValueError, match=r"a batch\.json that cannot be read|another run"):
        RunFolder(tmp_path, "batch", {"a": 1})
    place.unlink()
    with pytest.raises(ValueError, match=r"holds results, but no batch\.json that says"):
        RunFolder(tmp_path, "batch", {"a": 1})
    RunFolder(tmp_path, "batch", {"a": 2}, restart=True)
    RunFolder(tmp_path, "batch", {"a": 3})  # nothing was computed: there is nothing to mix up
    assert json.loads(place.read_text()) == {"a": 3}


def test_other_files_are_results_too(tmp_path):
    result = tmp_path / "thing" / "albedo.png"
    RunFolder(tmp_path, "batch", {"a": 1}, results=[result])
    result.parent.mkdir()
    result.touch()
    with pytest.raises(ValueError, match="a was 1, now 2"):
        RunFolder(tmp_path, "batch", {"a": 2}, results=[result])
    RunFolder(tmp_path, "batch", {"a": 2}, results=[result], restart=True)
    assert not result.exists()


def test_checkpoints_rotate_and_damaged_ones_are_passed_over(tmp_path):
    folder = RunFolder(tmp_path, "training", {})
    assert folder.latest_checkpoint(lambda *found: found) is None
    for step in range(1, 6):
        folder.save_checkpoint(step, {"x": np.full(3, step)}, {"step": step})
    assert [p.name for p in folder.checkpoints()] == [f"step-{s:06}.safetensors" for s in (3, 4, 5)]
    newest = folder.checkpoints()[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    with pytest.warns(UserWarning, match="a damaged checkpoint is passed over"):
        found = folder.latest_checkpoint(lambda *found: found)
    assert found is not None
    assert (found[0], found[2]) == (4, {"step": 4})
    np.testing.assert_array_equal(found[1]["x"], 4)


@pytest.mark.parametrize("damage", ["a bit", "another step", "a list", "no description", "refused"])
def test_a_checkpoint_that_is_another_is_passed_over(tmp_path, damage):
    folder = RunFolder(tmp_path, "training", {})
    for step in (1, 2):
        folder.save_checkpoint(step, {"x": np.full(3, float(step))}, {"iteration": step})
    newest = folder.checkpoints()[-1]
    if damage == "a bit":
        newest.write_bytes(newest.read_bytes()[:-1] + b"\x41")  # another number, which is as good as any
    elif damage == "another step":
        newest.rename(newest.with_name("step-000009.safetensors"))
    elif damage != "refused":
        save_file({"x": np.ones(3)}, newest, {KEY: "[1, 2]"} if damage == "a list" else None)

    def restore(step, arrays, meta):
        if damage == "refused" and step == 2:
            raise ValueError("no such iteration")
        return meta["iteration"], arrays["x"].tolist()

    with pytest.warns(UserWarning, match="a damaged checkpoint is passed over"):
        assert folder.latest_checkpoint(restore) == (1, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_a_damaged_stage_is_made_again(tmp_path, suffix):
    folder = RunFolder(tmp_path, "experiment", {})
    ask = {
        "npz": lambda: folder.arrays("stage", lambda: {"x": np.arange(3)})["x"].tolist(),
        "json": lambda: folder.figures("stage", lambda: {"x": [0, 1, 2]})["x"],
    }[suffix]
    assert ask() == [0, 1, 2]
    stage = tmp_path / "stages" / f"stage.{suffix}"
    if suffix == "json":
        changed = stage.read_bytes().replace(b"2", b"3", 1)
    else:
        np.savez_compressed(tmp_path / "other.npz", x=np.arange(3) + 1)
        changed = (tmp_path / "other.npz").read_bytes()
    for damaged in (b"{", b"[1, 2]", changed):
        stage.write_bytes(damaged)
        with pytest.warns(UserWarning, match="a damaged stage is made again"):
            assert ask() == [0, 1, 2]
        assert ask() == [0, 1, 2]


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("deep_lambertian.support.distributed.is_first", lambda: False)
    folder = RunFolder(tmp_path / "out", "training", {"a": 1})
    folder.save_checkpoint(1, {}, {})
    assert folder.figures("stage", lambda: {"x": 1}) == {"x": 1}
    assert folder.arrays("stage", lambda: {"x": np.ones(1)})["x"] == 1
    assert not (tmp_path / "out").exists()


def test_processes_that_were_started_with_other_settings_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("deep_lambertian.support.distributed.collect", lambda value: [value, value | {"a": {"b": 2}}])
    with pytest.raises(ValueError, match=r"got process 1 unlike process 0: a\.b was 1, now 2"):
        RunFolder(tmp_path, "training", {"a": {"b": 1}})


def test_differences_are_named_by_their_place():
    before, after = {"a": {"b": "none", "c": 1}, "d": [1]}, {"a": {"b": {"e": 2.5}, "c": 1}, "d": [1] * 99}
    found = differences(before, after)
    assert found[:2] == ["a.b.e was unset, now 2.5", f"d was [1], now {json.dumps([1] * 99)[:100]}…"]
    assert found[2:] == ['a.b was "none", now unset']
    assert differences(before, before) == []


HOLD = """
import sys, time
from deep_lambertian.support.run_folder import RunFolder
folder = RunFolder(sys.argv[1], "training", {"a": 1})
print("mine", flush=True)
time.sleep(60)
"""


def test_a_second_run_is_told_who_is_at_work_and_takes_over_from_the_dead(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(OSError, match=rf"another run is at work there \(process {holder.pid} on .*, since .*: -c"):
        RunFolder(tmp_path, "training", {"a": 1})
    holder.kill()
    holder.communicate()
    RunFolder(tmp_path, "training", {"a": 1})


def test_what_killed_runs_left_half_written_is_swept(tmp_path):
    RunFolder(tmp_path, "training", {"a": 1})
    left = [tmp_path / ".log.abcd1234.part", tmp_path / "deep" / "er" / ".x.png.a_cd1234.part"]
    others = [tmp_path / "mine.part", tmp_path / ".note", tmp_path / "another" / ".log.abcd1234.part"]
    for path in (*left, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    (tmp_path / ".me.abcdefgh.part").mkdir()
    RunFolder(tmp_path / "another", "batch", {})  # which may be at work
    (tmp_path / "another" / ".log.abcd1234.part").write_text("half")
    RunFolder(tmp_path, "training", {"a": 1})
    assert not any(path.exists() for path in (*left, tmp_path / ".me.abcdefgh.part"))
    assert all(path.exists() for path in others)


def test_a_run_killed_as_it_first_says_what_it_is_leaves_nothing(tmp_path):
    (tmp_path / ".training.json.0123abcd.part").write_text("{")
    RunFolder(tmp_path, "training", {"a": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "training.json"]


def test_what_looks_half_written_in_somebody_elses_folder_stays(tmp_path):
    (tmp_path / ".log.abcd1234.part").write_text("half")
    RunFolder(tmp_path, "training", {"a": 1})
    assert (tmp_path / ".log.abcd1234.part").exists()
