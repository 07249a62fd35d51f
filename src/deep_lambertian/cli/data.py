"""Look at data before using it: what is there, what is wrong with it, and a contact sheet to see it by.

The exit code is 0 where the data can be used and 1 where not.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import print_json, tell
from deep_lambertian.data.registry import describe, kinds, load

EXAMPLE = """examples:
  dln data check yaleb CroppedYale.zip
  dln data check folder my-objects/ --size 48 --sheet objects.png
  dln data check synthetic --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["check"], help="what to do")
    parser.add_argument("kind", choices=kinds(), metavar="KIND", help=describe(kinds()))
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a folder, an archive, or an .npz")
    parser.add_argument("--size", type=int, help="bring images to SIZE×SIZE (default: as the kind has it)")
    sheet = Path("contact-sheet.png")
    parser.add_argument("--sheet", type=Path, default=sheet, help=f"where the contact sheet goes (default: {sheet})")


def run(options: argparse.Namespace) -> None:
    from deep_lambertian.data.images import save_png
    from deep_lambertian.report.data_check import check, contact_sheet

    data = load(options.kind, options.path, options.size, options.seed)
    report = check(data)
    save_png(options.sheet, contact_sheet(data))
    if options.json:
        print_json({**vars(report), "sheet": str(options.sheet)})
        return
    counts = sorted(report.images_per_object.values())
    height, width = report.size
    tell(f"{report.objects} objects, {report.images} images ({counts[0]} to {counts[-1]} an object), {width}×{height}")
    if report.subsets:
        tell("images by illumination subset: " + ", ".join(f"{n}: {c}" for n, c in report.subsets.items()))
    lights = report.known_lights
    tell("lights: " + ("all known" if lights == report.images else f"{lights} known" if lights else "not known"))
    if "linearised" in data.info:
        tell(f"intensities: {'taken as sRGB and made linear' if data.info['linearised'] else 'used as they are'}")
    for reason, count in sorted(report.skipped.items(), key=lambda item: -item[1]):
        tell(f"skipped {count}: {reason}")
    for warning in report.warnings:
        tell(f"warning: {warning}")
    tell(f"contact sheet: {options.sheet}")
