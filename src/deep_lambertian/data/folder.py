"""A user's own objects: `root/<object>/<image>`, a single photo, or several photos of one thing.

A folder of an object may hold `mask.*` (white is the object), and the lights of its images as `lights.txt` (the number
of lights, then x y z of each, in the order of the images' names) or `lights.csv` (rows `name,x,y,z`, or `x,y,z` in
order). A file of lights above the folders serves them all.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped, stack_objects
from deep_lambertian.data.images import ImageError, decode, is_image_name, resize
from deep_lambertian.data.sources import Source, SourceError, open_source
from deep_lambertian.support.progress import track

LIGHT_FILES = ("lights.txt", "lights.csv")


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
        folders = self.source.folders()
        self._common = _common_lights(self.source, folders)
        self.unreadable: list[str] = getattr(self.source, "unreadable", [])
        self.entries: dict[str, Entry] = {}
        for folder in sorted(folders):
            files = folders[folder]
            if any(map(is_image_name, files)):
                names = [PurePosixPath(file).name for file in files]
                images = sum(is_image_name(name) and not _is_mask(name) for name in names)
                lights = self._common is not None or any(name.lower() in LIGHT_FILES for name in names)
                # Images at the top are an object called like the folder itself.
                label = folder or self.source.path.name or self.source.path.absolute().name
                if label in self.entries:
                    self.close()
                    raise ValueError(f"{path}: expected each object's name to be its own, got {label!r} twice")
                self.entries[label] = Entry(files, images, lights)

    def __enter__(self) -> "ObjectFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()

    def nothing(self, skipped: Sequence[Skipped] = ()) -> ValueError:
        """The error that says that no object has been found, and what was left out."""
        reasons = "; ".join(f"{s.name}: {s.reason}" for s in skipped[:3])
        return ValueError(
            f"{self.source.path}: expected folders of images, one for each object, found none among "
            f"{len(self.source.names)} files{' (' + reasons + ')' if reasons else ''}"
        )

    def read(self, name: str, shape: tuple[int, int], srgb: bool, skipped: list[Skipped]) -> "Object | None":
        """One object's images, mask and lights; None where no image of it can be used. `skipped` gets what was not."""
        if name not in self.entries:
            raise ValueError(f"{self.source.path}: no object {name!r} among the {len(self.entries)} in it")
        return _read_object(self.source, name, self.entries[name].files, shape, srgb, skipped, self._common)


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
    shape = (size, size) if isinstance(size, int) else size
    found, masks, lights, skipped = [], [], [], []
    with ObjectFolder(path) as source:
        skipped += [Skipped(name, "folder cannot be read") for name in source.unreadable]
        for name in track(list(source.entries) if objects is None else objects, "reading objects"):
            read = source.read(name, shape, srgb, skipped)
            if read is not None:
                _, images, mask, directions = read
                found.append((name, images))
                masks.append([mask] * len(images))
                lights.append(directions)
        if not found:
            raise source.nothing(skipped)
    known = any(light is not None for row in lights for light in row)
    return stack_objects(
        found,
        masks=masks,
        lights=lights if known else None,
        skipped=skipped,
        info={"kind": "folder", "path": str(path), "linearised": srgb},
    )


def load_photos(
    paths: str | Path | Sequence[str | Path], size: int | tuple[int, int] | None = None, *, srgb: bool = True
) -> Dataset:
    """One photo, or several of the same thing in the same place, as one object; at their own size unless told."""
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not paths:
        raise ValueError("expected at least one photo, got none")
    images: list[tuple[str, np.ndarray]] = []
    for path in map(Path, paths):
        if not path.is_file():
            raise ValueError(f"{path}: expected a photo, found {'a folder' if path.is_dir() else 'nothing'}")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        images.append((path.name, decode(data, str(path), srgb=srgb).pixels))
    one_size([(name, image.shape) for name, image in images], "photos")
    shape = images[0][1].shape if size is None else (size, size) if isinstance(size, int) else size
    resized = [
        (f"{i}:{name}" if len(images) > 1 else name, resize(image, shape)) for i, (name, image) in enumerate(images)
    ]
    return stack_objects([(images[0][0], resized)], info={"kind": "photos", "linearised": srgb})


