"""Bytes changed at random: by bits, by numbers that programs trip over, by pieces that are lost, doubled or moved."""

import json
import random
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four changes, each of any kind."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(BYTEWISE)(data, rng)
    return data


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def replace(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 1, 2, 4, 16))) + data[at + 1 :]


def number(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    value = (rng.choice(NUMBERS) % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
    at = rng.randrange(max(len(data) - size, 0) + 1)
    return data[:at] + value + data[at + size :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def piece(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 16, 64, 512, 4096)))


def drop(data: bytes, rng: random.Random) -> bytes:
    start, end = piece(data, rng)
    return data[:start] + data[end:]


def double(data: bytes, rng: random.Random) -> bytes:
    start, end = piece(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 1, 30)) + data[end:]


def move(data: bytes, rng: random.Random) -> bytes:
    start, end = piece(data, rng)
    rest, at = data[:start] + data[end:], rng.randrange(len(data) - (end - start) + 1)
    return rest[:at] + data[start:end] + rest[at:]


def blank(data: bytes, rng: random.Random) -> bytes:
    start, end = piece(data, rng)
    return data[:start] + bytes([rng.choice((0, 255))]) * (end - start) + data[end:]


BYTEWISE: tuple[Mutation, ...] = (flip, flip, flip, replace, number, truncate, drop, double, move, blank)

# ---- Words of texts: numbers, names and tables

HOSTILE = (
    *(
        "nan",
        "inf",
        "-inf",
        "1e400",
        "-1",
        "0",
        "1e-400",
        "2147483648",
        "9" * 400,
        "0x10",
        "1_0",
        "²",
        "٣",
        "1,2",
        "--1",
    ),
    *(
        '""',
        "[]",
        "{}",
        "null",
        "true",
        "[[[[]]]]",
        "[" * 5000,
        "é",
        "\u202e",
        "\x1b[2J",
        "\ufeff",
        "\ud800",
        "\0",
        "a" * 200_000,
    ),
)


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """A word, or a line, that is lost, doubled, or another one."""
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True) or [""]
    at, hostile = rng.randrange(len(lines)), rng.choice(HOSTILE)
    words = lines[at].split(" ")
    act = rng.randrange(6)
    if act == 0:
        words[rng.randrange(len(words))] = hostile
        lines[at] = " ".join(words)
    elif act == 1:
        head, sign, _ = lines[at].partition(rng.choice("=,"))
        lines[at] = f"{head}{sign} {hostile}\n"
    elif act == 2:
        del lines[at]
    elif act == 3:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif act == 4:
        lines[at] = hostile + lines[at]
    else:
        lines.append(hostile)
    return "".join(lines).encode("utf-8", "surrogatepass")


# ---- JSON: a value somewhere in it becomes another, is lost, or gets another name


def values() -> tuple[Any, ...]:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    odd = (
        None,
        True,
        -1,
        0,
        2**70,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "\0\x1b[2J\n",
        "x" * 5000,
        [],
        {},
        [[]],
        deep,
    )
    return (*odd, {"a": 1}, [1, 2, 3], 1.5, "kind", 99)


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    tree = json.loads(data)
    if rng.random() < 0.05:
        deep = rng.choice((500, 2000, 10_000))
        return b'{"a":' * deep + b"1" + b"}" * deep
    changed = mutate_tree(tree, rng)
    return json.dumps(changed).encode()


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """The tree with one of its values, at any depth, changed."""
    if rng.random() < 0.1 or not isinstance(tree, dict | list) or not tree:
        return rng.choice(values())
    if isinstance(tree, list):
        at = rng.randrange(len(tree))
        changed = [mutate_tree(tree[at], rng)] if rng.random() < 0.7 else [] if rng.random() < 0.5 else [tree[at]] * 2
        return [*tree[:at], *changed, *tree[at + 1 :]]
    name = rng.choice(list(tree))
    act = rng.random()
    if act < 0.15:
        return {key: value for key, value in tree.items() if key != name}
    if act < 0.25:
        return {(key + "x" if key == name else key): value for key, value in tree.items()}
    return tree | {name: mutate_tree(tree[name], rng)}
