"""A folder of work that can be resumed: what its results depend on, and what of them is there.

<kind>.json                            what the results depend on
stages/<name>.npz, stages/<name>.json  arrays and figures, each computed once
checkpoints/step-000012.safetensors    where an iteration stands; the last few are kept

Training, experiments and inference over folders keep their results so. Every file is whole or not there. With many
processes only the first one writes; all of them read. Of two runs the second is refused while the first is at work.
"""

import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from deep_lambertian.support import distributed
from deep_lambertian.support.archives import DAMAGE, describe
from deep_lambertian.support.files import (
    atomic_write,
    load_arrays,
    parse_header,
    save_arrays,
    with_checksum,
    without_checksum,
    write_json,
)
from deep_lambertian.support.settings import flat

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
CHECKPOINT = re.compile(r"step-(\d{6})\.safetensors")
KEY = "deep_lambertian checkpoint"
KEPT = 3  # checkpoints
STAGE = "deep_lambertian stage"
LOCK = ".lock"
PART = re.compile(r"\..+\.[a-z0-9_]{8}\.part")  # as `files.atomic_write` and `atomic_folder` name them
SHOWN, LONGEST = 5, 100  # differences that an error lists, and characters of each value


class Lock:
    """Keeps other processes' runs out of a folder for as long as it lives: a process that dies, however it does, leaves
    none behind. Its file says whose it is. A file system without locks is used without.
    """

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.read(self._handle, 1000).decode("utf-8", "replace").strip() or "it has not said whose"
            do = "wait until it has ended, or choose another folder"
            raise OSError(f"{folder}: another run is at work there ({who}); {do}") from error
        except OSError:
            pass
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        who = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now():%Y-%m-%d %H:%M:%S}: {command}"
        os.truncate(self._handle, 0)
        os.write(self._handle, who.encode("utf-8", "replace")[:1000])

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)


_locks: WeakValueDictionary[Path, Lock] = WeakValueDictionary()  # of this process, which shares its own


def lock(folder: Path) -> Lock:
    """The lock of a folder, or an OSError that says who holds it."""
    held = _locks.get(folder.resolve())
    if held is None:
        held = _locks[folder.resolve()] = Lock(folder)
    return held


def sweep(folder: Path) -> None:
    """Delete what runs that were killed have left half-written; folders within that have a lock see to themselves."""
    for place, folders, files in os.walk(folder):
        for name in [name for name in (*folders, *files) if PART.fullmatch(name)]:
            path = Path(place) / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        folders[:] = [name for name in folders if not (Path(place) / name / LOCK).exists()]


