"""Files that are either whole or not there."""

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing, and put it in `path`'s place only once it is complete.

    Whatever stood at `path` stays as it was if anything goes wrong.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's files are private: this one is like any other
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
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
