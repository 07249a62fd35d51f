"""The Yale B and Extended Yale B face databases, cropped, as they are distributed.

`yaleB11_P00A+035E-20.pgm`: subject 11, frontal pose, light at azimuth +35° and elevation −20°. A positive azimuth
lights the side on the LEFT of the image. Free for research: cite Georghiades, Belhumeur & Kriegman (2001) and Lee, Ho
& Kriegman (2005).
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from deep_lambertian.data.dataset import Dataset, Skipped, stack_objects
from deep_lambertian.data.images import ImageError, decode, resize
from deep_lambertian.data.sources import SourceError, open_source
from deep_lambertian.support.progress import track

NAME = re.compile(r"(yaleB\d\d)_P(\d\d)A([+-]\d+)E([+-]\d+)\.pgm")
SUBSET_ANGLES = (12, 25, 52, 77, 180)  # degrees between light and camera axis; subset 3 includes A±035E+40, at 51.1°
CROPPED = (192, 168)
PROTOCOLS = {
    "paper": ([f"yaleB{i}" for i in range(11, 40) if i != 14], [f"yaleB{i:02}" for i in range(1, 11)]),
    "dev": ([f"yaleB{i}" for i in range(11, 30) if i != 14], [f"yaleB{i}" for i in range(30, 40)]),
    # A second fold, on which what was chosen on `dev` is confirmed.
    "confirm": ([f"yaleB{i}" for i in range(11, 40) if i != 14 and i // 10 != 2], [f"yaleB{i}" for i in range(20, 30)]),
}


def light_direction(azimuth: float, elevation: float) -> np.ndarray:
    """The unit vector to the light from the angles of a file's name, in degrees; x to the right, y up."""
    a, e = np.radians([azimuth, elevation])
    return np.array([-np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)], np.float32)


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
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size: expected at least 1 pixel, got {height}×{width}")
    unknown = set(subsets) - set(range(1, 6))
    if unknown or not subsets:
        raise ValueError(f"subsets: expected some of 1 to 5, got {list(subsets)}")
    wanted = None if subjects is None else [s if isinstance(s, str) else f"yaleB{s:02}" for s in subjects]
    found: dict[str, list[tuple[str, np.ndarray, np.ndarray, int]]] = {}
    skipped: list[Skipped] = []
    with open_source(path) as source:
        for name in track(source.names, "reading Yale B"):
            file = PurePosixPath(name).name
            match = NAME.fullmatch(file)
            if match is None:
                skipped.append(Skipped(name, _reason(file)))
                continue
            subject, pose, azimuth, elevation = match[1], match[2], float(match[3]), float(match[4])
            subset = illumination_subset(azimuth, elevation)
            if subset not in subsets or (wanted is not None and subject not in wanted):
                continue
            if pose != "00":
                skipped.append(Skipped(name, "not a frontal pose"))
                continue
            try:
                pixels = decode(source.read(name), name, srgb=False).pixels
            except (ImageError, SourceError) as error:
                skipped.append(Skipped(name, f"unreadable: {error}"))
                continue
            if pixels.shape != CROPPED:
                skipped.append(Skipped(name, f"{pixels.shape[1]}×{pixels.shape[0]} pixels, not the cropped 168×192"))
                continue
            light = light_direction(azimuth, elevation)
            found.setdefault(subject, []).append((file, resize(pixels, (height, width)), light, subset))
        if not found:
            raise ValueError(
                f"{path}: expected cropped Yale B images such as yaleB11/yaleB11_P00A+035E-20.pgm"
                f"{'' if wanted is None else ' of ' + ', '.join(wanted)}, found {len(source.names)} files, "
                f"none of which is one{_like(source.names)}"
            )
    missing = [] if wanted is None else [s for s in wanted if s not in found]
    if missing:
        raise ValueError(f"{path}: expected subjects {', '.join(wanted or [])}, did not find {', '.join(missing)}")
    order = sorted(found) if wanted is None else wanted
    rows = [found[subject] for subject in order]
    return stack_objects(
        [(subject, [(file, image) for file, image, _, _ in row]) for subject, row in zip(order, rows, strict=True)],
        lights=[[light for _, _, light, _ in row] for row in rows],
        subsets=[[subset for _, _, _, subset in row] for row in rows],
        skipped=skipped,
        info={"kind": "yaleb", "path": str(path), "linearised": False, "subsets": sorted(subsets)},
    )


def protocol(data: Dataset, name: str) -> tuple[Dataset, Dataset]:
    """The training and test subjects of a protocol, `paper` or `dev`."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; expected one of {sorted(PROTOCOLS)}")
    train, test = PROTOCOLS[name]
    missing = [subject for subject in train + test if subject not in data.names]
    if missing:
        raise ValueError(f"protocol {name!r} needs subjects that are not there: {', '.join(missing)}")
    return data.objects(train), data.objects(test)


def _reason(file: str) -> str:
    if file.endswith(".bad"):
        return "marked as corrupt (.bad)"
    if "Ambient" in file:
        return "ambient light only"
    if file.endswith(".info"):
        return "a list of files (.info)"
    return "not an image of the database"


def _like(names: Sequence[str]) -> str:
    return f" (the first is {names[0]!r})" if names else ""
