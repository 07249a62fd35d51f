"""Albedo for the morphable head: skins under CC0, and on them brows, eyes and beards that the package draws itself."""

import numpy as np

from deep_lambertian.data.morphable import Frame, Morphable
from deep_lambertian.synthetic.heads import PEOPLE, Canvas, draw_people, head_albedo
from deep_lambertian.synthetic.scenes import FOOTPRINT, pixel_centres

TONE, SPREAD = 0.5, 0.2  # mean albedo, and the standard deviation of its logarithm: how light a skin is
MOUTH_SOCKET, INSIDE = 2, 0.2  # a part of the head, which is darker than skin by so much
DRAWN = 96  # pixels a side at which features are drawn
# What differs between the drawn features; all else is as it is on average, so that eyes lie on the head's eyes.
VARIED = (
    "brow_thick",
    "brow_len",
    "brow_dark",
    "brow_arch",
    "unibrow",
    "hair_tone",
    "iris_tone",
    "stubble",
    "moustache",
)
VARIED += tuple(name for name in PEOPLE if name.startswith("mole_"))
# What the skins have themselves.
LEFT_OUT = ("blush", "dark_circle", "fold", "nostril", "lip_tone", "blotch_a0", "blotch_a1", "blotch_a2", "blotch_a3")
# Where the drawn faces have eyes and mouth.
MEAN = {name: mean for name, (mean, _) in PEOPLE.items()}
DRAWN_FRAME = Frame(
    eyes=(1 - MEAN["eye_y"]) / 2, mouth=(1 - MEAN["mouth_y"]) / 2, apart=MEAN["eye_x"], middle=0.5, pitch=Frame().pitch
)


def draw_textures(head: Morphable, skins: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Albedos (count, M) of vertices: each a mixture of two skins, of any tone, with features."""
    rng = np.random.default_rng([seed, 11])
    even = head.texture(np.log(np.maximum(skins, 1e-3)))
    even = even - even.mean(axis=1, keepdims=True)
    pairs = np.stack([rng.choice(len(skins), 2, replace=False) for _ in range(count)])
    share = rng.random((count, 1)).astype(np.float32)
    mixed = share * even[pairs[:, 0]] + (1 - share) * even[pairs[:, 1]]
    tone = TONE * np.exp(SPREAD * rng.standard_normal((count, 1)))
    features = head.texture(draw_features(count, seed), DRAWN_FRAME)
    features[:, head.part == MOUTH_SOCKET] *= INSIDE
    return np.clip(tone * np.exp(mixed) * features, 0.01, 1).astype(np.float32)


def draw_features(count: int, seed: int) -> np.ndarray:
    """Brows, eyes and beards (count, DRAWN, DRAWN), as shares of the albedo of the skin."""
    people = draw_people(count, seed)
    fixed = {name: np.full((count, 1), MEAN[name], np.float32) for name in PEOPLE if name not in VARIED}
    fixed |= {name: np.zeros((count, 1), np.float32) for name in LEFT_OUT}
    # Nothing is behind a head that carries its texture, and no hair hangs over it.
    fixed |= {
        name: np.full((count, 1), 9.0, np.float32) for name in ("fringe", "side_hair", "cheek_w", "jaw_w", "brow_w")
    }
    fixed["chin_y"] = np.full((count, 1), 9.0, np.float32)
    fixed["fringe_bend"] = np.zeros((count, 1), np.float32)
    people |= fixed
    people["hair"] = people["skin"] * np.maximum(people["hair_tone"], 0.08)
    x, y = pixel_centres(DRAWN)
    canvas = Canvas(np.tile(x, (count, 1)), np.tile(y, (count, 1)), np.float32(FOOTPRINT * 2 / DRAWN))
    return (head_albedo(canvas, people) / people["skin"]).reshape(count, DRAWN, DRAWN)
