"""Find the faces of a photo, and align each to the frame that a model was trained on.

The nets of `faces.detector` find, judge and place them, in CroppedYale's frame. Where the model's mean face lies
otherwise in its frame, every face is moved by as much; a mean in which the nets see no face moves nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.data.images import luminance
from deep_lambertian.faces import detector as face_detector
from deep_lambertian.faces.alignment import ASPECT, FRAME, Alignment, Pyramid, checked_photo, distinct
from deep_lambertian.faces.detector import Detector

SHIFTS, SIZES = (-0.15, 0.0, 0.15), (0.7, 0.85, 1.0)  # where a face may lie around a box, in heights of the box


class NoFaceError(ValueError):
    """No face was found where one was needed."""


class SeveralFacesError(ValueError):
    """Several faces were found where one was needed."""


def find_faces(
    photo: ArrayLike, reference: ArrayLike | None = None, detector: Detector | None = None
) -> list[Alignment]:
    """Every face of a photo (H, W) or (H, W, 3), aligned to the mean face (h, w) of the model, the largest first.

    Without a `reference` the frame is that of CroppedYale. `detector` is the bundled one unless another is given.
    """
    detector = detector or face_detector.bundled()
    way = _way_to_frame(detector, reference)
    found = face_detector.locate(detector, luminance(checked_photo(photo)))
    faces = distinct([face_detector.move(face, way, face.score) for face in found], same=_overlap)
    return sorted(faces, key=lambda face: -face.height)


def find_face(
    photo: ArrayLike,
    reference: ArrayLike | None = None,
    box: Sequence[float] | None = None,
    align: bool = True,
    detector: Detector | None = None,
) -> Alignment:
    """The one face of a photo, aligned to the mean face (h, w) of the model, or to the frame of CroppedYale.

    `box` (left, top, width, height) says roughly where the face is, where the photo holds several or the search fails;
    where the nets see no face in it either, it is the frame.
    With `align=False` nothing is searched: the box is the frame, and without a box the whole photo is.
    """
    array = checked_photo(photo)
    height, width = array.shape[:2]
    if not align:
        return Alignment.from_box((0, 0, width, height) if box is None else box)
    if box is not None:
        detector = detector or face_detector.bundled()
        return _find_in_box(detector, luminance(array), Alignment.from_box(box), _way_to_frame(detector, reference))
    faces = find_faces(array, reference, detector)
    if not faces:
        raise NoFaceError(
            f"expected a photo with one frontal face, found none in {width}×{height} pixels; "
            "say where it is with --box LEFT,TOP,WIDTH,HEIGHT, or give a photo that is already cropped, with --no-align"
        )
    if len(faces) > 1:
        places = "; ".join(f"--box {_as_option(face)}" for face in faces)
        raise SeveralFacesError(
            f"expected a photo with one face, found {len(faces)}; choose one ({places}), "
            "take them all with --all-faces, or take the photo as it is with --no-align"
        )
    return faces[0]


def _find_in_box(detector: Detector, grey: np.ndarray, box: Alignment, way: np.ndarray) -> Alignment:
    """The surest face around a box that a person has drawn, however unsure; or else the box."""
    (rows, columns), (x, y) = grey.shape, box.centre
    if np.any(box.corners.max(axis=0) < 0) or np.any(box.corners.min(axis=0) > (columns - 1, rows - 1)):
        photo = f"the photo of {columns}×{rows} pixels"
        raise ValueError(f"box: expected it to lie in {photo}, got one around ({x:.0f}, {y:.0f})")
    h = box.height
    ways = product(SIZES, SHIFTS, SHIFTS)
    starts = [Alignment.from_pose((x + right * h, y + down * h), size * h) for size, right, down in ways]
    faces = face_detector.settle(detector, Pyramid(grey), starts, odds=(0.0, 0.0))
    close = [face for face in faces if np.hypot(*(face.centre - box.centre)) < 0.5 * box.height]
    return face_detector.move(close[0], way, close[0].score) if close else box


def _way_to_frame(detector: Detector, reference: ArrayLike | None) -> np.ndarray:
    """From the frame in which the nets place faces to the one of the reference: none where they see no face in it."""
    mean = checked_photo(detector.mean if reference is None else reference, "reference")
    if mean.ndim != 2 or min(mean.shape) < 12:
        raise ValueError(f"reference: expected a mean face (h, w) of at least 12×12 pixels, got shape {mean.shape}")
    if np.ptp(mean) == 0:
        raise ValueError("reference: expected a mean face, got one value everywhere")
    return _cached_way(detector, mean.tobytes(), (mean.shape[0], mean.shape[1]))


@lru_cache(maxsize=8)
def _cached_way(detector: Detector, mean: bytes, shape: tuple[int, int]) -> np.ndarray:
    size, margin = (192, 168), 64
    whole = Alignment.from_box((0, 0, shape[1], shape[0]))
    photo = np.pad(whole.crop(np.frombuffer(mean).reshape(shape), size), margin, mode="edge")
    frame = Alignment.from_box((margin, margin, size[1], size[0]))
    faces = face_detector.settle(detector, Pyramid(photo), [frame])
    way = face_detector.way_to(faces[0], frame) if faces else np.zeros(4)
    # Half a pixel is what one face differs from another: a reference so near the nets' own frame is in that frame.
    return way if np.linalg.norm(way) > 0.5 / FRAME[0] else np.zeros(4)


def _overlap(one: Alignment, other: Alignment) -> bool:
    return bool(np.hypot(*(one.centre - other.centre)) < 0.4 * ASPECT * (one.height + other.height))


def _as_option(face: Alignment) -> str:
    low, high = face.corners.min(axis=0), face.corners.max(axis=0)
    return ",".join(f"{value:.0f}" for value in (*low, *(high - low)))
