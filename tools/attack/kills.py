"""(b) Runs that are killed at random and chosen moments, starved of disk, robbed of their folder, misled by the clock.

Each goes on afterwards, undisturbed, and must leave the bytes of a run that nothing has happened to.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.attack.runs import FAST, Command, Trap, begin, contents, difference, finish, prepare
from tools.attack.tally import CLEAN, HANG, SKIPPED, TRACEBACK, UNHARMED, WRONG, Tally

# Functions of `os` at which a process is killed: within a checkpoint, at a rename, as a folder is made, a file removed.
MOMENTS = ("fsync", "replace", "mkdir", "unlink")
ENDED = -signal.SIGKILL
SHORT = 300.0  # seconds, in less of which only the shortest command is killed
TURNS = (1, 0, 1, 1, 2, 1, 0, 1)  # commands by their number: the short one, inference, more often than the others
Say = Callable[[str], None]


class Campaign:
    """Commands with what each leaves undisturbed, and the folders of the attempts."""

    def __init__(self, work: Path, tally: Tally, rng: random.Random, deadline: float) -> None:
        self.work, self.tally, self.rng, self.number, self.deadline = work, tally, rng, 0, deadline
        self.cache = FAST | {"XDG_CACHE_HOME": str(work / "cache")}
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        self.commands = prepare(work)
        self.wanted: dict[str, Any] = {}
        self.lasted: dict[str, float] = {}

    def know(self, command: Command, say: Say) -> None:
        """Run a command once undisturbed, and remember what it leaves."""
        if command.name in self.wanted:
            return
        out, began = self.folder(), time.monotonic()
        code, told = self.end(command, out)
        if code != 0:
            raise OSError(f"{command.name} failed undisturbed: {told}")
        self.lasted[command.name] = time.monotonic() - began  # and compiled: those that follow are shorter
        self.wanted[command.name] = contents(out)
        say(f"{command.name} undisturbed: {self.lasted[command.name]:.1f} s")

    def folder(self) -> Path:
        self.number += 1
        where = self.work / "runs" / f"{self.number:04}"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        return where / "out"

    def start(self, command: Command, out: Path, trap: Trap | None = None) -> object:
        trap = trap or Trap()
        trap.environment = self.cache | trap.environment
        return begin((*command.words, "--out", str(out), "--quiet"), out.parent / "log", trap)

    def end(self, command: Command, out: Path, trap: Trap | None = None) -> tuple[int | None, str]:
        """Run to the end: the exit code, and what was said."""
        code = finish(self.start(command, out, trap))
        return code, (out.parent / "log").read_text(errors="replace")

    def judge(self, target: str, command: Command, out: Path, attempts: int, outcome: str = UNHARMED) -> None:
        """Go on undisturbed, and compare."""
        code, told = self.end(command, out)
        wrong = difference(contents(out), self.wanted[command.name]) if code == 0 else ""
        where = f"{command.name}, {out.parent}"
        if code is None:
            self.tally.add(target, HANG, where)
        elif "Traceback" in told:
            self.tally.add(target, TRACEBACK, f"{where}: {told[-300:]}")
        elif code != 0 or wrong:
            self.tally.add(target, WRONG, f"{where}: exit {code}, {wrong or told[-300:]}")
        else:
            self.tally.add(target, outcome, count=attempts)
            shutil.rmtree(out.parent, ignore_errors=True)

    # ---- What may happen

    def kill(self, command: Command) -> int:
        """Kill a run again and again, at random or chosen moments, before it is left in peace."""
        out, kills = self.folder(), 0
        for _ in range(self.rng.choice((2, 5, 8, 12))):
            if self.rng.random() < 0.5:
                process = self.start(command, out)
                process.join(self.rng.uniform(0.05, 0.8) * self.lasted[command.name])  # type: ignore[attr-defined]
                process.kill()  # type: ignore[attr-defined]
                process.join()  # type: ignore[attr-defined]
                code = process.exitcode  # type: ignore[attr-defined]
            else:
                code, _ = self.end(command, out, Trap(self.rng.choice(MOMENTS), self.rng.randint(1, 8)))
            kills += code == ENDED
            if code == 0 or time.monotonic() > self.deadline:
                break
        self.judge(f"kill -9: {command.name}", command, out, max(kills, 1))
        return kills

    def starve(self, command: Command) -> None:
        """No file may be larger than some bytes, as on a disk that is full."""
        out = self.folder()
        code, told = self.end(command, out, Trap(limit=self.rng.choice((1, 300, 2000, 8000, 30_000))))
        self.spoken("files cut short", command, out, code, told)

    def fill(self, command: Command) -> None:
        """A disk of a few kilobytes, which is then enlarged."""
        out = self.folder()
        disk = out.parent / "disk"
        disk.mkdir()
        size = self.rng.choice((16, 32, 64, 128))
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)], capture_output=True
        )
        if mounted.returncode:
            self.tally.add("full disk", SKIPPED, "no disk can be mounted here")
            return
        try:
            code, told = self.end(command, disk / "out")
            subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
            (disk / "log").write_text(told)
            self.spoken("full disk", command, disk / "out", code, told)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=False)

    def rob(self, command: Command) -> None:
        """The folder is moved away in the middle of the run, and put back when that has ended."""
        out = self.folder()
        process = self.start(command, out)
        process.join(self.rng.uniform(0.2, 0.9) * self.lasted[command.name])  # type: ignore[attr-defined]
        away = out.parent / "away"
        taken = out.exists() and bool(out.rename(away))
        code, told = finish(process), (out.parent / "log").read_text(errors="replace")
        if taken:
            shutil.rmtree(out, ignore_errors=True)
            away.rename(out)
        self.spoken("folder taken away", command, out, code, told)

    def mislead(self, command: Command) -> None:
        """A clock that jumps by years, and files of the past and the future."""
        out = self.folder()
        self.end(command, out, Trap("replace", self.rng.randint(2, 6), skew=self.rng.choice((-1e8, 1e8, 3e9))))
        for path in out.rglob("*"):
            when = self.rng.choice((0, 1e9, 4e9))
            os.utime(path, (when, when))
        code, told = self.end(command, out, Trap(skew=-3e8))
        self.spoken("clock that jumps", command, out, code, told)

    def spoken(self, target: str, command: Command, out: Path, code: int | None, told: str) -> None:
        """A run that could not do its work has said so; it goes on when it can."""
        if code is None or "Traceback" in told:
            self.tally.add(target, HANG if code is None else TRACEBACK, f"{command.name}, {out.parent}: {told[-300:]}")
        else:
            self.judge(target, command, out, 1, CLEAN if code else UNHARMED)


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    rng, deadline = random.Random(f"{seed}/kills"), time.monotonic() + seconds
    campaign, turns = Campaign(work, tally, rng, deadline), TURNS if seconds >= SHORT else (1,)
    kills, others, turn = 0, (campaign.starve, campaign.rob, campaign.mislead, campaign.fill), 0
    while time.monotonic() < deadline and (most is None or kills < most):
        command = campaign.commands[turns[turn % len(turns)]]
        campaign.know(command, say)
        kills += campaign.kill(command)
        if turn % 2 and time.monotonic() < deadline:
            others[turn // 2 % len(others)](campaign.commands[1] if turn % 4 == 1 else command)
        turn += 1
        say(f"{kills} kills, {len(tally.defects)} defects")
