"""Archives, `.zip` and `.tar(.gz)` alike: a list of names, and the bytes behind each. NumPy's `.npz` are archives too.

Nothing is unpacked to disk. Archives are untrusted: a name that leads out of the archive, a link, an absurd size or
number, or what would inflate beyond all proportion is refused with a `SourceError`.
"""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

# What the libraries raise on a file that is damaged, or is not what it seems: nearly anything.
DAMAGE = (
    *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, SyntaxError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
COMPRESSED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other ways are inflated without a bound by Python's reader
MOST_HEADER, USUAL_HEADER = 2**20, 4096  # bytes that a tar may say of one member, and of each on average
FREE_ARRAYS, MOST_GROWTH = 256 * 2**20, 100  # bytes that any `.npz` may hold, and beyond them how far it may inflate


class SourceError(ValueError):
    """A place that cannot be read, or an archive that is damaged or not to be trusted."""


@dataclass(frozen=True)
class Limits:
    """How much a source may hold. The defaults are far above any real collection of photos."""

    members: int = 1_000_000
    file_bytes: int = 512 * 2**20
    total_bytes: int = 256 * 2**30
    inflation: float = 1000.0  # a zip member's size over its compressed size, or a whole tar's


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
        if len(data) != self.sizes[name]:
            differs = "larger" if len(data) > self.sizes[name] else "smaller"
            raise SourceError(f"{self.path}: {name!r} is {differs} than the {self.sizes[name]} bytes it claims")
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


def open_archive(path: Path, limits: Limits | None = None) -> Source | None:
    """Open an archive; None where a file is of another kind."""
    limits = limits or Limits()
    with ExitStack() as stack:
        try:
            if zipfile.is_zipfile(path):
                source = _zip(path, stack.enter_context(zipfile.ZipFile(path)), limits)
            elif (file := _open_tar(path, stack)) is not None:
                source = _tar(path, file, limits)
            else:
                return None
        except SourceError:
            raise
        except DAMAGE as error:
            raise SourceError(f"{path}: cannot be opened ({describe(error)})") from error
        check_names(path, source.sizes, limits)
        return replace(source, close=stack.pop_all().close)


def read_npz(path: str | Path, only: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of a NumPy archive, or the one of a name, or a `SourceError`. Nothing in it is executed."""
    path = Path(path)
    most = max(FREE_ARRAYS, MOST_GROWTH * path.stat().st_size)
    source = open_archive(path, Limits(members=10_000, file_bytes=most, total_bytes=most, inflation=float("inf")))
    if source is None:
        raise SourceError(f"{path}: expected an archive of arrays (.npz), got another kind of file")
    with source:
        members = {name.removesuffix(".npy"): name for name in source.names}
        if only is not None and only not in members:
            raise SourceError(f"{path}: expected an array {only!r} in it, found {list(members)[:10]}")
        wanted = members if only is None else [only]
        return {name: as_array(source.read(members[name]), f"{path}: {members[name]!r}") for name in wanted}


def as_array(data: bytes, what: str) -> np.ndarray:
    """The array of a `.npy` file's bytes, which hold no less than it claims to be, or a `SourceError`."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = reader(file)
        if kind.hasobject or min(shape, default=0) < 0 or kind.itemsize * int(np.prod(shape, dtype=object)) > len(data):
            raise ValueError(f"{kind} of shape {shape} in {len(data)} bytes")
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # NumPy parses Python in there
        raise SourceError(f"{what}: expected an array, got a damaged one ({describe(error)})") from error


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


def _zip(path: Path, file: zipfile.ZipFile, limits: Limits) -> Source:
    members = [member for member in file.infolist() if not member.is_dir()]
    for member in members:
        if stat.S_ISLNK(member.external_attr >> 16):
            raise SourceError(f"{path}: {member.filename[:100]!r} is a link, which is not followed")
        if member.compress_type not in PACKED:
            raise SourceError(f"{path}: {member.filename[:100]!r} is packed in a rare way; zip it anew, by deflate")
        growth = member.file_size / max(member.compress_size, 1024)
        if growth > limits.inflation:
            grown = f"{member.filename[:100]!r} would grow {growth:.0f} times when unpacked"
            raise SourceError(f"{path}: {grown}, expected at most {limits.inflation:g}")
    return Source(path, {member.filename: member.file_size for member in members}, file.open)


class _Headers(io.BufferedIOBase):
    """The file beneath a tar's reader, which takes the sizes that headers claim as they are: here they are bounded."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, MOST_HEADER

    def read(self, size: int | None = -1, /) -> bytes:
        size = -1 if size is None else size
        self.left -= size  # what is asked for, not what is got: at the end of a file some readers ask for ever
        if size < 0 or self.left < 0:
            raise SourceError("what it says of its files is larger than is sensible")
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _open_tar(path: Path, stack: ExitStack) -> tarfile.TarFile | None:
    raw: IO[bytes] = stack.enter_context(path.open("rb"))
    first = raw.read(6)
    raw.seek(0)
    unpack = next((opener for magic, opener in COMPRESSED.items() if first.startswith(magic)), None)
    try:
        stream = raw if unpack is None else stack.enter_context(unpack(raw))
        return stack.enter_context(tarfile.TarFile(fileobj=_Headers(stream)))  # type: ignore[arg-type]
    except tarfile.ReadError:
        return None


def _tar(path: Path, file: tarfile.TarFile, limits: Limits) -> Source:
    places: dict[str, tuple[int, int]] = {}  # of much less memory than what the reader keeps of each member
    headers: Any = file.fileobj
    count, total = 0, 0
    most = min(limits.total_bytes, int(limits.inflation * max(path.stat().st_size, 2**20)))
    # A compressed archive is inflated as it is listed, so the limits are checked on the way.
    while (member := file.next()) is not None:
        file.members.clear()  # type: ignore[attr-defined]
        headers.left = min(headers.left + USUAL_HEADER, MOST_HEADER)
        if member.issym() or member.islnk():
            raise SourceError(f"{path}: {member.name[:100]!r} is a link, which is not followed")
        if member.size < 0 or member.issparse():
            raise SourceError(f"{path}: {member.name[:100]!r} is no ordinary file")
        count, total = count + 1, total + member.size
        if count > limits.members or total > most or member.size > limits.file_bytes:
            raise SourceError(f"{path}: holds more than is sensible ({count} files, {total} bytes so far)")
        if member.isfile():
            places[member.name.removeprefix("./")] = member.offset_data, member.size

    def load(name: str) -> IO[bytes]:
        at, size = places[name]
        headers.file.seek(at)
        return io.BytesIO(headers.file.read(size))

    return Source(path, {name: size for name, (_, size) in places.items()}, load)
