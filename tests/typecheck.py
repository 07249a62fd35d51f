"""The run-time check of shapes and types in tests: every function, but not what dataclasses are made with.

JAX rebuilds its trees with whatever stands for an array, and settings have checks, with messages, of their own.
"""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a float too, as Python's types have it


def check_functions(function: Callable[..., Any]) -> Callable[..., Any]:
    return function if function.__name__ == "__init__" else CHECK(function)
