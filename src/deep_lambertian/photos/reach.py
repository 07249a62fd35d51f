"""How far around the frame a new light goes on, in a photo.

The frame ends on the cheeks and on the forehead, which are lit alike on both sides of its edge: a factor that stopped
there would show. Beyond the edge the factor goes on and fades, where the photo goes on as it was within: what is of
another colour is hair, clothes or the wall, and is left as it is.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from deep_lambertian.faces.alignment import FRAME, Alignment
from deep_lambertian.support.resampling import average_areas

# In half frames from its middle: where the light begins to fade, where likeness counts in full, where nothing is left.
SOLID, EDGE, REACH = 0.85, 1.0, 1.3
# Differences of logarithms at which a pixel is half as much the same: of brightness, which shading changes, and of hue.
BRIGHTNESS, HUE = 0.6, 0.2
ROWS = 160  # of the frame, where the photo has more
SMOOTH = 0.008  # of the frame's height: what is smaller is noise


@dataclass(frozen=True)
class Reach:
    """The part of a photo that a new light may change: rows and columns; for each of its pixels the place in the frame,
    `u` and `v` in [−1, 1], brought to the frame where it is outside; and how much of the new light is for it.
    """

    where: tuple[slice, slice]
    u: np.ndarray
    v: np.ndarray
    share: np.ndarray

    def spread(self, gain: np.ndarray) -> np.ndarray:
        """A factor (h, w) of the frame as one of these pixels, which fades to 1 around it."""
        height, width = gain.shape
        source = [(self.v + 1) * height / 2 - 0.5, (self.u + 1) * width / 2 - 0.5]
        here = ndimage.map_coordinates(gain, source, order=1, mode="nearest")
        return (1 + self.share * (here - 1)).astype(np.float32)


def reach_of(colour: np.ndarray, alignment: Alignment) -> Reach:
    """What of a photo (H, W, 3) the frame and its surroundings are."""
    height, width = colour.shape[:2]
    square = REACH * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    corners = alignment.to_photo((square + 1) * FRAME[0] / 2 - 0.5)
    low, high = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int) + 1
    (left, top), (right, bottom) = np.maximum(low, 0), np.minimum(high, (width, height))
    where = slice(top, max(bottom, top)), slice(left, max(right, left))
    part, (u, v) = colour[where], _places(alignment, where)
    if not part.size:
        return Reach(where, u, v, u)
    # What is shared out is smooth: a large photo is looked at in coarse pixels, each the mean of its own.
    ratio = min(1, ROWS / alignment.height)
    coarse = max(1, round(ratio * part.shape[0])), max(1, round(ratio * part.shape[1]))
    share = _share(*(average_areas(each, coarse) for each in (part, u, v)), steps=ratio * alignment.matrix[:, :2])
    return Reach(where, np.clip(u, -1, 1), np.clip(v, -1, 1), average_areas(share, part.shape[:2]))


def _places(alignment: Alignment, where: tuple[slice, slice]) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels of the photo lie in the frame: from −1 at its left to 1 at its right, and from its top down."""
    rows, columns = (np.arange(each.start, each.stop, dtype=np.float32) for each in where)
    back = np.linalg.inv(alignment.matrix[:, :2])
    shift = -back @ alignment.matrix[:, 2]
    x, y = (
        np.float32(a) * columns + np.float32(b) * rows[:, None] + np.float32(c)
        for (a, b), c in zip(back, shift, strict=True)
    )
    return 2 * (x + 0.5) / FRAME[1] - 1, 2 * (y + 0.5) / FRAME[0] - 1


def _share(colour: np.ndarray, u: np.ndarray, v: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """How much of a new light is for each pixel of a picture (h, w, 3), `steps` (2, 2) of which are one of FRAME."""
    distance = np.cbrt(np.abs(u) ** 3 + np.abs(v) ** 3)
    outside = _smooth_step((distance - SOLID) / (EDGE - SOLID))
    unlike = outside * (1 - _likeness(colour, u, v, distance, steps))
    return _smooth_step((REACH - distance) / (REACH - SOLID)) * (1 - unlike)


def _likeness(colour: np.ndarray, u: np.ndarray, v: np.ndarray, distance: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """How like each pixel is to the one towards the frame's middle where the light begins to fade; 1 within."""
    width = SMOOTH * FRAME[0] * math.sqrt(abs(np.linalg.det(steps)))
    floor = 0.02 * max(float(np.quantile(colour, 0.95)), 1e-6)
    logs = np.log(ndimage.gaussian_filter(np.maximum(colour, 0), (width, width, 0), mode="nearest") + floor)
    inwards = (np.minimum(1, SOLID / np.maximum(distance, 1e-6)) - 1) * FRAME[0] / 2
    across, down = (inwards * (a * u + b * v) for a, b in steps)
    rows, columns = np.mgrid[: distance.shape[0], : distance.shape[1]]
    source = [rows + down, columns + across]
    there = [ndimage.map_coordinates(logs[..., c], source, order=1, mode="nearest") for c in range(3)]
    change = logs - np.stack(there, axis=-1)
    brightness = change.mean(axis=-1)
    hue = np.linalg.norm(change - brightness[..., None], axis=-1)
    apart = (brightness / BRIGHTNESS) ** 2 + (hue / HUE) ** 2
    return ndimage.gaussian_filter(1 / (1 + apart**2), 2 * width, mode="nearest")


def _smooth_step(t: np.ndarray) -> np.ndarray:
    t = np.clip(t, 0, 1)
    return t * t * (3 - 2 * t)
