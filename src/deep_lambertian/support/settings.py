"""Settings: dataclasses of values and of further settings, changed by dotted names (`cd.epochs`) and kept as TOML."""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

S = TypeVar("S")
NONE = "none"  # TOML has no null


def to_toml(settings: Any) -> str:
    """All settings as TOML."""
    import tomli_w

    return tomli_w.dumps(asdict(settings, dict_factory=lambda items: {k: NONE if v is None else v for k, v in items}))


def from_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text, for `override`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"configuration: expected TOML, got {error}") from error


def override(settings: S, changes: dict[str, Any], where: str = "") -> S:
    """The same settings with some changed; names may be dotted, and values are as TOML or as Python has them."""
    kinds, values = get_type_hints(type(settings)), {}
    for name, value in nested(changes).items():
        if name not in kinds:
            raise ValueError(
                f"configuration: there is no setting {where + name!r}{nearest(name, kinds)}; "
                f"{where or 'top-level '}settings are {', '.join(sorted(kinds))}"
            )
        values[name] = _converted(kinds[name], value, getattr(settings, name), where + name)
    return replace(settings, **values)  # type: ignore[type-var]


def _converted(kind: Any, value: Any, old: Any, name: str) -> Any:
    """A value as the type that is meant: tables as settings, lists as tuples, whole numbers as floats."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for each in kinds:
        origin, parts = get_origin(each), get_args(each)
        if is_dataclass(each) and isinstance(value, dict):
            return override(old if is_dataclass(old) else each(), value, f"{name}.")  # type: ignore[operator]
        if origin is tuple and isinstance(value, list | tuple):
            wanted = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
            if len(wanted) == len(value):
                return tuple(_converted(k, v, None, name) for k, v in zip(wanted, value, strict=True))
        if each is NoneType and (value is None or value == NONE):
            return None
        if each is float and type(value) is int:
            return float(value)
        if value in parts if origin is Literal else type(value) is each:
            return value
    names = [NONE if k is NoneType else k.__name__ if isinstance(k, type) else str(k) for k in kinds]
    raise ValueError(f"configuration: expected {' or '.join(names)} for {name!r}, got {value!r}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name that was perhaps meant."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


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
    parts = ({f"{k}.{n}": v for n, v in flat(t).items()} if isinstance(t, dict) else {k: t} for k, t in tree.items())
    return {name: value for part in parts for name, value in part.items()}
