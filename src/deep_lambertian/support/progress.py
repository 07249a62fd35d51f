"""Progress of long work: bars, shown within `show_progress()` and nowhere else, and chains that can be looked into.

Whether there is somebody to look at them is known where a program starts, and used wherever work is long: a context
variable carries it there, so that no function in between has to know.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
Look = Callable[[int, int, Callable[[], Any]], None]  # sweeps done, how many there may be, and what was found so far
_shown: ContextVar[bool] = ContextVar("progress bars are shown", default=False)
_look: ContextVar[Look | None] = ContextVar("chains are looked into", default=None)


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


@contextmanager
def look_into(look: Look) -> Iterator[None]:
    """Have `look` called after each piece of the chains that are run within; what it raises ends them."""
    before = _look.set(look)
    try:
        yield
    finally:
        _look.reset(before)


def looked(done: int, most: int, found: Callable[[], Any]) -> None:
    """Say how far chains are; `found` makes what they have found so far, where somebody asks for it."""
    look = _look.get()
    if look is not None:
        look(done, most, found)
