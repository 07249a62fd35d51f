"""Recover albedo, normals and light, with their uncertainty, from photos.

One photo, or several of the same thing by the same camera: the face is found, and the folder --out gets report.html (a
page to relight it on), albedo and normals as PNG (16 bits; normals as (n+1)/2) and .npy, lights.json, uncertainty,
samples, the photo under new lights, and result.npz, which dln relight reads.

A folder or archive, FOLDER/<object>/<image>, of many objects that are cropped already: --out gets a folder for each,
and in the end summary.csv. Started again with the same model, objects and settings, only what is missing is done. For
many processes, on one machine or several, start the same command on each with its own --process-id.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep_lambertian.cli.options import (
    MODEL,
    SAMPLES,
    add_inference,
    add_processes,
    check_writable,
    join_processes,
    numbers,
    print_json,
    printer_of,
    tell,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

EXAMPLE = """examples:
  dln infer portrait.jpg
  dln infer yaleb24 left.jpg right.jpg front.jpg --out me
  dln infer my-run/model.safetensors vase.png --no-align --mask vase-mask.png --lights lights.txt
  dln infer my-run/model.safetensors my-objects/ --out results
  dln infer model.safetensors my-objects/ --out results --coordinator node0:5123 --processes 2 --process-id 0"""
UNNAMED = "faces48"  # of the bundled models, that which anyone may use


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dln infer [MODEL] PHOTO... [options]"
    # The first may be a model, and options may stand after it: what follows it is an argument of its own.
    given = f"photos of one thing, or one folder of many objects; before them {MODEL}, or {UNNAMED} is taken"
    parser.add_argument("photos", nargs=1, action="extend", metavar="[MODEL] PHOTO...", help=given)
    parser.add_argument("photos", nargs="+", action="extend", help=argparse.SUPPRESS).required = False
    add_inference(parser, "object", "images")
    parser.add_argument("--out", type=Path, help="folder of the results (default, for photos: PHOTO-dln beside it)")
    photos = parser.add_argument_group("photos")
    photos.add_argument("--lights", type=Path, metavar="FILE", help="known lights: three numbers for each photo")
    photos.add_argument("--mask", type=Path, metavar="FILE", help="a picture, white where the photos' pixels count")
    photos.add_argument("--box", metavar="L,T,W,H", help="roughly where the face is, in pixels of the photo")
    photos.add_argument("--no-align", action="store_true", help="look for no face: the photo, or --box, is the object")
    photos.add_argument("--all-faces", action="store_true", help="do every face of a photo, each in its own folder")
    kept = "states of a chain to keep (default: 10)"
    photos.add_argument("--samples", type=SAMPLES, default=10, metavar="N", help=kept)
    until = "sweeps that chains may go on for which have not converged (default: the model's; none with --iterations)"
    photos.add_argument("--until", type=int, metavar="N", help=until)
    folders = parser.add_argument_group("a folder of objects")
    folders.add_argument("--batch", type=int, default=32, metavar="N", help="at most N objects at once (default: 32)")
    folders.add_argument("--restart", action="store_true", help="discard the results that --out holds, and begin anew")
    add_processes(parser)


def run(options: argparse.Namespace) -> int:
    from deep_lambertian.data.sources import ARCHIVES

    options.model, options.photos = _told_apart(options.photos)
    first = options.photos[0]
    if first.is_dir() or first.name.lower().endswith(ARCHIVES):
        if len(options.photos) > 1:
            raise ValueError(f"expected photos, or one folder of objects, got {len(options.photos)} paths with {first}")
        return _folder(first, options)
    return _photos(options)


def _told_apart(given: list[str]) -> tuple[str, list[Path]]:
    """The model, which the first of what was given may name, and the photos.

    What is no file and ends in nothing is no photo: a misspelt name is told of when the model is loaded.
    """
    first, photos = Path(given[0]), [Path(each) for each in given]
    bundled = (Path(__file__).parents[1] / "models" / f"{given[0]}.safetensors").is_file()  # whatever else is called so
    named = bundled or first.suffix == ".safetensors" or not (first.suffix or first.exists())
    if first.is_file() and not named:
        with first.open("rb") as file:
            named = file.read(24).endswith(b'{"__metadata__":')
    if named and len(given) == 1:
        raise ValueError(f"{first}: expected a photo, or a model and photos, got no photo")
    return (given[0], photos[1:]) if named else (UNNAMED, photos)


def _tell_model(options: argparse.Namespace) -> None:
    if options.model == UNNAMED and not options.quiet:
        tell(f"model: {UNNAMED}, which is taken where none is named")


def _photos(options: argparse.Namespace) -> int:
    # Before NumPy is imported: its products are small here, and threads of BLAS take time from those that compile.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from concurrent.futures import ThreadPoolExecutor

    from deep_lambertian.data.images import read_mask, read_photos

    pictures = read_photos(options.photos, srgb=not options.linear)  # before the model: a bad photo costs no time
    box = None if options.box is None else numbers(options.box, 4, "--box", "LEFT,TOP,WIDTH,HEIGHT")
    mask = None if options.mask is None else read_mask(options.mask, pictures[0][1].shape[:2])
    lights = None if options.lights is None else _lights(options.lights, [name for name, _ in pictures])
    if options.all_faces and (len(pictures) > 1 or box is not None or options.no_align):
        raise ValueError("--all-faces: expected one photo, and neither --box nor --no-align")
    out = options.out or options.photos[0].with_name(f"{options.photos[0].stem}-dln")
    check_writable(out)
    # Not closed: an error is told at once, while what is being compiled goes on until the program ends.
    pool = ThreadPoolExecutor(thread_name_prefix="beside")
    said = []
    for number, result in enumerate(_results(options, pool, pictures, box, mask, lights)):
        here = out / f"face-{number + 1}" if options.all_faces else out
        said.append(_write(here, result, options, pool))
    if options.json:
        print_json(said if options.all_faces else said[0])
    return 0


def _lights(path: Path, names: list[str]) -> Any:
    from deep_lambertian.data.folder import read_lights

    return read_lights(path.read_bytes(), str(path), names)


def _results(
    options: argparse.Namespace, pool: "Executor", pictures: Any, box: Any, mask: Any, lights: Any
) -> Iterator[Any]:
    """The result of the photos, or of each face of one; what can wait for nothing is done beside the rest.

    This is where a person waits: programs are compiled while the face is looked for and modules are imported.
    """
    from concurrent.futures import wait
    from importlib import import_module

    import numpy as np

    from deep_lambertian.model import load_model
    from deep_lambertian.support import compiled

    model = load_model(options.model)
    sweeps = {"iterations": options.iterations, "until": options.until, "chains": options.chains}
    sampler = model.sampler.override(**sweeps, keep=options.samples)
    compiled.compile_in(pool)
    try:
        blank = np.full((len(pictures), *model.shape), 0.5, np.float32)
        few = sampler.override(iterations=max(2, sampler.keep), burn_in=1)  # one program serves any number of sweeps
        warm = pool.submit(model.infer, blank, None if lights is None else np.ones((len(pictures), 3)), sampler=few)
        from deep_lambertian.photos.placing import Placement, every_face, prepare_photos
        from deep_lambertian.photos.result import infer_prepared, refine_photos, refinement

        refinement(len(pictures))
        frames = every_face(pictures[0][1], model) if options.all_faces else [None]
        for frame in frames:
            placement = Placement(align=not options.no_align, box=box, frame=frame)
            photos, how = prepare_photos(pictures, model, placement, alike=lights is not None)
            pool.submit(lambda photo=photos[0]: photo.reach)  # which relighting will ask for
            pool.submit(import_module, "deep_lambertian.report.photo")
            wait([warm])
            post = infer_prepared(model, photos, lights=lights, mask=mask, sampler=sampler, seed=options.seed)
            yield refine_photos(post, photos, how, mask=mask, srgb=not options.linear)
    finally:
        compiled.compile_in(None)


def _write(folder: Path, result: Any, options: argparse.Namespace, pool: "Executor") -> dict[str, Any]:
    """Write a result's files, and say what is in them; the same as figures."""
    from deep_lambertian.report.photo import describe_lights, save_files, summary

    save_files(folder, result, ", ".join(photo.name for photo in result.photos), pool.submit)
    warnings, lights, report = result.posterior.diagnostics.warnings, describe_lights(result), folder / "report.html"
    if not options.json:
        _tell_model(options)
        for each in () if options.quiet else lights:
            place = f"azimuth {each['azimuth_deg']:+.0f}°, elevation {each['elevation_deg']:+.0f}°"
            tell(f"light of {each['photo']}: {place} (right and up are positive)")
        for note in (*result.posterior.notes, *warnings):
            printer_of(options)(f"note: {note}")
        tell(f"report: {report}")
    found = {"model": options.model, "out": str(folder), "report": str(report), "lights": lights}
    return found | summary(result.posterior) | {"notes": list(result.notes), "warnings": warnings}


