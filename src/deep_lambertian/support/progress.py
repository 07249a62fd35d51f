"""Progress bars for long work: shown within `show_progress()`, and nowhere else.

Whether there is somebody to look at them is known where a program starts, and used wherever work is long: a context
variable carries it there, so that no function in between has to know.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
_shown: ContextVar[bool] = ContextVar("progress bars are shown", default=False)


@contextmanager
def show_progress(show: bool = True) -> Iterator[None]:
    """Show progress bars, on standard error, of all long work that is done within."""
    before = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(before)


def chunks(total: int, what: str, pieces: int = 40) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges that cover 0 … total, with a progress bar where one is to be shown.

    Without a bar there is one range.
    """
    if not _shown.get():
        yield 0, total
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    size = max(1, math.ceil(total / pieces))
    with Progress(*columns, console=Console(stderr=True)) as bar, show_progress(False):
        task = bar.add_task(what, total=total)
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield start, stop
            bar.update(task, completed=stop)


def track(items: Sequence[T], what: str) -> Iterator[T]:
    """Go through items one by one, with a progress bar where one is to be shown."""
    for start, stop in chunks(len(items), what, pieces=200):
        yield from items[start:stop]
