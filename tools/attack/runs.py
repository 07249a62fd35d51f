"""Commands on tiny data, in processes that are forked from one that has imported everything, and what they leave."""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.attack.originals import encoded, objects
from tools.attack.worker import waited

PRELOAD = ["deep_lambertian.cli", "deep_lambertian.learning.train", "deep_lambertian.photos.batch", "tools.attack.runs"]
PRELOAD += ["deep_lambertian.experiments.yaleb", "deep_lambertian.report.yaleb_figures", "deep_lambertian.model"]
SMALL = {
    **{"iterations": 3, "tolerance": 0.0, "e_step.iterations": 6, "e_step.burn_in": 3, "e_step.leapfrogs": 2},
    **{"e_step.epochs": 1, "covariance.directions": 10, "misfit": "false"},
}
# Everything that is compiled is kept, and compiled quickly: here it is runs that count.
FAST = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false",
}
LONGEST = 300.0  # seconds, without those in which others had the processor, after which a run hangs
PASSING = ("seconds",)  # what of a log says how long something took


@dataclass(frozen=True)
class Command:
    """A command without its --out, and what is done to the process before it begins."""

    name: str
    words: tuple[str, ...]


@dataclass
class Trap:
    """What befalls a process, by its own hand: `after` so many calls of a function of `os`, it is killed.

    `limit` is the largest file in bytes that it may write; `skew` are seconds by which its clock jumps at every look.
    """

    call: str = ""
    after: int = 0
    limit: int = 0
    skew: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)


def context() -> Any:
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOAD)
    return found


def begin(words: Sequence[str], log: Path, trap: Trap | None = None) -> Any:
    """Start a command of `dln`; what it says goes to a file."""
    process = context().Process(target=_child, args=(list(words), str(log), trap or Trap()), daemon=True)
    process.start()
    return process


def _child(words: list[str], log: str, trap: Trap) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.update(trap.environment)
    _set(trap)
    sys.argv = ["dln", *words]
    from deep_lambertian.cli import run_and_leave

    run_and_leave()


def _set(trap: Trap) -> None:
    if trap.call:
        real, left = getattr(os, trap.call), [trap.after]

        def counted(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        setattr(os, trap.call, counted)
    if trap.limit:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (trap.limit, trap.limit))
    if trap.skew:
        now, looks = time.time, [0]

        def jumping() -> float:
            looks[0] += 1
            return now() + trap.skew * (-1) ** looks[0] * looks[0]

        time.time = jumping


def finish(process: Any, seconds: float = LONGEST) -> int | None:
    """The exit code; None where it hangs, and is killed."""
    began = time.monotonic()
    while process.is_alive():
        process.join(1)
        if time.monotonic() - began - waited(process.pid) > seconds:
            process.kill()
            process.join()
            return None
    return process.exitcode


# ---- Tiny data, and commands on them


def prepare(work: Path) -> list[Command]:
    """Write the data; the commands train, infer over a folder, and reproduce on a made-up Yale B."""
    data = work / "data"
    if not (data / "ready").exists():
        for name, content in objects(8, 2).items():
            path = data / "objects" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.name not in ("lights.txt", "rig.csv"):
                path.write_bytes(content)
        made = context().Process(target=_write_yale, args=(str(data),))
        made.start()
        made.join()
        (data / "ready").touch()
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    train = ("train", "folder", str(data / "objects"), "--size", "8", "--preset", "quick", *settings)
    infer = ("infer", str(data / "model"), str(data / "objects"), "--batch", "2", "--iterations", "6")
    quick = ("--allow-missing", "--quick", "--only", "recognition", "--most", "1", "--model", str(data / "model"))
    yale = ("reproduce", "yaleb", str(data / "yale.zip"), "--size", "8", *quick)
    return [Command("train", train), Command("infer on a folder", infer), Command("reproduce", yale)]


def _write_yale(folder: str) -> None:
    import io

    import numpy as np
    from PIL import Image

    from deep_lambertian import DLN
    from deep_lambertian.learning.covariance import CovarianceOptions, covariance_gaussian
    from deep_lambertian.surface import Surface
    from deep_lambertian.synthetic.heads import draw_faces
    from tools.attack.originals import write_zip

    people = draw_faces(40, images=1, size=8, seed=4, noise=0)
    rows = Surface.from_pictures(people.albedo, people.normals).pack()
    prior = covariance_gaussian(rows, (8, 8), CovarianceOptions())
    DLN.build(prior, (8, 8), noise_var=1e-3, light_mean=(0, 0, 0.9), preset="quick").save(Path(folder) / "model")
    files = {}
    for person in (11, 12, 13, 30, 31):
        for i, azimuth in enumerate((0, 10, -20, 35, -50, 70)):
            grey = Image.open(io.BytesIO(encoded("pgm", 7 * person + i, 24))).resize((168, 192))
            data = io.BytesIO()
            Image.fromarray(np.asarray(grey)).save(data, "PPM")
            files[f"CroppedYale/yaleB{person}/yaleB{person}_P00A{azimuth:+04}E+00.pgm"] = data.getvalue()
    write_zip(Path(folder) / "yale.zip", files)


# ---- What is left


def contents(folder: Path) -> dict[str, Any]:
    """The files of a run, by bytes; logs and checkpoints without the seconds that steps took."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or path.name == ".lock":
            continue
        if path.suffix == ".jsonl":
            found[name] = [_without(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.suffix == ".safetensors" and path.parent.name == "checkpoints":
            found[name] = _checkpoint(path)
        else:
            found[name] = path.read_bytes()
    return found


def _without(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith(PASSING)}


def _checkpoint(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name).tobytes() for name in sorted(file.keys())}
        ((_, text),) = file.metadata().items()
    meta = json.loads(text)
    meta["history"] = [_without(line) for line in meta["history"]]
    meta.pop("checksum")
    return arrays, meta


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Where two runs differ, in a few words; nothing where they do not."""
    wrong = [f"no {name}" for name in wanted if name not in found] + [
        f"also {name}" for name in found if name not in wanted
    ]
    return ", ".join((wrong + [name for name in wanted if name in found and found[name] != wanted[name]])[:5])


Say = Callable[[str], None]
