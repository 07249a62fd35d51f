"""Find the faces of a photo, and align each to the frame that a model was trained on.

Two small convolutional nets know faces: one finds them anywhere in a photo, one judges and places each, in
CroppedYale's frame. Both look at local contrast, (I - its surroundings) over the strength of such differences, which a
light from the side hardly changes. Both answer whether a patch holds a face and how the patch's frame must move to be
that face's frame. Their weights come from `tools/train_face_finder`; `detector.md`, beside this file, says from which
data. Where the model's mean face lies otherwise in its frame, every face is moved by as much; a mean in which the nets
see no face moves nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from deep_lambertian.data.images import luminance
from deep_lambertian.faces.alignment import ASPECT, FRAME, Alignment, Pyramid, checked_photo, distinct, reduce
from deep_lambertian.support.resampling import Size

TURN = 0.35  # heights by which a point of the frame moves, on average, when the frame is scaled or turned by 1


@dataclass(frozen=True)
class Look:
    """What a net sees: the frame's rows and columns in its pixels, and the pixels of its input around them."""

    frame: Size
    input: Size

    @property
    def rows(self) -> int:
        return self.frame[0]


FINDER = Look(frame=(24, 21), input=(27, 23))
JUDGE = Look(frame=(40, 35), input=(44, 39))
STRIDE = 4  # the finder looks at every fourth pixel
MARGIN = 0.25  # what local contrast needs to know around an input, in frame heights
SMALLEST = 1 / 14  # height of the smallest face looked for, as a part of the photo's shorter side
STEP = 1.19  # ratio of one size searched to the next
PROPOSALS = 24  # how many of the finder's places are judged
JUDGEMENTS = 3  # steps to where it is decided whether there is a face
WORTH_JUDGING, WORTH_DECIDING = -1.0, 0.0  # log odds of the finder, and of the judge on its way
# What both nets must say for a face, and for one more beside a surer one. Chosen on other scenes than the benchmark's:
# 132 with faces of Yale B, 60 with other faces of faces48, 80 of ALOI's objects 1 to 40, and 80 textures.
FACE_ODDS, BESIDE_ODDS = 7.7, 9.0
MOST_BOX = 4  # times the photo's longer side, beyond which no number of a box can be meant
SHIFTS, SIZES = (-0.15, 0.0, 0.15), (0.7, 0.85, 1.0)  # where a face may lie around a box, in heights of the box


@dataclass(frozen=True)
class Net:
    """Weights of convolutions [(k, k, in, out), bias] and of the two dense layers behind them."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    def features(self, images: np.ndarray) -> np.ndarray:
        """The last hidden layer (n, rows, columns, h) for images (n, H, W); 1×1 for a net's own input."""
        return _relu(_convolve(self.map(images), *self.layers[-2]))

    def map(self, images: np.ndarray) -> np.ndarray:
        """The layer before it, in which places still differ."""
        first, second, *rest = self.layers[:-2]
        hidden = _relu(_convolve(images[..., None].astype(np.float32), *first, stride=2))
        hidden = _pool(_relu(_convolve(hidden, *second)))
        for layer in rest:
            hidden = _relu(_convolve(hidden, *layer))
        return hidden

    def answers(self, features: np.ndarray) -> np.ndarray:
        """Log odds of a face, and the frame's way to it (right, down, growth, turn), for each row of features."""
        weights, bias = self.layers[-1]
        return features @ weights + bias


def contrast(image: np.ndarray, rows: float) -> np.ndarray:
    """Local contrast of an image in which the frame is `rows` high: about 0 ± 1, whatever the strength of the light."""
    image = image.astype(np.float32)
    blur = lambda array, part: ndimage.gaussian_filter(array, part * rows, mode="nearest", truncate=2.5)
    around = blur(image, 0.14)
    detail = image - around
    return detail / (np.sqrt(np.maximum(blur(detail * detail, 0.2), 0)) + 0.03 * around + 1e-4)


