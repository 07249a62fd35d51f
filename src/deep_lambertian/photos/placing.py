"""Photos of one thing: where it lies in each of them, how bright each is, as the model sees it, and how far around it a
new light goes on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import ndimage

from deep_lambertian.data.images import luminance
from deep_lambertian.faces.alignment import FRAME, Alignment
from deep_lambertian.faces.find import NoFaceError, find_face, find_faces
from deep_lambertian.model import DLN
from deep_lambertian.support.resampling import average_areas
from deep_lambertian.surface import Surface, illuminate

DARK = 0.005  # a crop whose bright parts are darker than this shows nothing
WHITE = 0.98  # of the brightest that a photo can have: light beyond it may have been cut off
EVEN = 0.02  # of its mean: a crop whose pixels differ by less is a wall, not a thing
BRIGHT = 90  # percentile by which brightness is told: that of the lit part, wherever the light comes from
LEAST = 12  # pixels of a model in which a face can be told from other things
STILL = 0.04  # frames that differ by less than this part of their height are of a camera and a face that did not move
# In half frames from its middle: where the light begins to fade, where likeness counts in full, where nothing is left.
SOLID, EDGE, REACH = 0.85, 1.0, 1.3
# Differences of logarithms at which a pixel is half as much the same: of brightness, which shading changes, and of hue.
BRIGHTNESS, HUE = 0.6, 0.2
ROWS = 160  # of the frame, where the photo has more
SMOOTH = 0.008  # of the frame's height: what is smaller is noise
Size = tuple[int, int]


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


@dataclass(frozen=True)
class Photo:
    """A photo in linear light (H, W, 3), where the model's frame lies in it, and what makes it as bright as others.

    `exposure` multiplies its intensities: nobody knows how long a camera has looked.
    """

    name: str
    colour: np.ndarray
    alignment: Alignment
    exposure: float

    @cached_property
    def grey(self) -> np.ndarray:
        return luminance(self.colour)

    @cached_property
    def reach(self) -> Reach:
        """The part of the photo that a new light may change."""
        return reach_of(self.colour, self.alignment)

    def crop(self, size: Size) -> np.ndarray:
        """The frame in colour, (h, w, 3), at the photo's own brightness."""
        return self.alignment.crop(self.colour, size)

    def seen(self, size: Size, mask: np.ndarray | None = None) -> np.ndarray:
        """How much each pixel of the frame (h, w) counts: what is white was brighter than the photo can tell, and does
        not; nor does what a `mask` (H, W) of the photo hides.
        """
        counts = (self.grey < WHITE).astype(np.float32)
        return self.alignment.crop(counts if mask is None else counts * mask, size)


def every_face(picture: np.ndarray, model: DLN) -> list[Alignment]:
    """The frames of all faces of a photo (H, W, 3), the largest first."""
    found = find_faces(luminance(picture), mean_image(model))
    if not found:
        raise NoFaceError(f"expected a photo with faces, found none in {picture.shape[1]}×{picture.shape[0]} pixels")
    return found


def mean_image(model: DLN) -> np.ndarray:
    """What the model takes for the most ordinary picture (h, w): the prior's surface under its mean light."""
    albedo, normals = Surface.unpack(np.asarray(model.params.prior.centre)).pictures(model.shape)
    return albedo * illuminate(normals, model.params.light_mean)


@dataclass(frozen=True)
class Placement:
    """How to find the thing in its photos: look for a face, near `box` (left, top, width, height) if it is given;
    or, without `align`, take the box, or all of the photo, as it is; or take `frame`, and look for nothing.
    """

    align: bool = True
    box: Sequence[float] | None = None
    frame: Alignment | None = None


def prepare_photos(
    pictures: Sequence[tuple[str, np.ndarray]], model: DLN, placement: Placement | None = None, *, alike: bool = False
) -> tuple[list[Photo], str]:
    """Where the thing lies in each photo, and how bright each is; and a sentence that says how it was found.

    Photos of the model's own size are taken as they are. `alike` photos share one exposure, as those with known lights
    must.
    """
    placement = placement or Placement()
    reference = mean_image(model)
    greys = [luminance(colour) for _, colour in pictures]
    if placement.frame is None:
        frames, how = place(greys, model.shape, reference, placement)
    else:
        frames = [placement.frame] * len(pictures)
        how = f"A face was found, {placement.frame.height:.0f} pixels high from brow to chin."
    wanted = float(np.percentile(reference, BRIGHT))
    brightness = []
    for (name, _), grey, where in zip(pictures, greys, frames, strict=True):
        crop = where.crop(grey, model.shape)
        seen = float(np.percentile(crop, BRIGHT))
        wrong = "black" if not seen > DARK else "white" if np.mean(crop >= WHITE) > 0.99 else ""
        wrong = wrong or ("even" if crop.std() < EVEN * crop.mean() else "")
        if wrong:
            raise ValueError(
                f"{name}: expected a photo that shows something, got one that is {wrong} where the object should be "
                f"(its bright parts have {seen:.4f} of 1); give another photo, or say where it is with --box"
            )
        brightness.append(seen)
    if alike:
        brightness = [float(np.median(brightness))] * len(brightness)
    bright = [wanted / seen if wanted > DARK else 1.0 for seen in brightness]  # a model of black things has no say
    return [
        Photo(name, colour, where, much) for (name, colour), where, much in zip(pictures, frames, bright, strict=True)
    ], how


def place(
    pictures: Sequence[np.ndarray], shape: Size, reference: np.ndarray, placement: Placement
) -> tuple[list[Alignment], str]:
    """Where the model's frame lies in each picture of the same thing, and a sentence that says how it was found.

    If nothing moved between the pictures they share the frame that fits best; a picture too dark for its face to be
    found takes that one too.
    """
    box = placement.box
    if not placement.align or (box is None and all(picture.shape[:2] == shape for picture in pictures)):
        how = "The picture was taken as it is, without looking for a face." if box is None else "The box was the frame."
        return [find_face(picture, reference, box, align=False) for picture in pictures], how
    if min(shape) < LEAST:
        raise ValueError(
            f"expected a model of at least {LEAST}×{LEAST} pixels to look for a face with, got one of "
            f"{shape[0]}×{shape[1]}; give photos that are already cropped, with --no-align"
        )
    found: list[Alignment | NoFaceError] = []
    for picture in pictures:
        try:
            found.append(find_face(picture, reference, box))
        except NoFaceError as error:
            found.append(error)
    there = [frame for frame in found if isinstance(frame, Alignment)]
    if not there:
        raise next(error for error in found if isinstance(error, NoFaceError))
    best = max(there, key=lambda frame: frame.score)
    still = max(float(np.abs(frame.corners - best.corners).max()) for frame in there) / best.height < STILL
    frames = [best if isinstance(frame, NoFaceError) or still else frame for frame in found]
    how = f"A face was found, {best.height:.0f} pixels high from brow to chin."
    if len(found) > 1:
        moved = "it did not move between them" if still else "each photo was aligned by itself"
        how = f"A face was found in {len(there)} of {len(found)} photos, {best.height:.0f} pixels high; {moved}."
    return frames, how


# ---- How far around the frame a new light goes on. The frame ends on the cheeks and on the forehead, which are lit
# alike on both sides of its edge: a factor that stopped there would show. Beyond the edge the factor goes on and fades,
# where the photo goes on as it was within: what is of another colour is hair, clothes or the wall, and is left alone.


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
