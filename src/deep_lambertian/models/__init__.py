"""Models as files: those that come with the package, each with a card that says what it was taught and its limits; and
how they are written and read.

A file is safetensors, with a JSON description in the header. Loading one executes nothing from it.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from deep_lambertian.energy import Params
from deep_lambertian.inference.posterior import Misfit
from deep_lambertian.priors import PRIORS
from deep_lambertian.support.archives import DAMAGE
from deep_lambertian.support.files import atomic_write, parse_header, with_checksum, without_checksum

FOLDER = Path(__file__).parent
SUFFIX = ".safetensors"
VERSION = 2
KEY = "deep_lambertian"


@dataclass(frozen=True)
class Bundled:
    """A model that is here: its file, the first line of its card, and what the file says of itself."""

    name: str
    path: Path
    summary: str
    shape: tuple[int, int]
    info: dict[str, Any]

    @property
    def card(self) -> Path:
        return self.path.with_suffix(".md")


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str | Path) -> Path:
    """The file of a bundled model by its name, or a path as it is; a file of that name in the way goes first."""
    path = Path(name)
    if isinstance(name, Path) or path.is_file() or path.suffix or path.name != str(name):
        return path
    if name in names():
        return FOLDER / f"{name}{SUFFIX}"
    if path.exists():
        return path  # a folder: it is told of when it is read
    known = ", ".join(names()) or "none"
    raise FileNotFoundError(f"{name}: expected a model file or the name of a bundled model ({known}), found neither")


def bundled() -> list[Bundled]:
    """All of them."""
    found = []
    for name in names():
        path = FOLDER / f"{name}{SUFFIX}"
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()[KEY])
        lines = path.with_suffix(".md").read_text().splitlines()
        summary = next(line for line in lines if line and not line.startswith("#"))
        height, width = header["shape"]
        found.append(Bundled(name, path, summary, (height, width), header["info"]))
    return found


# ---- Writing and reading


class ModelFileError(ValueError):
    """A file that is no model of ours, or a damaged one."""


def write(
    path: str | Path, params: Params, header: dict[str, Any], misfit: Misfit | None = None, *, compact: bool = False
) -> None:
    """Write a model in one go: `path` holds the old file or the whole new one, never a part.

    With `compact`, matrices are stored in half precision, which halves the file; vectors, such as the biases that
    thresholds depend on, keep theirs.
    """
    tensors: dict[str, np.ndarray] = {}
    structure = describe(params.prior, "prior", tensors)
    for field in dataclasses.fields(params):
        if field.name != "prior":
            tensors[field.name] = np.asarray(getattr(params, field.name))
    for name, value in {} if misfit is None else vars(misfit).items():
        tensors[f"misfit.{name}"] = np.asarray(value, np.float32)
    described = {"version": VERSION, "prior": structure, **header}
    contiguous = {name: np.array(value, order="C") for name, value in tensors.items()}
    if compact:
        large = {name: value for name, value in contiguous.items() if value.ndim == 2 and min(value.shape) > 3}
        contiguous |= {name: value.astype(np.float16) for name, value in large.items()}
    text = json.dumps(with_checksum(described, contiguous), sort_keys=True)
    with atomic_write(path) as file:
        file.write(to_bytes(contiguous, metadata={KEY: text}))


def read(path: str | Path) -> tuple[Params, Misfit | None, dict[str, Any]]:
    """Read a model, or raise one `ModelFileError` that says what is wrong. Its numbers are not yet checked."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a model file, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, *DAMAGE) as error:
        raise ModelFileError(f"{path}: expected a safetensors file, got a damaged or foreign one ({error})") from error
    if KEY not in metadata:
        raise ModelFileError(f"{path}: expected a {KEY} model, got a safetensors file of something else")
    try:
        header = parse_header(metadata[KEY])
        version = header["version"]
        if version > VERSION:
            raise ModelFileError(
                f"{path}: written in version {version} of the format, this program knows up to {VERSION}; update it"
            )
        header = without_checksum(header, tensors)
        del header["version"]
        prior = rebuild(header.pop("prior"), "prior", tensors)
        # An older file may lack what has a default.
        fields = [f for f in dataclasses.fields(Params) if f.name != "prior"]
        needed = [f.name for f in fields if f.name in tensors or f.default_factory is dataclasses.MISSING]
        params = Params(prior=prior, **{name: _take(tensors, name) for name in needed})
        misfit = None
        if any(name.startswith("misfit.") for name in tensors):
            for name, length in {"strangers": 7, "shaded": 4, "unlike": 4}.items():  # files of before have none
                tensors.setdefault(f"misfit.{name}", np.zeros(length, np.float32))
            if len(told := tensors.get("misfit.surprise", ())) == 2:  # the mean and the limit, for all images alike
                usual, limit = np.log(np.maximum(told, 1e-12))
                tensors["misfit.surprise"] = np.array([usual, 0, 0, max(limit - usual, 1e-6)], np.float32)
            names = [f.name for f in dataclasses.fields(Misfit)]
            misfit = Misfit(**{name: np.asarray(_take(tensors, f"misfit.{name}")) for name in names})
        if tensors:
            raise ValueError(f"tensors that do not belong to it: {sorted(tensors)}")
    except ModelFileError:
        raise
    except DAMAGE as error:
        raise ModelFileError(f"{path}: expected a consistent {KEY} model, got {error}") from error
    return params, misfit, header


def describe(prior: Any, name: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """The prior's structure as JSON; its arrays go to `tensors`, named by their place in it."""
    kinds = {cls: kind for kind, cls in PRIORS.items()}
    if type(prior) not in kinds:
        raise ValueError(f"{name}: expected one of {sorted(PRIORS)}, got {type(prior).__name__}")
    described: dict[str, Any] = {"kind": kinds[type(prior)]}
    for field in dataclasses.fields(prior):
        value, place = getattr(prior, field.name), f"{name}.{field.name}"
        if field.metadata.get("static"):
            described[field.name] = value
        elif isinstance(value, tuple):
            described[field.name] = [describe(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]
        elif dataclasses.is_dataclass(value):
            described[field.name] = describe(value, place, tensors)
        else:
            tensors[place] = np.asarray(value)
    return described


def rebuild(described: dict[str, Any], name: str, tensors: dict[str, np.ndarray]) -> Any:
    """The opposite of `describe`; tensors are taken out as they are used."""
    cls = PRIORS[described["kind"]]
    values = {}
    for field in dataclasses.fields(cls):
        place, value = f"{name}.{field.name}", described.get(field.name)
        if field.metadata.get("static"):
            values[field.name] = value
        elif isinstance(value, list):
            values[field.name] = tuple(rebuild(v, f"{place}.{i}", tensors) for i, v in enumerate(value))
        elif isinstance(value, dict):
            values[field.name] = rebuild(value, place, tensors)
        else:
            values[field.name] = _take(tensors, place)
    return cls(**values)


def _take(tensors: dict[str, np.ndarray], name: str) -> Any:
    if name not in tensors:
        raise ValueError(f"no tensor {name!r}")
    # To the device as it is: an array that JAX converts is compiled for, each shape by itself.
    return jax.device_put(np.asarray(tensors.pop(name), np.float32))
