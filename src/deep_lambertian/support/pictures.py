"""Arrays as pictures: grey images, normals as colours, sheets of them with captions, and PNG files."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from deep_lambertian.support.files import atomic_write


def grey(image: np.ndarray, brightest: float = 1.0) -> np.ndarray:
    """Linear intensities (H, W) as 8-bit sRGB-like grey (H, W, 3); `brightest` becomes white."""
    values = np.clip(np.asarray(image, np.float64) / brightest, 0, 1) ** (1 / 2.2)
    return np.repeat(np.round(255 * values).astype(np.uint8)[..., None], 3, axis=-1)


def normal_colours(normals: np.ndarray) -> np.ndarray:
    """Normals (H, W, 3) as colours, (n+1)/2: what faces the viewer is light blue."""
    return np.round(255 * np.clip((np.asarray(normals, np.float64) + 1) / 2, 0, 1)).astype(np.uint8)


def sheet(rows: Sequence[Sequence[tuple[str, np.ndarray]]], tile: int = 128) -> Image.Image:
    """A contact sheet: rows of (caption, (H, W, 3) 8-bit picture), each enlarged to `tile` pixels without smoothing."""
    gap, caption, font = 10, 18, ImageFont.load_default(12)
    width = max(len(row) for row in rows) * (tile + gap) + gap
    canvas = Image.new("RGB", (width, len(rows) * (tile + caption + gap) + gap), "white")
    pen = ImageDraw.Draw(canvas)
    for r, row in enumerate(rows):
        top = gap + r * (tile + caption + gap)
        for c, (text, picture) in enumerate(row):
            left = gap + c * (tile + gap)
            pen.text((left, top), text, fill="black", font=font)
            picture = Image.fromarray(picture).resize((tile, tile), Image.Resampling.NEAREST)
            canvas.paste(picture, (left, top + caption))
    return canvas


def thumbnail(picture: np.ndarray, most: int = 480) -> np.ndarray:
    """An 8-bit picture, or a smaller one whose longer side has at most so many pixels."""
    image = Image.fromarray(picture)
    image.thumbnail((most, most), reducing_gap=1.0)  # halved first, which takes a third of the time
    return np.asarray(image)


def save_png(path: str | Path, picture: Image.Image, compress_level: int = 6) -> None:
    with atomic_write(path) as file:
        picture.save(file, "PNG", compress_level=compress_level)


def save_png16(path: str | Path, values: np.ndarray) -> None:
    """Write numbers in [0, 1], (H, W) or (H, W, 3), in 16 bits each; what is outside is brought to the nearest end.

    Pillow writes such files in grey only.
    """
    with atomic_write(path) as file:
        file.write(encode_png16(values))


def encode_png16(values: np.ndarray) -> bytes:
    """The bytes of the file."""
    if values.ndim not in (2, 3) or values.shape[2:] not in ((), (3,)) or values.size == 0:
        raise ValueError(f"expected a picture (H, W) or (H, W, 3), got shape {values.shape}")
    numbers = np.round(np.clip(np.asarray(values, np.float64), 0, 1) * 65535).astype(">u2")
    height, width = numbers.shape[:2]
    rows = numbers.reshape(height, -1).view(np.uint8)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 16, 2 if values.ndim == 3 else 0, 0, 0, 0)  # colour or grey
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes(), 3)), (b"IEND", b"")
    whole = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(whole)
