"""Compiled programs: traced, lowered and compiled once for each shape, and kept for the processes that come after.

JAX keeps compiled programs on disk, and finds them by their text. To have the text it first traces and lowers Python,
which for a chain takes longer than running it. A `Program` keeps the text too, as `jax.export` writes it, in the
same folder. Where JAX was told of no such folder, or many devices share the work, it is traced in every process.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxlib.version import __version__ as jaxlib_version

from deep_lambertian.support.files import atomic_write, sealed, unsealed

# Settings of JAX that change what is traced, not only how.
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable", "jax_default_prng_impl")
# Options of XLA by which compiling takes two thirds of the time, and running half as long again.
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "1"}
_programs: dict[tuple[str, bool], "Program"] = {}
_background: Executor | None = None


def compile_in(pool: Executor | None) -> None:
    """Have programs compiled by a pool from the moment they are made: XLA lets Python go on meanwhile.

    For programs with a person who waits, such as `dln`; otherwise a program is compiled when it is first called.
    """
    global _background
    _background = pool


class Program:
    """A function of pytrees, for arguments of certain shapes; it may use the memory of `donated` leaves."""

    def __init__(self, made: Callable[[], Any], shapes: Any) -> None:
        self.shapes = shapes  # what comes out, without the numbers
        self._made, self._compiled = made, None
        self._future = None if _background is None else _background.submit(made)

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None:
            self._compiled = self._made() if self._future is None else self._future.result()
        return self._compiled(*jax.tree.leaves(arguments))


def program(
    function: Callable[..., Any],
    *arguments: Any,
    donated: int | None = None,
    mesh: Mesh | None = None,
    quick: bool = False,
    **static: Any,
) -> Program:
    """The `function` for `arguments`, or for others of their shapes, traced by this process or an earlier one.

    The memory of the argument number `donated` may be used for the result. What `static` holds must have a `repr` that
    tells it from all else. With a `mesh` the leading axis of those arguments that hold data is shared out over its
    devices: all but the first, the parameters, and such as are plain numbers.
    """
    leaves, structure = jax.tree.flatten(arguments)
    name = _name(function, structure, leaves, static | {"mesh": mesh})
    if (key := (name, quick)) in _programs:
        return _programs[key]
    ends = [0, 0] if donated is None else [len(jax.tree.leaves(arguments[: donated + i])) for i in (0, 1)]
    give = tuple(range(*ends))

    def flat(*leaves: Any) -> Any:
        return function(*jax.tree.unflatten(structure, leaves), **static)

    if mesh is None:
        try:
            lowered, shapes = _lowered(_exported(flat, leaves, name), give)
        except Exception:  # whole, and yet nothing that this JAX can use: it is traced anew, once
            if not _forget(name):
                raise
            lowered, shapes = _lowered(_exported(flat, leaves, name), give)
        made = partial(_compile, lowered, quick)
    else:
        whole = PartitionSpec(), PartitionSpec(mesh.axis_names[0])
        specs = [
            whole[i > 0 and np.ndim(leaf) > 0] for i, part in enumerate(arguments) for leaf in jax.tree.leaves(part)
        ]
        shared = jax.shard_map(flat, mesh=mesh, in_specs=tuple(specs), out_specs=whole[1], check_vma=False)
        shapes, made = jax.eval_shape(shared, *leaves), partial(jax.jit, shared, donate_argnums=give)
    _programs[key] = Program(made, shapes)
    return _programs[key]


def register(*classes: type) -> None:
    """Let dataclasses of arrays alone be a part of what a program returns."""
    for each in classes:
        jax.export.register_pytree_node_serialization(
            each,
            serialized_name=f"{each.__module__}.{each.__qualname__}",
            serialize_auxdata=lambda _: b"",
            deserialize_auxdata=lambda _: (),
        )


def _compile(lowered: Any, quick: bool) -> Any:
    if quick and jax.default_backend() == "cpu":
        with suppress(jax.errors.JaxRuntimeError):  # another version of XLA has other options
            return lowered.compile(compiler_options=QUICK)
    return lowered.compile()


def _lowered(exported: Any, give: tuple[int, ...]) -> tuple[Any, Any]:
    """What was traced as XLA takes it, and what comes out of it, without the numbers."""
    outputs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.out_avals]
    examples = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in exported.in_avals]
    lowered = jax.jit(exported.call, donate_argnums=give).lower(*examples)
    return lowered, jax.tree.unflatten(exported.out_tree, outputs)


def _exported(function: Callable[..., Any], leaves: list[Any], name: str) -> Any:
    """The function as traced by an earlier process, or now."""
    path = _place(name)
    if path is not None and path.is_file():
        with suppress(Exception):  # a damaged file may fail anywhere in the reader: it is written anew
            return jax.export.deserialize(bytearray(unsealed(path.read_bytes())))
        _forget(name)
    exported = jax.export.export(jax.jit(function))(*leaves)
    if path is not None:
        with suppress(OSError), atomic_write(path) as file:  # a full disk, say: the next process traces again
            file.write(sealed(bytes(exported.serialize())))
    return exported


def _place(name: str) -> Path | None:
    folder = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (pyright knows no settings)
    return Path(folder) / f"traced-{name}" if folder else None


def _forget(name: str) -> bool:
    """Remove what an earlier process has traced; whether there was anything."""
    path = _place(name)
    if path is None or not path.is_file():
        return False
    with suppress(OSError):
        path.unlink()
    return True


def _name(function: Any, structure: Any, leaves: list[Any], static: dict[str, Any]) -> str:
    """What the trace depends on, in one word: the function and its arguments, the code, JAX and its settings."""
    shapes = [(np.shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__))) for leaf in leaves]
    versions, chosen = (jax.__version__, jaxlib_version), [getattr(jax.config, name) for name in SETTINGS]
    around = versions, jax.default_backend(), chosen, _code()
    described = repr((function.__name__, str(structure), shapes, sorted(static.items(), key=str), around))
    return hashlib.sha256(described.encode()).hexdigest()[:32]


@cache
def _code() -> str:
    """The package's own files in one word: when one changes, nothing that was traced holds any more."""
    files = [(str(path), path.stat()) for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    return repr([(name, found.st_size, found.st_mtime_ns) for name, found in files])
