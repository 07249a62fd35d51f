"""Finds in a photo what looks like a given mean face, whatever that shows: by correlation, then by registration.

Photos are compared by the band-passed logarithm of their intensities, divided by its local strength: a light from the
side multiplies intensities by something smooth, which the band-pass removes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import fft, ndimage

from deep_lambertian.faces.alignment import Alignment, Pyramid, Reduced, distinct, heights, reduce
from deep_lambertian.support.resampling import Size, sample_affine

SEARCH = (32, 28)  # rows and columns of the frame, with square pixels, in which faces are searched for
REFINE = (48, 42)  # the same, in which they are registered
STEP = 1.12  # ratio of one size searched to the next
ANGLES = np.radians(np.arange(-24, 25, 8))
PROPOSALS = 16  # how many places of the search are registered
FINALISTS = 10  # how many of the places that are registered coarsely are registered finely


@dataclass(frozen=True)
class Band:
    """Widths of the band-pass and of the neighbourhood whose strength divides it, in parts of the frame's height."""

    fine: float
    coarse: float
    local: float


SEARCH_BAND = Band(0.02, 0.07, 0.12)
COARSE_BAND = Band(0.03, 0.10, 0.15)
Bands = tuple[Band, ...]
# Registration goes from bands that see far to such as see sharply; several at once have fewer false optima than one.
FINE_BAND = Band(0.015, 0.05, 0.10)
WIDE_BAND = Band(0.03, 0.16, 0.20)
STAGES: tuple[Bands, Bands] = ((COARSE_BAND, WIDE_BAND), (WIDE_BAND, Band(0.02, 0.08, 0.12)))


# --- search ------------------------------------------------------------------------------------------------------


def search(grey: np.ndarray, mean: np.ndarray) -> list[Alignment]:
    """The best places for the reference over sizes, rotations and shifts, by correlation."""
    return distinct((peak for height in heights(grey, STEP) for peak in _peaks(grey, mean, height)), PROPOSALS)


def search_window(grey: np.ndarray, mean: np.ndarray, x: float, y: float, height: float) -> list[Alignment]:
    """The same within a window around a box, with sizes near the box's own."""
    reach = round(1.2 * height)
    left, top = max(0, round(x) - reach), max(0, round(y) - reach)
    window = grey[top : max(top, round(y) + reach), left : max(left, round(x) + reach)]
    if min(window.shape) < 2:
        raise ValueError(
            f"box: expected it to lie in the photo of {grey.shape[1]}×{grey.shape[0]} pixels, "
            f"got one around ({x:.0f}, {y:.0f})"
        )
    peaks = [peak for i in range(-4, 5) for peak in _peaks(window, mean, height * 0.9 * STEP ** (i / 2))]
    shifted = [Alignment.from_pose((p.centre[0] + left, p.centre[1] + top), p.height, p.angle, p.score) for p in peaks]
    close = [p for p in shifted if np.hypot(*(p.centre - (x, y))) < 0.35 * height]
    best = sorted(close, key=lambda peak: -peak.score)[:6]
    return [*best, *(Alignment.from_pose((x, y), height * part) for part in (0.7, 0.85, 1.0))]


def _peaks(grey: np.ndarray, mean: np.ndarray, height: float, keep: int = 4) -> Iterator[Alignment]:
    """The best places of a face of one height, for each rotation."""
    reduced = Reduced(reduce(grey, height / SEARCH[0]), SEARCH[0], grey.shape)
    small = reduced.image
    if small.shape[0] < SEARCH[0] + 8 or small.shape[1] < SEARCH[1] + 8:
        return
    features = normalised(small, SEARCH_BAND, SEARCH[0]).astype(np.float32)
    shape = [int(fft.next_fast_len(n, real=True)) for n in small.shape]  # pyright: ignore[reportArgumentType]
    spectrum = np.asarray(fft.rfft2(features, shape))
    templates, window = _templates(mean.tobytes(), mean.shape)
    rows, columns = window.shape
    energy = _correlate(np.asarray(fft.rfft2(features * features, shape)), window, shape)
    valid = (slice(0, small.shape[0] - rows + 1), slice(0, small.shape[1] - columns + 1))
    strength = np.sqrt(np.maximum(energy[valid], 1e-3))
    # Every rotation's peaks come from the best rotation at each place: a face peaks once.
    scores = np.stack([_correlate(spectrum, template, shape)[valid] / strength for template in templates])
    best = scores.max(axis=0)
    is_peak = (best == ndimage.maximum_filter(best, size=7, mode="nearest")) & (best > 0.2)
    places = np.argwhere(is_peak)
    order = np.argsort(-best[is_peak], kind="stable")[:keep]
    for row, column in places[order]:
        x, y = reduced.to_photo(column + (columns - 1) / 2, row + (rows - 1) / 2)
        turn = ANGLES[int(np.argmax(scores[:, row, column]))]
        yield Alignment.from_pose((x, y), height, float(turn), float(best[row, column]))


