"""What several commands share: arguments, checks before the work, and ways to print."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def whole(least: int, most: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number within bounds."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {text[:40]!r}")
        return number

    return parse


SEED, CHAINS, SAMPLES = whole(0, 2**32 - 1), whole(1, 1000), whole(0, 1000)


def shown(text: str) -> str:
    """A text as a terminal may have it: what would move its cursor or change its colours is written as its code."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def tell(text: str) -> None:
    """Print a line of results."""
    print(shown(text))


MODEL = "a bundled model's name (see dln models) or a model file"


def add_inference(parser: argparse.ArgumentParser, what: str, pictures: str) -> None:
    """Of commands that infer something, called `what`, from pictures, which are called so."""
    parser.add_argument("--chains", type=CHAINS, metavar="N", help=f"N chains for each {what} (default: the preset's)")
    parser.add_argument("--iterations", type=int, metavar="N", help="sweeps of a chain (default: as the model has it)")
    linear = f"take the {pictures}' numbers as linear light, not sRGB"
    parser.add_argument("--linear", action="store_true", help=linear)


def join_processes(options: argparse.Namespace) -> None:
    """Join the other processes of the run, if there are any."""
    from deep_lambertian.support import distributed

    distributed.initialise(options.coordinator, options.processes, options.process_id, printer_of(options))


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Of commands that many processes can share."""
    group = parser.add_argument_group("many processes")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    group.add_argument("--processes", type=int, metavar="N", help="how many processes there are")
    group.add_argument("--process-id", type=int, metavar="I", help="which one this is, from 0")


def numbers(text: str, count: int, option: str, form: str) -> list[float]:
    """`count` numbers between commas, or a ValueError that shows the form they should have."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != count:
        raise ValueError(f"{option}: expected {form}, got {text!r}")
    return found


def check_writable(path: Path) -> None:
    """Refuse, before the work, a place where no folder for results can be made, or nothing be written into it."""
    import tempfile  # 20 ms, which no command's help should cost

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


def printer_of(options: argparse.Namespace) -> Callable[[str], None]:
    """A function that prints what is being done, on standard error, unless --quiet is given."""
    return lambda text: None if options.quiet else print(shown(text), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
