"""What the nets of `faces.find` learn from: faces laid into pictures without faces.

Faces of faces48 (UTKFace and LFW) are laid into backgrounds at a random offset from a net's frame; the nets learn the
way back, and to tell them from backgrounds and from faces that lie elsewhere. A crop's own edge would give its frame
away, so what is laid in ends at random places inside or beyond the crop, hard or soft: only the face can tell.
"""

import io
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

from deep_lambertian.data.sources import open_source
from deep_lambertian.faces.alignment import ASPECT
from deep_lambertian.faces.find import MARGIN, TURN, Look, contrast
from deep_lambertian.support.progress import track

Samples = tuple[np.ndarray, np.ndarray, np.ndarray]  # images (n, H, W), whether a face, ways to it (n, 4)

NEAR = np.array([0.11, 0.11, 0.2 * TURN, 0.4 * TURN])  # how far (right, down, growth, turn) a net sees a face


# --- pictures ----------------------------------------------------------------------------------------------------

HELD_OUT = 1000  # faces of faces48 that no training sees
STEREO = "cat/cat.0 cat/cat.4 cat/cat.8 gray/gray.0 gray/gray.4 gray/gray.8 chrome/chrome.8 chrome/chrome.0"
STEREO += " chrome/chrome.4"
# Some of scikit-image's pictures without a face; others, such as `moon`, are left for tests.
PICTURES = tuple(f"{name}.png" for name in ("brick", "chelsea", "coffee", "coins", "grass", "motorcycle_left", "page"))
PICTURES += ("rocket.jpg", "horse.png", "ihc.png")


def faces48(data: Path, held_out: bool = False) -> np.ndarray:
    """Faces (n, 48, 48) of eight bits: those for training, or those kept from it."""
    images = np.load(data / "faces48.npz")["images"]
    order = np.random.default_rng(0).permutation(len(images))
    return images[order[:HELD_OUT] if held_out else order[HELD_OUT:]]


def aloi_images(data: Path, objects: Sequence[int], lights: Sequence[int]) -> list[np.ndarray]:
    """Whole pictures (144, 192) of ALOI's first camera."""
    wanted = {f"png4/{number}/{number}_l{light}c1.png" for number in objects for light in lights}
    with open_source(data / "aloi_red4_ill.tar") as source:
        return [_grey(source.read(name)) for name in source.names if name in wanted]


def backgrounds(data: Path) -> list[np.ndarray]:
    """Pictures without faces: 40 objects of ALOI, photometric stereo, pictures of scikit-image, and textures."""
    from skimage.data import data_dir

    found = aloi_images(data, range(1, 41), (1, 3, 5, 8))
    with open_source(data / "psmImages.zip") as source:
        for name in STEREO.split():
            found += _smaller_too(_grey(source.read(f"psmImages/{name}.tga")))
    for name in PICTURES:
        # There are few of them, and they are most like what cameras see.
        found += _smaller_too(_grey((Path(data_dir) / name).read_bytes())) * 3
    for i in range(40):
        rng = np.random.default_rng(i)
        kinds = ("smooth", "edges", "edges", "noise" if i % 4 else "gradient")
        found += [texture(rng, (300, 400), kind).astype(np.float32) for kind in kinds]
    return found


def _grey(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert("L"), np.float32) / 255


