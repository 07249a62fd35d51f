"""Folders and archives alike: a list of names, and the bytes behind each (see `support.archives`)."""

import os
import stat
from pathlib import Path

from deep_lambertian.support.archives import ARCHIVES, Limits, Source, SourceError, check_names, describe, open_archive

__all__ = ["ARCHIVES", "Limits", "Source", "SourceError", "describe", "open_source"]


def open_source(path: str | Path, limits: Limits | None = None) -> Source:
    """Open a folder or an archive; a message says what was found where neither is there."""
    path, limits = Path(path), limits or Limits()
    kinds = f"a folder or an archive ({', '.join(ARCHIVES)})"
    if not path.exists():
        raise SourceError(f"{path}: expected {kinds}, found nothing")
    if not os.access(path, os.R_OK):
        raise SourceError(f"{path}: permission denied")
    if path.is_dir():
        source = _folder(path)
        check_names(path, source.sizes, limits)
        return source
    source = open_archive(path, limits)
    if source is None:
        raise SourceError(f"{path}: expected {kinds}, found another kind of file")
    return source


def _folder(path: Path) -> Source:
    """A folder on disk. Links are followed: whoever made them could read what they lead to."""
    sizes: dict[str, int] = {}
    places: dict[str, Path] = {}
    unreadable: list[str] = []

    def note(error: OSError) -> None:
        if Path(str(error.filename)) == path:
            raise SourceError(f"{path}: {describe(error)}")
        unreadable.append(str(error.filename))

    for folder, folders, files in os.walk(path, followlinks=False, onerror=note):
        folders.sort()
        for file in files:
            place = Path(folder) / file
            try:
                found = place.stat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                # A name that is no UTF-8 is still a file: it is shown with marks where its odd bytes are.
                name = os.fsencode(place.relative_to(path)).decode("utf-8", "replace").replace(os.sep, "/")
                sizes[name], places[name] = found.st_size, place
    return Source(path, sizes, lambda name: places[name].open("rb"), unreadable=unreadable)
