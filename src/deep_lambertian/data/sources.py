"""Folders, `.zip` and `.tar(.gz)` archives alike: a list of names, and the bytes behind each.

Nothing is unpacked to disk. Archives are untrusted: a name that leads out of the archive, a link, an absurd size or
number, or a member that would inflate beyond all proportion is refused with a `SourceError`.
"""

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO

# What the libraries raise on a file that is damaged, or is not what it seems.
DAMAGE = (OSError, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, ValueError)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


class SourceError(ValueError):
    """A place that cannot be read, or an archive that is damaged or not to be trusted."""


@dataclass(frozen=True)
class Limits:
    """How much a source may hold. The defaults are far above any real collection of photos."""

    members: int = 1_000_000
    file_bytes: int = 512 * 2**20
    total_bytes: int = 256 * 2**30
    inflation: float = 1000.0  # a zip member's size over its compressed size


@dataclass(frozen=True)
class Source:
    """A place with named files and their sizes. Names are relative, with `/` between their parts, and sorted.

    `unreadable` are the folders within that may not be listed.
    """

    path: Path
    sizes: dict[str, int]
    open: Callable[[str], IO[bytes] | None]
    close: Callable[[], None] = lambda: None
    unreadable: list[str] = field(default_factory=list)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def names(self) -> list[str]:
        return sorted(self.sizes)

    def read(self, name: str) -> bytes:
        """The bytes of a file, or a `SourceError`."""
        if name not in self.sizes:
            raise SourceError(f"{self.path}: no file {name!r} in it")
        try:
            file = self.open(name)
            if file is None:
                raise SourceError("no ordinary file")
            with file:  # at most one byte more than was promised: a lie about the size cannot fill the memory
                data = file.read(self.sizes[name] + 1)
        except DAMAGE as error:
            raise SourceError(f"{self.path}: {name!r} cannot be read ({describe(error)})") from error
        if len(data) > self.sizes[name]:
            raise SourceError(f"{self.path}: {name!r} is larger than the {self.sizes[name]} bytes it claims")
        return data

    def folders(self) -> dict[str, list[str]]:
        """Names of the files in each folder that holds any; the top is called `""`."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(name.rpartition("/")[0], []).append(name)
        return found

    def contents(self) -> str:
        """What a message says of a source in which nothing of use has been found."""
        first = f" (the first is {self.names[0]!r})" if self.names else ""
        return f"{len(self.names)} files, none of which is one{first}"


def describe(error: BaseException) -> str:
    """An error in a few words, without the path that some errors repeat."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def open_source(path: str | Path, limits: Limits | None = None) -> Source:
    """Open a folder or an archive; a message says what was found where neither is there."""
    path, limits = Path(path), limits or Limits()
    kinds = f"a folder or an archive ({', '.join(ARCHIVES)})"
    with ExitStack() as stack:
        try:
            if path.is_dir():
                source = _folder(path)
            elif not path.exists():
                raise SourceError(f"{path}: expected {kinds}, found nothing")
            elif not os.access(path, os.R_OK):
                raise SourceError(f"{path}: permission denied")
            elif zipfile.is_zipfile(path):
                source = _zip(path, stack.enter_context(zipfile.ZipFile(path)), limits)
            elif tarfile.is_tarfile(path):
                source = _tar(path, stack.enter_context(tarfile.open(path)), limits)
            else:
                raise SourceError(f"{path}: expected {kinds}, found another kind of file")
        except SourceError:
            raise
        except DAMAGE as error:
            raise SourceError(f"{path}: cannot be opened ({describe(error)})") from error
        check_names(path, source.sizes, limits)
        return replace(source, close=stack.pop_all().close)


def check_names(path: Path, sizes: dict[str, int], limits: Limits) -> None:
    """Refuse names that lead out of the source, and sizes beyond the limits."""
    if len(sizes) > limits.members:
        raise SourceError(f"{path}: expected at most {limits.members} files, found {len(sizes)}")
    for name, size in sizes.items():
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in name:
            raise SourceError(f"{path}: {name[:100]!r} leads out of the archive")
        if size > limits.file_bytes:
            raise SourceError(f"{path}: {name[:100]!r} is {size} bytes, expected at most {limits.file_bytes}")
    if sum(sizes.values()) > limits.total_bytes:
        raise SourceError(f"{path}: expected at most {limits.total_bytes} bytes in all, found {sum(sizes.values())}")


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


def _zip(path: Path, file: zipfile.ZipFile, limits: Limits) -> Source:
    members = [member for member in file.infolist() if not member.is_dir()]
    for member in members:
        if stat.S_ISLNK(member.external_attr >> 16):
            raise SourceError(f"{path}: {member.filename[:100]!r} is a link, which is not followed")
        growth = member.file_size / max(member.compress_size, 1024)
        if growth > limits.inflation:
            grown = f"{member.filename[:100]!r} would grow {growth:.0f} times when unpacked"
            raise SourceError(f"{path}: {grown}, expected at most {limits.inflation:g}")
    return Source(path, {member.filename: member.file_size for member in members}, file.open)


def _tar(path: Path, file: tarfile.TarFile, limits: Limits) -> Source:
    members: dict[str, tarfile.TarInfo] = {}
    total = 0
    # A compressed archive is inflated as it is listed, so the limits are checked on the way.
    for count, member in enumerate(file):
        if member.issym() or member.islnk():
            raise SourceError(f"{path}: {member.name[:100]!r} is a link, which is not followed")
        total += member.size
        if count > limits.members or total > limits.total_bytes or member.size > limits.file_bytes:
            raise SourceError(f"{path}: holds more than is sensible ({count} files, {total} bytes so far)")
        if member.isfile():
            members[member.name.removeprefix("./")] = member
    sizes = {name: member.size for name, member in members.items()}
    return Source(path, sizes, lambda name: file.extractfile(members[name]))