def move(pose: Alignment, way: np.ndarray, score: float = math.nan) -> Alignment:
    """The frame after (right, down, growth, turn): shifts in its own heights, growth and turn in their mean effect."""
    cosine, sine = math.cos(pose.angle), math.sin(pose.angle)
    right, down = way[:2] * pose.height
    x, y = pose.centre
    centre = (x + cosine * right - sine * down, y + sine * right + cosine * down)
    return Alignment.from_pose(centre, pose.height * math.exp(way[2] / TURN), pose.angle + way[3] / TURN, score)


def way_to(pose: Alignment, goal: Alignment) -> np.ndarray:
    """The opposite question: (right, down, growth, turn) from one frame to another."""
    x, y = (goal.centre - pose.centre) / pose.height
    cosine, sine = math.cos(pose.angle), math.sin(pose.angle)
    turn = (goal.angle - pose.angle + math.pi) % (2 * math.pi) - math.pi
    growth = math.log(goal.height / pose.height)
    return np.array([cosine * x + sine * y, cosine * y - sine * x, TURN * growth, TURN * turn])


def patch_at(photo: Pyramid, pose: Alignment, look: Look) -> np.ndarray:
    """What a net sees of a photo when the frame lies at `pose`."""
    margin = round(MARGIN * look.rows)
    rows, columns = (n + 2 * margin for n in look.input)
    around = (columns - look.frame[1]) / 2, (rows - look.frame[0]) / 2
    image = photo.sample(pose.matrix_for(look.frame, around), (rows, columns), pose.height / (1.5 * look.rows))
    return contrast(image, look.rows)[margin:-margin, margin:-margin]


