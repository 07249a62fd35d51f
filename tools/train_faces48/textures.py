"""Albedo for the morphable head, which has none: skins, brows, eyes, lips and beards that the package draws itself."""

import numpy as np

from deep_lambertian.data.morphable import Frame, Morphable
from deep_lambertian.synthetic.heads import PEOPLE, Canvas, draw_people, head_albedo
from deep_lambertian.synthetic.scenes import FOOTPRINT, pixel_centres

TONE, SPREAD = 0.5, 0.2  # mean albedo, and the standard deviation of its logarithm: how light a skin is
MOUTH_SOCKET, INSIDE = 2, 0.2  # a part of the head, which is darker than skin by so much
DRAWN = 96  # pixels a side at which they are drawn
# What differs between the drawn skins; all else is as it is on average, so that eyes and mouths lie on the head's own.
VARIED = ("brow_thick", "brow_len", "brow_dark", "brow_arch", "brow_slant", "unibrow", "hair_tone", "iris_tone")
VARIED += ("stubble", "moustache", "lip_tone", "upper_lip", "lower_lip", "blush", "dark_circle", "fold", "nostril")
VARIED += tuple(name for name in PEOPLE if name.startswith(("mole_", "blotch_")))
# Nothing is behind a head that carries its texture, and no hair hangs over it.
BEYOND = ("fringe", "side_hair", "cheek_w", "jaw_w", "brow_w", "chin_y")
# Where the drawn faces have eyes and mouth.
MEAN = {name: mean for name, (mean, _) in PEOPLE.items()}
DRAWN_FRAME = Frame(
    eyes=(1 - MEAN["eye_y"]) / 2, mouth=(1 - MEAN["mouth_y"]) / 2, apart=MEAN["eye_x"], middle=0.5, pitch=Frame().pitch
)


def draw_textures(head: Morphable, count: int, seed: int = 0) -> np.ndarray:
    """Albedos (count, M) of vertices, of any tone."""
    tone = TONE * np.exp(SPREAD * np.random.default_rng([seed, 11]).standard_normal((count, 1)))
    painted = head.texture(draw_skins(count, seed), DRAWN_FRAME)
    painted[:, head.part == MOUTH_SOCKET] *= INSIDE
    return np.clip(tone * painted, 0.01, 1).astype(np.float32)


def draw_skins(count: int, seed: int) -> np.ndarray:
    """Skins and what is on them (count, DRAWN, DRAWN), as shares of each one's own tone."""
    people = draw_people(count, seed)
    people |= {name: np.full((count, 1), MEAN[name], np.float32) for name in PEOPLE if name not in VARIED}
    people |= {name: np.full((count, 1), 9.0, np.float32) for name in BEYOND}
    people["fringe_bend"] = np.zeros((count, 1), np.float32)
    people["hair"] = people["skin"] * np.maximum(people["hair_tone"], 0.08)
    x, y = pixel_centres(DRAWN)
    canvas = Canvas(np.tile(x, (count, 1)), np.tile(y, (count, 1)), np.float32(FOOTPRINT * 2 / DRAWN))
    return (head_albedo(canvas, people) / people["skin"]).reshape(count, DRAWN, DRAWN)
