"""The illumination collection of the Amsterdam Library of Object Images, as it is distributed.

`png4/9/9_l1c2.png`: object 9, light 1 of 8, camera 2 of 3. Lights 1 to 5 are single lamps, 6 to 8 combinations. The
object was turned for each camera so that all see it from one side: what changes from camera to camera is the light's
azimuth, by 15° and 30°, and the picture's place, by a few pixels.
(Geusebroek, Burghouts & Smeulders 2005: for research.)
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped, View, some, stack_objects
from deep_lambertian.data.images import ImageError, decode, image_shape, is_image_name, luminance, read_image
from deep_lambertian.data.masks import bounding_box, camera_offsets, evidence, flawed, shift_back, silhouette
from deep_lambertian.data.sources import Source, open_source
from deep_lambertian.support.progress import track
from deep_lambertian.support.resampling import average_areas

NAME = re.compile(r"(\d+)_l([1-8])c([1-3])\.\w+")
MASK_NAME = re.compile(r"(\d+)(?:_(?:l\d)?c([1-3])|_r0)?\.\w+")
LIGHTS = (1, 2, 3, 4, 5)  # the single lamps, which the paper uses; the others help to find the mask
EXAMPLE = "png4/9/9_l1c2.png"
Place = tuple[int, int]  # light and camera
Masks = list[tuple[int, np.ndarray]]  # each with its camera
Offsets = Mapping[int, tuple[float, float]]  # of each camera, down and right


def load_aloi(
    path: str | Path,
    size: int = 48,
    objects: Sequence[int] | None = None,
    masks: str | Path | None = None,
    backdrop: bool = False,
) -> Dataset:
    """The objects found at `path`, a folder or an archive, or those numbered: 15 images each, lights 1–5 × 3 cameras.

    Intensities are the file's luminance divided by 255, not made linear, as in the paper. Cameras 2 and 3 are laid
    over camera 1 by a translation. The mask's bounding box and a pixel around it are rescaled to size×size, by area
    averaging: an object fills the picture, and is stretched unless its box is square; each pixel's normal is still
    that of the object. What lies outside the mask is 0 or, with `backdrop`, as it was photographed: all images of an
    object have one mask, by which it could be told from others whatever the images show.

    `masks` is a folder or an archive of the distributor's, white where the object is, of any resolution, named
    `<object>_c<camera>.png`, or `<object>_l<light>c<camera>.png`, or for camera 1 `<object>.png` or `<object>_r0.png`,
    in any folder; of several the majority counts. Without it masks are found from the pictures of all eight lights.
    Then holes, such as a mug's handle, are filled.

    `info["shifts"]` tells, for each object and camera, how many of the file's pixels (right, down) it was moved back.
    """
    shape = image_shape(size)
    if objects is not None and (not len(objects) or len(set(objects)) != len(objects)):
        raise ValueError(f"objects: expected at least one number, and each once, got {list(objects)}")
    loaded: list[tuple[str, list[View]]] = []
    shifts: dict[str, dict[str, tuple[float, float]]] = {}
    with open_source(path) as source:
        found, skipped = _listing(source.names)
        order = sorted(found) if objects is None else list(objects)
        if not found:
            raise ValueError(f"{path}: expected images of ALOI such as {EXAMPLE}, found {source.contents()}")
        if missing := [number for number in order if number not in found]:
            raise ValueError(f"{path}: did not find objects {some(missing)}; there are {some(sorted(found))}")
        given = {} if masks is None else _given_masks(masks, order)
        for number in track(order, "reading ALOI"):
            images = _photographs(source, found[number], skipped)
            try:
                views, moved = _views(images, found[number], given.get(number), shape, backdrop)
            except ImageError as error:
                skipped.append(Skipped(f"object {number}", str(error)))
                continue
            loaded.append((str(number), views))
            shifts[str(number)] = {f"c{camera}": (right, down) for camera, (down, right) in moved.items()}
    missing = [n for n in order if str(n) not in shifts]
    if not loaded or (objects is not None and missing):
        why = next((s.reason for s in reversed(skipped) if s.name.startswith("object ")), "no images")
        raise ValueError(f"{path}: objects {some(missing)} cannot be used ({why})")
    found_by = "derived" if masks is None else str(masks)
    info = {"kind": "aloi", "path": str(path), "linearised": False, "masks": found_by, "shifts": shifts}
    return stack_objects(loaded, skipped, info)


def _views(
    images: Mapping[Place, np.ndarray],
    files: Mapping[Place, str],
    given: Masks | None,
    shape: tuple[int, int],
    backdrop: bool,
) -> tuple[list[View], Offsets]:
    """An object's images by single lamps, cut out by its mask, in one place and at this shape; and how they lay."""
    places = sorted(place for place in images if place[0] in LIGHTS)
    if not places:
        raise ImageError("no usable image of lights 1 to 5")
    moved = camera_offsets(images)
    if given is None:
        mask = silhouette([shift_back(evidence(image), moved[camera]) for (_, camera), image in images.items()])
    else:
        size = images[places[0]].shape[:2]
        sized = [(average_areas(one.astype(np.float32), size), camera) for camera, one in given]
        laid = [shift_back(one, moved.get(camera, (0.0, 0.0))) for one, camera in sized]
        mask = np.mean(laid, axis=0) > 0.5  # what most of them say
    if mask is None or not mask.any():
        raise ImageError("nothing stands out from the background")
    box = bounding_box(mask)
    inside = average_areas(mask[box].astype(np.float32), shape) > 0.5
    views = []
    for place in places:
        flat = np.clip(shift_back(luminance(images[place]), moved[place[1]], order=3), 0, 1)
        name, rig = PurePosixPath(files[place]).name, "l{}c{}".format(*place)  # the lamps stood still for all objects
        picture = average_areas(flat[box], shape)
        views.append(View(name, picture if backdrop else picture * inside, inside, rig=rig))
    return views, moved


