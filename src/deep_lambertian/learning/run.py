"""A training run's folder: what it was told, what it has found so far, and what it goes on from.

config.toml   log.jsonl   checkpoints/step-000012.safetensors   pictures/em-004.png   model.safetensors
"""

import json
import tomllib
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.learning import checkpoint
from deep_lambertian.learning.config import Config
from deep_lambertian.support.files import atomic_write
from deep_lambertian.support.settings import flat

SHOWN = 5  # settings that an error lists


class Run:
    """The folder of one run, or, without a folder, a run that leaves nothing behind.

    `faces` are the rows that the albedo prior is first learned from, if any: data of the run as well.
    With many processes only the first one writes; all of them read.
    """

    def __init__(
        self,
        folder: Path | None,
        config: Config,
        dataset: Dataset,
        writes: bool,
        restart: bool,
        faces: np.ndarray | None = None,
    ) -> None:
        self.folder, self.config, self.writes = folder, config, writes and folder is not None
        self.data = fingerprint(dataset, faces)
        self.history: list[dict[str, Any]] = []
        self.tensorboard: Any = None
        if self.writes:
            assert folder is not None
            folder.mkdir(parents=True, exist_ok=True)
            if restart:
                checkpoint.clear(self._checkpoints)

    @property
    def _checkpoints(self) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoints"

    def latest(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest checkpoint, if there is one, of the same data and settings."""
        found = None if self.folder is None else checkpoint.latest(self._checkpoints)
        if found is not None:
            _, meta = found
            self._check(meta)
            self.history = meta["history"]
        self._write_logs()
        return found

    def _check(self, meta: dict[str, Any]) -> None:
        if meta["data"] != self.data:
            raise ValueError(
                f"{self.folder}: the run was started with {_described(meta['data'])}, got {_described(self.data)}; "
                "resume it with the same data, or start another in a new folder (or this one with --restart)"
            )
        changed = changed_settings(meta["config"], self.config.to_toml())
        if changed:
            more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            raise ValueError(
                f"{self.folder}: the run was started with other settings: {'; '.join(changed[:SHOWN])}{more}; "
                "resume it with the same ones, or start another in a new folder (or this one with --restart)"
            )

    def save(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Write a checkpoint."""
        if not self.writes:
            return
        description = meta | {"data": self.data, "config": self.config.to_toml(), "history": self.history}
        try:
            checkpoint.save(self._checkpoints, len(self.history), arrays, description)
        except OSError as error:
            raise OSError(
                f"{self._checkpoints}: the checkpoint could not be written ({error.strerror or error}); those that "
                "were written before are intact: make room, or free the folder for writing, and start again to go on"
            ) from error

    def record(self, monitors: dict[str, Any]) -> None:
        """Add a line to the log."""
        self.history.append(monitors)
        if not self.writes:
            return
        assert self.folder is not None
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(monitors) + "\n")
        if self.tensorboard is not None:
            _to_tensorboard(self.tensorboard, monitors, len(self.history))

    def _write_logs(self) -> None:
        """The log up to where the run goes on from: what came after the checkpoint will come again."""
        if not self.writes:
            return
        assert self.folder is not None
        with atomic_write(self.folder / "config.toml") as file:
            file.write(self.config.to_toml().encode())
        with atomic_write(self.folder / "log.jsonl") as file:
            file.write("".join(json.dumps(line) + "\n" for line in self.history).encode())

    def open_tensorboard(self) -> None:
        """Write the monitors for TensorBoard as well."""
        if not self.writes:
            return
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
        except ImportError as error:
            raise ValueError(
                "TensorBoard logs need the package tensorboardX: pip install 'deep-lambertian[tensorboard]'"
            ) from error
        self.tensorboard = SummaryWriter(str(self.folder), purge_step=len(self.history) + 1)
        for step, line in enumerate(self.history, start=1):
            _to_tensorboard(self.tensorboard, line, step)

    def close(self) -> None:
        if self.tensorboard is not None:
            self.tensorboard.close()


def _to_tensorboard(writer: Any, monitors: dict[str, Any], step: int) -> None:
    for name, value in monitors.items():
        if isinstance(value, int | float):
            writer.add_scalar(name, value, step)


def changed_settings(old: str, new: str) -> list[str]:
    """Where two settings in TOML differ, by dotted name: `cd.epochs 10 → 20`."""
    before, after = (
        {name: json.dumps(value) for name, value in flat(tomllib.loads(text)).items()} for text in (old, new)
    )
    return [
        f"{name} {before.get(name, 'unset')} → {after.get(name, 'unset')}"
        for name in before | after
        if before.get(name) != after.get(name)
    ]


def fingerprint(dataset: Dataset, faces: np.ndarray | None = None) -> dict[str, Any]:
    """What tells the data of one run from those of another: the objects, and the faces (n, V) learned from first."""
    lights = b"" if dataset.lights is None else np.ascontiguousarray(dataset.lights).tobytes()
    checksum = zlib.crc32(lights, zlib.crc32(np.packbits(dataset.mask).tobytes(), zlib.crc32(dataset.images.tobytes())))
    found = {"shape": list(dataset.images.shape), "names": list(dataset.names), "checksum": checksum}
    if faces is not None:
        found["faces"] = {"count": len(faces), "checksum": zlib.crc32(np.ascontiguousarray(faces).tobytes())}
    return found


def _described(data: dict[str, Any]) -> str:
    objects, images, height, width = data["shape"]
    faces = data.get("faces")
    also = f" and {faces['count']} faces (checksum {faces['checksum']:08x})" if faces else ""
    return f"{objects} objects of up to {images} images, {height}×{width} (checksum {data['checksum']:08x}){also}"
