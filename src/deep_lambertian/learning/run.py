"""A training run: the history of its steps, its logs, and the folder that it goes on from.

training.json  config.toml  log.jsonl  checkpoints/step-000012.safetensors  pictures/em-004.png  model.safetensors
"""

import json
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.learning.config import Config
from deep_lambertian.support.files import write_text
from deep_lambertian.support.run_folder import Arrays, RunFolder, T, check_agreement


class TrainingRun:
    """One training in a folder or, without a folder, one that leaves nothing behind.

    `faces` are the rows that the albedo prior is first learned from, if any: data of the run as well.
    """

    def __init__(
        self,
        out: str | Path | None,
        config: Config,
        dataset: Dataset,
        faces: np.ndarray | None = None,
        restart: bool = False,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        description = {
            "data": fingerprint(dataset),
            "faces": None if faces is None else f"{len(faces)} (checksum {_checksum(faces):08x})",
            "settings": tomllib.loads(config.to_toml()),
        }
        if out is None:
            check_agreement(description)
        self.folder = None if out is None else RunFolder(out, "training", description, restart=restart)
        self.config, self.on_step = config, on_step
        self.history: list[dict[str, Any]] = []
        self.tensorboard: Any = None

    def path(self, name: str) -> Path | None:
        """Where a file of the run is to be written; None where nothing is."""
        return self.folder.path / name if self.folder is not None and self.folder.writes else None

    def latest(self, restore: Callable[[Arrays, dict[str, Any]], T]) -> T | None:
        """What `restore` makes of the newest checkpoint, if there is one; it raises a ValueError on one that is none.

        The log ends there: what came after will come again.
        """

        def agreeing(step: int, arrays: Arrays, meta: dict[str, Any]) -> tuple[T, list[dict[str, Any]]]:
            history = meta["history"]
            if not isinstance(history, list) or len(history) != step or not all(isinstance(x, dict) for x in history):
                raise ValueError(f"expected a log of the {step} steps before it, got another")
            return restore(arrays, meta), history

        found = None if self.folder is None else self.folder.latest_checkpoint(agreeing)
        if found is not None:
            self.history = found[1]
        if (path := self.path("config.toml")) is not None:
            write_text(path, self.config.to_toml())
            write_text(path.with_name("log.jsonl"), "".join(json.dumps(line) + "\n" for line in self.history))
        return None if found is None else found[0]

    def save(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Write a checkpoint."""
        if self.folder is not None:
            self.folder.save_checkpoint(len(self.history), arrays, meta | {"history": self.history})

    def record(self, monitors: dict[str, Any]) -> None:
        """Add a line to the log, and tell whoever asked to be told."""
        self.history.append(monitors)
        if (path := self.path("log.jsonl")) is not None:
            with path.open("a") as file:
                file.write(json.dumps(monitors) + "\n")
        if self.tensorboard is not None:
            _to_tensorboard(self.tensorboard, monitors, len(self.history))
        if self.on_step is not None:
            self.on_step(monitors)

    def open_tensorboard(self) -> None:
        """Write the monitors for TensorBoard as well."""
        if (path := self.path("log.jsonl")) is None:
            return
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
        except ImportError as error:
            raise ValueError(
                "TensorBoard logs need the package tensorboardX: pip install 'deep-lambertian[tensorboard]'"
            ) from error
        self.tensorboard = SummaryWriter(str(path.parent), purge_step=len(self.history) + 1)
        for step, line in enumerate(self.history, start=1):
            _to_tensorboard(self.tensorboard, line, step)

    def close(self) -> None:
        if self.tensorboard is not None:
            self.tensorboard.close()


def _to_tensorboard(writer: Any, monitors: dict[str, Any], step: int) -> None:
    for name, value in monitors.items():
        if isinstance(value, int | float):
            writer.add_scalar(name, value, step)


def fingerprint(dataset: Dataset) -> str:
    """What tells the data of one run from those of another, in words."""
    objects, images, height, width = dataset.images.shape
    lights = np.zeros(0) if dataset.lights is None else dataset.lights
    names = np.frombuffer(json.dumps(dataset.names).encode(), np.uint8)
    rig = np.zeros(0) if dataset.rig is None else np.frombuffer(json.dumps(dataset.rig.tolist()).encode(), np.uint8)
    checksum = _checksum(dataset.images, np.packbits(dataset.mask), lights, names, rig)
    return f"{objects} objects of up to {images} images, {height}×{width} (checksum {checksum:08x})"


def _checksum(*arrays: np.ndarray) -> int:
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return found