def _convolve(images: np.ndarray, kernel: np.ndarray, bias: np.ndarray, stride: int = 1) -> np.ndarray:
    """Without padding: the dense answers of a photo are exactly those of its patches."""
    views = np.lib.stride_tricks.sliding_window_view(images, kernel.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    unrolled = np.moveaxis(views, 3, -1).reshape(np.prod(views.shape[:3]), -1)
    return (unrolled @ kernel.reshape(-1, kernel.shape[-1]) + bias).reshape(*views.shape[:3], -1)


def _pool(images: np.ndarray) -> np.ndarray:
    even = images[:, : images.shape[1] // 2 * 2, : images.shape[2] // 2 * 2]
    across = np.maximum(even[:, :, ::2], even[:, :, 1::2])
    return np.maximum(across[:, ::2], across[:, 1::2])


def _relu(array: np.ndarray) -> np.ndarray:
    return np.maximum(array, 0, out=array)


@dataclass(frozen=True, eq=False)  # compared by identity, so that results can be kept for each
class Detector:
    """Both nets; the last steps (k, d + 1, 4), linear in what is seen, to the frame in which eyes and mouth lie as on
    average in Yale B's crops; and the mean face in that frame (48, 48).
    """

    finder: Net
    judge: Net
    steps: np.ndarray
    mean: np.ndarray

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Detector":
        nets = []
        for name in ("finder", "judge"):
            count = sum(key.startswith(f"{name}.weights") for key in arrays)
            get = lambda part, name=name: np.asarray(arrays[f"{name}.{part}"], np.float32)
            nets.append(Net(tuple((get(f"weights{i}"), get(f"bias{i}")) for i in range(count))))
        return cls(nets[0], nets[1], np.asarray(arrays["steps"], np.float32), np.asarray(arrays["mean"], np.float64))


@cache
def bundled() -> Detector:
    """The detector whose weights come with the package."""
    with resources.files("deep_lambertian.faces").joinpath("detector.npz").open("rb") as file:
        return Detector.from_arrays(np.load(file))


# ---- Search in one photo, in the frame of the nets


def search(net: Net, photo: Pyramid) -> Iterator[Alignment]:
    """Frames that are worth judging as the finder sees them in a photo, for faces of all heights."""
    side = min(photo.levels[0].shape)
    least = max(24.0, side * SMALLEST)
    heights = [least * STEP**i for i in range(max(1, 1 + round(math.log(1.15 * side / least) / math.log(STEP))))]
    with ThreadPoolExecutor(max_workers=2) as pool:  # NumPy and SciPy let each other's threads go on
        for found in pool.map(lambda height: search_for(net, photo, height), heights):
            yield from found


def search_for(net: Net, photo: Pyramid, height: float) -> list[Alignment]:
    """The same for faces of about one height."""
    grey, margin = photo.levels[0], FINDER.rows // 4  # a face may be cut a little by the photo's edge
    level = photo.level(height / (2 * FINDER.rows))
    small = reduce(level, len(level) / max(1, round(len(grey) * FINDER.rows / height)))
    if small.shape[0] + 2 * margin < FINDER.input[0] or small.shape[1] + 2 * margin < FINDER.input[1]:
        return []
    around = np.pad(small, margin, mode="edge")
    answers = net.answers(net.features(contrast(around, FINDER.rows)[None])[0])
    odds = answers[..., 0]
    peaks = (odds == ndimage.maximum_filter(odds, size=3, mode="nearest")) & (odds > WORTH_JUDGING)
    ratio, found = np.array(small.shape[::-1]) / grey.shape[::-1], []
    for row, column in np.argwhere(peaks):
        middle = STRIDE * np.array([column, row]) + np.array(FINDER.input[::-1]) / 2 - margin
        x, y = middle / ratio - 0.5
        found.append(move(Alignment.from_pose((x, y), height), answers[row, column, 1:], float(odds[row, column])))
    return found


def judge(net: Net, photo: Pyramid, poses: Sequence[Alignment]) -> list[Alignment]:
    """Each pose after one step on its way to the face, with the log odds of what was seen before that step."""
    if not poses:
        return []
    answers = both_ways(net.answers(seen(net, photo, poses)))
    return [move(pose, answer[1:], float(answer[0])) for pose, answer in zip(poses, answers, strict=True)]


def seen(net: Net, photo: Pyramid, poses: Sequence[Alignment], look: Look = JUDGE) -> np.ndarray:
    """Features (2, n, h) of the patches at n poses and of their mirror images."""
    patches = np.stack([patch_at(photo, pose, look) for pose in poses])
    return np.stack([net.features(images)[:, 0, 0] for images in (patches, patches[:, :, ::-1])])


def both_ways(answers: np.ndarray) -> np.ndarray:
    """The mean of what was answered to a patch and to its mirror image, in which right is left: (2, n, 4 or 5)."""
    signs = np.array([1, -1, 1, 1, -1])[-answers.shape[-1] :]
    return (answers[0] + signs * answers[1]) / 2


def locate(detector: Detector, grey: np.ndarray) -> list[Alignment]:
    """Every face of a photo, the surest first: the finder's proposals, judged and placed."""
    photo = Pyramid(grey)
    return settle(detector, photo, distinct(search(detector.finder, photo), PROPOSALS))


def settle(
    detector: Detector, photo: Pyramid, poses: Sequence[Alignment], odds: tuple[float, float] = (FACE_ODDS, BESIDE_ODDS)
) -> list[Alignment]:
    """The faces that the judge comes to from these poses, the surest first: it and others of at least these `odds`."""
    for _ in range(JUDGEMENTS):
        poses = distinct(judge(detector.judge, photo, poses))
    poses = sorted(weigh(detector, photo, poses), key=lambda pose: -pose.score)
    faces = [pose for i, pose in enumerate(poses) if pose.score > odds[min(i, 1)]]
    return place(detector, photo, faces)


def weigh(detector: Detector, photo: Pyramid, poses: Sequence[Alignment]) -> list[Alignment]:
    """The poses that are worth it, with what both nets say of them: the judge's log odds and half the finder's."""
    poses = [pose for pose in poses if pose.score > WORTH_DECIDING]
    if not poses:
        return []
    looks = ((detector.judge, JUDGE), (detector.finder, FINDER))
    sure, rough = (both_ways(net.answers(seen(net, photo, poses, look)))[:, 0] for net, look in looks)
    return [replace(pose, score=float(odds)) for pose, odds in zip(poses, sure + 0.5 * rough, strict=True)]


def place(detector: Detector, photo: Pyramid, poses: Sequence[Alignment]) -> list[Alignment]:
    """The last steps, which know how Yale B's crops lie around a face."""
    for step in detector.steps if poses else ():
        poses = take_step(step, described(detector.judge, photo, poses), poses)
    return list(poses)


def described(net: Net, photo: Pyramid, poses: Sequence[Alignment]) -> np.ndarray:
    """What a step sees (2, n, d) at n poses, as it is and mirrored: the judge's map, and the contrast at half size."""
    patches = np.stack([patch_at(photo, pose, JUDGE) for pose in poses])
    small = ndimage.gaussian_filter(patches, (0, 1, 1))[:, ::2, ::2]
    views = [(patches, small), (patches[:, :, ::-1], small[:, :, ::-1])]
    flat = [[part.reshape(len(poses), -1) for part in (net.map(whole), half)] for whole, half in views]
    return np.stack([np.concatenate(parts, axis=1) for parts in flat])


def take_step(step: np.ndarray, features: np.ndarray, poses: Sequence[Alignment]) -> list[Alignment]:
    ways = both_ways(features @ step[:-1] + step[-1])
    return [move(pose, way, pose.score) for pose, way in zip(poses, ways, strict=True)]


# ---- Faces in the frame of a model


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
    detector = detector or bundled()
    way = _way_to_frame(detector, reference)
    found = locate(detector, luminance(checked_photo(photo)))
    faces = distinct([move(face, way, face.score) for face in found], same=_overlap)
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
    if box is not None and max(map(abs, box)) > MOST_BOX * max(height, width):
        raise ValueError(f"box: expected one about the face in a photo of {width}×{height} pixels, got {tuple(box)}")
    if not align:
        return Alignment.from_box((0, 0, width, height) if box is None else box)
    if box is not None:
        detector = detector or bundled()
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
    faces = settle(detector, Pyramid(grey), starts, odds=(0.0, 0.0))
    close = [face for face in faces if np.hypot(*(face.centre - box.centre)) < 0.5 * box.height]
    return move(close[0], way, close[0].score) if close else box


def _way_to_frame(detector: Detector, reference: ArrayLike | None) -> np.ndarray:
    """From the frame in which the nets place faces to the one of the reference: none where they see no face in it."""
    mean = checked_photo(detector.mean if reference is None else reference, "reference")
    if mean.ndim != 2 or min(mean.shape) < 12:
        raise ValueError(f"reference: expected a mean face (h, w) of at least 12×12 pixels, got shape {mean.shape}")
    if np.ptp(mean) == 0:
        raise ValueError("reference: expected a mean face, got one value everywhere")
    return _cached_way(detector, mean.astype(np.float64).tobytes(), (mean.shape[0], mean.shape[1]))


@lru_cache(maxsize=8)
def _cached_way(detector: Detector, mean: bytes, shape: tuple[int, int]) -> np.ndarray:
    size, margin = (192, 168), 64
    whole = Alignment.from_box((0, 0, shape[1], shape[0]))
    photo = np.pad(whole.crop(np.frombuffer(mean).reshape(shape), size), margin, mode="edge")
    frame = Alignment.from_box((margin, margin, size[1], size[0]))
    faces = settle(detector, Pyramid(photo), [frame])
    way = way_to(faces[0], frame) if faces else np.zeros(4)
    # Half a pixel is what one face differs from another: a reference so near the nets' own frame is in that frame.
    return way if np.linalg.norm(way) > 0.5 / FRAME[0] else np.zeros(4)


def _overlap(one: Alignment, other: Alignment) -> bool:
    return bool(np.hypot(*(one.centre - other.centre)) < 0.4 * ASPECT * (one.height + other.height))


def _as_option(face: Alignment) -> str:
    low, high = face.corners.min(axis=0), face.corners.max(axis=0)
    return ",".join(f"{value:.0f}" for value in (*low, *(high - low)))
