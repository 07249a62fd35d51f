"""Look at data before using it, or make some: what is there and what is wrong with it; heads that never were."""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import print_json, tell, whole
from deep_lambertian.data.registry import describe, kinds, load

CHECK = """examples:
  dln data check yaleb CroppedYale.zip
  dln data check folder my-objects/ --size 48 --sheet objects.png
  dln data check synthetic --json"""
MAKE = """examples:
  dln data make-surfaces ict_face.npz --count 1000 --size 96 --out surfaces.npz
  dln data make-surfaces ict_face.npz --skins albedos/ --images 3 --cast-shadows --out heads.npz --sheet heads.png"""
EXAMPLE = f"{CHECK}\n{MAKE.partition(chr(10))[2]}"
COUNT, SIZE, IMAGES = whole(1, 10**6), whole(4, 4096), whole(0, 100)
SKINS, SHOWN = 96, 12  # pixels a side that skins are read at; heads on a sheet


def add_arguments(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    form = argparse.RawDescriptionHelpFormatter
    about = (
        "count what is there and draw a contact sheet; the exit code is 0 where the data can be used and 1 where not"
    )
    check = actions.add_parser("check", help=about, description=about, epilog=CHECK, formatter_class=form)
    check.add_argument("kind", choices=kinds(), metavar="KIND", help=describe(kinds()))
    check.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a folder, an archive, or an .npz")
    check.add_argument("--size", type=int, help="bring images to SIZE×SIZE (default: as the kind has it)")
    sheet = Path("contact-sheet.png")
    check.add_argument("--sheet", type=Path, default=sheet, help=f"where the contact sheet goes (default: {sheet})")
    about = "draw normals, height and albedo of heads from a morphable one, in the frame of cropped faces"
    make = actions.add_parser("make-surfaces", help=about, description=about, epilog=MAKE, formatter_class=form)
    make.add_argument("path", type=Path, metavar="HEAD", help="the morphable head, an .npz (see docs/data.md)")
    make.add_argument("--out", type=Path, required=True, help="where the surfaces go, an .npz")
    make.add_argument("--count", type=COUNT, default=1000, metavar="N", help="how many (default: 1000)")
    make.add_argument("--size", type=SIZE, default=48, help="SIZE×SIZE pixels each (default: 48)")
    small = "how strong expressions are, from 0 to 1 (default: 0.1)"
    make.add_argument("--expressions", type=float, default=0.1, metavar="S", help=small)
    skins = "pictures of albedo in the same frame (folder, archive, .npz), of which every head wears one"
    make.add_argument("--skins", type=Path, metavar="PATH", help=skins)
    photos = "photograph each under N lights as well, with attached shadows (default: 0)"
    make.add_argument("--images", type=IMAGES, default=0, metavar="N", help=photos)
    make.add_argument("--cast-shadows", action="store_true", help="and with those that a head casts on itself")
    make.add_argument("--sheet", type=Path, metavar="FILE", help="draw some of them")
    return [check, make]


def run(options: argparse.Namespace) -> None:
    (_check if options.action == "check" else _make)(options)


def _make(options: argparse.Namespace) -> None:
    from dataclasses import replace

    from deep_lambertian.data.face_collection import load_faces
    from deep_lambertian.data.images import save_png
    from deep_lambertian.data.morphable import Variety, load_morphable
    from deep_lambertian.report.data_check import heads_sheet
    from deep_lambertian.synthetic.scenes import photograph

    head, variety = load_morphable(options.path), Variety(expression=options.expressions)
    textures = None
    if options.skins is not None:
        textures = head.texture(load_faces(options.skins, SKINS, normalise=False).images[:, 0])
    heads = head.draw(options.count, options.size, options.seed, variety=variety, textures=textures)
    if options.images:
        images, lights = photograph(heads, options.images, options.seed, options.cast_shadows)
        heads = replace(heads, images=images, lights=lights)
    heads.save(options.out)
    if options.sheet is not None:
        save_png(options.sheet, heads_sheet(heads, SHOWN))
    found = {"out": str(options.out), "count": len(heads), "size": options.size, "images": options.images}
    if options.json:
        print_json(found | {"seen": float(heads.mask.mean()), "licence": heads.licence.partition("\n")[0]})
        return
    tell(f"surfaces: {options.out} ({len(heads)} of {options.size}×{options.size} pixels)")
    if heads.licence:
        tell(f"the head is under: {heads.licence.partition(chr(10))[0]}; keep its notice with what contains it")


def _check(options: argparse.Namespace) -> None:
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