Object = tuple[str, list[tuple[str, np.ndarray]], np.ndarray | None, list[np.ndarray | None]]


def _read_object(
    source: Source,
    label: str,
    names: list[str],
    shape: tuple[int, int],
    srgb: bool,
    skipped: list[Skipped],
    common: str | None,
) -> Object | None:
    """One object's images, mask and lights; None where no image of it can be used."""
    images, mask, by_name = [], None, {PurePosixPath(name).name: name for name in names}
    sizes: list[tuple[str, tuple[int, ...]]] = []
    lost: set[int] = set()
    in_order = [file for file in sorted(by_name, key=natural) if is_image_name(file) and not _is_mask(file)]
    for number, file in enumerate(in_order):
        try:
            pixels = decode(source.read(by_name[file]), by_name[file], srgb=srgb).pixels
        except (ImageError, SourceError) as error:
            skipped.append(Skipped(by_name[file], f"unreadable: {error}"))
            lost.add(number)
            continue
        sizes.append((file, pixels.shape))
        images.append((file, resize(pixels, shape)))
    for file, name in by_name.items():
        if _is_mask(file):
            try:
                mask = resize(decode(source.read(name), name, srgb=False).pixels, shape) > 0.5
            except (ImageError, SourceError) as error:
                raise ValueError(f"{name}: a mask that cannot be read ({error})") from error
            if not mask.any():
                raise ValueError(f"{name}: expected a mask with some white in it, got none")
        elif not is_image_name(file) and file.lower() not in LIGHT_FILES:
            skipped.append(Skipped(name, "not an image by its name"))
    if not images:
        return None
    one_size(sizes, label)
    lights_file = next((by_name[file] for file in by_name if file.lower() in LIGHT_FILES), common)
    directions: list[np.ndarray | None] = [None] * len(images)
    if lights_file is not None:
        table = read_lights(source.read(lights_file), lights_file, in_order)
        directions = [light for number, light in enumerate(table) if number not in lost]
    return label, images, mask, directions


def natural(name: str) -> list[tuple[int, str]]:
    """The order a person expects, in which `cat.2` comes before `cat.10`: lights are listed in it."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def _is_mask(file: str) -> bool:
    """`mask.png`, or `cat.mask.tga` as in the photometric stereo sets of the University of Washington."""
    stem = PurePosixPath(file.lower()).stem
    return stem == "mask" or stem.endswith((".mask", "_mask"))


def _common_lights(source: Source, folders: dict[str, list[str]]) -> str | None:
    """A file of lights above the objects' folders, which serves them all."""
    tops = [name for names in folders.values() for name in names if PurePosixPath(name).name.lower() in LIGHT_FILES]
    above = [
        name for name in tops if not any(map(is_image_name, folders[name.rpartition("/")[0]])) and len(folders) > 1
    ]
    return above[0] if above else None


def one_size(sizes: Sequence[tuple[str, tuple[int, ...]]], label: str) -> None:
    different = [(name, shape) for name, shape in sizes if shape[:2] != sizes[0][1][:2]]
    if different:
        (first, (h, w, *_)), (other, (oh, ow, *_)) = sizes[0], different[0]
        raise ValueError(
            f"{label}: expected images of one size, got {first!r} of {w}×{h} and {other!r} of {ow}×{oh}; "
            "images of one object must show it in the same place"
        )


def read_lights(data: bytes, name: str, images: Sequence[str]) -> list[np.ndarray]:
    """The light of each image from the text of a `lights.txt` or a CSV file."""
    text = data.decode("utf-8", "replace")
    try:
        if name.lower().endswith(".csv"):
            rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
            rows = [[cell.strip() for cell in row] for row in rows if row[-1].strip().lower() not in ("z", "lz")]
            if all(len(row) == 4 for row in rows):
                named = {row[0]: np.array(row[1:], np.float32) for row in rows}
                absent = [image for image in images if image not in named]
                if absent:
                    raise ValueError(f"no light for {absent[0]!r}")
                lights = [named[image] for image in images]
            else:
                lights = [np.array(row, np.float32) for row in rows]
        else:
            numbers = np.array(text.split(), np.float32)
            if len(numbers) % 3 == 1 and int(numbers[0]) == (len(numbers) - 1) // 3:
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
