"""Recover albedo, normals and lights, with their uncertainty, of every object of a folder: FOLDER/<object>/<image>.

FOLDER may be a .zip or .tar archive too. The folder --out gets one folder for each object, with posterior.npz (read
it with Posterior.load), albedo.png, normals.png (16 bits; normals as (n+1)/2) and lights.json, and in the end
summary.csv. Started again with the same model, objects and settings, only what is missing is done.
For many processes, on one machine or several, start the same command on each with its own --process-id.
"""

import argparse
from pathlib import Path
from typing import Any

from deep_lambertian.cli.processes import add_process_arguments

EXAMPLE = """examples:
  dln infer faces-run/model.safetensors my-objects/ --out results
  dln infer model.safetensors scans.zip --out results --linear --chains 2 --iterations 200
  dln infer model.safetensors my-objects/ --out results --coordinator node0:5123 --processes 2 --process-id 0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model file, such as dln train writes")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder or archive with a folder for each object")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="at most N objects at once (default: 32)")
    parser.add_argument("--chains", type=int, metavar="N", help="N chains for each object (default: the preset's)")
    parser.add_argument("--iterations", type=int, metavar="N", help="sweeps of a chain (default: as the model has it)")
    parser.add_argument("--linear", action="store_true", help="take the images' numbers as linear light, not sRGB")
    parser.add_argument("--restart", action="store_true", help="discard the results that --out holds, and begin anew")
    add_process_arguments(parser)


def run(options: argparse.Namespace) -> int:
    import json
    import sys

    from deep_lambertian import distributed
    from deep_lambertian.data.images import is_image_name

    if options.folder.is_file() and is_image_name(options.folder.name):
        raise ValueError(
            f"{options.folder}: expected a folder of objects, FOLDER/<object>/<image>, got a single photo; "
            "put it into a folder, and give that folder's parent"
        )
    distributed.initialise(options.coordinator, options.processes, options.process_id)
    from deep_lambertian.inference.batch import KEPT, infer_folder
    from deep_lambertian.model import load_model

    first, processes = distributed.is_first(), distributed.count()
    if processes > 1 and not options.quiet:  # said first: JAX ends a process whose peer has died with words of its own
        hint = "if one dies, all stop within 30 s; start them again, as many as you like, to do what is missing"
        print(f"one of {processes} processes: {hint}", file=sys.stderr, flush=True)
    with distributed.peers(KEPT):
        model = distributed.together(lambda: load_model(options.model))

    def on_object(outcome: Any) -> None:
        if not outcome.ok and not options.quiet:
            print(f"skipped: {outcome.reason}", file=sys.stderr, flush=True)

    result = infer_folder(
        model,
        options.folder,
        options.out,
        batch=options.batch,
        chains=options.chains,
        seed=options.seed,
        iterations=options.iterations,
        srgb=not options.linear,
        restart=options.restart,
        progress=first and not options.quiet and sys.stderr.isatty(),
        on_object=on_object,
    )
    if first:
        counts = {"done": result.done, "before": result.before, "failed": len(result.failed)}
        if options.json:
            paths = {"out": str(result.out), "summary": str(result.summary)}
            print(json.dumps({**counts, **paths, "reasons": result.failed}, indent=2))
        else:
            print(f"results: {result.out} ({result.done} done, {result.before} before, {len(result.failed)} failed)")
            print(f"summary: {result.summary}")
    return 1 if result.failed else 0
