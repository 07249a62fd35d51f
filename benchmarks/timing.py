"""Timing that can be compared: warm, interleaved, and summed up by the median."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

SETTLE = 0.2  # s: about how long it takes until an idle thread pool sleeps


def interleaved(functions: dict[str, Callable[[], Any]], seconds: float = 3.0, most: int = 200) -> dict[str, float]:
    """Median seconds a call of each function, called in turn so that all meet the same moods of the machine."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        jax.block_until_ready(function())  # compiles
    stop = time.perf_counter() + seconds
    while (time.perf_counter() < stop and len(next(iter(times.values()))) < most) or len(
        next(iter(times.values()))
    ) < 3:
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def fastest(functions: dict[str, Callable[[], Any]], seconds: float, least: int = 3) -> dict[str, float]:
    """Seconds of the fastest call of each, called in turn: what each does when the machine is left to it.

    Thread pools go on spinning for a while after they have worked, BLAS's and XLA's alike, and take a core from whoever
    comes next: before each timed call there is a pause, and a call that is not timed.
    """
    best = dict.fromkeys(functions, np.inf)
    for function in functions.values():
        jax.block_until_ready(function())  # compiles
    stop, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < stop or rounds < least:
        rounds += 1
        for name, function in functions.items():
            time.sleep(SETTLE)
            jax.block_until_ready(function())
            begin = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def exponent(sizes: list[int], seconds: list[float], last: int = 3) -> float:
    """The power of the size by which time grows, fitted to the `last` sizes."""
    slope, _ = np.polyfit(np.log(sizes[-last:]), np.log(seconds[-last:]), 1)
    return float(slope)
