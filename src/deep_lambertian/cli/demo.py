"""See the whole of it in three minutes, on faces that the program makes.

Trains a small model without telling it the lights; recovers albedo, normals and light of people it has never seen from
one image each; relights them and tells them apart; then finds a face in a photo in colour and does the same by the
bundled model. Writes two reports to relight the faces on, and pictures.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import check_writable, print_json, printer_of, tell

EXAMPLE = "example: dln demo --out demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for what it writes (default: demo)")
    parser.add_argument("--iterations", type=int, metavar="N", help="sweeps of a chain (default: the models' own)")


def run(options: argparse.Namespace) -> None:
    check_writable(options.out)
    if options.iterations is not None and options.iterations < 1:
        raise ValueError(f"--iterations: expected at least 1, got {options.iterations}")
    from deep_lambertian.data.images import save_png
    from deep_lambertian.experiments.demonstration import demonstrate
    from deep_lambertian.report.experiment import demonstration_page, demonstration_picture
    from deep_lambertian.report.photo import save_files, save_picture, save_result_report, to_bytes

    options.out.mkdir(parents=True, exist_ok=True)
    found = demonstrate(options.out, options.seed, options.iterations, printer_of(options))
    save_png(options.out / "faces.png", demonstration_picture(found))
    save_picture(options.out / "portrait.png", to_bytes(found.portrait.photo, True))
    save_files(options.out / "portrait", found.result, "A portrait, found and relit")
    save_result_report(options.out / "report.html", demonstration_page(found))
    paths = {"report": options.out / "report.html", "portrait": options.out / "portrait" / "report.html"}
    if options.json:
        print_json(found.figures | {name: str(path) for name, path in paths.items()})
        return
    tell("from one image of a person never seen before:")
    for name, words, form, other in (
        ("normals_deg", "normals off by", "{:.1f}°", "mean shape"),
        ("relighting_rmse", "relighting error (rms)", "{:.3f}", "mean shape"),
        ("one_shot_error", "one-shot recognition error", "{:.1f} %", "nearest neighbour"),
    ):
        value, baseline = (form.format(figure) for key, figure in found.figures.items() if key.startswith(name))
        tell(f"  {words:<27} {value:>8}   ({other}: {baseline})")
    for name, path in paths.items():
        tell(f"{name}: {path}")