def split_aloi(data: Dataset, train: int = 10) -> tuple[Dataset, Dataset]:
    """Of each object's 15 images `train` to learn from and 15 − `train` to test on, always the same ones.

    With 10, as in the paper, each of the five lights is tested once, by cameras that take turns from light to light and
    from object to object (so every light and camera is tested on a third of the objects). An image that is missing is
    replaced in the test by the same light's next camera; the training images are then fewer.
    """
    tests = 15 - train
    if not 1 <= train <= 14:
        raise ValueError(f"train: expected 1 to 14 of 15 images, got {train}")
    chosen = np.zeros(data.images.shape[:2], bool)
    for s, row in enumerate(data.image_names):
        cameras: dict[int, list[tuple[int, int]]] = {}
        for p, name in enumerate(row):
            if name:
                number, light, camera = parts_of(name)
                cameras.setdefault(light, []).append(((camera - number - light) % 3, p))
        # Every light's first camera, then every light's second: the earliest of these are tested.
        turns = sorted((turn, light, p) for light, all_ in cameras.items() for turn, (_, p) in enumerate(sorted(all_)))
        if len(turns) <= tests:
            raise ValueError(f"object {data.names[s]}: expected more than {tests} images, got {len(turns)}")
        chosen[s, [p for _, _, p in turns[:tests]]] = True
    return data.keep(~chosen), data.keep(chosen)


def parts_of(name: str) -> tuple[int, int, int]:
    """Object, light and camera of an image of the collection."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"expected images of ALOI, such as {PurePosixPath(EXAMPLE).name}, got {name!r}")
    return int(match[1]), int(match[2]), int(match[3])


def _listing(names: Sequence[str]) -> tuple[dict[int, dict[Place, str]], list[Skipped]]:
    """Files by object, and light and camera."""
    found: dict[int, dict[Place, str]] = {}
    skipped = []
    for name in names:
        match = NAME.fullmatch(PurePosixPath(name).name)
        if match is None or not is_image_name(name):
            skipped.append(Skipped(name, "not an image of the collection"))
            continue
        number, light, camera = map(int, match.groups())
        views = found.setdefault(number, {})
        if (light, camera) in views:
            skipped.append(Skipped(name, f"a second file for what {views[light, camera]!r} shows"))
        else:
            views[light, camera] = name
    return found, skipped


def _photographs(source: Source, files: Mapping[Place, str], skipped: list[Skipped]) -> dict[Place, np.ndarray]:
    """The usable photographs (H, W, 3) of an object; `skipped` is told what is wrong with the others."""
    images: dict[Place, np.ndarray] = {}
    shape: tuple[int, ...] | None = None
    for place, name in sorted(files.items()):
        pixels = read_image(source, name, skipped, srgb=False, colour=True)
        if pixels is None:
            continue
        shape = shape or pixels.shape
        if pixels.shape != shape or min(shape[:2]) < 16:
            expected = f"{shape[1]}×{shape[0]} like the object's others, and at least 16"
            skipped.append(Skipped(name, f"{pixels.shape[1]}×{pixels.shape[0]} pixels, expected {expected}"))
            continue
        images[place] = pixels
    for camera in (1, 2, 3):
        places = [place for place in images if place[1] == camera]
        for place, reason in zip(places, flawed([images[place] for place in places]), strict=True):
            if reason:
                skipped.append(Skipped(files[place], reason))
                del images[place]
    return images


def _given_masks(path: str | Path, numbers: Sequence[int]) -> dict[int, Masks]:
    """The distributor's masks (H, W) of each object, each with its camera."""
    found: dict[int, Masks] = {number: [] for number in numbers}
    with open_source(path) as source:
        for name in source.names:
            match = MASK_NAME.fullmatch(PurePosixPath(name).name)
            if match is None or not is_image_name(name) or int(match[1]) not in found:
                continue
            mask = decode(source.read(name), name, srgb=False)  # its errors are ValueErrors that name the file
            # A mask may be of 0 and 1 rather than of black and white.
            found[int(match[1])].append((int(match[2] or 1), mask > 0.5 * mask.max()))
    for number, each in found.items():
        if not any(mask.any() for _, mask in each):
            what = "only empty ones" if each else "none"
            raise ValueError(f"{path}: expected a mask of object {number}, such as {number}_c1.png, found {what}")
    return found
