"""Measure the speed and memory of this package on this machine.

inference: HMC for the normals against blackjax, whole inference at the paper's sizes, how time grows with pixels,
images and objects, and memory. learning: contrastive divergence against the machine's own matrix product and against
scikit-learn, the two steps of EM, how they grow, and two processes against one. photo: how long dln infer takes for
photos of a megapixel, the first time and from then on. recognition: a probe against 100 and 1,000 people. studio: a
photo dropped on the page of a warm studio, in chromium, and the memory of 200 jobs. Each takes some minutes; --quick is
a smoke run at small sizes. The benchmarks lie in the folder benchmarks/ of the source, not in the installed package.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from deep_lambertian.cli.options import print_json
from deep_lambertian.support.settings import nested

EXAMPLE = "example: dln bench inference --json > inference.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=["inference", "learning", "photo", "recognition", "studio"], help="what to measure"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")


def run(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    source = Path(__file__).parents[3]
    if not (source / "benchmarks" / f"{options.what}.py").is_file():
        raise ValueError(
            f"expected the source tree, with its folder benchmarks/, around the package, found none in {source}; "
            "run it from a clone: make venv && .venv/bin/dln bench " + options.what
        )
    sys.path.insert(0, str(source))
    figures: dict[str, float] = {}
    progress = Console(stderr=True, quiet=options.quiet)
    with progress.status("measuring …"):
        benchmark = import_module(f"benchmarks.{options.what}")
        for group, found in benchmark.run(quick=options.quick, seed=options.seed):
            progress.print(f"measured: {group}")
            figures |= found
    if options.json:
        print_json(nested({name: round(value, 4) for name, value in figures.items()}))
        return
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
