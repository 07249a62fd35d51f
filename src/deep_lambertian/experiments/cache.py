"""Stages of an experiment, each computed once and kept: what was interrupted goes on with the stage that is missing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.support.files import atomic_write

DESCRIPTION = "experiment.json"


class Cache:
    """The folder of one experiment. `description` says what it is of: another one's results are not mixed with it."""

    def __init__(self, folder: str | Path, description: dict[str, Any], restart: bool = False) -> None:
        self.folder, self.stages = Path(folder), Path(folder) / "stages"
        path = self.folder / DESCRIPTION
        if path.exists() and not restart:
            try:
                found = json.loads(path.read_text())
            except ValueError as error:
                raise ValueError(f"{path}: expected the description of an experiment, got {error}") from error
            differing = sorted(
                name for name in description.keys() | found.keys() if description.get(name) != found.get(name)
            )
            if differing:
                name = differing[0]
                raise ValueError(
                    f"{folder}: holds the results of another experiment: {name} was {found.get(name)!r}, now "
                    f"{description.get(name)!r}; choose another folder with --out, or --restart to replace them"
                )
        elif self.stages.exists():
            for old in self.stages.iterdir():
                old.unlink()
        with atomic_write(path) as file:
            file.write(json.dumps(description, indent=2).encode())

    def arrays(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays of a stage, made by `make` unless they are there."""
        path = self.stages / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        made = make()
        with atomic_write(path) as file:
            np.savez_compressed(file, **made)  # type: ignore[arg-type]
        return made

    def figures(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The figures of a stage, made by `make` unless they are there."""
        path = self.stages / f"{name}.json"
        if not path.exists():
            made = make()
            with atomic_write(path) as file:
                file.write(json.dumps(made, indent=2).encode())
        return json.loads(path.read_text())
