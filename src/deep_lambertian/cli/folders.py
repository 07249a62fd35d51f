"""Folders for results, looked at before the work: a bad one costs no time."""

import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """Refuse a place where no folder for results can be made, or nothing be written into it."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a folder for the results, found a file of that name")
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):  # permissions say one thing, disks another
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PermissionError(
            f"{path}: expected a folder that can be written to, {there} cannot ({reason}); choose another --out"
        ) from error
