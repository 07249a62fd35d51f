"""Find the faces of a photo, and align each to the frame that a model was trained on.

Where the model's mean face is a face to the nets of `face_detector`, they find, judge and place the faces, together
with scikit-image's bundled LBP cascade, which proposes places. Where it is something else (another class, a drawing),
a correlation of the photo with it over sizes and rotations proposes places, Gauss-Newton registers them to it, and
its likeness there and the cascade decide.

For the correlation, photos are compared by the band-passed logarithm of their intensities, divided by its local
strength: a light from the side multiplies intensities by something smooth, which the band-pass removes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from scipy import fft, ndimage

from deep_lambertian.faces import detector as face_detector
from deep_lambertian.faces.alignment import (
    ASPECT,
    FRAME,
    SEARCH_BAND,
    Alignment,
    Box,
    checked_photo,
    framed,
    near,
    normalised,
    octaves_of,
    reduce,
    reference_features,
    register,
    resample,
    weights,
)
from deep_lambertian.faces.detector import Detector

__all__ = ["Alignment", "Box", "NoFaceError", "SeveralFacesError", "detect", "find_face", "find_faces"]

SEARCH = (32, 28)  # rows and columns of the frame, with square pixels, in which faces are searched for
SMALLEST = 1 / 14  # height of the smallest face looked for, as a part of the photo's shorter side
STEP = 1.12  # ratio of one size searched to the next
ANGLES = np.radians(np.arange(-24, 25, 8))
PROPOSALS = 16  # how many places of either search are registered
# What makes a face: (likeness to the reference, windows of the cascade that must agree with it). The better the
# fit, the less the cascade need say. Chosen on scenes with faces of the training subjects and on scenes without a face.
EVIDENCE = ((0.38, 0), (0.34, 1), (0.30, 3), (0.28, 12))
ALIKE = 0.7  # a face is this like a mean of others only by being one of them
CASCADE_PIXELS = 300_000  # photos are reduced to this many pixels for the cascade, whose time grows with them
FACE_IN_BOX = (0.0, 0.09, 0.99)  # the frame's centre in a box of the cascade, and its height, in heights of the box


class NoFaceError(ValueError):
    """No face was found where one was needed."""


class SeveralFacesError(ValueError):
    """Several faces were found where one was needed."""


def detect(photo: Any) -> list[Box]:
    """Boxes of the LBP cascade around upright, frontal heads, the largest first, overlapping ones merged."""
    grey = _luminance(checked_photo(photo))
    reduction = max(1.0, math.sqrt(grey.size / CASCADE_PIXELS))
    small = reduce(grey, reduction)
    side = min(small.shape)
    if side < 24:  # the cascade's own window
        return []
    found = _run_cascade(small, max(24, round(side * SMALLEST)), side, 1.1, 2)
    boxes = [Box(*(reduction * value for value in box), score=1.0) for box in found]
    return _merge(boxes)


def find_faces(photo: Any, reference: Any = None, detector: Detector | None = None) -> list[Alignment]:
    """Every face of a photo (H, W) or (H, W, 3), aligned to the mean face (h, w) of the model, the largest first.

    Without a `reference` the frame is that of CroppedYale. `detector` is the bundled one unless another is given.
    """
    detector = detector or face_detector.bundled()
    grey, mean = _luminance(checked_photo(photo)), _checked_reference(detector.mean if reference is None else reference)
    way = _way_to_frame(detector, mean)
    if way is None:
        found = [face for face in _by_likeness(grey, mean) if _is_face(grey, face)]
    else:
        # The cascade knows fewer faces and takes longer than the finder: it is asked where that sees none.
        found = face_detector.locate(detector, grey) or face_detector.settle(detector, octaves_of(grey), _heads(grey))
        found = [_to_reference(grey, mean, face, way) for face in found]
    faces: list[Alignment] = []
    for face in found:
        if not any(_overlap(face, other) for other in faces):
            faces.append(face)
    return sorted(faces, key=lambda face: -face.height)


def find_face(
    photo: Any, reference: Any = None, box: Any = None, align: bool = True, detector: Detector | None = None
) -> Alignment:
    """The one face of a photo, aligned to the mean face (h, w) of the model, or to the frame of CroppedYale.

    `box` (left, top, width, height) says roughly where the face is, where the photo holds several or the search fails.
    With `align=False` nothing is searched: the box is the frame, and without a box the whole photo is.
    """
    detector = detector or face_detector.bundled()
    array = checked_photo(photo)
    mean = _checked_reference(detector.mean if reference is None else reference)
    if not align:
        height, width = array.shape[:2]
        return Alignment.from_box((0, 0, width, height) if box is None else box)
    if box is not None:
        return _align_in_box(detector, _luminance(array), mean, box)
    faces = find_faces(array, mean, detector)
    if not faces:
        raise NoFaceError(
            f"expected a photo with one frontal face, found none in {array.shape[1]}×{array.shape[0]} pixels; "
            "say where it is with --box LEFT,TOP,WIDTH,HEIGHT, or give a photo that is already cropped, with --no-align"
        )
    if len(faces) > 1:
        places = "; ".join(f"--box {_as_option(face)}" for face in faces)
        raise SeveralFacesError(
            f"expected a photo with one face, found {len(faces)}; choose one ({places}), "
            "take them all with --all-faces, or take the photo as it is with --no-align"
        )
    return faces[0]


def _align_in_box(detector: Detector, grey: np.ndarray, mean: np.ndarray, box: Any) -> Alignment:
    """The best fit around a box that a person has drawn: it is believed, however poor the fit."""
    exact = Alignment.from_box(box)
    height, (x, y) = exact.height, exact.centre
    starts = _search_window(grey, mean, x, y, height)
    way = _way_to_frame(detector, mean)
    if way is not None:
        faces = face_detector.settle(detector, octaves_of(grey), starts, least=0.0, beside=0.0)
        close = [face for face in faces if np.hypot(*(face.centre - (x, y))) < 0.5 * height]
        if close:
            return _to_reference(grey, mean, close[0], way)
    return register(grey, mean, starts)[0]


@lru_cache(maxsize=8)
def _cached_way(detector: Detector, mean: bytes, shape: tuple[int, int]) -> np.ndarray | None:
    size, margin = (192, 168), 64
    photo = framed(np.frombuffer(mean).reshape(shape), size, margin)
    frame = Alignment.from_box((margin, margin, size[1], size[0]))
    faces = face_detector.settle(detector, octaves_of(photo), [frame])
    if not faces:
        return None
    way = face_detector.way_to(faces[0], frame)
    # Half a pixel is what one face differs from another: a reference so near the nets' own frame is in that frame.
    return way if np.linalg.norm(way) > 0.5 / FRAME[0] else np.zeros(4)


def _way_to_frame(detector: Detector, mean: np.ndarray) -> np.ndarray | None:
    """From the frame in which the nets place faces to the one of the reference; None where they see no face in it."""
    return _cached_way(detector, mean.tobytes(), (mean.shape[0], mean.shape[1]))


def _to_reference(grey: np.ndarray, mean: np.ndarray, face: Alignment, way: np.ndarray) -> Alignment:
    """From the nets' frame to the reference's: by its known place or, where the face nearly is it, by registering."""
    moved = face_detector.move(face, way, face.score)
    registered = register(grey, mean, [moved])[0]
    alike = registered.score > ALIKE and near(registered, moved)
    return replace(registered, score=face.score) if alike else moved


def _by_likeness(grey: np.ndarray, mean: np.ndarray) -> list[Alignment]:
    return register(grey, mean, [*_heads(grey), *_search(grey, mean)])


def _heads(grey: np.ndarray) -> list[Alignment]:
    """What the cascade proposes."""
    return [_pose_in_box(box) for box in detect(grey)][:PROPOSALS]


# --- proposals ---------------------------------------------------------------------------------------------------


@cache
def _cascade() -> Any:
    from skimage.data import lbp_frontal_face_cascade_filename  # half a second, which only those pay who need it
    from skimage.feature import Cascade

    return Cascade(lbp_frontal_face_cascade_filename())


def _is_face(grey: np.ndarray, face: Alignment) -> bool:
    """Whether the fit is good enough for what the cascade says of the face once it is upright, as it knows faces."""
    needed = next((windows for score, windows in EVIDENCE if face.score >= score), None)
    if not needed:
        return needed == 0
    rows, margin = 60, 30
    size = (rows, round(rows * ASPECT))
    matrix = face.matrix_for(size)
    matrix = np.column_stack([matrix[:, :2], matrix[:, 2] - matrix[:, :2] @ [margin, margin]])
    patch = resample(grey, matrix, (size[0] + 2 * margin, size[1] + 2 * margin))
    middle = np.array([patch.shape[1], patch.shape[0]]) / 2
    boxes = [_pose_in_box(Box(*box)) for box in _run_cascade(patch, 40, 90, 1.05, needed)]
    return any(np.hypot(*(box.centre - middle)) < 0.2 * rows and 0.7 < box.height / rows < 1.4 for box in boxes)


def _run_cascade(
    grey: np.ndarray, least: int, most: int, step: float, neighbours: int
) -> list[tuple[int, int, int, int]]:
    bright = max(float(np.quantile(grey, 0.999)), 1e-6)
    pixels = np.round(255 * np.clip(grey / bright, 0, 1)).astype(np.uint8)
    found = _cascade().detect_multi_scale(
        pixels,
        scale_factor=step,
        step_ratio=1,
        min_size=(least, least),
        max_size=(most, most),
        min_neighbor_number=neighbours,
    )
    return [(box["c"], box["r"], box["width"], box["height"]) for box in found]


def _merge(boxes: Sequence[Box]) -> list[Box]:
    """Boxes of about the same place become their mean; `score` counts them."""
    merged: list[Box] = []
    for box in sorted(boxes, key=lambda box: -box.width):
        for i, other in enumerate(merged):
            apart = math.hypot(
                box.left + box.width / 2 - other.left - other.width / 2,
                box.top + box.height / 2 - other.top - other.height / 2,
            )
            if apart < 0.4 * other.width and box.width > 0.5 * other.width:
                count = other.score
                mean = [(count * a + b) / (count + 1) for a, b in zip(other[:4], box[:4], strict=True)]
                merged[i] = Box(*mean, score=count + 1)
                break
        else:
            merged.append(box)
    return sorted(merged, key=lambda box: -box.width)


def _pose_in_box(box: Box) -> Alignment:
    right, down, height = FACE_IN_BOX
    x = box.left + box.width / 2 - 0.5 + right * box.height
    y = box.top + box.height / 2 - 0.5 + down * box.height
    return Alignment.from_pose((x, y), height * box.height)


def _search(grey: np.ndarray, mean: np.ndarray) -> list[Alignment]:
    """The best places for the reference over sizes, rotations and shifts, by correlation."""
    side = min(grey.shape)
    least, most = max(24.0, side * SMALLEST), 1.15 * side
    count = max(1, 1 + round(math.log(most / least) / math.log(STEP)))
    peaks = [peak for i in range(count) for peak in _peaks(grey, mean, least * STEP**i)]
    kept: list[Alignment] = []
    for peak in sorted(peaks, key=lambda peak: -peak.score):
        if not any(near(peak, other) for other in kept):
            kept.append(peak)
            if len(kept) == PROPOSALS:
                break
    return kept


def _search_window(grey: np.ndarray, mean: np.ndarray, x: float, y: float, height: float) -> list[Alignment]:
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
    reduction = height / SEARCH[0]
    small = reduce(grey, reduction)
    margin = SEARCH[0] // 4  # a face may be cut a little by the photo's edge
    small = np.pad(small, margin, mode="edge")
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
    ratio = np.array([(n - 2 * margin) for n in small.shape]) / grey.shape
    for row, column in places[order]:
        centre = np.array([column + (columns - 1) / 2 - margin, row + (rows - 1) / 2 - margin])
        x, y = (centre + 0.5) / ratio[::-1] - 0.5
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


# --- small things ------------------------------------------------------------------------------------------------


def _luminance(photo: np.ndarray) -> np.ndarray:
    return photo if photo.ndim == 2 else photo @ np.array([0.2126, 0.7152, 0.0722])


def _overlap(one: Alignment, other: Alignment) -> bool:
    return bool(np.hypot(*(one.centre - other.centre)) < 0.5 * ASPECT * (one.height + other.height) * 0.8)


def _as_option(face: Alignment) -> str:
    low, high = face.corners.min(axis=0), face.corners.max(axis=0)
    return ",".join(f"{value:.0f}" for value in (*low, *(high - low)))


def _checked_reference(reference: Any) -> np.ndarray:
    array = checked_photo(reference, "reference")
    if array.ndim != 2 or min(array.shape) < 12:
        raise ValueError(f"reference: expected a mean face (h, w) of at least 12×12 pixels, got shape {array.shape}")
    if np.ptp(array) == 0:
        raise ValueError("reference: expected a mean face, got one value everywhere")
    return array
