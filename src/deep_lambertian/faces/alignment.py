"""Where a face lies in a photo: the transform between the model's frame and the photo, crops taken along it, and the
registration that finds it.

The model's frame is that of CroppedYale: 168 wide and 192 high, squeezed to a square of 24×24 pixels. Its pixels are
therefore not square: a similarity (scale, rotation, shift) of the photo is, in the frame's pixels, one after a squeeze.
Points are (x, y), and the centre of the first pixel of an image is (0, 0).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from PIL import Image
from scipy import ndimage

ASPECT = 168 / 192  # width over height of what the square frame shows
FRAME = (24, 24)  # rows and columns of the pixels in which `Alignment.matrix` counts
REFINE = (48, 42)  # rows and columns of the frame, with square pixels, in which faces are registered
FINALISTS = 10  # how many of the places that are registered coarsely are registered finely

Size = tuple[int, int]


class Box(NamedTuple):
    """A rectangle in a photo, in pixels; `score` is the number of the detector's windows that agree on it."""

    left: float
    top: float
    width: float
    height: float
    score: float = 0.0


@dataclass(frozen=True)
class Alignment:
    """The transform from the frame's 24×24 pixels to the photo's pixels, and how well the face there fits."""

    matrix: np.ndarray  # (2, 3)
    score: float = math.nan  # likeness to the reference; not a number where nothing was compared

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float64)
        if matrix.shape != (2, 3) or not np.all(np.isfinite(matrix)) or abs(np.linalg.det(matrix[:, :2])) < 1e-12:
            raise ValueError(f"matrix: expected an invertible, finite (2, 3) transform, got {self.matrix!r}")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @classmethod
    def from_pose(cls, centre: tuple[float, float], height: float, angle: float = 0.0, score: float = math.nan) -> Self:
        """The frame around `centre`, `height` photo pixels high, turned by `angle` radians (from x to y: clockwise)."""
        scale = np.array([height * ASPECT / FRAME[1], height / FRAME[0]])
        linear = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]) * scale
        middle = np.array([(FRAME[1] - 1) / 2, (FRAME[0] - 1) / 2])
        return cls(np.column_stack([linear, np.asarray(centre) - linear @ middle]), score)

    @classmethod
    def from_box(cls, box: Box | tuple[float, ...]) -> Self:
        """The frame that is exactly this rectangle, whatever its proportions."""
        left, top, width, height = _checked_box(box)
        x, y = width / FRAME[1], height / FRAME[0]
        return cls(np.array([[x, 0.0, left + x / 2 - 0.5], [0.0, y, top + y / 2 - 0.5]]))

    @property
    def centre(self) -> np.ndarray:
        return self.matrix @ [(FRAME[1] - 1) / 2, (FRAME[0] - 1) / 2, 1.0]

    @property
    def height(self) -> float:
        """Height of the frame in photo pixels."""
        return float(np.hypot(*self.matrix[:, 1]) * FRAME[0])

    @property
    def aspect(self) -> float:
        """Width of the frame over its height, in photo pixels."""
        return float(np.hypot(*self.matrix[:, 0]) * FRAME[1]) / self.height

    @property
    def angle(self) -> float:
        """How far the face is turned in the plane of the photo, in radians, clockwise as seen."""
        return math.atan2(self.matrix[1, 0], self.matrix[0, 0])

    @property
    def corners(self) -> np.ndarray:
        """The frame's corners (4, 2) in the photo: top left, top right, bottom right, bottom left."""
        rows, columns = FRAME
        edge = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]]) - 0.5
        return self.to_photo(edge)

    def to_photo(self, points: Any, size: Size = FRAME) -> np.ndarray:
        """Points (..., 2) of a crop of `size` (rows, columns) as points of the photo."""
        matrix = self.matrix_for(size)
        return np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]

    def to_crop(self, points: Any, size: Size = FRAME) -> np.ndarray:
        """Points (..., 2) of the photo as points of a crop of `size` (rows, columns)."""
        matrix = self.matrix_for(size)
        return (np.asarray(points, np.float64) - matrix[:, 2]) @ np.linalg.inv(matrix[:, :2]).T

    def matrix_for(self, size: Size) -> np.ndarray:
        """The transform (2, 3) from the pixels of a crop of `size` (rows, columns) to those of the photo."""
        rows, columns = size
        if rows < 1 or columns < 1:
            raise ValueError(f"size: expected at least one row and one column, got {size}")
        ratio = np.array([FRAME[1] / columns, FRAME[0] / rows])
        linear = self.matrix[:, :2] * ratio
        return np.column_stack([linear, self.matrix[:, 2] + self.matrix[:, :2] @ ((ratio - 1) / 2)])

    def crop(self, photo: Any, size: Size = FRAME) -> np.ndarray:
        """The frame's content at `size`, averaged over each pixel's area; beyond the photo its edge is continued."""
        return resample(checked_photo(photo), self.matrix_for(size), size)

    def paste(self, photo: Any, crop: Any, feather: float = 0.0) -> np.ndarray:
        """The photo with a crop (of any size) in its place; it fades in over `feather` parts of the frame."""
        photo, crop = checked_photo(photo), checked_photo(crop, "crop")
        if crop.ndim > photo.ndim:
            raise ValueError("crop: expected a grey crop for a grey photo, got a crop in colour")
        if not 0 <= feather <= 0.5:
            raise ValueError(f"feather: expected a part of the frame between 0 and 0.5, got {feather}")
        (top, bottom), (left, right) = _covered(self.corners, photo.shape[:2])
        result = photo.copy()
        if top >= bottom or left >= right:
            return result
        area = (bottom - top, right - left)
        size = crop.shape[:2]
        linear = np.linalg.inv(self.matrix_for(size)[:, :2])
        inverse = np.column_stack([linear, self.to_crop(np.array([left, top]), size)])
        alpha = _opacity(self, left, top, area, feather)
        new = resample(crop, inverse, area)
        if photo.ndim == 3:
            alpha = alpha[..., None]
            new = new if new.ndim == 3 else new[..., None]
        region = result[top:bottom, left:right]
        result[top:bottom, left:right] = region + alpha * (new - region)
        return result


