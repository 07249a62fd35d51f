"""Every format that the program reads: a sound file of each, how it is read, and what is promised of a changed one."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tools.attack import mutations, structures
from tools.attack.mutations import Mutation


class RefusedError(ValueError):
    """Stands for what a reader passes over: a damaged checkpoint, a stage that is made again."""


@dataclass(frozen=True)
class Format:
    """`read` takes a file of this suffix; `sealed` files are known to be whole: what is read is what was written."""

    name: str
    suffix: str
    read: Callable[[Path], Any]
    sealed: bool
    structure: Mutation | None = None
    check: Callable[[Any], bool] = lambda _: True


def digest(value: Any) -> str:
    """The same for the same, to the bit, whatever it is."""
    found = hashlib.sha256()

    def feed(value: Any) -> None:
        if is_dataclass(value) and not isinstance(value, type):
            for each in fields(value):
                found.update(each.name.encode())
                feed(getattr(value, each.name))
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                found.update(repr(key).encode())
                feed(value[key])
        elif isinstance(value, list | tuple):
            found.update(f"[{len(value)}".encode())
            for each in value:
                feed(each)
        elif hasattr(value, "dtype"):
            array = np.asarray(value)
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
        else:
            found.update(repr(value).encode())

    feed(value)
    return found.hexdigest()


# ---- Readers, by the public ones where there are any


def read_model(path: Path) -> Any:
    from deep_lambertian import load_model

    model = load_model(path)
    return model.checksum, model.preset, model.info, model.misfit, model.shape


def read_posterior(path: Path) -> Any:
    from deep_lambertian import Posterior

    return Posterior.load(path)


def read_result(path: Path) -> Any:
    from deep_lambertian.photos.result import Result

    found = Result.load(path)
    return found.posterior, [photo.colour for photo in found.photos], found.scaled_normals, found.colour, found.notes


def read_checkpoint(path: Path) -> Any:
    from deep_lambertian.support.run_folder import RunFolder

    folder = RunFolder.__new__(RunFolder)
    folder._checkpoints = path.parent
    found = folder.latest_checkpoint(lambda *found: found)
    if found is None:
        raise RefusedError("passed over")
    return found


def _remade() -> Any:
    raise RefusedError("made again")


def read_stage(path: Path) -> Any:
    from deep_lambertian.support.run_folder import RunFolder

    folder = RunFolder.__new__(RunFolder)
    folder._stages, folder.writes = path.parent, False
    return (folder.arrays if path.suffix == ".npz" else folder.figures)(path.stem, _remade)


def read_description(path: Path) -> Any:
    """A folder that holds results is gone on with if it says that they are of this run; it is refused otherwise."""
    from deep_lambertian.support.run_folder import RunFolder

    folder = RunFolder.__new__(RunFolder)
    folder.path, folder._place = path.parent, path
    folder._check(DESCRIPTION)
    return DESCRIPTION


DESCRIPTION = {"format": "x", "version": 1, "settings": {"seed": 0, "sizes": [1, 2], "name": "a"}, "data": "3 objects"}


def read_lights_json(path: Path) -> Any:
    from deep_lambertian.photos import batch

    return batch._figures(path.parent)


def read_program(path: Path) -> Any:
    from deep_lambertian.support.files import unsealed

    return hashlib.sha256(unsealed(path.read_bytes())).hexdigest()


def read_config(path: Path) -> Any:
    from deep_lambertian import Config

    return Config.from_toml(path.read_bytes())


def read_light_file(path: Path) -> Any:
    from deep_lambertian.data.folder import read_lights

    return read_lights(path.read_bytes(), path.name, ["a.png", "b.png", "c.png"])


def read_rig_file(path: Path) -> Any:
    from deep_lambertian.data.folder import read_rig

    return read_rig(path.read_bytes(), path.name, ["a.png", "b.png", "c.png"])


def read_picture(path: Path) -> Any:
    from deep_lambertian.data.images import decode

    return decode(path.read_bytes(), path.name, colour=True)


def read_objects(path: Path) -> Any:
    from deep_lambertian.data import load_folder

    return load_folder(path, size=8).images


def read_yaleb(path: Path) -> Any:
    from deep_lambertian.data import load_yaleb

    return load_yaleb(path, size=8).images


def read_aloi(path: Path) -> Any:
    from deep_lambertian.data import load_aloi

    return load_aloi(path, size=8).images


def read_faces(path: Path) -> Any:
    from deep_lambertian.data import load_faces

    return load_faces(path, size=8).images


def is_picture(values: np.ndarray) -> bool:
    return values.dtype == np.float32 and values.size > 0 and bool(np.isfinite(values).all()) and values.min() >= 0


def are_lights(values: list[np.ndarray]) -> bool:
    return len(values) == 3 and all(each.shape == (3,) and np.isfinite(each).all() for each in values)


def finite(values: np.ndarray) -> bool:
    return values.size > 0 and bool(np.isfinite(values).all())


PICTURES = ("png", "jpg", "pgm", "ppm", "tga", "tif", "bmp", "gif", "webp")
TARS = ("tar", "tar.gz", "tar.bz2", "tar.xz")
FORMATS = {
    each.name: each
    for each in (
        Format("model", ".safetensors", read_model, True, structures.mutate_safetensors),
        Format("checkpoint", ".safetensors", read_checkpoint, True, structures.mutate_safetensors),
        Format("posterior", ".npz", read_posterior, True, structures.mutate_zip),
        Format("result", ".npz", read_result, True, structures.mutate_zip),
        Format("stage arrays", ".npz", read_stage, True, structures.mutate_zip),
        Format("stage figures", ".json", read_stage, True, mutations.mutate_json),
        Format("object figures", ".json", read_lights_json, True, mutations.mutate_json),
        Format("run description", ".json", read_description, True, mutations.mutate_json),
        Format("traced program", "", read_program, True),
        *(
            Format(f"picture {kind}", f".{kind}", read_picture, False, check=is_picture)
            for kind in PICTURES
            if kind != "png"
        ),
        *(
            Format(f"picture {kind}", ".png", read_picture, False, structures.mutate_png, is_picture)
            for kind in ("png", "png of 16 bits", "png palette")
        ),
        *(Format(f"objects {kind}", f".{kind}", read_objects, False, structures.mutate_tar, finite) for kind in TARS),
        Format("objects zip", ".zip", read_objects, False, structures.mutate_zip, finite),
        Format("Yale B", ".zip", read_yaleb, False, structures.mutate_zip, finite),
        Format("ALOI", ".tar", read_aloi, False, structures.mutate_tar, finite),
        Format("faces npz", ".npz", read_faces, False, structures.mutate_zip, finite),
        Format("faces npy", ".npy", read_faces, False, structures.mutate_npy, finite),
        Format("settings", ".toml", read_config, False, mutations.mutate_text),
        *(
            Format(f"lights {kind}", f".{kind}", read_light_file, False, mutations.mutate_text, are_lights)
            for kind in ("txt", "csv")
        ),
        *(Format(f"rig {kind}", f".{kind}", read_rig_file, False, mutations.mutate_text) for kind in ("txt", "csv")),
    )
}
# Names of files that their readers ask for.
NAMES = {"checkpoint": "step-000002.safetensors", "object figures": "lights.json", "run description": "training.json"}
REFUSALS = (ValueError, OSError)  # what the command line tells in a line


def attempt(form: Format, path: Path, whole: str) -> tuple[str, str]:
    """Read a file: how it ended (see `tally`), and what was told. `whole` is the digest of what the sound one gives.

    Of a file that says it is older than checksums nothing is promised: it is refused here.
    """
    from deep_lambertian.support import files

    try:
        with warnings.catch_warnings(), patch.object(files, "SINCE", 1):
            warnings.simplefilter("ignore")
            found = form.read(path)
    except REFUSALS as error:
        return "clean error", type(error).__name__
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {str(error)[:200]}"
    if form.sealed:
        return ("unharmed", "") if digest(found) == whole else ("wrong result", "read, and not what was written")
    return ("unharmed", "") if form.check(found) else ("wrong result", "read, and not fit for use")
