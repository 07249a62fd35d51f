"""A picture of how far a training has come: a few objects as the model sees them, and samples of its prior."""

import numpy as np
from PIL import Image

from deep_lambertian.support.pictures import grey, normal_colours, sheet

OBJECTS = 8


def training_sheet(
    names: list[str],
    photos: np.ndarray,
    albedo: np.ndarray,
    normals: np.ndarray,
    sampled: tuple[np.ndarray, np.ndarray],
) -> Image.Image:
    """Rows of photos (S, H, W), albedo (S, H, W) and normals (S, H, W, 3), then those of samples of the prior."""
    shown = range(min(OBJECTS, len(names)))
    bright = float(max(np.quantile(albedo, 0.99), 1e-3))
    rows = [
        [(names[i][:18], grey(photos[i], max(float(photos[i].max()), 1e-3))) for i in shown],
        [("albedo", grey(albedo[i], bright)) for i in shown],
        [("normals", normal_colours(normals[i])) for i in shown],
    ]
    own_albedo, own_normals = sampled
    count = range(min(OBJECTS, len(own_albedo)))
    rows.append([("prior: albedo", grey(own_albedo[i], bright)) for i in count])
    rows.append([("prior: normals", normal_colours(own_normals[i])) for i in count])
    return sheet(rows, tile=96)
