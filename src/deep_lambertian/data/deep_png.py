"""PNG files in colour, or with transparency, of 16 bits a number, of which Pillow reads the upper eight alone."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np

MOST_SIDE = 2**15 - 1  # pixels: what is undone of a file's filters takes time with its sides, one beyond all measure
CHANNELS = {2: 3, 4: 2, 6: 4}  # of PNG's kinds of colour: red, green, blue; grey, alpha; red, green, blue, alpha


def read_deep_png(data: bytes) -> np.ndarray:
    """The numbers of 16 bits, (H, W) or (H, W, 3), without transparency; a ValueError where the file is damaged."""
    packed = b"".join(body for kind, body in _chunks(data) if kind == b"IDAT")
    width, height, _, colour, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if interlaced:
        raise ValueError("expected one of 16 bits that is not interlaced; save it without interlacing")
    if not (1 <= width <= MOST_SIDE and 1 <= height <= MOST_SIDE):
        raise ValueError(f"expected 1 to {MOST_SIDE} pixels a side in 16 bits, got {width}×{height}")
    channels = CHANNELS[colour]
    length = height * (1 + 2 * channels * width)
    rows = zlib.decompressobj().decompress(packed, length)
    if len(rows) != length:
        raise ValueError(f"expected {length} bytes of pixels, got {len(rows)}")
    filtered = np.frombuffer(rows, np.uint8).reshape(height, -1)
    numbers = _unfilter(filtered[:, 0], filtered[:, 1:].reshape(height, width, 2 * channels)).view(">u2")
    seen = numbers[..., :3] if channels > 2 else numbers[..., 0]
    return seen.astype(np.uint16)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IDAT" and zlib.crc32(kind + body).to_bytes(4, "big") != data[at + 8 + length : at + 12 + length]:
            raise ValueError("a part of the pixels is not as it was written")
        yield kind, body
        at += 12 + length


def _unfilter(kinds: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Bytes (H, W, B) from their differences to a guess from the pixels to the left, above, and above to the left.

    All pixels on a diagonal are guessed at once: none of them is a neighbour of another.
    """
    height, width, _ = rows.shape
    if not np.any(kinds):
        return np.ascontiguousarray(rows)
    found = np.zeros((height + 1, width + 1, rows.shape[2]), np.int16)
    for diagonal in range(height + width - 1):
        r = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        c = diagonal - r
        left, above, corner = found[r + 1, c], found[r, c + 1], found[r, c]
        far = np.abs(above - corner), np.abs(left - corner), np.abs(left + above - 2 * corner)
        paeth = np.where((far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], above, corner))
        guess = np.choose(kinds[r][:, None], [np.int16(0), left, above, (left + above) >> 1, paeth])
        found[r + 1, c + 1] = (rows[r, c] + guess) & 255
    return found[1:, 1:].astype(np.uint8)
