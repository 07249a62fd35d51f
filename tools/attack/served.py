"""A studio of one's own on 127.0.0.1: started in a process, asked through its API, killed, and looked at."""

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

START, LONGEST = 300.0, 120.0  # seconds until it is warm, and until a job has ended
ENDED = ("done", "failed", "cancelled")


class NeverError(Exception):
    """What was waited for did not come."""


def wait_for(what: str, true: Callable[[], Any], seconds: float) -> Any:
    """What `true` answers, once it answers something."""
    end = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > end:
            raise NeverError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return found


def resident(process: int) -> int:
    """Bytes of a process that lie in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_alive(process: int) -> bool:
    """Whether there is such a process, and it is not one that has ended and was not asked for its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Served:
    """`dln studio`: its temporary files go to `place / "temp"`, what it says to `place / "log"`."""

    def __init__(self, place: Path, model: str, environment: dict[str, str], keep: Path | None = None) -> None:
        self.log, temp = place / "log", place / "temp"
        temp.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "deep_lambertian.cli", "studio", "--no-browser", "--json", "--port", "0"]
        words += ["--model", model, *(["--keep", str(keep)] if keep else [])]
        environment = os.environ | environment | {"TMPDIR": str(temp)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        said = ""
        while not said.rstrip().endswith("}"):
            line = self.process.stdout.readline()  # type: ignore[union-attr]
            if not line:
                raise OSError(f"the studio did not start: {self.said()[-300:]}")
            said += line
        told = json.loads(said)
        headers = {"Authorization": f"Bearer {told['token']}", "Connection": "close"}  # each request on its own
        self.client = httpx.Client(base_url=told["api"], headers=headers, timeout=60, trust_env=False)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        return self.client.get("/status").json()

    def is_ready(self) -> bool:
        return self.status()["worker"] == "ready"

    def ready(self) -> "Served":
        wait_for("a warm studio", self.is_ready, START)
        return self

    def worker(self) -> int:
        """The process that infers; 0 where there is none at the moment."""
        here = self.process.pid
        found = Path(f"/proc/{here}/task/{here}/children").read_text().split()
        return next((int(each) for each in found if is_alive(int(each))), 0)

    def post(self, data: bytes, name: str = "a.png", **options: Any) -> httpx.Response:
        return self.client.post("/infer", files=[("photos", (name, data))], data=options)

    def job(self, name: str) -> dict[str, Any]:
        return self.client.get(f"/results/{name}").json()

    def ended(self, name: str) -> dict[str, Any]:
        """What a job has come to."""

        def told() -> dict[str, Any] | None:
            found = self.job(name)
            return found if found["state"] in ENDED else None

        return wait_for(f"the end of job {name}", told, LONGEST + START)

    def files(self, name: str) -> dict[str, bytes]:
        """All files of a job that is done, and its photo under another light."""
        answer = self.client.get(f"/results/{name}/zip").raise_for_status()
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            found = {each: archive.read(each) for each in archive.namelist()}
        light = {"light": [0.5, 0.2, 0.8], "ambient": 0.1}
        found["relit"] = self.client.post(f"/results/{name}/relight", json=light).raise_for_status().content
        return found

    def end(self, sign: int) -> int | None:
        """Send a signal, and wait for the end: the exit code, or None if it had to be killed after all."""
        self.client.close()
        self.process.send_signal(sign)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