def _folder(path: Path, options: argparse.Namespace) -> int:
    from deep_lambertian.support import distributed

    if options.out is None:
        raise ValueError("--out: expected a folder for the results of many objects, got none")
    for name in ("lights", "mask", "box", "no_align", "all_faces", "until"):
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: expected with photos only; a folder of objects has lights and masks beside them")
    join_processes(options)
    from deep_lambertian.model import load_model
    from deep_lambertian.photos.batch import KEPT, BatchOptions, infer_folder

    say = printer_of(options)
    with distributed.peers(KEPT):
        model = distributed.together(lambda: load_model(options.model))
    sampler = model.sampler.override(iterations=options.iterations, chains=options.chains)
    on_object = lambda _, reason: say(f"skipped: {reason}") if reason else None
    chosen = BatchOptions(options.batch, not options.linear, options.restart, on_object)
    result = infer_folder(model, path, options.out, sampler, seed=options.seed, options=chosen)
    if distributed.is_first():
        counts = {"done": result.done, "before": result.before, "failed": len(result.failed)}
        if options.json:
            where = {"out": str(result.out), "summary": str(result.summary)}
            print_json({"model": options.model, **counts, **where, "reasons": result.failed})
        else:
            _tell_model(options)
            tell(f"results: {result.out} ({', '.join(f'{count} {what}' for what, count in counts.items())})")
            tell(f"summary: {result.summary}")
    return 1 if result.failed else 0
