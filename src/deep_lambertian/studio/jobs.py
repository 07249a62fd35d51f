"""Jobs, the queue they wait in, and the one process that does them, which is watched and replaced when it goes wrong.

A job is known by its status alone, of which the latest counts: whoever comes late, in another tab or after a reload,
sees the same. The last so many are remembered, and no more, so that the studio does not grow.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 0.2  # seconds between two looks at the worker's memory
GRACE = 2.0  # seconds in which a job that was cancelled may end by itself
LINE = 1 << 24  # bytes of one line of a worker, at most
ENDED = ("done", "failed", "cancelled")
ALONE = {"OPENBLAS_NUM_THREADS": "1"}  # small products: threads wait for each other longer than they work


@dataclass(frozen=True)
class Limits:
    """What may be asked of the studio: bytes of an upload, pixels of a photo and of all of a job, how many there may
    be; how many jobs may wait and are remembered; bytes of memory and seconds that the worker may take for one.
    """

    upload_bytes: int = 60_000_000
    photo_pixels: int = 25_000_000
    job_pixels: int = 60_000_000
    photos: int = 12
    gallery: int = 100
    waiting: int = 50
    jobs: int = 60
    memory_bytes: int = 4 << 30
    seconds: float = 300.0
    start_seconds: float = 300.0


class QueueFull(Exception):
    """Too many jobs wait already."""


@dataclass
class Job:
    """Something to do: of a `kind`, with what the worker must know, in a `folder` of its own."""

    id: str
    kind: str
    title: str
    folder: Path
    asked: dict[str, Any]
    state: str = "waiting"
    facts: dict[str, Any] = field(default_factory=dict)
    created: float = field(default_factory=time.time)
    version: int = 0
    cancelled_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class Studio:
    """The queue and its worker; all of it belongs to one event loop."""

    def __init__(self, folder: Path, worker: Sequence[str], limits: Limits, keep: bool = False) -> None:
        self.folder, self.limits, self.keep = folder, limits, keep
        self.jobs: dict[str, Job] = {}
        self.state, self.restarts, self.closing = "starting", 0, False
        self._command, self._trouble = [*worker], ""
        self._worker: asyncio.subprocess.Process | None = None
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ---- What the server asks for

    def check_room(self) -> None:
        """Refuse at once, before photos are read, what would have to wait too long."""
        if len(self._waiting) >= self.limits.waiting:
            raise QueueFull(f"{len(self._waiting)} jobs are waiting already, which is the limit; try again later")

    def submit(
        self,
        kind: str,
        title: str,
        asked: dict[str, Any],
        *,
        of: Job | None = None,
        uploads: dict[str, bytes] | None = None,
    ) -> Job:
        """Have a job wait for its turn, in a folder of its own, which nobody else may read, or in that of another."""
        self.check_room()
        name = secrets.token_hex(8)
        job = Job(name, kind, title, self.folder / name if of is None else of.folder, asked)
        job.folder.mkdir(mode=0o700, exist_ok=True)
        for file, data in (uploads or {}).items():
            path = job.folder / "uploads" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.jobs[job.id] = job
        self._waiting.append(job)
        self._forget()
        self._tell(job)
        return job

    def position(self, job: Job) -> int:
        """How many jobs come before this one, that which is being done included."""
        return self._waiting.index(job) + (self._running is not None) if job in self._waiting else 0

    def status(self, job: Job, full: bool = True) -> dict[str, Any]:
        brief = {"id": job.id, "kind": job.kind, "title": job.title, "state": job.state, "created": job.created}
        brief |= {"position": self.position(job), "text": self._words(job)}
        if full:
            return brief | {name: value for name, value in job.facts.items() if name != "text"}
        return brief | {"picture": job.facts.get("surface", {}).get("before")}

    async def follow(self, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Its status now, and whenever something changes, to its end."""
        seen: tuple[Any, ...] = ()
        while not self.closing:
            changed, now = self._changed, (job.version, self.position(job), self.state)
            if now != seen:
                seen = now
                yield self.status(job)
            if job.ended or job.id not in self.jobs:
                return
            await changed.wait()

    def cancel(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
            self._end(job, "cancelled")
        elif job is self._running and job.cancelled_at is None:
            job.cancelled_at = time.monotonic()
            self._send({"cancel": job.id})
            self._tell(job, text="being cancelled")

    def forget(self, job: Job) -> None:
        """Cancel it, and remove all there is of it."""
        self.cancel(job)
        if job is not self._running:
            self.jobs.pop(job.id, None)
            if job.folder.name == job.id and not self.keep:
                shutil.rmtree(job.folder, ignore_errors=True)
        self._wake()

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        self.closing = True
        self._wake()
        while self._task is not None and not self._task.done():
            self._task.cancel()  # more than once: wait_for may take one for its own
            await asyncio.wait([self._task], timeout=0.1)
        await self._kill()

    # ---- One job after the other

    async def _serve(self) -> None:
        while True:
            if self._worker is not None and self._worker.returncode is not None:
                self._worker = None  # it has ended with nothing to do: the next job is not to blame
            if self._worker is None and not await self._begin():
                self._fail_all()
                await self._changed.wait()  # until there is something to try again for
                continue
            if not self._waiting:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 1.0)
                continue
            job = self._running = self._waiting.pop(0)
            job.state = "running"
            self._tell(job, text="starting")
            try:
                await self._do(job)
            finally:
                self._running = None
                self._wake()

    async def _begin(self) -> bool:
        """Start a worker, and wait until it is warm; whether it is."""
        self.state = "starting"
        self._wake()
        self._worker = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=LINE,
            start_new_session=True,  # Ctrl-C is for the studio
            env=os.environ | {"TMPDIR": str(self.folder), **ALONE},  # what it leaves when it is killed goes too
        )
        deadline = time.monotonic() + self.limits.start_seconds
        self._trouble = "it ended before it was ready"
        while True:
            line = await self._line()
            if line and json.loads(line).get("ready"):
                self.state = "ready"
                self._wake()
                return True
            if line:
                self._trouble = json.loads(line).get("broken", self._trouble)
            if line == "" or time.monotonic() > deadline:
                await self._kill()
                self.state = "broken"
                return False

    async def _do(self, job: Job) -> None:
        """Have a job done, and see to it that it keeps to its limits."""
        limits, began = self.limits, time.monotonic()
        self._send({"id": job.id, "kind": job.kind, "folder": str(job.folder), **job.asked})
        while True:
            line = await self._line()
            message = json.loads(line) if line else {}
            if message.get("id") == job.id and "facts" in message:
                self._tell(job, **message["facts"])
            elif message.get("id") == job.id and "end" in message:
                self._end(job, message["end"], message.get("why", ""))
                if self._memory() > limits.memory_bytes // 2:  # what it has compiled and never needs again
                    await self._kill()
                return
            if line == "":
                return await self._replace(job, "failed", "the process that infers has ended unexpectedly")
            if job.cancelled_at is not None and time.monotonic() - job.cancelled_at > GRACE:
                return await self._replace(job, "cancelled")
            if time.monotonic() - began > limits.seconds:
                return await self._replace(job, "failed", f"it took longer than {limits.seconds:.0f} seconds")
            if self._memory() > limits.memory_bytes:
                words = f"it needed more than {limits.memory_bytes / 2**30:.1f} GB of memory; try fewer, smaller photos"
                return await self._replace(job, "failed", words)

    async def _replace(self, job: Job, state: str, why: str = "") -> None:
        """Let the worker go: the next one is started at once."""
        await self._kill()
        self.restarts += 1
        self._end(job, state, why)

    def _fail_all(self) -> None:
        why = f"the process that infers cannot be started: {self._trouble}"
        while self._waiting:
            self._end(self._waiting.pop(0), "failed", why)

    # ---- The worker

    async def _line(self) -> str | None:
        """The worker's next line; None if there is none for a while, and an empty one when it has ended."""
        if self._worker is None or self._worker.stdout is None:
            return ""
        try:
            return (await asyncio.wait_for(self._worker.stdout.readline(), PATIENCE)).decode()
        except TimeoutError:
            return None

    def _send(self, message: dict[str, Any]) -> None:
        if self._worker is not None and self._worker.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):  # it has ended, which is seen elsewhere
                self._worker.stdin.write(json.dumps(message).encode() + b"\n")

    async def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    def _memory(self) -> int:
        """Bytes that the worker has in memory; 0 where nobody can tell."""
        if self._worker is None:
            return 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            if sys.platform == "linux":
                pages = int(Path(f"/proc/{self._worker.pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGE_SIZE")
            listed = subprocess.run(["ps", "-o", "rss=", "-p", str(self._worker.pid)], capture_output=True, text=True)
            return 1024 * int(listed.stdout)
        return 0

    # ---- What is known of a job

    def _words(self, job: Job) -> str:
        if job.state == "waiting":
            ahead = self.position(job)
            if ahead:
                return f"waiting: {ahead} job{'s' * (ahead > 1)} before this one"
            return "loading the model and compiling" if self.state == "starting" else "waiting"
        return job.facts.get("text", "")

    def _tell(self, job: Job, **facts: Any) -> None:
        job.facts.update(facts)
        job.version += 1
        self._wake()

    def _end(self, job: Job, state: str, why: str = "") -> None:
        job.state = state
        job.facts.pop("live", None)
        self._tell(job, text=why)

    def _forget(self) -> None:
        """The oldest that have ended, where there are too many."""
        ended = [job for job in self.jobs.values() if job.ended]
        for job in ended[: max(0, len(ended) - self.limits.jobs)]:
            self.forget(job)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
