"""(d) Job after job in one studio: neither its server nor the process that infers may grow."""

import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tools.attack.load import MOST_GROWTH
from tools.attack.runs import FAST
from tools.attack.served import NeverError, Served, resident
from tools.attack.tally import HANG, SKIPPED, UNHARMED, WRONG, Tally

LEAST = 180  # jobs: in the first third are all that the studio remembers
MODEL = "yaleb24"
OPTIONS = {"example": "1", "iterations": "20", "align": "false"}
Say = Callable[[str], None]


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    """The example again and again, all its files and a new light, until the time is up."""
    if seconds < 60:
        tally.add("load: jobs of the studio", SKIPPED, "in so short a time")
        return
    deadline = time.monotonic() + seconds
    served = Served(work / "jobs", MODEL, FAST | {"XDG_CACHE_HOME": str(work / "cache")})
    try:
        served.ready()
        began, held = time.monotonic(), []
        while time.monotonic() < deadline and (most is None or len(held) < most):
            one(served, seed + len(held))
            held.append((resident(served.process.pid), resident(served.worker())))
            if len(held) % 100 == 0:
                say(f"{len(held)} jobs, {held[-1][0] / 1e6:.0f} MB and {held[-1][1] / 1e6:.0f} MB")
        minutes = (time.monotonic() - began) / 60
        if served.status()["restarts"]:
            tally.add("load: jobs of the studio", WRONG, "the process that infers was started again")
    except (NeverError, OSError) as error:
        tally.add("load: jobs of the studio", HANG, f"{type(error).__name__}: {error}")
        return
    finally:
        served.process.terminate()
        try:
            served.process.wait(30)
        except subprocess.TimeoutExpired:
            served.process.kill()
            tally.add("load: jobs of the studio", HANG, "the studio was told to end, and had not after 30 s")
    if len(held) < LEAST:
        tally.add("load: jobs of the studio", SKIPPED, f"{len(held)} jobs in so short a time: too few to tell")
        return
    for column, who in enumerate(("server", "worker")):
        told, growth = compared([pair[column] for pair in held])
        told = f"{len(held)} jobs of the studio in {minutes:.0f} minutes, {who}: memory {told}"
        tally.add(f"load: jobs of the studio, {who}", UNHARMED if growth <= MOST_GROWTH else WRONG, told)
        tally.notes.append(told)


def one(served: Served, number: int) -> None:
    name = served.client.post("/infer", data=OPTIONS | {"seed": str(number)}).raise_for_status().json()["id"]
    if (found := served.ended(name))["state"] != "done":
        raise NeverError(f"a job failed: {found['text']}")
    served.files(name)


def compared(held: list[int]) -> tuple[str, float]:
    """What memory was in the middle and in the last third, and how much it has grown between."""
    third = len(held) // 3
    before, after = (statistics.median(part) for part in (held[third : 2 * third], held[2 * third :]))
    growth = after / before - 1
    return f"{before / 1e6:.0f} MB, then {after / 1e6:.0f} MB ({growth:+.1%}), at most {max(held) / 1e6:.0f} MB", growth
