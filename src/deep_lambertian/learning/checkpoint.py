"""Checkpoints: each is one file, whole or not there; the last few are kept, and the newest that can be read counts."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from deep_lambertian.support.files import atomic_write

KEY = "deep_lambertian checkpoint"
KEPT = 3
NAME = re.compile(r"step-(\d{6})\.safetensors")


def save(folder: Path, step: int, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write the checkpoint of a step, and only then delete those that are older than the last few."""
    path = folder / f"step-{step:06}.safetensors"
    contiguous = {name: np.array(value, order="C") for name, value in arrays.items()}
    with atomic_write(path) as file:
        file.write(to_bytes(contiguous, metadata={KEY: json.dumps(meta, sort_keys=True)}))
    for old in listed(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def listed(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(p for p in folder.iterdir() if NAME.fullmatch(p.name)) if folder.is_dir() else []


def latest(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Arrays and description of the newest checkpoint that can be read; a damaged one is passed over, and said so."""
    for path in reversed(listed(folder)):
        try:
            with safe_open(path, framework="numpy") as file:
                meta = json.loads((file.metadata() or {})[KEY])
                return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118 (no mapping)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            warnings.warn(f"{path}: a damaged checkpoint is passed over ({error})", stacklevel=2)
    return None


def clear(folder: Path) -> None:
    """Delete all checkpoints."""
    for path in listed(folder):
        path.unlink()


def flatten(tree: Any, name: str) -> dict[str, np.ndarray]:
    """The arrays of a tree, named by their place in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{name}{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}


def fill(template: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """The opposite of `flatten`, for a tree of the same structure as `template`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    found = [jax.numpy.asarray(arrays[f"{name}{jax.tree_util.keystr(path)}"]) for path, _ in leaves]
    return jax.tree_util.tree_unflatten(structure, found)
