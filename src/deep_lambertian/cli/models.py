"""List the models that come with the package, or show the card of one: what it was taught, its figures, its limits."""

import argparse

from deep_lambertian.cli.options import print_json

EXAMPLE = """examples:
  dln models
  dln models yaleb24"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this one's card")


def run(options: argparse.Namespace) -> None:
    from deep_lambertian.models import bundled

    found = {model.name: model for model in bundled()}
    if options.name is not None and options.name not in found:
        raise ValueError(f"{options.name}: expected one of the bundled models, {', '.join(found) or 'none'}")
    if options.json:
        shown = found.values() if options.name is None else [found[options.name]]
        listed = [
            {"name": m.name, "shape": list(m.shape), "bytes": m.path.stat().st_size, "summary": m.summary, **m.info}
            for m in shown
        ]
        print_json(listed)
    elif options.name is not None:
        print(found[options.name].card.read_text().rstrip())
    elif not found:
        print("no models come with this version: train one with `dln train`")
    else:
        for model in found.values():
            height, width = model.shape
            print(f"{model.name}  {height}×{width}, {model.path.stat().st_size / 1e6:.1f} MB  {model.summary}")
