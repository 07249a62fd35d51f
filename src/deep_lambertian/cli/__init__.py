"""The command line, `dln`. Thin: it parses, calls and prints; what a command needs is imported when it runs."""

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from deep_lambertian.cli.cache import VARIABLE, discard, make_private, place, prune
from deep_lambertian.cli.options import SEED, shown
from deep_lambertian.support.progress import show_progress

# Each is a module here: the first line of its docstring is the summary, EXAMPLE the end of its help.
COMMANDS = ("demo", "studio", "train", "infer", "relight", "recognize", "reproduce", "models", "data", "cache", "bench")
FAILED, USAGE, INTERRUPTED = 1, 2, 130


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {shown(message)}; see {self.prog} --help\n")


def build_parser(asked: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; where one is asked for, or "" for none, the others have a name and a summary only."""
    from deep_lambertian import __version__

    parser = Parser(
        prog="dln",
        description="Deep Lambertian Networks: albedo, surface normals and light, with their uncertainty, from photos.",
        epilog="example: dln demo --out demo",
    )
    parser.add_argument("--version", action="version", version=f"dln {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"deep_lambertian.cli.{name}")
        summary = (module.__doc__ or "").partition("\n")[0].rstrip(".")
        sub = commands.add_parser(
            name,
            help=summary[:1].lower() + summary[1:],
            description=module.__doc__,
            epilog=module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if asked not in (None, name):
            continue
        actions = module.add_arguments(sub)  # a command of several actions has a parser for each
        for each in actions if isinstance(actions, list) else [sub]:
            each.add_argument("--seed", type=SEED, default=0, help="seed of every random number (default: 0)")
            if "json" not in {action.dest for action in each._actions}:  # a command may write JSON to a file instead
                each.add_argument("--json", action="store_true", help="print the figures as JSON")
            each.add_argument("--quiet", action="store_true", help="print nothing but the results")
            each.add_argument("--debug", action="store_true", help="show the traceback of an error")
        sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one line on standard error and a non-zero exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    asked = next((each for each in arguments if not each.startswith("-")), "")  # what comes before it takes no value
    options = build_parser(asked).parse_args(arguments)
    if options.command != "cache":  # which looks at it as it is
        keep_compilations(options.quiet)
    run: Callable[[argparse.Namespace], int | None] = options.run
    show = sys.stderr.isatty() and not options.quiet and not getattr(options, "process_id", None)
    try:
        with show_progress(show):
            return run(options) or 0
    except KeyboardInterrupt:
        print("dln: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, FloatingPointError, MemoryError) as error:
        if options.debug:
            raise
        print(f"dln {options.command}: {shown(in_a_line(error))}", file=sys.stderr)
        return FAILED


def run_and_leave() -> NoReturn:
    """The program `dln`: run a command, and leave at once when it is done.

    All files are closed by then. To take JAX apart lasts up to a second, and a program that is still being compiled,
    for a photo that turned out to be none, could not be taken apart at all. Many processes take leave of each other.
    """
    warnings.showwarning = _warn
    code = main()
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        sys.exit(code)
    with suppress(OSError, ValueError):  # whoever listened may have gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _warn(message: Warning | str, *_: object) -> None:
    """Say what Python would say in two lines of code; a compiled program that was found damaged is made anew."""
    text = " ".join(str(message).split())
    if not discard(text):
        print(f"dln: {shown(text)}", file=sys.stderr)


def in_a_line(error: BaseException) -> str:
    """What is wrong, without line breaks, and for errors of the system without their numbers."""
    if isinstance(error, MemoryError):
        return "not enough memory; take fewer or smaller images at a time"
    if isinstance(error, OSError) and error.strerror:
        hint = "; free some space, or choose another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return f"{error.filename or 'writing'}: {error.strerror.lower()}{hint}"
    return " ".join(str(error).split())


def keep_compilations(quiet: bool = False) -> None:
    """Have JAX keep what it compiles in the user's cache: the second run of a command starts in a moment.

    A cache of the user's own choice, or none, is left as it is; where there can be none, a line says why.
    """
    if VARIABLE in os.environ:
        return
    try:
        folder = place()
        make_private(folder)
        prune(folder)
    except OSError as error:
        if not quiet:
            print(f"dln: {in_a_line(error)}", file=sys.stderr)
        return
    os.environ[VARIABLE] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
