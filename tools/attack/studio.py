"""(b) and (a) of the studio: its worker and its server are killed in the middle of jobs, and it is sent what hurts.

A job that was struck must be reported as failed in a sentence, all others and those that follow must be done, and leave
the bytes of a studio that nothing has happened to. Of a server that was killed nothing must stay that others can read.
"""

import os
import random
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tools.attack import uploads
from tools.attack.originals import encoded
from tools.attack.runs import FAST, prepare
from tools.attack.served import NeverError, Served, is_alive, wait_for
from tools.attack.tally import CLEAN, HANG, SKIPPED, TRACEBACK, UNHARMED, WRONG, Tally

SWEEPS = (20, 100, 400)  # of the jobs, by their number: short and long ones
STRUCK = "the process that infers "  # has ended, or cannot be started
GONE = 10.0  # seconds in which nothing of a studio that was killed may be left at work
LEAST = 60.0  # seconds for all of it: a studio compiles first
UPLOADS = 12  # hostile requests between two kills
Say = Callable[[str], None]


class Siege:
    """A studio, what its jobs leave undisturbed, and how many kills there were."""

    def __init__(self, work: Path, tally: Tally, rng: random.Random) -> None:
        self.work, self.tally, self.rng, self.kills = work, tally, rng, 0
        prepare(work)
        self.place, self.model = work / "studio", str(work / "data" / "model")
        self.cache = FAST | {"XDG_CACHE_HOME": str(work / "cache")}
        self.served = self.start()
        began = time.monotonic()
        self.wanted = [self.served.files(self.done(number)) for number in range(len(SWEEPS))]
        self.lasted = (time.monotonic() - began) / len(SWEEPS)

    def start(self, keep: Path | None = None) -> Served:
        return Served(self.place, self.model, self.cache, keep).ready()

    def submit(self, number: int) -> str:
        options = {"align": "false", "iterations": str(SWEEPS[number]), "seed": str(number)}
        return self.served.post(encoded("png", number, 24), **options).raise_for_status().json()["id"]

    def done(self, number: int) -> str:
        """A job that must be done: its name."""
        name = self.submit(number)
        if (found := self.served.ended(name))["state"] != "done":
            raise NeverError(f"a job failed undisturbed: {found['text']}")
        return name

    def several(self) -> dict[str, int]:
        """Jobs that have been handed in, by their names."""
        numbers = [self.rng.randrange(len(SWEEPS)) for _ in range(3)]
        return {self.submit(number): number for number in numbers}

    def wrong(self, name: str, number: int) -> str:
        """Which files of a job are not those of an undisturbed one."""
        found, wanted = self.served.files(name), self.wanted[number]
        return ", ".join(sorted(each for each in found.keys() | wanted if found.get(each) != wanted.get(each)))

    def judge(self, target: str, wrong: str, outcome: str = UNHARMED, count: int = 1) -> None:
        """Look at what the studio has said, too."""
        if "Traceback" in self.served.said():
            self.tally.add(target, TRACEBACK, f"{wrong} {self.served.said()[-500:]}")
            self.served.log.write_text("")
        elif wrong:
            self.tally.add(target, WRONG, wrong)
        else:
            self.tally.add(target, outcome, count=count)

    # ---- What may happen

    def kill_worker(self) -> None:
        """Kill the process that infers at any moment of three jobs, and perhaps the next one as it starts."""
        jobs, struck, wrong = self.several(), 0, []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            time.sleep(self.rng.uniform(0, 2 * self.lasted))
            if worker := self.served.worker():
                os.kill(worker, signal.SIGKILL)
                struck += 1
                wait_for("the end of a killed process", lambda worker=worker: not is_alive(worker), GONE)
        failed = 0
        for name, number in jobs.items():
            found = self.served.ended(name)
            failed += found["state"] == "failed"
            if found["state"] == "done":
                wrong.append(self.wrong(name, number))
            elif found["state"] != "failed" or not found["text"].startswith(STRUCK):
                wrong.append(f"a job that was struck is {found['state']}: {found['text']!r}")
        again = self.rng.randrange(len(SWEEPS))
        wrong.append(self.wrong(self.done(again), again))
        self.kills += struck
        outcome = CLEAN if failed else UNHARMED
        self.judge("studio: kill -9 of the worker", "; ".join(filter(None, wrong)), outcome, max(struck, 1))

    def end_server(self, sign: int, target: str) -> None:
        """End the studio at any moment of its jobs: with nothing, or with files that are kept."""
        keep = self.work / "kept" if self.rng.random() < 0.5 else None
        if keep is not None:
            self.served.end(signal.SIGTERM)
            self.served = self.start(keep)
        self.several()
        time.sleep(self.rng.uniform(0, 2 * self.lasted))
        worker, wrong = self.served.worker(), []
        code = self.served.end(sign)
        self.kills += sign == signal.SIGKILL
        if code is None:
            wrong.append("it did not end within 30 s")
        if worker:
            wait_for("the end of a killed studio's worker", lambda: not is_alive(worker), GONE)
        wrong += self.left(sign == signal.SIGKILL) + (self.halves(keep) if keep else [])
        self.served = self.start()
        mine = [path.name for path in self.temporary()]
        if len(mine) != 1:
            wrong.append(f"a fresh studio leaves what the one before it has left: {mine}")
        number = self.rng.randrange(len(SWEEPS))
        wrong.append(self.wrong(self.done(number), number))
        self.judge(target, "; ".join(filter(None, wrong)))

    def kill_server(self) -> None:
        self.end_server(signal.SIGKILL, "studio: kill -9 of the server")

    def tell_server(self) -> None:
        self.end_server(signal.SIGTERM, "studio: the server is told to end")

    def temporary(self) -> list[Path]:
        return list((self.place / "temp").iterdir())

    def left(self, killed: bool) -> list[str]:
        """What is wrong with the temporary files of a studio that has ended: there are none, or none can read them."""
        found = self.temporary()
        if not killed:
            return [f"left behind: {', '.join(path.name for path in found)}"] if found else []
        modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in found}
        return [f"{name} has mode {mode:o}" for name, mode in modes.items() if mode != 0o700]

    def halves(self, keep: Path) -> list[str]:
        """Files that were kept and are none that an undisturbed job leaves."""
        known = {(name, data) for wanted in self.wanted for name, data in wanted.items()}
        kept = [path for path in keep.glob("*/files/*") if path.is_file()]
        return [f"half of {path}" for path in kept if (path.name, path.read_bytes()) not in known]

    def send(self) -> None:
        """Requests and photos that hurt; the same worker must be there afterwards."""
        worker = self.served.ready().worker()
        for _ in range(UPLOADS):
            outcome, told = uploads.attempt(self.served, self.rng)
            self.tally.add("studio: hostile uploads", outcome, told)
        if self.served.worker() != worker:
            self.tally.add("studio: hostile uploads", TRACEBACK, "the process that infers has ended")
        self.judge("studio: after hostile uploads", self.wrong(self.done(0), 0))


TURNS: tuple[Callable[[Siege], Any], ...] = (Siege.send, Siege.kill_worker, Siege.kill_server, Siege.kill_worker)


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    """Turn by turn until the time is up, or there were so many kills."""
    if seconds < LEAST:
        tally.add("studio", SKIPPED, "in so short a time")
        return
    deadline, turn = time.monotonic() + seconds, 0
    siege = Siege(work, tally, random.Random(f"{seed}/studio"))
    try:
        while time.monotonic() < deadline and (most is None or siege.kills < most):
            act = Siege.tell_server if turn % 16 == 15 else TURNS[turn % len(TURNS)]
            try:
                act(siege)
            except (NeverError, OSError, httpx.HTTPError) as error:
                tally.add(f"studio: {act.__name__}", HANG, f"{type(error).__name__}: {error}")
                siege.served.end(signal.SIGKILL)
                siege.served = siege.start()
            turn += 1
            say(f"{siege.kills} kills of the studio, {len(tally.defects)} defects")
    finally:
        siege.served.end(signal.SIGTERM)
