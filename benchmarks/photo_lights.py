"""How well the light of a photo is told: ten drawn portraits, whose light is known, and the astronaut of scikit-image.

`python -m benchmarks.photo_lights [MODEL]`. Nobody knows the astronaut's light; there the photo is read in other ways,
which tells how much of the estimate is due to its tones, to the smile, and to the model.
"""

import sys

import numpy as np

from deep_lambertian import DLN, load_model
from deep_lambertian.data.images import srgb_to_linear
from deep_lambertian.geometry import angles, angles_of, direction
from deep_lambertian.photos.placing import prepare_photos
from deep_lambertian.photos.result import infer_prepared
from deep_lambertian.synthetic.portrait import draw_portrait

# Azimuth and elevation, of light from all sides of the viewer.
DRAWN = ((0, 0), (0, 25), (0, -15), (-15, 10), (20, -5), (30, 20), (-35, 0), (-30, 30), (45, 10), (-50, 15))
MOUTH = (0.62, 0.9)  # the rows of a face that a smile changes, as parts of the frame's height


def light_of(model: DLN, picture: np.ndarray, hidden: tuple[float, float] | None = None) -> np.ndarray:
    """The light (3,) of a photo in linear colour, of which some rows of the frame may not count."""
    photos, _ = prepare_photos([("photo", picture)], model)
    if hidden is None:
        return infer_prepared(model, photos).lights[0]
    crop = photos[0].exposure * photos[0].alignment.crop(photos[0].grey, model.shape)
    seen = photos[0].seen(model.shape)
    first, last = (round(part * model.shape[0]) for part in hidden)
    seen[first:last] = 0
    return model.infer(crop.astype(np.float32), mask=seen).lights[0]


def main(name: str = "yaleb24") -> None:
    model, errors = load_model(name), []
    print(f"{name}: azimuth and elevation in degrees")
    for seed, (azimuth, elevation) in enumerate(DRAWN):
        portrait = draw_portrait(seed, light=tuple(0.95 * direction(azimuth, elevation)))
        found = light_of(model, portrait.photo)
        off = np.subtract(angles_of(found), angles_of(portrait.light))
        errors.append([*off, angles(found, portrait.light, axis=-1)])
        told, true = (" ".join(f"{angle:+5.0f}" for angle in angles_of(light)) for light in (found, portrait.light))
        print(f"portrait {seed}: found {told}, drawn with {true}, {errors[-1][-1]:.0f} apart", flush=True)
    azimuth, elevation, apart = np.mean(errors, axis=0)
    print(f"on average {azimuth:+.1f} in azimuth, {elevation:+.1f} in elevation, {apart:.1f} apart")
    from skimage.data import astronaut

    photo = astronaut()
    ways = {
        "as sRGB": light_of(model, srgb_to_linear(photo / 255)),
        "as linear light": light_of(model, (photo / 255).astype(np.float32)),
        "as sRGB, without the mouth": light_of(model, srgb_to_linear(photo / 255), MOUTH),
    }
    for words, light in ways.items():
        print(f"astronaut {words}: " + " ".join(f"{angle:+5.1f}" for angle in angles_of(light)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
