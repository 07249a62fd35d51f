"""Settings: dataclasses of values and of further settings, changed by dotted names (`cd.epochs`) and kept as TOML.

What a setting may be is said by its type, such as `Count` or a `Literal`, and seen to by `check`.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

S = TypeVar("S")
NONE = "none"  # TOML has no null


@dataclass(frozen=True)
class Must:
    """What the values of an annotated type must be: in words, and as a test."""

    be: str
    test: Callable[[Any], bool]


Fits = Must("at most 2147483647", lambda x: x < 2**31)  # as compiled programs count
Count = Annotated[int, Must("a whole number of at least 1", lambda x: isinstance(x, int) and x >= 1), Fits]
Whole = Annotated[int, Must("a whole number of at least 0", lambda x: isinstance(x, int) and x >= 0), Fits]
Positive = Annotated[float, Must("a positive number", lambda x: x > 0)]
NotNegative = Annotated[float, Must("a finite number, not negative", lambda x: 0 <= x < inf)]
Share = Annotated[float, Must("between 0 and 1", lambda x: 0 < x < 1)]


def check(settings: Any, where: str = "") -> None:
    """Refuse values that their types do not allow; a dataclass of settings calls it when it is made."""
    for name, kind in _kinds(type(settings)).items():
        value, kinds = getattr(settings, name), _alternatives(kind)
        for each in () if value is None and NoneType in kinds else kinds:
            if get_origin(each) is Literal and value not in get_args(each):
                raise ValueError(f"{where}{name}: expected one of {get_args(each)}, got {value!r}")
            for must in getattr(each, "__metadata__", ()):
                if not must.test(value):
                    raise ValueError(f"{where}{name}: expected {must.be}, got {value!r}")


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


@cache
def _kinds(settings: type) -> dict[str, Any]:
    return get_type_hints(settings, include_extras=True)


def to_toml(settings: Any) -> str:
    """All settings as TOML."""
    import tomli_w

    return tomli_w.dumps(asdict(settings, dict_factory=lambda items: {k: NONE if v is None else v for k, v in items}))


def from_toml(text: str | bytes) -> dict[str, Any]:
    """The tables of a TOML text, for `override`."""
    try:
        return tomllib.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
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
    kinds = _alternatives(kind)
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
        if each is float and type(value) is int and abs(value) < 1e300:
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
            if not isinstance(place, dict):
                raise ValueError(f"configuration: expected a table for {part!r}, in which {name!r} is, got {place!r}")
        place[last] = value
    return tree


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """The opposite of `nested`."""
    parts = ({f"{k}.{n}": v for n, v in flat(t).items()} if isinstance(t, dict) else {k: t} for k, t in tree.items())
    return {name: value for part in parts for name, value in part.items()}
