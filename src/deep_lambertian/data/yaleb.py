"""The Yale B and Extended Yale B face databases, cropped, as they are distributed.

`yaleB11_P00A+035E-20.pgm`: subject 11, frontal pose, light at azimuth +35° and elevation −20°. A positive azimuth
lights the side on the LEFT of the image. Free for research: cite Georghiades, Belhumeur & Kriegman (2001) and Lee, Ho
& Kriegman (2005).
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped, View, stack_objects
from deep_lambertian.data.images import image_shape, read_image
from deep_lambertian.data.sources import Source, open_source
from deep_lambertian.geometry import direction
from deep_lambertian.support.progress import track
from deep_lambertian.support.resampling import average_areas

NAME = re.compile(r"(yaleB\d\d)_P(\d\d)A([+-]\d+)E([+-]\d+)\.pgm")
EXAMPLE = "yaleB11/yaleB11_P00A+035E-20.pgm"
SUBSET_ANGLES = (12, 25, 52, 77, 180)  # degrees between light and camera axis; subset 3 includes A±035E+40, at 51.1°
CROPPED = (192, 168)
NO_IMAGES = {".bad": "marked as corrupt (.bad)", "Ambient": "ambient light only", ".info": "a list of files (.info)"}
PROTOCOLS = {
    "paper": ([f"yaleB{i}" for i in range(11, 40) if i != 14], [f"yaleB{i:02}" for i in range(1, 11)]),
    "dev": ([f"yaleB{i}" for i in range(11, 30) if i != 14], [f"yaleB{i}" for i in range(30, 40)]),
    # A second fold, on which what was chosen on `dev` is confirmed.
    "confirm": ([f"yaleB{i}" for i in range(11, 40) if i != 14 and i // 10 != 2], [f"yaleB{i}" for i in range(20, 30)]),
}


def light_direction(azimuth: float, elevation: float) -> np.ndarray:
    """The unit vector to the light from the angles of a file's name, in degrees; x to the right, y up."""
    return direction(-azimuth, elevation)  # the database counts azimuths to the left of the image, we to its right


def illumination_subset(azimuth: float, elevation: float) -> int:
    """The number, 1 to 5, of the subset to which a light belongs."""
    angle = np.degrees(np.arccos(np.clip(light_direction(azimuth, elevation)[2], -1, 1)))
    return int(np.searchsorted(SUBSET_ANGLES, round(float(angle), 3))) + 1


def load_yaleb(
    path: str | Path,
    size: int | tuple[int, int] = 24,
    subjects: Sequence[str | int] | None = None,
    subsets: Sequence[int] = (1, 2, 3, 4),
) -> Dataset:
    """The cropped images of all subjects found at `path`, a folder or an archive, or of those named or numbered.

    Intensities are the file's divided by 255, not made linear, as in the paper; 24×24 by area averaging.
    """
    shape = image_shape(size)
    if set(subsets) - set(range(1, 6)) or not subsets:
        raise ValueError(f"subsets: expected some of 1 to 5, got {list(subsets)}")
    wanted = None if subjects is None else [s if isinstance(s, str) else f"yaleB{s:02}" for s in subjects]
    found: dict[str, list[View]] = {}
    skipped: list[Skipped] = []
    with open_source(path) as source:
        for name in track(source.names, "reading Yale B"):
            file = PurePosixPath(name).name
            match = NAME.fullmatch(file)
            if match is None:
                reason = next((why for part, why in NO_IMAGES.items() if part in file), "not an image of the database")
                skipped.append(Skipped(name, reason))
                continue
            subject, pose, *angles = match[1], match[2], float(match[3]), float(match[4])
            subset = illumination_subset(*angles)
            if subset in subsets and (wanted is None or subject in wanted):
                pixels = _cropped(source, name, pose, skipped)
                if pixels is not None:
                    # Everyone sat in the same dome of flashes: the angles, as a name, say which of them it was.
                    known = {"light": light_direction(*angles), "subset": subset, "rig": f"A{match[3]}E{match[4]}"}
                    found.setdefault(subject, []).append(View(file, average_areas(pixels, shape), **known))
        if not found:
            images = f"images such as {EXAMPLE}{'' if wanted is None else ' of ' + ', '.join(wanted)}"
            raise ValueError(f"{path}: expected cropped Yale B {images}, found {source.contents()}")
    order = sorted(found) if wanted is None else wanted
    if missing := [subject for subject in order if subject not in found]:
        raise ValueError(f"{path}: expected subjects {', '.join(order)}, did not find {', '.join(missing)}")
    info = {"kind": "yaleb", "path": str(path), "linearised": False, "subsets": sorted(subsets)}
    return stack_objects([(subject, found[subject]) for subject in order], skipped, info)


def _cropped(source: Source, name: str, pose: str, skipped: list[Skipped]) -> np.ndarray | None:
    """The pixels (192, 168) of a file, or None where it is not a cropped, frontal image."""
    if pose != "00":
        skipped.append(Skipped(name, "not a frontal pose"))
        return None
    pixels = read_image(source, name, skipped, srgb=False)
    if pixels is not None and pixels.shape != CROPPED:
        skipped.append(Skipped(name, f"{pixels.shape[1]}×{pixels.shape[0]} pixels, not the cropped 168×192"))
        return None
    return pixels


def protocol(data: Dataset, name: str) -> tuple[Dataset, Dataset]:
    """The training and test subjects of a protocol, `paper` or `dev`."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; expected one of {sorted(PROTOCOLS)}")
    train, test = PROTOCOLS[name]
    if missing := [subject for subject in train + test if subject not in data.names]:
        raise ValueError(f"protocol {name!r} needs subjects that are not there: {', '.join(missing)}")
    return data.objects(train), data.objects(test)
