"""What the rest is built on and no mathematics of ours: random numbers, files, processes, compiled programs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package; `homes` tells in which module of deep_lambertian each name lives.

    Names are imported when they are first used, so that a command that needs none of JAX starts at once.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"deep_lambertian.{homes[name]}"), name)

    return get, lambda: sorted(homes)
