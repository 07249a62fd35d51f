"""PNG files of 16 bits a number, grey or in colour: Pillow writes the former only."""

import struct
import zlib
from pathlib import Path

import numpy as np

from deep_lambertian.support.files import atomic_write

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2  # the format's colour types


def save_png16(path: str | Path, values: np.ndarray) -> None:
    """Write numbers in [0, 1], (H, W) or (H, W, 3), in 16 bits each; what is outside is brought to the nearest end."""
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
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR if values.ndim == 3 else GREY, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes(), 3)), (b"IEND", b"")
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
