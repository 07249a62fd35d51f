"""A progress bar for work that comes in chunks."""

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(total: int, what: str, show: bool, pieces: int = 40) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges that cover 0 … total, with a progress bar where `show` asks for one.

    Without a bar there is one range: the work need not come up for air.
    """
    if not show:
        yield 0, total
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    size = max(1, math.ceil(total / pieces))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield start, stop
            bar.update(task, completed=stop)


def track(items: Sequence[T], what: str, show: bool) -> Iterator[T]:
    """Go through items one by one, with a progress bar where `show` asks for one."""
    for start, stop in chunks(len(items), what, show, pieces=200):
        yield from items[start:stop]
