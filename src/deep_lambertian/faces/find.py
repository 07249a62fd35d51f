"""Find the faces of a photo, and align each to the frame that a model was trained on.

Where the model's mean face is a face to the nets of `faces.detector`, they find, judge and place the faces, together
with scikit-image's bundled LBP cascade, which proposes places. Where it is something else (another class, a drawing),
a correlation of the photo with it over sizes and rotations proposes places, Gauss-Newton registers them to it, and
its likeness there and the cascade decide.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.data.images import luminance
from deep_lambertian.faces import detector as face_detector
from deep_lambertian.faces.alignment import (
    ASPECT,
    FRAME,
    SMALLEST,
    Alignment,
    Box,
    Pyramid,
    checked_photo,
    near,
    reduce,
)
from deep_lambertian.faces.detector import Detector
from deep_lambertian.faces.likeness import PROPOSALS, framed, register, search, search_window
from deep_lambertian.support.resampling import sample_affine

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


def detect(photo: ArrayLike) -> list[Box]:
    """Boxes of the LBP cascade around upright, frontal heads, the largest first, overlapping ones merged."""
    grey = luminance(checked_photo(photo))
    reduction = max(1.0, math.sqrt(grey.size / CASCADE_PIXELS))
    small = reduce(grey, reduction)
    side = min(small.shape)
    if side < 24:  # the cascade's own window
        return []
    found = _run_cascade(small, max(24, round(side * SMALLEST)), side, 1.1, 2)
    boxes = [Box(*(reduction * value for value in box), score=1.0) for box in found]
    return _merge(boxes)


def find_faces(
    photo: ArrayLike, reference: ArrayLike | None = None, detector: Detector | None = None
) -> list[Alignment]:
    """Every face of a photo (H, W) or (H, W, 3), aligned to the mean face (h, w) of the model, the largest first.

    Without a `reference` the frame is that of CroppedYale. `detector` is the bundled one unless another is given.
    """
    detector = detector or face_detector.bundled()
    grey, mean = luminance(checked_photo(photo)), _checked_reference(detector.mean if reference is None else reference)
    way = _way_to_frame(detector, mean)
    if way is None:
        found = [face for face in _by_likeness(grey, mean) if _is_face(grey, face)]
    else:
        # The cascade knows fewer faces and takes longer than the finder: it is asked where that sees none.
        found = face_detector.locate(detector, grey) or face_detector.settle(detector, Pyramid(grey), _heads(grey))
        found = [_to_reference(grey, mean, face, way) for face in found]
    faces: list[Alignment] = []
    for face in found:
        if not any(_overlap(face, other) for other in faces):
            faces.append(face)
    return sorted(faces, key=lambda face: -face.height)


def find_face(
    photo: ArrayLike,
    reference: ArrayLike | None = None,
    box: Sequence[float] | None = None,
    align: bool = True,
    detector: Detector | None = None,
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
        return _align_in_box(detector, luminance(array), mean, box)
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


def _align_in_box(detector: Detector, grey: np.ndarray, mean: np.ndarray, box: Sequence[float]) -> Alignment:
    """The best fit around a box that a person has drawn: it is believed, however poor the fit."""
    exact = Alignment.from_box(box)
    height, (x, y) = exact.height, exact.centre
    starts = search_window(grey, mean, x, y, height)
    way = _way_to_frame(detector, mean)
    if way is not None:
        faces = face_detector.settle(detector, Pyramid(grey), starts, least=0.0, beside=0.0)
        close = [face for face in faces if np.hypot(*(face.centre - (x, y))) < 0.5 * height]
        if close:
            return _to_reference(grey, mean, close[0], way)
    return register(grey, mean, starts)[0]


@lru_cache(maxsize=8)
def _cached_way(detector: Detector, mean: bytes, shape: tuple[int, int]) -> np.ndarray | None:
    size, margin = (192, 168), 64
    photo = framed(np.frombuffer(mean).reshape(shape), size, margin)
    frame = Alignment.from_box((margin, margin, size[1], size[0]))
    faces = face_detector.settle(detector, Pyramid(photo), [frame])
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
    return register(grey, mean, [*_heads(grey), *search(grey, mean)])


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
    patch = sample_affine(grey, face.matrix_for(size, margin), (size[0] + 2 * margin, size[1] + 2 * margin))
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


# --- small things ------------------------------------------------------------------------------------------------


def _overlap(one: Alignment, other: Alignment) -> bool:
    return bool(np.hypot(*(one.centre - other.centre)) < 0.5 * ASPECT * (one.height + other.height) * 0.8)


def _as_option(face: Alignment) -> str:
    low, high = face.corners.min(axis=0), face.corners.max(axis=0)
    return ",".join(f"{value:.0f}" for value in (*low, *(high - low)))


def _checked_reference(reference: ArrayLike) -> np.ndarray:
    array = checked_photo(reference, "reference")
    if array.ndim != 2 or min(array.shape) < 12:
        raise ValueError(f"reference: expected a mean face (h, w) of at least 12×12 pixels, got shape {array.shape}")
    if np.ptp(array) == 0:
        raise ValueError("reference: expected a mean face, got one value everywhere")
    return array
