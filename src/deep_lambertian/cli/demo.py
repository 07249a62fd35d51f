"""Recover a face that the model has never seen from one image of it, and from more, and relight it.

The faces are made by the program; the lights are not given. Writes a picture.
"""

import argparse
from pathlib import Path

EXAMPLE = "example: dln demo --out demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--iterations", type=int, default=400, help="Gibbs sweeps a chain (default: 400)")


def run(options: argparse.Namespace) -> None:
    import json
    import sys

    from deep_lambertian.experiments.unseen_face import demonstrate
    from deep_lambertian.report.pictures import save_png

    options.out.mkdir(parents=True, exist_ok=True)  # before the work, so that a bad folder costs no time
    show = not options.quiet and sys.stderr.isatty()
    found, guess, picture = demonstrate(options.seed, options.iterations, progress=show)
    path = options.out / "face.png"
    save_png(path, picture)
    figures = {
        "mean_shape": {"normals_deg": guess.normals_deg, "relighting_rmse": guess.relighting_rmse},
        **{
            str(each.images): {"normals_deg": each.normals_deg, "relighting_rmse": each.relighting_rmse}
            for each in found
        },
    }
    if options.json:
        print(json.dumps({"picture": str(path), "images": figures}, indent=2))
        return
    print("images     normals off by   relighting error (rms)")
    for name, figure in figures.items():
        label = "mean shape" if name == "mean_shape" else name
        print(f"{label:<10} {figure['normals_deg']:10.1f}°     {figure['relighting_rmse']:10.3f}")
    print(f"picture: {path}")
