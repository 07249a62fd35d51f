"""Photos of one thing: where it lies in each of them, and how bright each is, as the model sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deep_lambertian.data.images import luminance
from deep_lambertian.faces.alignment import Alignment
from deep_lambertian.faces.find import NoFaceError, find_face, find_faces
from deep_lambertian.model import DLN
from deep_lambertian.photos.reach import Reach, reach_of
from deep_lambertian.surface import Surface, illuminate

DARK = 0.005  # a crop whose bright parts are darker than this shows nothing
BRIGHT = 90  # percentile by which brightness is told: that of the lit part, wherever the light comes from
LEAST = 12  # pixels of a model in which a face can be told from other things
STILL = 0.04  # frames that differ by less than this part of their height are of a camera and a face that did not move
Size = tuple[int, int]


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
        seen = float(np.percentile(where.crop(grey, model.shape), BRIGHT))
        if not seen > DARK:
            raise ValueError(
                f"{name}: expected a photo that shows something, got one that is black where the object should be "
                f"(its bright parts have {seen:.4f} of 1); give a brighter photo, or say where it is with --box"
            )
        brightness.append(seen)
    if alike:
        brightness = [float(np.median(brightness))] * len(brightness)
    each = zip(pictures, frames, brightness, strict=True)
    return [Photo(name, colour, where, wanted / seen) for (name, colour), where, seen in each], how


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
