"""Show the result of dln infer under another light: one picture, or a sweep of the light around it.

Directions are as the viewer sees them: x and azimuth to the right, y and elevation up, z towards the viewer.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import numbers, print_json, tell

EXAMPLE = """examples:
  dln relight portrait-dln --light 0.5,0.2,0.8
  dln relight portrait-dln --azimuth -60 --elevation 20 --out evening.png
  dln relight portrait-dln --sweep 24 --gif"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("result", type=Path, metavar="RESULT", help="what dln infer wrote: the folder, or result.npz")
    parser.add_argument("--light", metavar="X,Y,Z", help="the light; its length is its strength")
    parser.add_argument("--azimuth", type=float, metavar="A", help="degrees to the right of the viewer")
    parser.add_argument("--elevation", type=float, metavar="E", help="degrees above the viewer")
    parser.add_argument("--strength", type=float, default=1, metavar="S", help="as a part of the photo's (default: 1)")
    parser.add_argument("--sweep", type=int, metavar="N", help="N pictures with the light going round")
    parser.add_argument("--gif", action="store_true", help="with --sweep: one moving picture, of at most 320 pixels")
    around = "light from all around, as a part of the other (default: 0.3)"
    parser.add_argument("--ambient", type=float, default=0.3, metavar="A", help=around)
    parser.add_argument("--photo", type=int, default=1, metavar="I", help="which photo, from 1 (default: 1)")
    parser.add_argument("--crop", action="store_true", help="the object alone, not the whole photo")
    parser.add_argument("--out", type=Path, help="picture, or folder of a sweep (default: in RESULT)")


def run(options: argparse.Namespace) -> None:
    import numpy as np

    from deep_lambertian.data.images import is_image_name
    from deep_lambertian.geometry import around, direction
    from deep_lambertian.photos.result import Result
    from deep_lambertian.report.photo import save_gif, save_picture, to_bytes

    angles = options.azimuth is not None or options.elevation is not None
    if (options.light is not None) + angles + (options.sweep is not None) != 1:
        raise ValueError("expected one of --light X,Y,Z, --azimuth A with --elevation E, or --sweep N")
    if options.gif and options.sweep is None:
        raise ValueError("--gif: expected together with --sweep N")
    if options.sweep is not None and not 2 <= options.sweep <= 360:
        raise ValueError(f"--sweep: expected 2 to 360 pictures, got {options.sweep}")
    if not options.strength >= 0 or not options.ambient >= 0:
        raise ValueError("--strength, --ambient: expected numbers of at least 0")
    light = None if options.light is None else np.array(numbers(options.light, 3, "--light", "X,Y,Z"), np.float32)
    result = Result.load(options.result)
    if not 1 <= options.photo <= len(result.photos):
        raise ValueError(f"--photo: expected 1 to {len(result.photos)}, got {options.photo}")
    number = options.photo - 1

    def lit_from(toward: np.ndarray) -> np.ndarray:
        return options.strength * result.as_bright(toward, number, options.ambient) * toward

    def look(light: np.ndarray) -> np.ndarray:
        ambient = options.ambient * float(np.linalg.norm(light))
        seen = result.relight(light, ambient) if options.crop else result.relight_photo(light, number, ambient)
        return to_bytes(seen, result.srgb)

    if options.sweep is not None:
        lights = [lit_from(toward) for toward in around(options.sweep)]
    else:
        lights = [lit_from(direction(options.azimuth or 0.0, options.elevation or 0.0)) if light is None else light]
    folder = options.result if options.result.is_dir() else options.result.parent
    name = "relit.png" if options.sweep is None else "sweep.gif" if options.gif else "sweep"
    out = options.out or folder / name
    if options.sweep is None and not is_image_name(out.name):
        raise ValueError(f"--out: expected a picture's name, such as relit.png, got {out}")
    written, pictures = [out], [look(each) for each in lights]
    if options.gif:
        save_gif(out, pictures)
    else:
        if options.sweep is not None:
            written = [out / f"{i:03}.png" for i in range(len(pictures))]
        for path, picture in zip(written, pictures, strict=True):
            save_picture(path, picture)
    if options.json:
        rounded = [[round(float(x), 4) for x in each] for each in lights]
        print_json({"files": [str(path) for path in written], "lights": rounded})
    else:
        tell(f"relit: {written[0]}" + (f" to {written[-1].name}" if len(written) > 1 else ""))