class RunFolder:
    """The folder of one piece of work of some `kind`, opened to begin or to go on.

    `description`, anything that JSON can hold, says what the results depend on. A folder that holds results of another
    description, or of none, is refused; `restart` discards them instead. `results` are files that are results too,
    besides stages and checkpoints. Processes that share the work open the folder together, with one description.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        description: dict[str, Any],
        *,
        restart: bool = False,
        results: Iterable[Path] = (),
    ) -> None:
        self.path, self._place = Path(path), Path(path) / f"{kind}.json"
        self._stages, self._checkpoints = self.path / "stages", self.path / "checkpoints"
        self.writes = distributed.is_first()
        description = json.loads(json.dumps(description))
        check_agreement(description)
        self._lock: Lock | None = None  # held for as long as this object lives
        distributed.together(lambda: self._open(description, restart, results) if self.writes else None)

    def _open(self, description: dict[str, Any], restart: bool, results: Iterable[Path]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self.path)
        if self._place.is_file() or any(self.path.glob(f".{self._place.name}.*.part")):  # else it is not ours yet
            sweep(self.path)
        stages = list(self._stages.iterdir()) if self._stages.is_dir() else []
        there = (path for path in chain(self.checkpoints(), stages, results) if path.exists())
        if restart:
            for path in there:
                path.unlink()
        elif any(there):
            self._check(description)
        write_json(self._place, description)

    def _check(self, description: dict[str, Any]) -> None:
        """Refuse a folder that holds results of something else."""
        name, do = self._place.name, "choose another folder, or discard its results with --restart"
        if not self._place.is_file():
            raise ValueError(f"{self.path}: holds results, but no {name} that says how they came about; {do}")
        try:
            differing = differences(parse_header(self._place.read_text()), description)
        except DAMAGE as error:
            told = f"a {name} that cannot be read ({describe(error)})"
            raise ValueError(f"{self.path}: holds results, but {told}; {do}") from error
        if differing:
            raise ValueError(
                f"{self.path}: holds the results of another run: {listed(differing)}; "
                f"go on with what it was started with, {do}"
            )

    # ---- Stages

    def arrays(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays of a stage, made by `make` unless they are there."""
        path = self._stages / f"{name}.npz"
        if (found := _whole(path, lambda path: load_arrays(path, STAGE)[1])) is not None:
            return found
        made = make()
        if self.writes:
            save_arrays(path, STAGE, {}, made)
        return made

    def figures(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The figures of a stage, made by `make` unless they are there."""
        path = self._stages / f"{name}.json"
        if (found := _whole(path, _read_figures)) is not None:
            return found
        made = make()
        if self.writes:
            write_json(path, with_checksum(made, {}))
        return json.loads(json.dumps(made))  # the same whether made or read

    # ---- Checkpoints

    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        found = self._checkpoints.iterdir() if self._checkpoints.is_dir() else ()
        return sorted(path for path in found if CHECKPOINT.fullmatch(path.name))

    def save_checkpoint(self, step: int, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Write the checkpoint of a step, and only then delete those that are older than the last few."""
        if not self.writes:
            return
        contiguous = {name: np.array(value, order="C") for name, value in arrays.items()}
        try:
            with atomic_write(self._checkpoints / f"step-{step:06}.safetensors") as file:
                described = json.dumps(with_checksum(meta, contiguous, about=step), sort_keys=True)
                file.write(to_bytes(contiguous, metadata={KEY: described}))
        except OSError as error:
            raise OSError(
                f"{self._checkpoints}: the checkpoint could not be written ({error.strerror or error}); those that "
                "were written before are intact: make room, or free the folder for writing, and start again to go on"
            ) from error
        for old in self.checkpoints()[:-KEPT]:
            old.unlink(missing_ok=True)

    def latest_checkpoint(self, restore: Callable[[int, Arrays, dict[str, Any]], T]) -> T | None:
        """What `restore` makes of step, arrays and description of the newest checkpoint that can be read.

        Damaged ones are passed over, and named; so is one of which `restore` can make nothing.
        """
        for path in reversed(self.checkpoints()):
            step = int(path.stem.removeprefix("step-"))
            try:
                with safe_open(path, framework="numpy") as file:
                    arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
                    text = (file.metadata() or {})[KEY]
                return restore(step, arrays, without_checksum(parse_header(text), arrays, about=step))
            except (SafetensorError, *DAMAGE) as error:
                warnings.warn(f"{path}: a damaged checkpoint is passed over ({describe(error)})", stacklevel=2)
        return None


def _read_figures(path: Path) -> dict[str, Any]:
    return without_checksum(parse_header(path.read_text()), {})


def _whole(path: Path, read: Callable[[Path], T]) -> T | None:
    """What a stage holds; None where it is not there, or damaged, and must be made again."""
    try:
        return read(path) if path.exists() else None
    except DAMAGE as error:
        warnings.warn(f"{path}: a damaged stage is made again ({describe(error)})", stacklevel=3)
        return None


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Where two descriptions differ, by dotted name: `settings.seed was 0, now 1`."""
    before, after = flat(found), flat(wanted)
    return [
        f"{name} was {_shown(before.get(name))}, now {_shown(after.get(name))}"
        for name in after | before
        if before.get(name) != after.get(name)
    ]


def listed(differing: list[str]) -> str:
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return "; ".join(differing[:SHOWN]) + more


def _shown(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def check_agreement(description: dict[str, Any]) -> None:
    """Refuse, on all processes, what they were not all started with: `description`, and the versions of programs."""
    versions = {name: version(name) for name in ("deep-lambertian", "jax", "numpy")}
    descriptions = distributed.collect(description | {"versions": versions})
    for process, description in enumerate(descriptions):
        if differing := differences(descriptions[0], description):
            raise ValueError(
                f"expected all processes to be started with the same data and settings, got process {process} unlike "
                f"process 0: {listed(differing)}"
            )
