"""Show where compiled programs are kept for the next run, and how much they take; clear them.

Nothing is lost by it: what is needed again is compiled again.
"""

import argparse
from dataclasses import asdict

from deep_lambertian.cli.options import print_json

EXAMPLE = """examples:
  dln cache
  dln cache --clear"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all of it")


def run(options: argparse.Namespace) -> None:
    from deep_lambertian.support.cache import contents, place, prune

    folder = place()
    found = prune(folder, most=0) if options.clear else contents(folder)
    if options.json:
        print_json({**asdict(found), "cleared": options.clear})
    else:
        done = "removed " if options.clear else ""
        print(f"{found.folder}: {done}{found.files} files, {found.bytes / 1e6:.1f} MB")