def _smaller_too(image: np.ndarray) -> list[np.ndarray]:
    """The image, and halves of it, so that large parts can be seen at small sizes."""
    found = [image.astype(np.float32)]
    while min(found[-1].shape) > 120:
        rows, columns = found[-1].shape
        half = Image.fromarray(found[-1]).resize((columns // 2, rows // 2), Image.Resampling.BOX)
        found.append(np.asarray(half))
    return found


# --- inputs ------------------------------------------------------------------------------------------------------


def offsets(rng: np.random.Generator, near: bool) -> np.ndarray:
    """A random way (right, down, growth, turn) to a face: one that a net is to answer, or one it is to call no face."""
    if near:
        size = rng.choice([1.0, 0.35])
        return rng.uniform(-1, 1, 4) * NEAR * size
    way = rng.uniform(-1, 1, 4) * [0.15, 0.15, 0.25 * TURN, 0.4 * TURN]
    kind = rng.integers(4)
    if kind == 0:
        turn = rng.uniform(0, 2 * math.pi)
        way[:2] = rng.uniform(0.3, 0.9) * np.array([math.cos(turn), math.sin(turn)])
    elif kind == 1:
        way[2] = TURN * rng.choice([-1, 1]) * rng.uniform(0.5, 1.2)
        way[:2] = rng.uniform(-0.4, 0.4, 2)
    elif kind == 2:
        way[3] = TURN * rng.choice([-1, 1]) * rng.uniform(1.0, math.pi)
    else:
        way[2], way[:2] = TURN * rng.uniform(-1.2, 1.2), rng.choice([-1, 1], 2) * rng.uniform(0.2, 0.7, 2)
        if np.hypot(*way[:2]) < 0.35:
            way[0] += math.copysign(0.3, way[0])
    return way


def scene_patch(
    rng: np.random.Generator, face: np.ndarray | None, way: np.ndarray, ground: np.ndarray, look: Look
) -> np.ndarray:
    """Intensities of a net's input, and of a margin, with a face (any size, the frame's content) at `way` from it."""
    margin = round(MARGIN * look.rows)
    size = tuple(n + 2 * margin for n in look.input)
    y, x = np.mgrid[: size[0], : size[1]]
    x, y = (x - (size[1] - 1) / 2) / look.rows, (y - (size[0] - 1) / 2) / look.rows
    image = background_patch(rng, ground, size)
    if face is not None:
        growth, turn = math.exp(way[2] / TURN), way[3] / TURN
        dx, dy = (x - way[0]) / growth, (y - way[1]) / growth
        u = (math.cos(turn) * dx + math.sin(turn) * dy) / ASPECT + 0.5
        v = math.cos(turn) * dy - math.sin(turn) * dx + 0.5
        image = lay_in(rng, image, face, u, v, 1 / look.rows, lambda seen: light(rng, seen, x, y))
    image = np.clip(image, 0, None) * math.exp(rng.uniform(-1.5, 0.3))
    if rng.random() < 0.4:
        image = ndimage.gaussian_filter(image, rng.uniform(0.3, 0.025 * look.rows), mode="nearest")
    return image + rng.normal(0, rng.choice([0.002, 0.01]), image.shape) * image.mean()


def lay_in(
    rng: np.random.Generator,
    image: np.ndarray,
    face: np.ndarray,
    u: np.ndarray,
    v: np.ndarray,
    pixel: float,
    lit: Callable[[np.ndarray], np.ndarray] = lambda seen: seen,
) -> np.ndarray:
    """The image with a face in it, whose frame is (u, v) in [0, 1]; it ends, hard or soft, near the frame's edges.

    Never just there: beyond a crop its edge is continued or mirrored. `pixel` is one of the image's, in frame heights.
    """
    rows, columns = face.shape
    mode = "nearest" if rng.random() < 0.5 else "reflect"
    seen = ndimage.map_coordinates(face, [v * rows - 0.5, u * columns - 0.5], order=1, mode=mode, output=np.float32)
    left, top, right, bottom = rng.uniform(-0.14, 0.08, 4) if rng.random() < 0.8 else rng.uniform(-0.5, 0, 4)
    depth = np.minimum(np.minimum(u - left, 1 - right - u), np.minimum(v - top, 1 - bottom - v))
    soft = rng.uniform(0.02, 0.15) if rng.random() < 0.5 else 0.5 * pixel
    return image + np.clip(depth / soft + 0.5, 0, 1) * (lit(seen) - image)


def light(rng: np.random.Generator, face: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The face with another tone curve and in another light: brighter to one side, and bent across the face."""
    slope, bend = rng.normal(0, 0.9, 2), rng.normal(0, 0.8, 2)
    field = slope[0] * x + slope[1] * y + bend[0] * x * x + bend[1] * y * y
    return rng.uniform(0.5, 1) * np.maximum(face, 0.003) ** rng.uniform(0.6, 2.0) * np.exp(field)


def background_patch(rng: np.random.Generator, ground: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """A patch of a background, anywhere, at any size, turned and mirrored at random."""
    least = min(ground.shape)
    span = math.exp(rng.uniform(math.log(min(24, least)), math.log(1.3 * least)))
    step, turn = span / size[0], rng.uniform(-math.pi, math.pi) if rng.random() < 0.5 else rng.normal(0, 0.2)
    centre = [rng.uniform(0, n) for n in ground.shape]
    y, x = np.mgrid[: size[0], : size[1]]
    x, y = (x - size[1] / 2) * step * rng.choice([-1, 1]), (y - size[0] / 2) * step
    source = [centre[0] + math.sin(turn) * x + math.cos(turn) * y, centre[1] + math.cos(turn) * x - math.sin(turn) * y]
    # A background is stored at its size and at smaller ones, so that nothing is passed over.
    return ndimage.map_coordinates(ground, source, order=1, mode="mirror", output=np.float32)


def texture(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Backgrounds that need no data: clouds, edges, a slope of brightness, and noise."""
    height, width = shape
    y, x = np.mgrid[:height, :width]
    if kind == "smooth":
        layers = [w * s * ndimage.gaussian_filter(rng.normal(size=shape), s) for w, s in ((0.5, 4), (1, 12), (2, 40))]
        total = np.sum(layers, axis=0)
        image = rng.uniform(0.2, 0.7) + 0.15 * (total - total.mean()) / total.std()
    elif kind == "edges":
        image = np.full(shape, rng.uniform(0.2, 0.7))
        for _ in range(14):
            turn = rng.uniform(0, math.pi)
            distance = x * math.cos(turn) + y * math.sin(turn)
            image += (distance > rng.uniform(distance.min(), distance.max())) * rng.normal(0, 0.12)
        for _ in range(10):
            left, top = rng.integers(0, width - 20), rng.integers(0, height - 20)
            wide, high = rng.integers(15, width // 2), rng.integers(15, height // 2)
            image[top : top + high, left : left + wide] = rng.uniform(0.1, 0.9)
        image = ndimage.gaussian_filter(image, rng.uniform(0.5, 3))
    elif kind == "gradient":
        turn = rng.uniform(0, 2 * math.pi)
        image = 0.5 + 0.7 * (math.cos(turn) * (x / width - 0.5) + math.sin(turn) * (y / height - 0.5))
    else:
        image = rng.uniform(0.2, 0.7) + 0.12 * rng.normal(size=shape)
    return np.clip(image + 0.01 * rng.normal(size=shape), 0, 1)


TEXTURES = ("smooth", "edges", "gradient", "noise")


def make_samples(
    seed: int, count: int, faces: np.ndarray, grounds: Sequence[np.ndarray], look: Look, share: float = 0.55
) -> Samples:
    """Random inputs of a net: faces (a `share` of them) near its frame, backgrounds, and faces elsewhere."""
    rng = np.random.default_rng(seed)
    margin = round(MARGIN * look.rows)
    images = np.zeros((count, *look.input), np.float16)
    labels, ways = np.zeros(count, bool), np.zeros((count, 4), np.float32)
    for i in range(count):
        labels[i] = rng.random() < share
        face = faces[rng.integers(len(faces))].astype(np.float32) / 255
        face = face[:, ::-1] if rng.random() < 0.5 else face
        ways[i] = offsets(rng, bool(labels[i]))
        alone = not labels[i] and rng.random() < 0.5
        ground = grounds[int(rng.integers(len(grounds)))]
        patch = scene_patch(rng, None if alone else face, ways[i], ground, look)
        images[i] = contrast(patch, look.rows)[margin:-margin, margin:-margin]
    return images, labels, ways


def make_many(
    seed: int, count: int, faces: np.ndarray, grounds: Sequence[np.ndarray], look: Look, workers: int
) -> Samples:
    """The same samples however many processes make them: each two thousand have their own seed."""
    parts = range(seed, seed + math.ceil(count / PART))
    with ProcessPoolExecutor(workers, get_context("spawn"), _remember, (faces, list(grounds), look)) as pool:
        waiting = [pool.submit(_make_part, part) for part in parts]
        made = [part.result() for part in track(waiting, f"making inputs of {look.rows} rows")]
    images, labels, ways = (np.concatenate(column) for column in zip(*made, strict=True))
    return images, labels, ways


PART = 2000
_material: list[Any] = []  # what a worker process makes samples of, sent once and not with every part


def _remember(*material: Any) -> None:
    _material[:] = material


def _make_part(seed: int) -> Samples:
    return make_samples(seed, PART, *_material)
