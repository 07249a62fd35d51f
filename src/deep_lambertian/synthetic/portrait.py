"""A photo that nobody took: a synthetic head, larger than the model's frame, in colour before a background."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from deep_lambertian.data.images import LUMINANCE
from deep_lambertian.faces.alignment import ASPECT, FRAME, Alignment
from deep_lambertian.support.resampling import average_areas
from deep_lambertian.synthetic.heads import draw_people, face_canvas, face_surface, head_inside, logistic
from deep_lambertian.synthetic.scenes import draw_scenes

ZOOM = 0.55  # the frame's share of the square on which the whole head is drawn
FILL = 0.06  # light from the camera, which keeps shadows from being black
SKIN, HAIR = np.array([1.28, 0.94, 0.78], np.float32), np.array([1.1, 0.98, 0.9], np.float32)


@dataclass(frozen=True)
class Portrait:
    """A photo in linear light (H, W, 3), and the truth about it: where the frame lies, and what is in it.

    `albedo` (h, w) and `normals` (h, w, 3) are those of the frame, `light` (3,) is the one that was used.
    """

    photo: np.ndarray
    alignment: Alignment
    albedo: np.ndarray
    normals: np.ndarray
    light: np.ndarray


def draw_portrait(
    seed: int = 0, light: tuple[float, float, float] = (0.45, 0.25, 0.8), size: tuple[int, int] = (480, 640)
) -> Portrait:
    """A head of about two thirds of the photo's height, off its middle, lit from one side, with shadows and noise."""
    height, width = size
    rng = np.random.default_rng([seed, 7])
    side = round(1.1 * height)  # of the square on which the head is drawn
    person = draw_people(1, seed)
    whole = person | {"zoom": person["zoom"] * np.float32(ZOOM), "crown_y": np.full((1, 1), 1.7, np.float32)}
    lights = np.array([light], np.float32)
    scene = draw_scenes(face_surface, whole, 1, side, seed, lights=lights, cast_shadows=True)
    inside = head_inside(face_canvas(whole, side)[0], whole)[0].reshape(side, side)
    head = logistic(np.clip(inside / 0.03, -30, 30))
    # Whatever is darker than skin, brows, beard and hair, is less red.
    skin = np.clip((scene.albedo[0] / float(person["skin"][0, 0]) - 0.3) / 0.4, 0, 1)[..., None]
    tint = skin * SKIN / (SKIN @ LUMINANCE) + (1 - skin) * HAIR / (HAIR @ LUMINANCE)
    columns = round(side * ASPECT)
    lit = scene.images[0, 0] + FILL * scene.albedo[0] * scene.normals[0, ..., 2]
    layer = average_areas(lit[..., None] * tint, (side, columns))
    alpha = average_areas(head, (side, columns))[..., None]
    photo = _background(rng, size)
    left = round(width * rng.uniform(0.42, 0.58) - columns / 2)
    top = round((height - side) / 2 + 0.04 * height)
    rows, cols = slice(max(top, 0), min(top + side, height)), slice(max(left, 0), min(left + columns, width))
    inner = slice(rows.start - top, rows.stop - top), slice(cols.start - left, cols.stop - left)
    photo[rows, cols] += alpha[inner] * (layer[inner] - photo[rows, cols])
    photo += 0.004 * rng.standard_normal(photo.shape).astype(np.float32)
    margin = (1 - ZOOM) / 2
    frame = Alignment.from_box((left + columns * margin, top + side * margin, columns * ZOOM, side * ZOOM))
    truth = draw_scenes(face_surface, person, 1, 8 * FRAME[0], seed, lights=lights)
    return Portrait(np.clip(photo, 0, 1), frame, truth.albedo[0], truth.normals[0], lights[0])


def _background(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """A wall with soft stains, and a few things with edges on it."""
    height, width = size
    stains = 0.1 * height * ndimage.gaussian_filter(rng.standard_normal(size), height / 20)
    wall = (0.2 + 0.05 * stains)[..., None] * rng.uniform(0.8, 1.2, 3)
    for _ in range(6):
        x, y = rng.integers(0, width), rng.integers(0, height)
        w, h = rng.integers(width // 20, width // 5), rng.integers(height // 12, height // 3)
        wall[y : y + h, x : x + w] = rng.uniform(0.05, 0.5) * rng.uniform(0.6, 1.2, 3)
    return ndimage.gaussian_filter(np.clip(wall, 0.02, 0.9), (1.5, 1.5, 0)).astype(np.float32)
