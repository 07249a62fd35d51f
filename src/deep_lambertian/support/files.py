"""Files that are either whole or not there, and that execute nothing when they are read."""

import csv
import hashlib
import io
import json
import os
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from deep_lambertian.support.archives import DAMAGE, describe, read_npz

VERSION = 2  # of files of results
SEAL = hashlib.sha256().digest_size
CHECKSUM, SINCE = "checksum", 2  # and the version since which files have one


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing, and put it in `path`'s place only once it is complete.

    Whatever stood at `path` stays as it was if anything goes wrong.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:  # of the mode that any new file has, which tempfile's have not
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a whole text, or nothing."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_csv(path: str | Path, rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """A folder to write into, whose files are moved to `path` only once all of them are complete.

    Other files at `path` stay; those of the same name are replaced. If anything goes wrong nothing has changed.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a folder for the results, found a file of that name")
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield work
        path.mkdir(exist_ok=True)
        for file in sorted(work.iterdir()):
            file.replace(path / file.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ---- Whether a file still is as it was written


def sealed(data: bytes) -> bytes:
    """The data behind their checksum."""
    return hashlib.sha256(data).digest() + data


def unsealed(data: bytes) -> bytes:
    """What was sealed, or a ValueError where it has changed since."""
    if sealed(data[SEAL:]) != data:
        raise ValueError("its checksum is not that of its contents")
    return data[SEAL:]


def with_checksum(header: dict[str, Any], arrays: dict[str, np.ndarray], about: Any = None) -> dict[str, Any]:
    """A header, which JSON can hold, with the checksum of itself, the arrays, and what else it is `about`."""
    header = json.loads(json.dumps(header))
    return header | {CHECKSUM: _digest(header, arrays, about)}


def parse_header(text: str) -> dict[str, Any]:
    """The header of a JSON text, or a ValueError."""
    try:
        header = json.loads(text)
    except RecursionError as error:
        raise ValueError("expected a header of a few levels, got one that is nested without end") from error
    if not isinstance(header, dict):
        raise ValueError(f"expected a header of names and values, got {type(header).__name__}")
    return header


def without_checksum(header: dict[str, Any], arrays: dict[str, np.ndarray], about: Any = None) -> dict[str, Any]:
    """The header as it was, or a ValueError where it or the arrays have changed since; the first version has no sum."""
    header = dict(header)
    written = header.pop(CHECKSUM, None)
    version = header.get("version")
    if written is None and not (type(version) is int and 1 <= version < SINCE):
        raise ValueError("expected a checksum, got none")
    if written is not None and written != _digest(header, arrays, about):
        raise ValueError("its checksum is not that of its contents: it was damaged, or changed by hand")
    return header


def _digest(header: dict[str, Any], arrays: dict[str, np.ndarray], about: Any) -> str:
    found = hashlib.sha256(json.dumps([header, about], sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.data if array.size else b"")
    return found.hexdigest()


# ---- Results: named arrays and a JSON header in one `.npz`


def save_arrays(path: str | Path, kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a whole file, or nothing. `kind` says what it holds."""
    described = json.dumps(with_checksum({"format": kind, "version": VERSION, **header}, arrays))
    # At the lowest level: half of the time of NumPy's own, and a few per cent more bytes.
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in {"header": np.array(described), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def load_arrays(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file of this kind, or one ValueError that says what was found instead."""
    try:
        arrays = read_npz(path)
        header = parse_header(str(arrays.pop("header")))
        if header["format"] != kind or header["version"] > VERSION:
            raise ValueError(f"format {header['format']!r}, version {header['version']}")
        return without_checksum(header, arrays), arrays
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        got = f"got something else or a damaged file ({describe(error)})"
        raise ValueError(f"{path}: expected a file of version {VERSION} of {kind!r}, {got}") from error


def part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Those whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
