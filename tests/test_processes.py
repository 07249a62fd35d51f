"""One process, two devices and two processes find the same; a peer that dies ends the run, which then goes on."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from PIL import Image

from deep_lambertian import Posterior, load_model
from deep_lambertian.support import distributed
from test_learning import ENVIRONMENT, NET, command

SETTINGS = NET | {
    "prior": "separate",
    "start": "random",
    "rows": "samples",
    "e_step.iterations": 4,
    "e_step.burn_in": 2,
    "keep": 2,
    "held_out": 1,
}
TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(out: Path, settings: dict, log: Path, *more: str, **environment: str) -> subprocess.Popen:
    with log.open("w") as file:
        return subprocess.Popen(
            [*command(out, settings), *more], env=ENVIRONMENT | environment, stdout=subprocess.DEVNULL, stderr=file
        )


def start_two(out: Path, settings: dict, logs: Path) -> list[subprocess.Popen]:
    address = f"127.0.0.1:{free_port()}"
    common = ("--coordinator", address, "--processes", "2", "--process-id")
    return [start(out, settings, logs / f"two-{i}.log", *common, str(i)) for i in range(2)]


def numbers(out: Path) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(load_model(out / "model.safetensors").params)]


@pytest.mark.slow  # minutes of compiling; continuous integration runs it all the same
def test_one_process_two_devices_and_two_processes_learn_the_same(tmp_path):
    runs = {
        "one": [start(tmp_path / "one", SETTINGS, tmp_path / "one.log")],
        "devices": [start(tmp_path / "devices", SETTINGS, tmp_path / "devices.log", **TWO_DEVICES)],
    }
    for started in runs.values():
        assert started[0].wait(timeout=400) == 0, [log.read_text() for log in tmp_path.glob("*.log")]
    two = start_two(tmp_path / "two", SETTINGS, tmp_path)
    for process in two:
        assert process.wait(timeout=400) == 0, [log.read_text() for log in tmp_path.glob("two*.log")]
    for a, b, c in zip(*(numbers(tmp_path / run) for run in ("one", "devices", "two")), strict=True):
        scale = np.abs(a).max() + 1e-6
        np.testing.assert_allclose(b, a, atol=2e-3 * scale)
        np.testing.assert_allclose(c, a, atol=2e-3 * scale)


def kill_one(two: list[subprocess.Popen], where: Path, sign: str) -> None:
    """Kill the second process as soon as there is a file that shows that work is under way; the first one ends too."""
    deadline = time.monotonic() + 200
    while not list(where.glob(sign)) and time.monotonic() < deadline:
        time.sleep(0.02)
    two[1].send_signal(signal.SIGKILL)
    died = time.monotonic()
    assert two[0].wait(timeout=100) != 0
    assert time.monotonic() - died < 30
    two[1].wait()


@pytest.mark.slow
def test_a_peer_that_dies_ends_the_run_everywhere_and_one_process_goes_on(tmp_path):
    settings = SETTINGS | {"iterations": 400, "tolerance": 0.0}
    two = start_two(tmp_path / "run", settings, tmp_path)
    kill_one(two, tmp_path / "run" / "checkpoints", "step-*")
    errors = (tmp_path / "two-0.log").read_text()
    assert "another process has died" in errors or "another task died" in errors, errors
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    done = len(lines)
    assert done
    alone = start(tmp_path / "run", settings, tmp_path / "alone.log")
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
        if len(lines) > done + 1:
            break
        time.sleep(0.1)
    alone.kill()
    alone.wait()
    assert [json.loads(line)["iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) > done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("started", "message"),
    [
        ({0: 2}, "no process 1 came within 20 s; start all 2 together"),
        ({1: 2}, "no process 0 answered there within 20 s; start all 2 together"),
        ({0: 2, 1: 3}, "process 1 was started with --processes 3, process 0 with --processes 2"),
        ({0: 3, 1: 2}, "process 1 was started with --processes 2, process 0 with --processes 3"),
    ],
)
def test_processes_that_do_not_meet_end_in_a_sentence(tmp_path, started, message):
    """`started` has, by process, how many it believes there are."""
    common, began = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes"), time.monotonic()
    logs = {i: tmp_path / f"{i}.log" for i in started}
    each = [
        start(tmp_path / "run", SETTINGS, logs[i], *common, str(count), "--process-id", str(i))
        for i, count in started.items()
    ]
    for process, log in zip(each, logs.values(), strict=True):
        assert process.wait(timeout=60) == 1
        assert message in log.read_text()
        assert len(log.read_text().splitlines()) == 1
    assert time.monotonic() - began < 40  # of which some is Python's start


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"--coordinator 127.0.0.1:{port}: cannot listen at this port"):
            distributed.initialise(f"127.0.0.1:{port}", 2, 0)


@pytest.mark.slow
def test_a_process_that_is_told_to_end_does_so_and_the_other_too(tmp_path):
    two = start_two(tmp_path / "run", SETTINGS | {"iterations": 400, "tolerance": 0.0}, tmp_path)
    deadline = time.monotonic() + 200
    while not list((tmp_path / "run" / "checkpoints").glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    two[1].send_signal(signal.SIGTERM)
    assert two[1].wait(timeout=10) == -signal.SIGTERM
    assert two[0].wait(timeout=30) != 0
    assert "if one dies, all stop within 30 s" in (tmp_path / "two-0.log").read_text()


UNLIKE = """
import sys
import deep_lambertian as dl
from deep_lambertian.support import distributed
from deep_lambertian.synthetic.heads import make_faces
process = int(sys.argv[2])
distributed.initialise(sys.argv[1], 2, process)
try:
    if sys.argv[3] == "infer":
        dl.DLN.random((8, 8), (4,), (4,)).infer([[0.5] * 8] * 8, seed=process)
    else:
        faces = make_faces(size=8)
        dl.train(faces.objects(faces.names[: 6 + process * (sys.argv[3] == "data")]), dl.Config(seed=process))
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["seed", "data", "infer"])
def test_processes_that_compute_unlike_things_are_told_so(what):
    address = f"127.0.0.1:{free_port()}"
    each = [
        subprocess.Popen([sys.executable, "-c", UNLIKE, address, str(i), what], stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    for process in each:
        said, _ = process.communicate(timeout=100)
        assert "got process 1 unlike process 0" in said
        assert "seed was 0, now 1" in said


def infer(where: Path, out: str, iterations: int, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "deep_lambertian.cli", "infer", str(where / "model"), str(where / "objects")]
    arguments = ["--out", str(where / out), "--batch", "4", "--iterations", str(iterations), "--linear", *more]
    with (where / f"{out}{more[-1] if more else ''}.log").open("w") as file:
        return subprocess.Popen([*command, *arguments], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=file)


def infer_two(where: Path, out: str, iterations: int) -> list[subprocess.Popen]:
    common = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2", "--process-id")
    return [infer(where, out, iterations, *common, str(i)) for i in range(2)]


def write_objects(where: Path, small, count: int) -> None:
    small.save(where / "model")
    for i, images in enumerate(small.sample(count, images=2, seed=1, iterations=6).images):
        (where / "objects" / f"{i:03d}").mkdir(parents=True)
        for p, image in enumerate(images):
            picture = Image.fromarray(np.round(255 * np.clip(image, 0, 1)).astype(np.uint8))
            picture.save(where / "objects" / f"{i:03d}" / f"{p}.png")


@pytest.mark.slow
def test_two_processes_infer_a_folder_as_one_does(tmp_path, small):
    write_objects(tmp_path, small, 9)
    for process in (infer(tmp_path, "one", 6), *infer_two(tmp_path, "two", 6)):
        assert process.wait(timeout=200) == 0, [log.read_text() for log in tmp_path.glob("*.log")]
    one, two = tmp_path / "one", tmp_path / "two"
    assert (two / "summary.csv").read_text() == (one / "summary.csv").read_text()
    for path in sorted(one.glob("*/posterior.npz")):
        a, b = Posterior.load(path), Posterior.load(two / path.parent.name / path.name)
        np.testing.assert_allclose(b.normals, a.normals, atol=1e-4)
        np.testing.assert_allclose(b.lights, a.lights, atol=1e-4)


@pytest.mark.slow
def test_a_peer_that_dies_ends_inference_and_one_process_does_the_rest(tmp_path, small):
    write_objects(tmp_path, small, 48)
    iterations = 8000  # a batch takes about a second: there is time to kill in between
    two, out = infer_two(tmp_path, "out", iterations), tmp_path / "out"
    kill_one(two, out, "*/posterior.npz")
    errors = (tmp_path / "out0.log").read_text()
    assert "start them again, as many as you like, to do what is missing" in errors
    assert "another process has died" in errors or "another task died" in errors, errors
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/posterior.npz")}
    assert 0 < len(before) < 48
    assert not (out / "summary.csv").exists()
    assert infer(tmp_path, "out", iterations).wait(timeout=200) == 0, (tmp_path / "out.log").read_text()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len((out / "summary.csv").read_text().splitlines()) == 1 + 48


def test_what_fails_is_raised_once_where_there_is_one_process():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        distributed.together(fail)
    assert distributed.together(lambda: 3) == 3
    assert distributed.collect({"a": 1}) == [{"a": 1}]
    assert not distributed.is_shared(Mesh(np.array(jax.devices()), ("objects",)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("host:1", 2, None), "got no --process-id"),
        ((None, 2, 0), "got no --coordinator"),
        (("host:1", 2, 2), "--process-id: expected 0 to 1, got 2"),
        (("host", 2, 0), "--coordinator: expected HOST:PORT, got 'host'"),
        (("host:²", 2, 0), "--coordinator: expected HOST:PORT, got 'host:²'"),
        (("host:1", 10**20, 0), "--processes: expected 1 to 10000, got 100000000000000000000"),
        (("host:1", -2, 0), "--processes: expected 1 to 10000, got -2"),
    ],
)
def test_half_a_cluster_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        distributed.initialise(*arguments)


def test_one_process_needs_no_runtime(monkeypatch):
    for name in distributed.CLUSTER_SIZES:
        monkeypatch.delenv(name, raising=False)
    distributed.initialise()
    distributed.initialise("host:1", 1, 0)
    assert jax.process_count() == 1
