"""Reproduce the experiments of the paper's Section 4 on the real data: train, infer, relight, recognize and draw.

Everything goes to the folder --out: pictures, tables (CSV), results.json and report.html. A run that was interrupted
goes on where it was. With --model nothing is trained.
"""

import argparse
from pathlib import Path
from typing import Any

from deep_lambertian.cli.options import CHAINS, printer_of, tell

EXAMPLE = """examples:
  dln reproduce yaleb CroppedYale.zip --protocol dev --faces faces48.npz --out yale
  dln reproduce yaleb CroppedYale.zip --protocol dev --model yale/training-dln/model.safetensors --out again
  dln reproduce yaleb CroppedYale.zip --only recognition --most 1 --seed 1 --json one.json --out one
  dln reproduce aloi aloi_red4_ill.tar --out aloi"""
PARTS = ("samples", "inference", "relighting", "recognition", "calibration", "density")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", choices=["yaleb", "aloi"], metavar="EXPERIMENT", help="yaleb or aloi")
    parser.add_argument("path", type=Path, metavar="PATH", help="the database, a folder or an archive")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    who = "who is trained on, who tested: dev, for choosing settings (default), confirm, a second fold, or paper"
    parser.add_argument("--protocol", choices=["dev", "confirm", "paper"], default="dev", help=who)
    parser.add_argument("--preset", choices=["best", "paper", "quick"], default="best", help="how to train")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="as in train")
    beside = "other ways to train whose figures stand beside: paper, separate, both (the default) or none"
    parser.add_argument("--beside", default="paper,separate", metavar="LIST", help=beside)
    parser.add_argument("--faces", type=Path, metavar="PATH", help="faces that the published recipe first learns from")
    parser.add_argument("--model", metavar="NAME", help="a trained model, by name or path: nothing is trained")
    parser.add_argument("--only", choices=PARTS, action="append", metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--size", type=int, help="pixels a side (default: 24 for yaleb, 48 for aloi)")
    parser.add_argument("--most", type=int, default=7, metavar="K", help="at most K training images of each person")
    parser.add_argument("--chains", type=CHAINS, help="chains for each set of images (default: as the preset has it)")
    parser.add_argument("--quick", action="store_true", help="a smoke run, whose figures mean nothing")
    parser.add_argument("--allow-missing", action="store_true", help="run on the subjects and subsets that are there")
    parser.add_argument("--restart", action="store_true", help="replace what the folder holds")


def run(options: argparse.Namespace) -> None:
    results, page = (_yaleb if options.experiment == "yaleb" else _aloi)(options, printer_of(options))
    if options.json is not None:
        from deep_lambertian.support.files import write_json

        write_json(options.json, results)
    tell(f"report: {page}")


def _yaleb(options: argparse.Namespace, say: Any) -> tuple[dict[str, Any], Path]:
    from deep_lambertian.cli.train import settings_of
    from deep_lambertian.experiments.yaleb import Options, reproduce
    from deep_lambertian.report.yaleb_figures import draw

    same = ("protocol", "preset", "model", "seed", "quick", "allow_missing", "chains", "most")
    chosen = Options(
        **{name: getattr(options, name) for name in same},
        settings=settings_of(options.settings),
        faces=None if options.faces is None else str(options.faces),
        beside=() if options.beside == "none" else tuple(options.beside.split(",")),
        parts=tuple(options.only or PARTS),
        size=options.size or 24,
    )
    found = reproduce(options.path, options.out, chosen, restart=options.restart, say=say)
    return found.results, draw(found, options.out, say=say)


def _aloi(options: argparse.Namespace, say: Any) -> tuple[dict[str, Any], Path]:
    from deep_lambertian.experiments.aloi import reproduce
    from deep_lambertian.report.aloi_figures import draw

    same = {name: getattr(options, name) for name in ("model", "seed", "quick", "restart")}
    found = reproduce(options.path, options.out, size=options.size or 48, say=say, **same)
    say("drawing")
    return found.results, draw(found, options.out)
