"""Programs that JAX has traced, kept beside what XLA has compiled.

JAX keeps compiled programs on disk, and finds them by their text. To have the text it first traces and lowers Python,
which for a chain takes longer than running it. A `Program` keeps the text too, as `jax.export` writes it, in the
same folder. Where JAX was told of no such folder, it is traced in every process.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from deep_lambertian.support.files import atomic_write

# Settings of JAX that change what is traced, not only how.
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable", "jax_default_prng_impl")
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "1"}
_programs: dict[tuple[str, bool], "Program"] = {}


class Program:
    """A jitted function for arguments of certain shapes, on one device; it may use the memory of `donated` leaves.

    It is compiled, or found compiled, from the moment it is made: XLA lets Python go on meanwhile. A `quick` one is
    compiled in two thirds of the time, and takes half as long again to run.
    """

    def __init__(self, exported: Any, donated: range, quick: bool) -> None:
        self._exported = exported
        leaves = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in exported.in_avals]
        lowered = jax.jit(exported.call, donate_argnums=tuple(donated)).lower(*leaves)
        self._compiled = _compilers().submit(_compile, lowered, quick)

    @property
    def shapes(self) -> Any:
        """What comes out, without the numbers."""
        leaves = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in self._exported.out_avals]
        return jax.tree.unflatten(self._exported.out_tree, leaves)

    def __call__(self, *arguments: Any) -> Any:
        return self._compiled.result()(*jax.tree.leaves(arguments))


def _compile(lowered: Any, quick: bool) -> Any:
    if quick and jax.default_backend() == "cpu":
        try:
            return lowered.compile(compiler_options=QUICK)
        except jax.errors.JaxRuntimeError:  # another version of XLA has other options
            pass
    return lowered.compile()


@cache
def _compilers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="compiler")


def program(function: Any, *arguments: Any, donated: int | None = None, quick: bool = False, **static: Any) -> Program:
    """The jitted `function` for `arguments`, or for others of their shapes, traced by this process or an earlier one.

    The memory of the argument number `donated` may be used for the result. What `static` holds must have a `repr` that
    tells it from all else.
    """
    leaves, structure = jax.tree.flatten(arguments)
    name = _name(function, structure, leaves, static)
    if (key := (name, quick)) not in _programs:
        folder = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (pyright knows no settings)
        path = Path(folder) / f"traced-{name}" if folder else None
        exported = _read(path)
        if exported is None:
            flat = jax.jit(lambda *leaves: function(*jax.tree.unflatten(structure, leaves), **static))
            exported = jax.export.export(flat)(*leaves)
            _write(path, exported)
        ends = [0, 0] if donated is None else [len(jax.tree.leaves(arguments[: donated + i])) for i in (0, 1)]
        _programs[key] = Program(exported, range(*ends), quick)
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


def _read(path: Path | None) -> Any:
    if path is None or not path.is_file():
        return None
    try:
        return jax.export.deserialize(bytearray(path.read_bytes()))
    except Exception:  # a damaged file may fail anywhere in the reader: it is written anew
        return None


def _write(path: Path | None, exported: Any) -> None:
    if path is None:
        return
    try:
        with atomic_write(path) as file:
            file.write(exported.serialize())
    except OSError:  # a full disk, or a folder that may not be written: the next process traces again
        pass


def _name(function: Any, structure: Any, leaves: list[Any], static: dict[str, Any]) -> str:
    """What the trace depends on, in one word: the function and its arguments, the code, JAX and its settings."""
    shapes = [(np.shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__))) for leaf in leaves]
    described = repr((function.__name__, str(structure), shapes, sorted(static.items(), key=str), _surroundings()))
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def _surroundings() -> tuple[Any, ...]:
    return jax.__version__, jax.default_backend(), [getattr(jax.config, name) for name in SETTINGS], _code()


@cache
def _code() -> str:
    """The package's own files in one word: when one changes, nothing that was traced holds any more."""
    files = [(str(path), path.stat()) for path in sorted(Path(__file__).parent.rglob("*.py"))]
    return repr([(name, found.st_size, found.st_mtime_ns) for name, found in files])
