"""Show where compiled programs are kept for the next run, and how much they take; clear them.

Nothing is lost by it: what is needed again is compiled again.
"""

import argparse
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from deep_lambertian.cli.options import print_json, tell

EXAMPLE = """examples:
  dln cache
  dln cache --clear"""
VARIABLE = "JAX_COMPILATION_CACHE_DIR"
KEPT = ("traced-*", ".traced-*.part", "*-cache", "*-atime")  # what we write there, and what JAX does
DAMAGED = r"Error reading persistent compilation cache entry for '(\w+)'"
MOST_BYTES = 512 * 2**20  # some fifty models, each with several shapes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all of it")


def run(options: argparse.Namespace) -> None:
    folder = place()
    found = prune(folder, most=0) if options.clear else contents(folder)
    if options.json:
        print_json({**asdict(found), "cleared": options.clear})
    else:
        done = "removed " if options.clear else ""
        tell(f"{found.folder}: {done}{found.files} files, {found.bytes / 1e6:.1f} MB")


# ---- The folder itself. Programs are code: nobody else may write to it. It is known without JAX, which reads where it
# is when it is first imported.


class CacheError(OSError):
    """A folder that programs cannot be kept in, or that somebody else could have put programs into."""


@dataclass(frozen=True)
class Contents:
    """Where the cache is, and how much is in it."""

    folder: str
    files: int
    bytes: int


def place() -> Path:
    """The folder that the user names, or the one of this package in the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise CacheError(f"{error}; name a folder by XDG_CACHE_HOME") from error
    return Path(home) / "deep_lambertian" / "compiled"


def make_private(folder: Path) -> None:
    """Make the folder if it is not there, and close it to all others; a `CacheError` where others had their way."""
    do = "programs are not kept; choose another place by XDG_CACHE_HOME"
    try:
        for each in (folder.parent, folder):  # who can write to the first can put another in the second's place
            made = not each.exists()
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
            if hasattr(os, "getuid"):  # elsewhere, the folders of a user are closed to others by themselves
                _check_own(each, do)
                if made or each == folder:
                    each.chmod(0o700)
    except CacheError:
        raise
    except OSError as error:
        raise CacheError(f"{folder}: {(error.strerror or str(error)).lower()}; {do}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CacheError(f"{folder}: cannot be written to; {do}")


def _check_own(folder: Path, do: str) -> None:
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise CacheError(f"{folder}: expected a folder of your own, found one of user {found.st_uid}; {do}")
    if found.st_mode & 0o022:
        mend = "clear it with dln cache --clear, and then chmod 700 it"
        raise CacheError(f"{folder}: expected that nobody else may write there, found that others may; {mend}")


def contents(folder: Path) -> Contents:
    sizes = [size for _, size, _ in _kept(folder)]
    return Contents(str(folder), len(sizes), sum(sizes))


def prune(folder: Path, most: int = MOST_BYTES) -> Contents:
    """Remove what was not used for longest until the rest is of `most` bytes; what was removed."""
    found, removed = _kept(folder), []
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most:
            break
        path.unlink(missing_ok=True)
        left -= size
        removed.append(size)
    return Contents(str(folder), len(removed), sum(removed))


def discard(warning: str) -> bool:
    """Remove the programs that JAX warns of, which it would neither use nor replace; whether it did warn of any."""
    found = re.match(DAMAGED, warning)
    folder = os.environ.get(VARIABLE)
    for path in Path(folder).glob(f"{found[1]}-*-cache") if found and folder else ():
        path.unlink(missing_ok=True)
    return found is not None


def _kept(folder: Path) -> list[tuple[float, int, Path]]:
    """When each file was last used, its size and where it is; files of others are let be, whoever named the folder."""
    found = []
    for path in {path for pattern in KEPT for path in folder.glob(pattern)}:
        try:
            stat = path.lstat()
        except FileNotFoundError:  # another process has removed it
            continue
        found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
    return found