def resample(image: np.ndarray, matrix: np.ndarray, size: Size) -> np.ndarray:
    """An image of `size` whose pixel (x, y) is the mean of `image` over the pixel's area around matrix·(x, y, 1)."""
    if image.ndim == 3:
        return np.stack([resample(image[..., c], matrix, size) for c in range(image.shape[-1])], axis=-1)
    rows, columns = size
    # As many samples a pixel as it covers pixels of the source, so that none is passed over.
    across, down = (max(1, math.ceil(np.hypot(*matrix[:, axis]) - 1e-6)) for axis in (0, 1))
    x = (np.arange(columns * across) + 0.5) / across - 0.5
    total = np.zeros(size)
    for offset in (np.arange(down) + 0.5) / down - 0.5:
        y = (np.arange(rows) + offset)[:, None]
        source = [matrix[i, 0] * x + matrix[i, 1] * y + matrix[i, 2] for i in (1, 0)]
        values = ndimage.map_coordinates(image, source, order=1, mode="nearest", output=np.float64)
        total += values.reshape(rows, columns, across).mean(axis=-1)
    return total / down


def checked_photo(photo: Any, name: str = "photo") -> np.ndarray:
    """A photo as float64 (H, W) or (H, W, 3), or a ValueError that says what is wrong with it."""
    array = np.asarray(photo)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{name}: expected real numbers, got {array.dtype}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] != 3) or array.size == 0:
        raise ValueError(f"{name}: expected shape (H, W) or (H, W, 3) with at least one pixel, got {array.shape}")
    if np.issubdtype(array.dtype, np.integer):  # the full range of the type is [0, 1], as in image libraries
        return array.astype(np.float64) / np.iinfo(array.dtype).max
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{name}: expected finite pixels, got {bad} that are NaN or infinite")
    return array.astype(np.float64)


def _checked_box(box: Any) -> tuple[float, float, float, float]:
    values = np.asarray(tuple(box)[:4], np.float64)
    if values.shape != (4,) or not np.all(np.isfinite(values)) or min(values[2:]) <= 0:
        raise ValueError(f"box: expected left, top, and a positive width and height in pixels, got {tuple(box)}")
    left, top, width, height = (float(value) for value in values)
    return left, top, width, height


