"""A user's own objects: `root/<object>/<image>`, a single photo, or several photos of one thing.

A folder of an object may hold `mask.*` (white is the object), and the lights of its images as `lights.txt` (the number
of lights, then x y z of each, in the order of the images' names) or `lights.csv` (rows `name,x,y,z`, or `x,y,z` in
order). Which images of several objects were taken under the same light, wherever that was, is said by a name for each
light: `rig.csv` (rows `name,light`; an image that is left out is of a light of its own) or `rig.txt` (a line for each
image, in order). A file of lights or of a rig above the folders serves them all.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped, View, stack_objects
from deep_lambertian.data.images import (
    decode,
    image_shape,
    is_image_name,
    one_size,
    read_image,
    read_photos,
    some_white,
)
from deep_lambertian.data.sources import open_source
from deep_lambertian.support.progress import track
from deep_lambertian.support.resampling import average_areas

LIGHT_FILES, RIG_FILES = ("lights.txt", "lights.csv"), ("rig.txt", "rig.csv")


@dataclass(frozen=True)
class Entry:
    """One object as the listing shows it: its files, how many of them are images, and whether its lights are given."""

    files: list[str]
    images: int
    lights: bool


class ObjectFolder:
    """A folder or archive of objects, listed once, without decoding an image; objects are read as they are asked for.

    What is read is not kept, so that memory does not grow with the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.source = open_source(path)
        folders: dict[str, list[str]] = {}  # an archive may call one folder `a`, `./a` and `a//`
        for folder, files in self.source.folders().items():
            folders.setdefault("/".join(PurePosixPath(folder).parts), []).extend(files)
        # Files above the objects' folders serve them all.
        above = [names for names in folders.values() if not any(map(is_image_name, names)) and len(folders) > 1]
        files = {PurePosixPath(name).name: name for names in above for name in names}
        self._common, self._common_rig = _one_of(LIGHT_FILES, files), _one_of(RIG_FILES, files)
        self.entries: dict[str, Entry] = {}
        for folder in sorted(folders):
            files = folders[folder]
            if any(map(is_image_name, files)):
                names = {PurePosixPath(file).name for file in files}
                images = sum(is_image_name(name) and not _is_mask(name) for name in names)
                lights = self._common is not None or any(name.lower() in LIGHT_FILES for name in names)
                # Images at the top are an object called like the folder itself.
                label = folder or self.source.path.name or self.source.path.absolute().name
                if label in self.entries:
                    self.source.close()
                    raise ValueError(f"{path}: expected each object's name to be its own, got {label!r} twice")
                self.entries[label] = Entry(files, images, lights)

    def __enter__(self) -> "ObjectFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def nothing(self, skipped: Sequence[Skipped] = ()) -> ValueError:
        """The error that says that no object has been found, and what was left out."""
        reasons = "; ".join(f"{s.name}: {s.reason}" for s in skipped[:3])
        found = f"none among {len(self.source.names)} files{' (' + reasons + ')' if reasons else ''}"
        return ValueError(f"{self.source.path}: expected folders of images, one for each object, found {found}")

    def read(self, name: str, shape: tuple[int, int], srgb: bool, skipped: list[Skipped]) -> list[View]:
        """The images of one object that can be used, with mask and lights; `skipped` is told of the others."""
        if name not in self.entries:
            raise ValueError(f"{self.source.path}: no object {name!r} among the {len(self.entries)} in it")
        files = {PurePosixPath(path).name: path for path in self.entries[name].files}
        pictures = [file for file in sorted(files, key=natural) if is_image_name(file) and not _is_mask(file)]
        found: dict[str, np.ndarray] = {}
        sizes: list[tuple[str, tuple[int, ...]]] = []
        for file in pictures:
            pixels = read_image(self.source, files[file], skipped, srgb=srgb)
            if pixels is not None:
                sizes.append((file, pixels.shape))
                found[file] = average_areas(pixels, shape)
        mask = None
        for path in (path for file, path in files.items() if _is_mask(file)):
            mask = some_white(average_areas(decode(self.source.read(path), path, srgb=False), shape), path) > 0.5
        known = {file for file in files if file.lower() in (*LIGHT_FILES, *RIG_FILES) or _is_mask(file)}
        others = set(files) - {*pictures, *known}
        skipped += [Skipped(files[file], "not an image by its name") for file in sorted(others)]
        if not found:
            return []
        one_size(sizes, name)
        lights: dict[str, np.ndarray] = {}
        rig: dict[str, str] = {}
        if (place := _one_of(LIGHT_FILES, files) or self._common) is not None:
            lights = dict(zip(pictures, read_lights(self.source.read(place), place, pictures), strict=True))
        if (place := _one_of(RIG_FILES, files) or self._common_rig) is not None:
            rig = dict(zip(pictures, read_rig(self.source.read(place), place, pictures), strict=True))
        return [View(file, image, mask, lights.get(file), rig=rig.get(file, "")) for file, image in found.items()]


