"""The process that infers: started by the studio with a model's name, it stays warm, and does one job after another.

It takes jobs as lines of JSON on standard input, and writes lines of what it is doing on standard output. It ends when
its input does: nothing is left running when the studio has gone.
"""

import json
import os
import queue
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any


def main() -> None:
    lines = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is none of the studio's lines
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    cancelled: set[str] = set()
    threading.Thread(target=listen, args=(jobs, cancelled), daemon=True).start()
    tell = teller(lines)
    try:
        work = prepared(sys.argv[1])
    except Exception as error:
        traceback.print_exc()
        tell(broken=in_words(error))
        return
    tell(ready=True, shape=list(work.model.shape))
    while True:
        do(work, jobs.get(), cancelled, tell)


def teller(lines: IO[str]) -> Callable[..., None]:
    """What tells the studio something; where the studio has gone, the process ends as it does when its input ends."""

    def tell(**facts: Any) -> None:
        try:
            print(json.dumps(facts), file=lines, flush=True)
        except BrokenPipeError:
            os._exit(0)

    return tell


def listen(jobs: "queue.SimpleQueue[dict[str, Any]]", cancelled: set[str], source: IO[str] | None = None) -> None:
    for line in source or sys.stdin:
        message = json.loads(line)
        if "cancel" in message:
            cancelled.add(message["cancel"])
        else:
            jobs.put(message)
    os._exit(0)


def prepared(name: str) -> Any:
    from deep_lambertian.model import load_model
    from deep_lambertian.studio.work import Work
    from deep_lambertian.support import compiled

    pool = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="beside")
    compiled.compile_in(pool)
    work = Work(load_model(name), pool)
    with tempfile.TemporaryDirectory(prefix="dln-warm-") as folder:
        work.warm(Path(folder))
    return work


def do(work: Any, job: dict[str, Any], cancelled: set[str], tell: Any) -> None:
    """One job to its end, which is told as well, whatever happens."""
    from deep_lambertian.studio.work import Cancelled, without_options

    def say(**facts: Any) -> None:
        if job["id"] in cancelled:
            raise Cancelled
        if facts:
            tell(id=job["id"], facts=facts)

    try:
        {"infer": work.infer, "relight": work.relight, "recognize": work.recognize}[job["kind"]](job, say)
        tell(id=job["id"], end="done")
    except Cancelled:
        tell(id=job["id"], end="cancelled")
    except (ValueError, OSError, FloatingPointError) as error:
        tell(id=job["id"], end="failed", why=without_options(in_words(error)))
    except Exception as error:  # ours to mend: it is shown in the terminal too
        traceback.print_exc()
        tell(id=job["id"], end="failed", why=in_words(error))
    cancelled.discard(job["id"])


def in_words(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory; take fewer or smaller photos"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
