"""Dataclasses that JAX takes apart and puts together again."""

from dataclasses import fields
from typing import Any, TypeVar

import jax

C = TypeVar("C", bound=type)


def pytree(cls: C) -> C:
    """Register a dataclass as a tree of its fields, but for those marked `metadata={"static": True}`.

    `jax.tree_util.register_dataclass` calls `__init__` to put it together. Here it is not called: the leaves of a tree
    may be anything, such as masks, axes or shardings, and then are not what the fields are declared to be.
    """
    data = [f.name for f in fields(cls) if not f.metadata.get("static")]
    static = [f.name for f in fields(cls) if f.metadata.get("static")]

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in data), tuple(getattr(tree, name) for name in static)

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, rest = flatten(tree)
        return tuple(zip(map(jax.tree_util.GetAttrKey, data), children, strict=True)), rest

    def unflatten(rest: tuple[Any, ...], children: Any) -> Any:
        tree = object.__new__(cls)
        for name, value in zip((*data, *static), (*children, *rest), strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