def folder_objects(path: str | Path) -> list[str]:
    """The names of the objects of a folder or archive, sorted, found without decoding an image."""
    with ObjectFolder(path) as source:
        return list(source.entries)


def load_folder(
    path: str | Path, size: int | tuple[int, int] = 48, *, objects: Sequence[str] | None = None, srgb: bool = True
) -> Dataset:
    """All objects of a folder or archive, or those named; images at the top, beside no folders, are one object.

    Files are taken to be sRGB and made linear unless `srgb` is false. The images of one object must be of one size, and
    are brought to `size` by area averaging.
    """
    shape = image_shape(size)
    found: list[tuple[str, list[View]]] = []
    with ObjectFolder(path) as source:
        skipped = [Skipped(name, "folder cannot be read") for name in source.source.unreadable]
        for name in track(list(source.entries) if objects is None else objects, "reading objects"):
            if views := source.read(name, shape, srgb, skipped):
                found.append((name, views))
        if not found:
            raise source.nothing(skipped)
    return stack_objects(found, skipped, {"kind": "folder", "path": str(path), "linearised": srgb})


def load_photos(
    paths: str | Path | Sequence[str | Path], size: int | tuple[int, int] | None = None, *, srgb: bool = True
) -> Dataset:
    """One photo, or several of the same thing in the same place, as one object; at their own size unless told."""
    photos = read_photos([paths] if isinstance(paths, (str, Path)) else paths, srgb=srgb, colour=False)
    shape = photos[0][1].shape if size is None else image_shape(size)
    number = (lambda i: f"{i}:") if len(photos) > 1 else (lambda i: "")
    views = [View(number(i) + name, average_areas(image, shape)) for i, (name, image) in enumerate(photos)]
    return stack_objects([(photos[0][0], views)], info={"kind": "photos", "linearised": srgb})


def natural(name: str) -> list[tuple[int, str]]:
    """The order a person expects, in which `cat.2` comes before `cat.10`: lights are listed in it."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    ]


def _is_mask(file: str) -> bool:
    """`mask.png`, or `cat.mask.tga` as in the photometric stereo sets of the University of Washington."""
    stem = PurePosixPath(file.lower()).stem
    return stem == "mask" or stem.endswith((".mask", "_mask"))


def _one_of(names: Sequence[str], files: Mapping[str, str]) -> str | None:
    """Where the first file of one of these names lies, among paths by their file's name."""
    return next((path for file, path in files.items() if file.lower() in names), None)


def read_rig(data: bytes, name: str, images: Sequence[str]) -> list[str]:
    """The name of each image's light, empty where it has none, from the text of a `rig.csv` or `rig.txt`."""
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(data.decode("utf-8", "replace")))]
    except csv.Error as error:
        raise ValueError(f"{name}: expected a name for each light ({error})") from error
    rows = [row for row in rows if any(row)]
    if rows and all(len(row) == 2 for row in rows):
        named = dict(rows)
        if not any(image in named for image in images):
            raise ValueError(f"{name}: expected rows such as '{images[0]},left', got none for an image of that folder")
        return [named.get(image, "") for image in images]
    if len(rows) != len(images) or any(len(row) != 1 for row in rows):
        expected = f"rows 'image,light', or one name of a light for each of {len(images)} images"
        raise ValueError(f"{name}: expected {expected}, got {len(rows)} rows")
    return [row[0] for row in rows]


def read_lights(data: bytes, name: str, images: Sequence[str]) -> list[np.ndarray]:
    """The light of each image from the text of a `lights.txt` or a CSV file."""
    text = data.decode("utf-8", "replace")
    try:
        if name.lower().endswith(".csv"):
            rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
            rows = [[cell.strip() for cell in row] for row in rows if row[-1].strip().lower() not in ("z", "lz")]
            if all(len(row) == 4 for row in rows):
                named = {row[0]: np.array(row[1:], np.float32) for row in rows}
                if absent := [image for image in images if image not in named]:
                    raise ValueError(f"no light for {absent[0]!r}")
                lights = [named[image] for image in images]
            else:
                lights = [np.array(row, np.float32) for row in rows]
        else:
            numbers = np.array(text.split(), np.float32)
            if len(numbers) % 3 == 1 and numbers[0] == (len(numbers) - 1) // 3:
                numbers = numbers[1:]
            lights = list(numbers.reshape(-1, 3))
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}: expected lights, three numbers each ({error})") from error
    if len(lights) != len(images):
        raise ValueError(f"{name}: expected {len(images)} lights, one for each image, got {len(lights)}")
    for light in lights:
        if light.shape != (3,) or not np.isfinite(light).all():
            raise ValueError(f"{name}: expected three finite numbers for a light, got {light.tolist()}")
    return lights
