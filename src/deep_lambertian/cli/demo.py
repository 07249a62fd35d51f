"""See the whole of it in three minutes, on faces that the program makes.

Trains a small model without telling it the lights; recovers albedo, normals and light of people it has never seen from
one image each; relights them and tells them apart; then finds a face in a photo in colour and does the same by the
bundled model. Writes two reports to relight the faces on, and pictures.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import check_writable, print_json, progress_printer

EXAMPLE = "example: dln demo --out demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for what it writes (default: demo)")
    parser.add_argument("--iterations", type=int, metavar="N", help="sweeps of a chain (default: the models' own)")


def run(options: argparse.Namespace) -> None:
    from dataclasses import asdict

    check_writable(options.out)
    if options.iterations is not None and options.iterations < 1:
        raise ValueError(f"--iterations: expected at least 1, got {options.iterations}")
    from deep_lambertian.experiments.demonstration import demonstrate
    from deep_lambertian.report.demonstration_page import page, picture
    from deep_lambertian.report.photo_files import save_files, save_picture, to_bytes
    from deep_lambertian.report.photo_page import save_result_report
    from deep_lambertian.support.pictures import save_png

    options.out.mkdir(parents=True, exist_ok=True)
    found = demonstrate(options.out, options.seed, options.iterations, progress_printer(options))
    save_png(options.out / "faces.png", picture(found))
    save_picture(options.out / "portrait.png", to_bytes(found.portrait.photo, True))
    save_files(options.out / "portrait", found.result, "A portrait, found and relit")
    report = options.out / "report.html"
    save_result_report(report, page(found))
    figures = found.figures
    if options.json:
        paths = {"report": str(report), "portrait": str(options.out / "portrait" / "report.html")}
        print_json({**asdict(figures), **paths})
        return
    lines = [
        ("normals off by", "{:.1f}°", figures.normals_deg, "mean shape", figures.normals_deg_mean_shape),
        ("relighting error (rms)", "{:.3f}", figures.relighting_rmse, "mean shape", figures.relighting_rmse_mean_shape),
        (
            "one-shot recognition error",
            "{:.1f} %",
            figures.one_shot_error,
            "nearest neighbour",
            figures.one_shot_error_nearest_neighbor,
        ),
    ]
    print("from one image of a person never seen before:")
    for name, form, value, other, baseline in lines:
        print(f"  {name:<27} {form.format(value):>8}   ({other}: {form.format(baseline)})")
    print(f"report: {report}")
    print(f"portrait: {options.out / 'portrait' / 'report.html'}")
