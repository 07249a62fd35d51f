"""Recover albedo, normals and light, with their uncertainty, from photos.

One photo, or several of the same thing by the same camera: the face is found, and the folder --out gets report.html (a
page to relight it on), albedo and normals as PNG (16 bits; normals as (n+1)/2) and .npy, lights.json, uncertainty,
samples, the photo under new lights, and result.npz, which dln relight reads.

A folder or archive, FOLDER/<object>/<image>, of many objects that are cropped already: --out gets a folder for each,
and in the end summary.csv. Started again with the same model, objects and settings, only what is missing is done. For
many processes, on one machine or several, start the same command on each with its own --process-id.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import add_process_arguments, check_writable, numbers

EXAMPLE = """examples:
  dln infer yaleb24 portrait.jpg
  dln infer yaleb24 left.jpg right.jpg front.jpg --out me
  dln infer my-run/model.safetensors vase.png --no-align --mask vase-mask.png --lights lights.txt
  dln infer my-run/model.safetensors my-objects/ --out results
  dln infer model.safetensors my-objects/ --out results --coordinator node0:5123 --processes 2 --process-id 0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a bundled model's name (see dln models) or a model file")
    parser.add_argument(
        "photos", type=Path, nargs="+", metavar="PHOTO", help="photos of one thing, or one folder of many objects"
    )
    parser.add_argument("--out", type=Path, help="folder of the results (default, for photos: PHOTO-dln beside it)")
    parser.add_argument("--chains", type=int, metavar="N", help="N chains for each object (default: the preset's)")
    parser.add_argument("--iterations", type=int, metavar="N", help="sweeps of a chain (default: as the model has it)")
    parser.add_argument("--linear", action="store_true", help="take the images' numbers as linear light, not sRGB")
    photos = parser.add_argument_group("photos")
    photos.add_argument("--lights", type=Path, metavar="FILE", help="known lights: three numbers for each photo")
    photos.add_argument("--mask", type=Path, metavar="FILE", help="a picture, white where the photos' pixels count")
    photos.add_argument("--box", metavar="L,T,W,H", help="roughly where the face is, in pixels of the photo")
    photos.add_argument("--no-align", action="store_true", help="look for no face: the photo, or --box, is the object")
    photos.add_argument(
        "--all-faces", action="store_true", help="do every face of one photo, each in a folder of its own"
    )
    photos.add_argument(
        "--samples", type=int, default=10, metavar="N", help="states of each chain to keep (default: 10)"
    )
    folders = parser.add_argument_group("a folder of objects")
    folders.add_argument("--batch", type=int, default=32, metavar="N", help="at most N objects at once (default: 32)")
    folders.add_argument("--restart", action="store_true", help="discard the results that --out holds, and begin anew")
    add_process_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from deep_lambertian.data.sources import ARCHIVES

    first = options.photos[0]
    if first.is_dir() or first.name.lower().endswith(ARCHIVES):
        if len(options.photos) > 1:
            raise ValueError(f"expected photos, or one folder of objects, got {len(options.photos)} paths with {first}")
        return _folder(first, options)
    return _photos(options)


def _photos(options: argparse.Namespace) -> int:
    import json
    import sys

    from deep_lambertian.data.folder import read_lights
    from deep_lambertian.photos.reading import read_mask, read_photos

    pictures = read_photos(options.photos, srgb=not options.linear)  # before the model: a bad photo costs no time
    shape = pictures[0][1].shape[:2]
    box = None if options.box is None else numbers(options.box, 4, "--box", "LEFT,TOP,WIDTH,HEIGHT")
    mask = None if options.mask is None else read_mask(options.mask, shape)
    lights = None
    if options.lights is not None:
        lights = read_lights(options.lights.read_bytes(), str(options.lights), [name for name, _ in pictures])
    if options.all_faces and (len(pictures) > 1 or box is not None or options.no_align):
        raise ValueError("--all-faces: expected one photo, and neither --box nor --no-align")
    out = options.out or options.photos[0].with_name(f"{options.photos[0].stem}-dln")
    from deep_lambertian.model import is_short, load_model

    check_writable(out)
    model = load_model(options.model)
    settings = {
        "iterations": options.iterations,
        "chains": options.chains,
        "seed": options.seed,
        "keep": options.samples,
        "quick": is_short(options.iterations),
    }
    compiled = model.compile_ahead(len(pictures), lights=lights is not None, **settings)
    # The rest is imported meanwhile.
    from deep_lambertian.photos.placing import every_face
    from deep_lambertian.photos.result import infer_photos
    from deep_lambertian.report.photo_files import describe_lights, save_files, summary

    frames = every_face(pictures[0][1], model) if options.all_faces else [None]
    told = []
    for number, frame in enumerate(frames):
        result = infer_photos(
            model,
            pictures,
            lights=lights,
            mask=mask,
            align=not options.no_align,
            box=box,
            frame=frame,
            srgb=not options.linear,
            compiled=compiled,
            **settings,
        )
        here = out / f"face-{number + 1}" if options.all_faces else out
        save_files(here, result, f"{', '.join(photo.name for photo in result.photos)}")
        warnings = result.posterior.diagnostics.warnings
        told.append(
            {
                "out": str(here),
                "report": str(here / "report.html"),
                "lights": describe_lights(result),
                **summary(result.posterior),
                "notes": list(result.notes),
                "warnings": warnings,
            }
        )
        if not options.json and not options.quiet:
            for each in told[-1]["lights"]:
                place = f"azimuth {each['azimuth_deg']:+.0f}°, elevation {each['elevation_deg']:+.0f}°"
                print(f"light of {each['photo']}: {place} (right and up are positive)")
            for warning in warnings:
                print(f"note: {warning}", file=sys.stderr)
        if not options.json:
            print(f"report: {here / 'report.html'}")
    if options.json:
        print(json.dumps(told if options.all_faces else told[0], indent=2))
    return 0


def _folder(path: Path, options: argparse.Namespace) -> int:
    import json
    import sys

    from deep_lambertian.support import distributed

    if options.out is None:
        raise ValueError("--out: expected a folder for the results of many objects, got none")
    for name in ("lights", "mask", "box", "no_align", "all_faces"):
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: expected with photos only; a folder of objects has lights and masks beside them")
    distributed.initialise(options.coordinator, options.processes, options.process_id)
    from deep_lambertian.inference.sampler import preset
    from deep_lambertian.model import load_model
    from deep_lambertian.photos.batch import KEPT, BatchOptions, infer_folder

    first, processes = distributed.is_first(), distributed.count()
    if processes > 1 and not options.quiet:  # said first: JAX ends a process whose peer has died with words of its own
        hint = "if one dies, all stop within 30 s; start them again, as many as you like, to do what is missing"
        print(f"one of {processes} processes: {hint}", file=sys.stderr, flush=True)
    with distributed.peers(KEPT):
        model = distributed.together(lambda: load_model(options.model))

    def on_object(_: str, reason: str) -> None:
        if reason and not options.quiet:
            print(f"skipped: {reason}", file=sys.stderr, flush=True)

    result = infer_folder(
        model,
        path,
        options.out,
        preset(model.preset).override(iterations=options.iterations),
        chains=options.chains,
        seed=options.seed,
        options=BatchOptions(options.batch, not options.linear, options.restart, on_object),
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
