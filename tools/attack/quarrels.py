"""(c) Two and three processes of one run that die, dawdle, are stopped, disagree, or find a stranger at the port.

Whatever happens to one of them, all must have ended within 30 s with a sentence; or, where nothing is lost, done.
"""

import os
import random
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tools.attack.runs import FAST, Trap, begin, prepare
from tools.attack.tally import CLEAN, HANG, SKIPPED, TRACEBACK, UNHARMED, WRONG, Tally

PATIENCE = 30.0  # seconds from the fault to the end of all
WORK = 240.0  # seconds for a run that nothing has happened to
SENTENCES = ("dln ", "if one dies, all stop within 30 s", "expected")
Say = Callable[[str], None]


@dataclass
class Fault:
    """What is done to the processes: words that some are given, how late some come, and a blow `when` the time is ripe.

    `when` is "start", "meeting", or "work"; `blow` a signal for process `who`; `relieved` are seconds until SIGCONT.
    """

    name: str
    count: int = 2
    words: dict[int, list[str]] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    late: dict[int, float] = field(default_factory=dict)
    when: str = ""
    blow: int = 0
    who: int = 1
    relieved: float = 0.0
    stranger: bytes | None = None
    harmless: bool = False

    @property
    def computes(self) -> bool:
        """Whether its processes have to get to work."""
        return self.when == "work" or self.harmless

    @property
    def lasts(self) -> float:
        """Seconds that it may take."""
        waits = bool(self.absent) or self.when == "meeting"
        return 90.0 if self.computes else 5 + 25 * waits + 1.5 * max(self.late.values(), default=0)


