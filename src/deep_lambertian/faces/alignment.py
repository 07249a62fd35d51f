"""Where a face lies in a photo: the transform between the model's frame and the photo, and crops taken along it.

The model's frame is that of CroppedYale: 168 wide and 192 high, squeezed to a square of 24×24 pixels. Its pixels are
therefore not square: a similarity (scale, rotation, shift) of the photo is, in the frame's pixels, one after a squeeze.
Points are (x, y), and the centre of the first pixel of an image is (0, 0).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.support.resampling import Size, sample_affine, shrink_quickly

ASPECT = 168 / 192  # width over height of what the square frame shows
FRAME = (24, 24)  # rows and columns of the pixels in which `Alignment.matrix` counts


@dataclass(frozen=True)
class Alignment:
    """The transform from the frame's 24×24 pixels to the photo's pixels, and how well the face there fits."""

    matrix: np.ndarray  # (2, 3)
    score: float = math.nan  # log odds of a face; not a number where nothing was judged

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
    def from_box(cls, box: Sequence[float]) -> Self:
        """The frame that is exactly this rectangle, whatever its proportions."""
        values = np.asarray(tuple(box), np.float64)
        if values.shape != (4,) or not np.all(np.isfinite(values)) or min(values[2:]) <= 0:
            raise ValueError(f"box: expected left, top, and a positive width and height in pixels, got {tuple(box)}")
        left, top, width, height = values
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
        return self.to_photo(np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]]) - 0.5)

    def to_photo(self, points: ArrayLike, size: Size = FRAME) -> np.ndarray:
        """Points (..., 2) of a crop of `size` (rows, columns) as points of the photo."""
        matrix = self.matrix_for(size)
        return np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]

    def to_crop(self, points: ArrayLike, size: Size = FRAME) -> np.ndarray:
        """Points (..., 2) of the photo as points of a crop of `size` (rows, columns)."""
        matrix = self.matrix_for(size)
        return (np.asarray(points, np.float64) - matrix[:, 2]) @ np.linalg.inv(matrix[:, :2]).T

    def matrix_for(self, size: Size, margin: ArrayLike = 0.0) -> np.ndarray:
        """The transform (2, 3) from the pixels of a crop of `size` (rows, columns) to those of the photo.

        `margin` is of the crop's pixels (across and down) that a larger crop has on each side, beyond the frame.
        """
        rows, columns = size
        if rows < 1 or columns < 1:
            raise ValueError(f"size: expected at least one row and one column, got {size}")
        ratio = np.array([FRAME[1] / columns, FRAME[0] / rows])
        linear = self.matrix[:, :2] * ratio
        shift = self.matrix[:, 2] + self.matrix[:, :2] @ ((ratio - 1) / 2)
        return np.column_stack([linear, shift - linear @ np.broadcast_to(margin, 2)])

    def crop(self, photo: ArrayLike, size: Size = FRAME) -> np.ndarray:
        """The frame's content at `size`, averaged over each pixel's area; beyond the photo its edge is continued."""
        return sample_affine(checked_photo(photo), self.matrix_for(size), size)

    def paste(self, photo: ArrayLike, crop: ArrayLike, feather: float = 0.0) -> np.ndarray:
        """The photo with a crop (of any size) in its place; it fades in over `feather` parts of the frame."""
        photo, crop = checked_photo(photo), checked_photo(crop, "crop")
        if crop.ndim > photo.ndim:
            raise ValueError("crop: expected a grey crop for a grey photo, got a crop in colour")
        if not 0 <= feather <= 0.5:
            raise ValueError(f"feather: expected a part of the frame between 0 and 0.5, got {feather}")
        back = np.linalg.inv(np.vstack([self.matrix_for(crop.shape[:2]), [0, 0, 1]]))[:2]
        new = sample_affine(crop, back, photo.shape[:2])
        points = np.stack(np.meshgrid(np.arange(photo.shape[1]), np.arange(photo.shape[0])), -1)
        part = (self.to_crop(points) + 0.5) / FRAME[::-1]
        inside = np.minimum(part, 1 - part).min(axis=-1)  # depth inside the frame, as a part of it
        # Without a feather the edge still runs over one photo pixel, so that a turned frame has no stairs.
        alpha = np.clip(inside / feather if feather else 0.5 + inside * self.height, 0, 1)
        if photo.ndim == 3:
            alpha, new = alpha[..., None], new if new.ndim == 3 else new[..., None]
        return photo + alpha * (new - photo)


def checked_photo(photo: ArrayLike, name: str = "photo") -> np.ndarray:
    """A photo as floats (H, W) or (H, W, 3), or a ValueError that says what is wrong with it."""
    array = np.asarray(photo)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{name}: expected real numbers, got {array.dtype}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] != 3) or array.size == 0:
        raise ValueError(f"{name}: expected shape (H, W) or (H, W, 3) with at least one pixel, got {array.shape}")
    if np.issubdtype(array.dtype, np.integer):  # the full range of the type is [0, 1], as in image libraries
        return array.astype(np.float64) / np.iinfo(array.dtype).max
    if bad := int(np.count_nonzero(~np.isfinite(array))):
        raise ValueError(f"{name}: expected finite pixels, got {bad} that are NaN or infinite")
    return array if array.dtype == np.float32 else array.astype(np.float64)


def near(one: Alignment, other: Alignment) -> bool:
    """Whether two frames are about the same."""
    apart = np.hypot(*(one.centre - other.centre))
    return bool(apart < 0.25 * max(one.height, other.height) and 0.7 < one.height / other.height < 1.4)


def distinct(
    frames: Iterable[Alignment], most: int | None = None, same: Callable[[Alignment, Alignment], bool] = near
) -> list[Alignment]:
    """Of frames those of the highest scores, at `most` so many, and of several that are the `same` the best one."""
    kept: list[Alignment] = []
    for frame in sorted(frames, key=lambda frame: -frame.score):
        if len(kept) == most:
            break
        if not any(same(frame, other) for other in kept):
            kept.append(frame)
    return kept


class Pyramid:
    """A photo (H, W) at its size, at half of it, and so on: large faces are read from small photos, which is quick."""

    def __init__(self, grey: np.ndarray) -> None:
        self.levels = [grey]
        while min(self.levels[-1].shape) > 192:
            self.levels.append(reduce(self.levels[-1], 2.0))

    def level(self, reduction: float) -> np.ndarray:
        """The photo reduced by about as much, and no more."""
        return self.levels[int(np.clip(math.log2(max(reduction, 1e-9)), 0, len(self.levels) - 1))]

    def sample(self, matrix: np.ndarray, size: Size, reduction: float) -> np.ndarray:
        """`sample_affine` of the photo, from a level that is reduced by about so much."""
        level = self.level(reduction)
        ratio = np.array(level.shape[::-1]) / self.levels[0].shape[::-1]
        linear, shift = matrix[:, :2] * ratio[:, None], (matrix[:, 2] + 0.5) * ratio - 0.5
        return sample_affine(level, np.column_stack([linear, shift]), size)


def reduce(image: np.ndarray, reduction: float) -> np.ndarray:
    """An image (H, W) so many times smaller."""
    rows, columns = (max(1, round(n / reduction)) for n in image.shape)
    return shrink_quickly(image, (rows, columns)).astype(np.float64)
