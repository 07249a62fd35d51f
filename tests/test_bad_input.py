"""What people do wrong with the commands: one clear line, an exit code that scripts can use, nothing half-written."""

import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deep_lambertian.cli import COMMANDS, main
from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.synthetic.portrait import draw_portrait

PROGRAM = [sys.executable, "-m", "deep_lambertian.cli"]


@pytest.fixture(scope="module")
def portrait(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "me.png"
    photo = linear_to_srgb(draw_portrait(0).photo)
    Image.fromarray(np.round(255 * photo).astype(np.uint8)).save(path)
    return path


def fails(capsys, *arguments: str, code: int = 1) -> str:
    """The one line that a command says when it refuses."""
    with pytest.raises(SystemExit) as stop:  # as the program itself ends
        sys.exit(main([str(each) for each in arguments]))
    assert stop.value.code == code
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.strip().splitlines()
    assert len(lines) == 1, told.err
    assert "Traceback" not in told.err
    return lines[0]


def grey(path: Path, size: tuple[int, int], value: int) -> Path:
    Image.new("RGB", size, (value, value, value)).save(path)
    return path


def test_no_arguments(capsys):
    assert "the following arguments are required: COMMAND; see dln --help" in fails(capsys, code=2)
    for command in COMMANDS:
        if command not in ("demo", "models", "cache", "studio"):  # which need none
            line = fails(capsys, command, code=2)
            assert line.startswith(f"dln {command}: the following arguments are required")
            assert f"see dln {command} --help" in line
    assert "invalid choice: 'dance'" in fails(capsys, "dance", code=2)


def test_missing_files(capsys, tmp_path, portrait):
    nothing = tmp_path / "nothing"
    for arguments in (
        ("infer", "yaleb24", f"{nothing}.jpg"),
        ("infer", "yaleb24", nothing),
        ("infer", f"{nothing}.safetensors", portrait, "--out", tmp_path / "out"),
        ("relight", nothing, "--light", "0,0,1"),
        ("recognize", "yaleb24", "--gallery", nothing, "--probe", nothing),
        ("train", "folder", nothing, "--out", tmp_path / "run"),
        ("data", "check", "folder", nothing),
        ("reproduce", "yaleb", f"{nothing}.zip", "--out", tmp_path / "run", "--quiet"),
    ):
        assert "nothing" in fails(capsys, *arguments)
    line = fails(capsys, "infer", "yaleb42", portrait, "--out", tmp_path / "out")
    assert "yaleb42: expected a model file or the name of a bundled model (faces48, yaleb24, yaleb48)" in line
    for alone in ("yaleb24", "yaleb42", "my-run/model.safetensors"):
        line = fails(capsys, "infer", alone, "--out", tmp_path / "out")
        assert line == f"dln infer: {alone}: expected a photo, or a model and photos, got no photo"
    assert "two.jpg: expected a photo, found nothing" in fails(capsys, "infer", "two.jpg", portrait)
    assert not (tmp_path / "out").exists()


def test_an_unreadable_model(capsys, tmp_path, portrait):
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(b"not a model at all")
    line = fails(capsys, "infer", broken, portrait, "--out", tmp_path / "out")
    assert "model.safetensors" in line
    assert "expected" in line
    assert not (tmp_path / "out").exists()


def test_photos_that_show_nothing(capsys, tmp_path):
    wall, night = grey(tmp_path / "wall.png", (90, 80), 128), grey(tmp_path / "night.png", (90, 80), 0)
    out = tmp_path / "out"
    assert "found none" in fails(capsys, "infer", "yaleb24", wall, "--out", out)
    assert "found none" in fails(capsys, "infer", "yaleb24", night, "--out", out)
    assert "black" in fails(capsys, "infer", "yaleb24", night, "--out", out, "--no-align")
    (tmp_path / "text.jpg").write_text("a photo, really")
    assert "expected an image" in fails(capsys, "infer", "yaleb24", tmp_path / "text.jpg", "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["night.png", "text.jpg", "wall.png"]


def test_twenty_photos_of_different_sizes(capsys, tmp_path):
    photos = [grey(tmp_path / f"{i}.png", (60 + i, 50), 100) for i in range(20)]
    line = fails(capsys, "infer", "yaleb24", *photos, "--out", tmp_path / "out")
    assert "expected images of one size, got '0.png' of 60×50 and '1.png' of 61×50" in line


def test_options_that_make_no_sense(capsys, tmp_path, portrait):
    common = ("infer", "yaleb24", portrait, "--out", tmp_path / "out")
    assert "expected LEFT,TOP,WIDTH,HEIGHT, got '1,2'" in fails(capsys, *common, "--box", "1,2")
    assert "--chains: expected a whole number from 1 to 1000, got '0'" in fails(
        capsys, *common, "--chains", "0", code=2
    )
    for option, value in {"--samples": "-1", "--chains": "100000000", "--seed": str(2**70)}.items():
        assert f"argument {option}: expected a whole number from" in fails(capsys, *common, option, value, code=2)
    for command in COMMANDS:
        words = (command, "check") if command == "data" else (command,)
        assert "argument --seed: expected a whole number" in fails(capsys, *words, "--seed", "-1", code=2)
    assert "iterations: expected a whole number" in fails(capsys, *common, "--iterations", "0")
    assert "--all-faces: expected one photo" in fails(capsys, *common, "--all-faces", "--no-align")
    assert "--mask: expected with photos only" in fails(
        capsys, "infer", "yaleb24", tmp_path, "--out", tmp_path / "out", "--mask", portrait
    )
    assert "--out: expected a folder" in fails(capsys, "infer", "yaleb24", tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(capsys, tmp_path, portrait):
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        fails(capsys, "infer", "yaleb24", portrait, "--out", out)
        fails(capsys, "demo", "--out", out)
    if Path("/proc/self").exists():  # where even root may not write
        line = fails(capsys, "infer", "yaleb24", portrait, "--out", "/proc/self/out")
        assert "expected a folder that can be written to" in line
    assert (tmp_path / "file").read_text() == "in the way"


def short(portrait: Path, out: Path) -> list[str]:
    options = ["--iterations", "8", "--chains", "1", "--samples", "0"]
    return [*PROGRAM, "infer", "yaleb24", str(portrait), "--out", str(out), *options]


def test_a_full_disk_leaves_nothing(tmp_path, portrait):
    """No file may grow beyond 100 kB: writing the report fails as on a full disk, in the middle."""
    limited = f"ulimit -f 200; exec {shlex.join(short(portrait, tmp_path / 'out'))}"  # in units of 512 bytes
    cache = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, env=os.environ | cache, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("dln infer: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# A shell starts its background jobs deaf to SIGINT: the test must not depend on where it is started from.
LISTENING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from deep_lambertian.cli import run_and_leave
run_and_leave()
"""


def test_an_interrupted_run_leaves_nothing(tmp_path, portrait):
    _, _, _, *arguments = [*short(portrait, tmp_path / "out"), "--iterations", "1000000"]
    running = subprocess.Popen([sys.executable, "-c", LISTENING, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(6)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "dln: interrupted" in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_without_colour_or_width(tmp_path, portrait):
    """A dumb terminal that says it is no columns wide: no escape sequences, and all goes well."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    done = subprocess.Popen(
        short(portrait, tmp_path / "out"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment | {"TERM": "dumb", "NO_COLOR": "1"},
    )
    os.close(follower)
    told = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        told += part
    os.close(leader)
    assert done.wait() == 0, told
    assert b"\x1b[" not in told
    assert b"report: " in told
