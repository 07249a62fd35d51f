"""The process that reads bad files, and one that watches it: what hangs or crashes is found, and the rest goes on."""

import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tools.attack.formats import FORMATS, Format, attempt, digest
from tools.attack.mutations import mutate
from tools.attack.originals import write_originals
from tools.attack.tally import HANG, TRACEBACK, WRONG

LONGEST = 10.0  # seconds for a file, without those in which others had the processor
MOST_MEMORY = 2**30  # bytes by which the reader of one small file may grow
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Catalogue:
    """Formats, and who writes a sound file of each; functions of modules, which another process can import."""

    formats: Callable[[], dict[str, Format]]
    write: Callable[[Path], dict[str, Path]]


def all_formats() -> dict[str, Format]:
    return FORMATS


EVERYTHING = Catalogue(all_formats, write_originals)


@dataclass(frozen=True)
class Parcel:
    """Mutations `first` to `first + count` of a format's file; or, with `data`, one file as it is."""

    name: str
    first: int
    count: int
    data: bytes | None = None


def mutated(form: Format, whole: bytes, seed: int, number: int) -> bytes:
    """The mutation of this number: the same for the same seed."""
    rng = random.Random(f"{seed}/{form.name}/{number}")
    if form.structure is not None and rng.random() < 0.5:
        return form.structure(whole, rng)
    return mutate(whole, rng)


def work(connection: Connection, beat: Any, catalogue: Catalogue, folder: Path, seed: int) -> None:
    """Do parcels as they come; `beat` holds the number under way, and when it was begun."""
    sys.setrecursionlimit(1000)
    formats, places = catalogue.formats(), catalogue.write(folder)
    wholes = {name: (path.read_bytes(), digest(formats[name].read(path))) for name, path in places.items()}
    here = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="attack-"))
    connection.send("ready")
    while (parcel := connection.recv()) is not None:
        form = formats[parcel.name]
        path = here / parcel.name.replace(" ", "-") / places[parcel.name].name
        path.parent.mkdir(exist_ok=True)
        counts: Counter[str] = Counter()
        for number in range(parcel.first, parcel.first + parcel.count):
            data = parcel.data if parcel.data is not None else mutated(form, wholes[parcel.name][0], seed, number)
            path.write_bytes(data)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            beat[0], beat[1] = number, time.monotonic()
            outcome, told = attempt(form, path, wholes[parcel.name][1])
            beat[1] = 0.0
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            if grown > MOST_MEMORY:
                outcome, told = WRONG, f"took {grown / 2**20:.0f} MB"
            counts[outcome] += 1
            if outcome in (TRACEBACK, WRONG):
                connection.send((number, outcome, told))
        connection.send(counts)
    shutil.rmtree(here, ignore_errors=True)


def waited(process: int | None) -> float:
    """Seconds for which a process was ready to run, and another one ran: none of its own doing."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Worker:
    """A reader that is watched, and started again when it hangs or dies."""

    def __init__(self, catalogue: Catalogue, folder: Path, seed: int) -> None:
        self._arguments = catalogue, folder, seed
        self._beat = SPAWN.Array("d", [0.0, 0.0])
        self._start()

    def _start(self) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=work, args=(theirs, self._beat, *self._arguments), daemon=True)
        self.process.start()
        theirs.close()
        try:
            if self.connection.poll(600) and self.connection.recv() == "ready":
                return
        except EOFError:
            pass
        raise OSError("the reader of bad files did not start")

    def do(self, parcel: Parcel) -> Iterator[tuple[int, str, str] | Counter[str]]:
        """Defects as they are found, by their number, and counts of all outcomes."""
        self._beat[0], self._beat[1] = parcel.first - 1, 0.0
        self.connection.send(parcel)
        began, queued = 0.0, 0.0
        while True:
            wrong = ""
            try:
                if self.connection.poll(0.5):
                    found = self.connection.recv()
                    yield found
                    if isinstance(found, Counter):
                        return
                    continue
                if not self.process.is_alive():
                    raise EOFError
                if self._beat[1] != began:
                    began, queued = self._beat[1], waited(self.process.pid)
                if began and time.monotonic() - began - (waited(self.process.pid) - queued) > LONGEST:
                    wrong = HANG
            except (EOFError, ConnectionError):
                wrong = TRACEBACK
            if wrong:
                number = int(self._beat[0])
                self.process.kill()
                self.process.join()
                told = f"more than {LONGEST:g} s" if wrong == HANG else f"the process ended by {self.process.exitcode}"
                yield number, wrong, told
                yield Counter({wrong: 1})
                self._start()  # what is left of the parcel may hang as well: it is left
                return

    def close(self) -> None:
        try:
            self.connection.send(None)
            self.process.join(5)
        except (OSError, ValueError):
            pass
        self.process.kill()
