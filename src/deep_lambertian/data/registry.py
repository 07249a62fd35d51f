"""The kinds of data there are: what is listed here is known to `dln data`, `dln train`, their `--help` and
`deep_lambertian.data`. Loaders are named, not imported: those that draw their data lie in rooms above this one.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deep_lambertian.data.dataset import Dataset  # which needs NumPy; a command that is only parsed does not


@dataclass(frozen=True)
class Kind:
    """A kind of data: `loader` is "module:function", of a path and `size=`, or of `size=` and `seed=` where data are
    drawn. `split` names a function that gives the images to learn from and those to test on; `trains` is false where
    each object has but one image, so that no model of shape can be learnt.
    """

    loader: str
    summary: str
    size: int  # pixels of a side, unless told otherwise
    drawn: bool = False
    trains: bool = True
    split: str | None = None


DATA, DRAWN = "deep_lambertian.data", "deep_lambertian.synthetic"
KINDS: dict[str, Kind] = {
    "yaleb": Kind(f"{DATA}.yaleb:load_yaleb", "cropped Yale B or Extended Yale B", 24),
    "aloi": Kind(f"{DATA}.aloi:load_aloi", "ALOI's illumination collection", 48, split=f"{DATA}.aloi:split_aloi"),
    "faces": Kind(
        f"{DATA}.face_collection:load_faces",
        "a collection of faces without labels (.npz, folder, archive)",
        24,
        trains=False,
    ),
    "folder": Kind(f"{DATA}.folder:load_folder", "your own, one folder of images for each object", 48),
    "synthetic": Kind(f"{DRAWN}.heads:make_faces", "built-in faces", 24, drawn=True),
    "solids": Kind(f"{DRAWN}.solids:make_solids", "built-in painted solids", 48, drawn=True),
}


def kinds(training: bool = False) -> list[str]:
    """The names of all kinds, or of those from which a model can be learnt."""
    return [name for name, kind in KINDS.items() if kind.trains or not training]


def loaders() -> dict[str, str]:
    """The functions that load each kind, and the module of this package in which each lives."""
    places = (kind.loader.removeprefix("deep_lambertian.").partition(":") for kind in KINDS.values())
    return {function: module for module, _, function in places}


def describe(names: list[str]) -> str:
    """What kinds are, for `--help`."""
    return "; ".join(f"{name}: {KINDS[name].summary} ({KINDS[name].size}×{KINDS[name].size})" for name in names)


def load(name: str, path: str | Path | None, size: int | None, seed: int = 0, training: bool = False) -> "Dataset":
    """Data of a kind, as the command line asks for them; all of them, or only what is to be learnt from."""
    if name not in KINDS:
        raise ValueError(f"unknown kind {name!r}; expected one of {sorted(KINDS)}")
    kind = KINDS[name]
    size = kind.size if size is None else size
    if size < 1:
        raise ValueError(f"size: expected at least 1 pixel, got {size}")
    if kind.drawn:
        return _named(kind.loader)(size=size, seed=seed)
    if path is None:
        raise ValueError(f"{name}: expected the path of a folder or an archive, got none")
    data = _named(kind.loader)(path, size=size)
    return _named(kind.split)(data)[0] if training and kind.split else data


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
