"""Dotted names, such as `cd.epochs`, and the tables within tables that they stand for."""

from typing import Any


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Values of dotted names as tables within tables."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """The opposite of `nested`."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            values |= {f"{name}.{inner}": found for inner, found in flat(value).items()}
        else:
            values[name] = value
    return values
