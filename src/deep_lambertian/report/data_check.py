"""What is in a data set, and what is wrong with it: `dln data check`."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from deep_lambertian.data.dataset import Dataset
from deep_lambertian.data.images import grey, normal_colours, sheet
from deep_lambertian.data.morphable import Heads
from deep_lambertian.geometry import direction

SATURATED, DARK = 0.99, 0.02  # intensities beyond which a pixel says little
SHOTS = 4  # photographs of a head that are shown
MUCH = 0.2  # the share of such pixels above which an image is warned of


@dataclass(frozen=True)
class Report:
    """Counts, and warnings in words."""

    kind: str
    objects: int
    images: int
    size: tuple[int, int]
    images_per_object: dict[str, int]
    subsets: dict[str, int]
    known_lights: int
    skipped: dict[str, int]
    saturated: dict[str, float]
    dark: dict[str, float]
    warnings: list[str] = field(default_factory=list)


def check(data: Dataset) -> Report:
    """Look through a data set."""
    present = data.present
    counts = present.sum(axis=1)
    valid = np.maximum(data.mask.sum(axis=(2, 3)), 1)
    shares = {
        what: (data.mask & test).sum(axis=(2, 3)) / valid
        for what, test in (("saturated", data.images >= SATURATED), ("dark", data.images <= DARK))
    }
    bad = {
        what: {
            f"{data.names[s]}/{data.image_names[s][p]}": round(float(share[s, p]), 3)
            for s, p in np.argwhere((share > MUCH) & present)
        }
        for what, share in shares.items()
    }
    lights = 0 if data.lights is None else int(np.isfinite(data.lights[present]).all(axis=-1).sum())
    subsets = {}
    if data.subsets is not None:
        numbers, found = np.unique(data.subsets[present], return_counts=True)
        subsets = {str(number): int(count) for number, count in zip(numbers, found, strict=True)}
    report = Report(
        kind=str(data.info.get("kind", "unknown")),
        objects=len(data),
        images=int(present.sum()),
        size=data.shape,
        images_per_object={name: int(count) for name, count in zip(data.names, counts, strict=True)},
        subsets=subsets,
        known_lights=lights,
        skipped=data.skipped_reasons(),
        saturated=bad["saturated"],
        dark=bad["dark"],
    )
    report.warnings.extend(_warnings(data, report, counts))
    return report


def _warnings(data: Dataset, report: Report, counts: np.ndarray) -> list[str]:
    found = []
    for what, images in (("saturated", report.saturated), ("dark", report.dark)):
        if images:
            worst = max(images, key=lambda name: images[name])
            found.append(
                f"{len(images)} of {report.images} images have over {MUCH:.0%} {what} pixels, most of all {worst} "
                f"({images[worst]:.0%})"
            )
    if report.kind != "faces" and (counts == 1).any() and (counts > 1).any():
        found.append(f"{int((counts == 1).sum())} objects have a single image: little is learned from them")
    if 0 < report.known_lights < report.images:
        found.append(f"lights are known for {report.known_lights} of {report.images} images only")
    flat = [data.names[s] for s, row in enumerate(data.images) if row[data.mask[s]].std() < 1e-3]
    if flat:
        found.append(f"{len(flat)} objects show no contrast at all, the first of them {flat[0]}")
    unreadable = sum(count for reason, count in report.skipped.items() if reason.startswith("unreadable"))
    if unreadable:
        found.append(f"{unreadable} files could not be read")
    return found


def contact_sheet(data: Dataset, objects: int = 12, images: int = 8, tile: int = 72) -> Image.Image:
    """Some images of some objects, spread evenly over the set; what is masked out is black."""
    rows = []
    if data.images.shape[1] == 1:  # a collection of single images: fill the rows with objects
        chosen = np.unique(np.linspace(0, len(data) - 1, objects * images).astype(int))
        tiles = [(_short(data.names[s]), grey(data.images[s, 0] * data.mask[s, 0])) for s in chosen]
        rows = [tiles[i : i + images] for i in range(0, len(tiles), images)]
    else:
        for s in np.unique(np.linspace(0, len(data) - 1, objects).astype(int)):
            there = np.flatnonzero(data.present[s])
            picked = there[np.unique(np.linspace(0, len(there) - 1, images).astype(int))]
            captions = [_short(data.names[s])] + [""] * (len(picked) - 1)
            shown = [grey(data.images[s, p] * data.mask[s, p]) for p in picked]
            rows.append(list(zip(captions, shown, strict=True)))
    return sheet(rows, tile=tile)


def heads_sheet(heads: Heads, count: int, tile: int = 96) -> Image.Image:
    """Some heads: normals as colours, albedo, and how each looks under a light from the left and in its photographs."""
    left = direction(-45, 15)
    rows = []
    for i in range(min(count, len(heads))):
        row = [normal_colours(heads.normals[i]), grey(heads.surface.albedo[i].reshape(heads.height[i].shape))]
        row.append(grey(np.maximum(heads.normals[i] @ left, 0)))
        row += [] if heads.images is None else [grey(image) for image in heads.images[i, :SHOTS]]
        rows.append([(str(i) if not k else "", each) for k, each in enumerate(row)])
    return sheet(rows, tile=tile)


def _short(name: str) -> str:
    """The end of a name that fits above a picture."""
    return name.rpartition("/")[2][-11:]