def faults(rng: random.Random) -> list[Fault]:
    """One of each kind, by chance of two or three processes, to this one or that."""
    count = rng.choice((2, 2, 3))
    who = rng.randrange(count)
    other = rng.randrange(1, count)
    signs = {"killed": signal.SIGKILL, "told to end": signal.SIGTERM}
    found = [
        Fault(f"{word} in {when}", count, when=when, blow=sign, who=who)
        for word, sign in signs.items()
        for when in ("meeting", "work")
    ]
    strange = rng.choice((b"GET / HTTP/1.0\r\n\r\n", b"[" * 900 + b"\n", b'{"process":1e999}\n', b""))
    return [  # those that end at once first
        Fault("another count", count, words={other: ["--processes", str(count + 1)]}),
        Fault("the same number", 3, words={2: ["--process-id", "1"]}),
        Fault("another seed", count, words={other: ["--seed", "7"]}),
        Fault("other settings", count, words={other: ["--set=keep=2"]}),
        Fault("other data", count, words={other: ["--objects", "o0,o1,o2,o3,o4"]}),
        Fault("no data", count, words={other: ["--objects", "nobody"]}),
        Fault("absent", count, absent=(who,)),
        Fault("too late", count, late={other: 24}),
        *found,
        Fault("stopped for good", count, when="work", blow=signal.SIGSTOP, who=other),
        Fault("stopped for a moment", count, when="work", blow=signal.SIGSTOP, who=who, relieved=3, harmless=True),
        Fault("late", count, late={who: rng.uniform(1, 6)}, harmless=True),
        Fault("strangers", count, stranger=strange, harmless=True),
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def suffer(fault: Fault, words: tuple[str, ...], where: Path, cache: dict[str, str]) -> tuple[str, str]:
    """Start the processes, do what the fault is, and see how they end."""
    where.mkdir(parents=True, exist_ok=True)
    port, began = free_port(), time.monotonic()
    started: dict[int, Any] = {}
    waiting = {i: fault.late.get(i, 0.0) for i in range(fault.count) if i not in fault.absent}
    struck = began
    blow_left, knocked = bool(fault.blow), fault.stranger is None
    freed: float | None = None
    while True:
        now = time.monotonic()
        for i in [i for i, delay in waiting.items() if now - began >= delay]:
            del waiting[i]
            own = ["--coordinator", f"127.0.0.1:{port}", "--processes", str(fault.count), "--process-id", str(i)]
            more = [*own, *fault.words.get(i, [])]
            started[i] = begin(
                (*words, "--out", str(where / "out"), *more), where / f"{i}.log", Trap(environment=cache)
            )
            struck = time.monotonic() if not fault.blow else struck
        if not knocked and now - began > 1.5:
            knocked = _knock(port, fault.stranger or b"")
        if blow_left and fault.who in started and _ripe(fault, where, now - began):
            _send(started[fault.who], fault.blow)
            blow_left, struck = False, time.monotonic()
            freed = struck + fault.relieved if fault.relieved else None
        if freed is not None and time.monotonic() > freed:
            _send(started[fault.who], signal.SIGCONT)
            freed = None
        stuck = fault.who if fault.blow == signal.SIGSTOP and not fault.relieved else None
        alive = [i for i, process in started.items() if process.is_alive() and i != stuck]
        if not alive and not waiting:
            break
        limit = (
            WORK
            if fault.harmless or blow_left
            else PATIENCE + 20 * (not fault.blow) + max(fault.late.values(), default=0)
        )
        if blow_left and time.monotonic() - struck > limit:
            return _end(started) or (SKIPPED, f"its processes did not get to work within {limit:.0f} s")
        if time.monotonic() - struck > limit:
            return _end(started) or (HANG, f"processes {alive} of {fault.count} were still there after {limit:.0f} s")
        time.sleep(0.05)
    took = time.monotonic() - struck
    _end(started)
    return _judge(fault, where, {i: process.exitcode for i, process in started.items()}, took)


def _ripe(fault: Fault, where: Path, passed: float) -> bool:
    if fault.when == "meeting":
        return passed > 1.0
    return any((where / "out" / "checkpoints").glob("step-*"))


def _send(process: Any, sign: int) -> None:
    if process.is_alive():
        os.kill(process.pid, sign)


def _knock(port: int, data: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
            peer.sendall(data)
        return True
    except OSError:
        return False


def _end(started: dict[int, Any]) -> tuple[str, str] | None:
    for process in started.values():
        process.kill()
        process.join()
    return None


def _judge(fault: Fault, where: Path, codes: dict[int, int], took: float) -> tuple[str, str]:
    logs = {i: (where / f"{i}.log").read_text(errors="replace") for i in codes}
    told = "; ".join(f"process {i}, exit {codes[i]}: {log.strip()[-200:]}" for i, log in logs.items())
    hit = {fault.who} if fault.blow else set()
    if any("Traceback" in log for log in logs.values()):
        return TRACEBACK, told
    if fault.harmless:
        return (UNHARMED, "") if set(codes.values()) == {0} else (WRONG, told)
    if all(code == 0 for code in codes.values()):  # the blow came when all was done
        return UNHARMED, ""
    mute = [i for i, log in logs.items() if i not in hit and not any(each in log for each in SENTENCES)]
    if mute or any(codes[i] == 0 for i in codes if i not in hit and not fault.blow):
        return WRONG, f"no sentence of {mute}, or a success that is none: {told}"
    return CLEAN, f"{took:.0f} s"


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    rng, deadline = random.Random(f"{seed}/processes"), time.monotonic() + seconds
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    train = prepare(work)[0].words
    cache, done = FAST | {"XDG_CACHE_HOME": str(work / "cache")}, 0
    for turn in count():
        before = done
        for fault in faults(rng):
            if fault.computes != bool(turn % 2):  # those that compute, a minute each, in every second round
                continue
            if most is not None and done >= most:
                return
            if deadline - time.monotonic() < fault.lasts:
                continue
            outcome, told = suffer(fault, train, work / "quarrels" / f"{done:03}", cache)
            told = f"seed {seed}, number {done}, {fault.count} processes: {told}"
            tally.add(f"processes: {fault.name}", outcome, told)
            done += outcome != SKIPPED
            say(f"{done} faults, {fault.name}: {outcome}, {told[:90]}, {len(tally.defects)} defects")
        if done == before:  # there is no time left for any
            return