def _correlate(spectrum: np.ndarray, kernel: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return np.asarray(fft.irfft2(spectrum * np.conj(np.asarray(fft.rfft2(kernel, shape))), shape))


@cache
def _templates(mean: bytes, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The normalised reference at each rotation of the search, weighted, of unit strength; and the weights."""
    reference = np.frombuffer(mean).reshape(shape)
    rows, columns = SEARCH[0] + 8, SEARCH[1] + 8  # room for the corners of a turned frame
    middle = ((columns - 1) / 2, (rows - 1) / 2)
    y, x = np.mgrid[:rows, :columns]
    upright = reference_features(reference, SEARCH, (SEARCH_BAND,))[0]
    flat = weights(SEARCH)
    result, windows = [], []
    for angle in ANGLES:
        turned = Alignment.from_pose(middle, SEARCH[0], float(angle))
        points = turned.to_crop(np.stack([x, y], -1), SEARCH)
        source = [points[..., 1], points[..., 0]]
        weight = ndimage.map_coordinates(flat, source, order=1, mode="constant")
        template = ndimage.map_coordinates(upright, source, order=1, mode="nearest")
        template = weight * (template - np.sum(weight * template) / weight.sum())
        result.append(template / math.sqrt(np.sum(template**2 / np.maximum(weight, 1e-6))))
        windows.append(weight)
    return np.stack(result).astype(np.float32), windows[len(ANGLES) // 2].astype(np.float32)


# --- registration ------------------------------------------------------------------------------------------------


def register(grey: np.ndarray, mean: np.ndarray, starts: Sequence[Alignment]) -> list[Alignment]:
    """The similarities near `starts` at which the photo correlates best with the reference, the best first."""
    photo = Pyramid(grey)
    coarse, fine = (reference_features(mean, REFINE, bands) for bands in STAGES)
    found = distinct((_gauss_newton(photo, coarse, start, STAGES[0]) for start in starts), FINALISTS)
    for _ in range(2):  # the patch is taken anew, so that its features are those of an upright face of this size
        found = [_gauss_newton(photo, fine, face, STAGES[1]) for face in found]
    judged = [replace(face, score=_likeness(photo, mean, face)) for face in found]
    return sorted(judged, key=lambda face: -face.score)


def _gauss_newton(photo: Pyramid, template: np.ndarray, start: Alignment, bands: Bands, steps: int = 10) -> Alignment:
    rows, columns = REFINE
    margin = rows // 4
    to_photo = start.matrix_for(REFINE, margin)
    features = _features(_patch(photo, start, margin), bands, rows)
    down, across = np.gradient(features, axis=(1, 2))
    y, x = np.mgrid[:rows, :columns]
    x, y = x - (columns - 1) / 2, y - (rows - 1) / 2
    weight = weights(REFINE) / weights(REFINE).sum()
    target = _standardised(template, weight)
    middle = np.array([(columns - 1) / 2 + margin, (rows - 1) / 2 + margin])

    def look(p: np.ndarray, *images: np.ndarray) -> list[np.ndarray]:
        source = [p[1] * x + (1 + p[0]) * y + middle[1] + p[3], (1 + p[0]) * x - p[1] * y + middle[0] + p[2]]
        return [_at(image, source) for image in images]

    def score(p: np.ndarray) -> float:
        return float(np.mean(_mean(target * _standardised(look(p, features)[0], weight), weight)))

    # p = (a, b, x, y): the linear part is [[1 + a, -b], [b, 1 + a]], in which the problem is linear.
    p, best = np.zeros(4), score(np.zeros(4))
    for _ in range(steps):
        seen, gx, gy = look(p, features, across, down)
        now = _standardised(seen, weight)
        jacobian = np.stack([gx * x + gy * y, gy * x - gx * y, gx, gy])
        strength = np.sqrt(_mean((seen - _mean(seen, weight)) ** 2, weight) + 1e-9)
        jacobian = (jacobian - _mean(jacobian, weight)) / strength
        jacobian -= _mean(jacobian * now, weight) * now  # the strength of each channel is divided out
        weighted = (weight * jacobian).reshape(4, -1)
        step = np.linalg.lstsq(weighted @ jacobian.reshape(4, -1).T, weighted @ (target - now).ravel(), rcond=1e-8)[0]
        step *= min(1.0, 2.0 / (1e-9 + np.hypot(*step[2:]) + rows / 2 * np.hypot(*step[:2])))
        for _ in range(4):
            if (trial := score(p + step)) > best:
                break
            step = step / 2
        else:
            break
        p, gain, best = p + step, trial - best, trial
        if gain < 1e-4:
            break
    size = math.hypot(1 + p[0], p[1])
    centre = to_photo[:, :2] @ (middle + p[2:]) + to_photo[:, 2]
    return Alignment.from_pose(tuple(centre), start.height * size, start.angle + math.atan2(p[1], 1 + p[0]), best)


def _patch(photo: Pyramid, face: Alignment, margin: int) -> np.ndarray:
    """What lies in a frame, and a margin around it."""
    size = REFINE[0] + 2 * margin, REFINE[1] + 2 * margin
    return photo.sample(face.matrix_for(REFINE, margin), size, face.height / (2 * REFINE[0]))


def _at(channels: np.ndarray, source: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([ndimage.map_coordinates(channel, source, order=1, mode="nearest") for channel in channels])


def _mean(channels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.sum(weights * channels, axis=(-2, -1), keepdims=True)


def _standardised(channels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    centred = channels - _mean(channels, weights)
    return centred / np.sqrt(_mean(centred**2, weights) + 1e-9)


def weights(size: tuple[int, int]) -> np.ndarray:
    """How much each pixel of the frame counts: less at its corners and edge, where hair and background show."""
    rows, columns = size
    v, u = np.meshgrid(
        (np.arange(rows) + 0.5) / rows * 2 - 1, (np.arange(columns) + 0.5) / columns * 2 - 1, indexing="ij"
    )
    return 1 / (1 + np.exp(12 * ((np.abs(u) ** 3 + np.abs(v) ** 3) ** (1 / 3) - 0.95)))


def reference_features(mean: np.ndarray, size: Size, bands: Bands) -> np.ndarray:
    margin = size[0] // 3
    return _features(framed(mean, size, margin), bands, size[0])[:, margin:-margin, margin:-margin]


def _likeness(photo: Pyramid, mean: np.ndarray, face: Alignment) -> float:
    """How much what lies in the frame is a face: about 0.3 is the best of a texture, 0.5 a face.

    It looks at finer detail than registration does, and at the direction of edges, whichever of their sides is
    brighter: coarse shading fits many smooth textures by chance, and changes most with the light.
    """
    rows = REFINE[0]
    margin = rows // 4
    patch = _patch(photo, face, margin)
    inner = (slice(None), slice(margin, -margin), slice(margin, -margin))
    weight = weights(REFINE) / weights(REFINE).sum()
    total = 0.0
    for describe in (lambda image: _features(image, (FINE_BAND,), rows), lambda image: _edges(image, rows)):
        here = _standardised(describe(patch)[inner], weight)
        there = _standardised(describe(framed(mean, REFINE, margin))[inner], weight)
        total += float(np.mean(_mean(here * there, weight)))
    return total / 2


def framed(mean: np.ndarray, size: Size, margin: int) -> np.ndarray:
    matrix = Alignment.from_box((0, 0, mean.shape[1], mean.shape[0])).matrix_for(size)
    return np.pad(sample_affine(mean, matrix, size), margin, mode="edge")


def _features(image: np.ndarray, bands: Bands, rows: int) -> np.ndarray:
    return np.stack([normalised(image, band, rows) for band in bands])


def _edges(image: np.ndarray, rows: int) -> np.ndarray:
    """Twice the angle of the gradient of log intensities (2, H, W), fading where there is none."""
    width = 0.02 * rows
    logs = _logarithm(image)
    across, down = (ndimage.gaussian_filter1d(logs, width, axis=axis, mode="nearest") for axis in (1, 0))
    x = ndimage.gaussian_filter1d(down, width, axis=1, order=1, mode="nearest")
    y = ndimage.gaussian_filter1d(across, width, axis=0, order=1, mode="nearest")
    strength = np.sqrt(x**2 + y**2 + (0.03 / width) ** 2)
    x, y = x / strength, y / strength
    return np.stack([x**2 - y**2, 2 * x * y]) * np.hypot(x, y)


def _logarithm(image: np.ndarray) -> np.ndarray:
    floor = 0.03 * max(float(np.quantile(image, 0.95)), 1e-6)  # below it, differences are noise
    return np.log(np.maximum(image, 0) + floor)


def normalised(image: np.ndarray, band: Band, rows: int) -> np.ndarray:
    """Band-passed logarithm over its local strength; `rows` is the height of the frame in the image's pixels."""
    logs = _logarithm(image)
    smooth = ndimage.gaussian_filter(logs, rows * band.fine, mode="nearest")
    detail = smooth - ndimage.gaussian_filter(logs, rows * band.coarse, mode="nearest")
    local = ndimage.gaussian_filter(detail**2, rows * band.local, mode="nearest")
    return detail / np.sqrt(local + 0.02**2)
