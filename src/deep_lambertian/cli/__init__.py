"""The command line, `dln`. Thin: it parses, calls and prints; what a command needs is imported when it runs."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

COMMANDS = {
    "demo": "recover a face that the model has never seen from one image and from more, and relight it",
    "train": "learn a model from images of many objects under several lights, known or not",
    "infer": "recover albedo, normals and lights of every object of a folder, on one process or many",
    "reproduce": "the paper's experiments on the real data: train, infer, relight, recognise, and draw",
    "models": "list the models that come with the package, or show the card of one",
    "data": "look at data before using it: counts, what was skipped, warnings, a contact sheet",
    "bench": "measure the speed and memory of this package on this machine",
}
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def build_parser() -> argparse.ArgumentParser:
    from deep_lambertian import __version__

    parser = argparse.ArgumentParser(
        prog="dln",
        description="Deep Lambertian Networks: albedo, surface normals and light, with their uncertainty, from photos.",
        epilog="example: dln demo --out demo",
    )
    parser.add_argument("--version", action="version", version=f"dln {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = import_module(f"deep_lambertian.cli.{name}")
        sub = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            epilog=module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.add_argument("--seed", type=int, default=0, help="seed of every random number (default: 0)")
        if "json" not in {action.dest for action in sub._actions}:  # a command may write JSON to a file instead
            sub.add_argument("--json", action="store_true", help="print the figures as JSON")
        sub.add_argument("--quiet", action="store_true", help="print nothing but the results")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one line on standard error and a non-zero exit code."""
    options = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int | None] = options.run
    try:
        return run(options) or 0
    except KeyboardInterrupt:
        print("dln: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, FloatingPointError) as error:
        if options.debug:
            raise
        print(f"dln {options.command}: {error}", file=sys.stderr)
        return FAILED