def _covered(corners: np.ndarray, shape: Size) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of the photo that the frame may touch."""
    low, high = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int) + 1
    return (max(low[1], 0), min(high[1], shape[0])), (max(low[0], 0), min(high[0], shape[1]))


def _opacity(alignment: Alignment, left: int, top: int, area: Size, feather: float) -> np.ndarray:
    """How much of the crop shows at each pixel of the area: 1 within the frame, 0 outside, soft over `feather`."""
    y, x = np.mgrid[: area[0], : area[1]]
    u, v = (np.moveaxis(alignment.to_crop(np.stack([x + left, y + top], -1)), -1, 0) + 0.5) / FRAME[0]
    inside = np.minimum(np.minimum(u, 1 - u), np.minimum(v, 1 - v))  # depth inside the frame, as a part of it
    # Without a feather the edge still runs over one photo pixel, so that a turned frame has no stairs.
    pixel = 1 / alignment.height
    return np.clip((inside + pixel / 2) / pixel, 0, 1) if feather == 0 else np.clip(inside / feather, 0, 1)


# --- registration ------------------------------------------------------------------------------------------------


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


def register(grey: np.ndarray, mean: np.ndarray, starts: Sequence[Alignment]) -> list[Alignment]:
    """The similarities near `starts` at which the photo correlates best with the reference, the best first."""
    photos = octaves_of(grey)
    coarse, fine = (reference_features(mean, REFINE, bands) for bands in STAGES)
    faces = [_gauss_newton(photos, coarse, start, STAGES[0]) for start in starts]
    distinct: list[Alignment] = []
    for face in sorted(faces, key=lambda face: -face.score):
        if not any(near(face, other) for other in distinct):
            distinct.append(face)
    for _ in range(2):  # the patch is taken anew, so that its features are those of an upright face of this size
        distinct = [_gauss_newton(photos, fine, face, STAGES[1]) for face in distinct[:FINALISTS]]
    judged = [replace(face, score=_likeness(photos, mean, face)) for face in distinct]
    return sorted(judged, key=lambda face: -face.score)


def _gauss_newton(
    photos: Sequence[np.ndarray], template: np.ndarray, start: Alignment, bands: Bands, steps: int = 10
) -> Alignment:
    rows, columns = REFINE
    margin = rows // 4
    patch_size = (rows + 2 * margin, columns + 2 * margin)
    to_photo = start.matrix_for(REFINE)
    to_photo = _widened(to_photo, margin)
    features = _features(_patch(photos, to_photo, start.height, patch_size), bands, rows)
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
        jacobian = (jacobian - _mean(jacobian, weight)) / np.sqrt(
            _mean((seen - _mean(seen, weight)) ** 2, weight) + 1e-9
        )
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


def octaves_of(grey: np.ndarray) -> list[np.ndarray]:
    """The photo at its size, at half of it, and so on: large faces are read from small photos, which is quick."""
    photos = [grey]
    while min(photos[-1].shape) > 4 * REFINE[0]:
        photos.append(reduce(photos[-1], 2.0))
    return photos


def _patch(photos: Sequence[np.ndarray], matrix: np.ndarray, height: float, size: tuple[int, int]) -> np.ndarray:
    octave = int(np.clip(math.log2(height / (2 * REFINE[0])), 0, len(photos) - 1))
    ratio = np.array(photos[octave].shape[::-1]) / photos[0].shape[::-1]
    linear, shift = matrix[:, :2] * ratio[:, None], (matrix[:, 2] + 0.5) * ratio - 0.5
    return resample(photos[octave], np.column_stack([linear, shift]), size)


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


def _likeness(photos: Sequence[np.ndarray], mean: np.ndarray, face: Alignment) -> float:
    """How much what lies in the frame is a face: about 0.3 is the best of a texture, 0.5 a face.

    It looks at finer detail than registration does, and at the direction of edges, whichever of their sides is
    brighter: coarse shading fits many smooth textures by chance, and changes most with the light.
    """
    rows, columns = REFINE
    margin = rows // 4
    matrix = _widened(face.matrix_for(REFINE), margin)
    patch = _patch(photos, matrix, face.height, (rows + 2 * margin, columns + 2 * margin))
    inner = (slice(None), slice(margin, -margin), slice(margin, -margin))
    weight = weights(REFINE) / weights(REFINE).sum()
    total = 0.0
    for describe in (lambda image: _features(image, (FINE_BAND,), rows), lambda image: _edges(image, rows)):
        here = _standardised(describe(patch)[inner], weight)
        there = _standardised(describe(framed(mean, REFINE, margin))[inner], weight)
        total += float(np.mean(_mean(here * there, weight)))
    return total / 2


def _widened(matrix: np.ndarray, margin: int) -> np.ndarray:
    """The transform of a crop with `margin` pixels more on every side."""
    return np.column_stack([matrix[:, :2], matrix[:, 2] - matrix[:, :2] @ [margin, margin]])


def framed(mean: np.ndarray, size: Size, margin: int) -> np.ndarray:
    matrix = Alignment.from_box((0, 0, mean.shape[1], mean.shape[0])).matrix_for(size)
    return np.pad(resample(mean, matrix, size), margin, mode="edge")


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


def reduce(image: np.ndarray, reduction: float) -> np.ndarray:
    rows, columns = (max(1, round(n / reduction)) for n in image.shape)
    filtering = Image.Resampling.BOX if reduction > 1 else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(image.astype(np.float32)).resize((columns, rows), filtering), np.float64)


def near(one: Alignment, other: Alignment) -> bool:
    apart = np.hypot(*(one.centre - other.centre))
    return bool(apart < 0.25 * max(one.height, other.height) and 0.7 < one.height / other.height < 1.4)
