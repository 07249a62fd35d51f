"""Finding an object before a dark backdrop, and laying its photographs over each other.

For collections photographed with fixed cameras under changing lights whose masks are not at hand. All lengths are
shares of the picture's width, so that full and reduced resolutions are treated alike.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import ndimage

from deep_lambertian.data.images import luminance

DIM = 8 / 255  # differences of less are noise: keeps the logarithm of darkness from shouting
ALLOWANCE = 1.7  # how many times brighter than the backdrop, beyond it, counts as one unit of evidence
FAINTEST, BRIGHTEST, GLOW = 0.5, 1.5, 0.05  # the threshold is the glow of the object's own brightness, within bounds
SMALLEST = 0.05  # of the largest part: what is less is a speck, or a reflection on the table


def backdrop(image: np.ndarray) -> np.ndarray:
    """What a photograph (H, W, 3) would show without the object, judged by its left and right border, row by row."""
    height, width = image.shape[:2]
    border = max(2, round(0.06 * width))
    sides = []
    for strip in (image[:, :border], image[:, -border:]):
        profile = ndimage.median_filter(np.median(strip, axis=1), (_odd(0.03 * height), 1), mode="nearest")
        # The shadow that an object throws to the border is a dip in a profile that otherwise only slowly changes.
        sides.append(ndimage.grey_closing(profile, (_odd(0.15 * height), 1), mode="nearest"))
    # An object that reaches one border is much brighter there than the backdrop at the other.
    most = 1.5 * np.minimum(*sides) + DIM / 2
    # The table's far edge bends: in the middle it lies a few rows from where the borders see it.
    widen = lambda side: ndimage.maximum_filter1d(side, _odd(0.05 * height), axis=0, mode="nearest")
    left, right = (widen(np.minimum(side, most)) for side in sides)
    across = np.linspace(0, 1, width, dtype=np.float32)[None, :, None]
    return left[:, None] * (1 - across) + right[:, None] * across


def evidence(image: np.ndarray) -> np.ndarray:
    """How far each pixel (H, W) of a photograph (H, W, 3) stands out from the backdrop, in any of its colours."""
    behind = backdrop(image)
    return ((image - behind) / (ALLOWANCE * np.maximum(behind, DIM / 2))).max(axis=-1)


def silhouette(stack: Sequence[np.ndarray]) -> np.ndarray | None:
    """The object's mask (H, W) from the evidence of all its photographs, laid over each other; None where nothing is.

    A pixel belongs to the object if a few lights show it: the third best of them, for a highlight on the table or
    noise is seen by fewer. What is dark under every light is in if the object surrounds it, or nearly so.
    """
    values = np.stack(stack)
    rank = min(3, 1 + len(values) // 4)
    best = np.partition(values, -rank, axis=0)[-rank]
    sure = best > 1
    if not sure.any():
        return None
    threshold = np.clip(GLOW * np.percentile(best[sure], 75), FAINTEST, BRIGHTEST)
    reach = max(1, round(best.shape[1] / 40))
    # What is nowhere sure is a reflection on the table, and must go before gaps are closed.
    mask = ndimage.binary_opening(best > threshold, np.ones((2, 2)))
    mask = ndimage.binary_propagation(sure & mask, np.ones((3, 3)), mask=mask)
    padded = ndimage.binary_closing(np.pad(mask, reach), _disk(reach))
    mask = ndimage.binary_fill_holes(padded[reach:-reach, reach:-reach])
    mask = ndimage.binary_opening(mask, _disk(1))
    if not mask.any():
        return None
    parts = np.zeros(mask.shape, np.int32)
    ndimage.label(mask, np.ones((3, 3)), output=parts)
    weight = np.bincount(parts.ravel(), np.clip(best, 0, 10 * threshold).ravel())[1:]
    return np.isin(parts, 1 + np.flatnonzero(weight >= SMALLEST * weight.max()))


def offset(fixed: np.ndarray, moved: np.ndarray, most: int) -> tuple[float, float]:
    """By how many rows and columns `moved` (H, W) lies below and to the right of `fixed`, within ±`most` pixels.

    The gradients of the logarithms are correlated, which tell where edges are rather than how bright each side is; a
    paraboloid through the best whole offset and its neighbours finds the peak between pixels.
    """
    height, width = fixed.shape
    window = np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1]) ** 0.25
    spectrum = np.zeros((height, width // 2 + 1), complex)
    for axis in (0, 1):
        a, b = (_slope(np.log(image + DIM), axis) * window for image in (fixed, moved))
        spectrum += np.conj(np.fft.rfft2(a)) * np.fft.rfft2(b)
    around = np.arange(-most - 1, most + 2)  # one more on each side, for the parabola
    values = np.fft.irfft2(spectrum, (height, width))[np.ix_(around, around)]
    row, column = (int(i) + 1 for i in np.unravel_index(values[1:-1, 1:-1].argmax(), (2 * most + 1,) * 2))
    down, right = _vertex(values[row - 1 : row + 2, column - 1 : column + 2])
    found = np.clip([around[row] + down, around[column] + right], -most, most).round(2) + 0.0  # no negative zero
    return float(found[0]), float(found[1])


def _vertex(v: np.ndarray) -> tuple[float, float]:
    """Where, within a pixel of the middle, a paraboloid about 3×3 values is highest: peaks may be slanted ridges."""
    slope = np.array([v[2, 1] - v[0, 1], v[1, 2] - v[1, 0]]) / 2
    mixed = (v[2, 2] - v[2, 0] - v[0, 2] + v[0, 0]) / 4
    bend = np.array([[v[2, 1] - 2 * v[1, 1] + v[0, 1], mixed], [mixed, v[1, 2] - 2 * v[1, 1] + v[1, 0]]])
    if bend[0, 0] >= 0 or np.linalg.det(bend) <= 0:
        return 0.0, 0.0
    down, right = np.clip(-np.linalg.solve(bend, slope), -1, 1)
    return float(down), float(right)


def shift_back(image: np.ndarray, shift: tuple[float, float], order: int = 1) -> np.ndarray:
    """Undo an `offset` by interpolation; what comes in from outside repeats the border."""
    if shift == (0.0, 0.0):
        return image
    return ndimage.shift(image, (-shift[0], -shift[1]), order=order, mode="nearest")


def camera_offsets(images: Mapping[tuple[int, int], np.ndarray]) -> dict[int, tuple[float, float]]:
    """Offset of each camera to the first, from photographs (H, W, 3) by light and camera, all lights together.

    Only lights that both cameras have are averaged: the mean of many lights has the object's edges, and few of shadows.
    """
    cameras = sorted({camera for _, camera in images})
    found = dict.fromkeys(cameras, (0.0, 0.0))
    for camera in cameras[1:]:
        lights = sorted(light for light, c in images if c == camera and (light, cameras[0]) in images)
        if lights:
            fixed, moved = (luminance(np.mean([images[i, c] for i in lights], axis=0)) for c in (cameras[0], camera))
            found[camera] = offset(fixed, moved, most=max(1, round(fixed.shape[1] / 32)))
    return found


def flawed(images: Sequence[np.ndarray]) -> list[str]:
    """Of each photograph (H, W, 3) of one camera under various lights what is broken about it, empty where nothing is.

    A bar across the picture lifts nearly all pixels of its rows (or columns) far above what any other light makes of
    them, in one colour more than in the others. A light lifts some of a row's pixels, and all colours: over the first
    60 objects the worst good picture has 7/255 of `_lift`'s colour, where one with a green bar has 39/255.
    """
    reasons = []
    for i, image in enumerate(images):
        others = [other for j, other in enumerate(images) if j != i]
        if image.max() - image.min() < DIM:
            reasons.append("an empty picture, of one brightness throughout")
            continue
        colour, all_colours = _lift(image - np.max(others, axis=0)) if len(others) >= 2 else (0.0, 0.0)
        barred = colour > 2 * DIM or all_colours > 8 * DIM
        reasons.append("a bar across the picture that no other light shows" if barred else "")
    return reasons


def _lift(difference: np.ndarray) -> tuple[float, float]:
    """By how much the most conspicuous row or column is lifted: in one colour beyond the others, and in all of them."""
    lows = np.concatenate([np.percentile(difference, 10, axis=axis) for axis in (0, 1)])
    ordered = np.sort(lows, axis=1)
    return float((ordered[:, 2] - np.maximum(ordered[:, 1], 0)).max()), float(ordered[:, 0].max())


def bounding_box(mask: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns that a mask (H, W) spans, and a pixel around it as far as the picture goes."""
    spans = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    rows, columns = (slice(max(0, int(span[0]) - 1), int(span[-1]) + 2) for span in spans)
    return rows, columns


def _slope(image: np.ndarray, axis: int) -> np.ndarray:
    """The derivative along an axis, of the image smoothed by about a pixel."""
    smooth = ndimage.gaussian_filter1d(image, 1, axis=1 - axis)
    return ndimage.gaussian_filter1d(smooth, 1, axis=axis, order=1)


def _odd(length: float) -> int:
    return 2 * round(length) + 1


def _disk(radius: int) -> np.ndarray:
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return x * x + y * y <= radius * radius + 0.5
