"""Pictures: files to arrays of linear light, photos of one thing, and arrays to pictures and PNG files."""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from deep_lambertian.data.dataset import Skipped
from deep_lambertian.data.sources import Source, SourceError
from deep_lambertian.support.files import atomic_write

FORMATS = ("PPM", "PNG", "JPEG", "TGA", "TIFF", "BMP", "GIF", "WEBP")
SUFFIXES = (".pgm", ".ppm", ".pbm", ".pnm", ".png", ".jpg", ".jpeg", ".tga", ".tif", ".tiff", ".bmp", ".gif", ".webp")
MOST_PIXELS = 100_000_000  # a hundred megapixels: 400 MB as floats
LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)  # of linear sRGB (ITU-R BT.709)


class ImageError(ValueError):
    """A file that is no image, or not one that can be used."""


# ---- Reading


def is_image_name(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def decode(data: bytes, name: str = "image", *, srgb: bool = True, colour: bool = False) -> np.ndarray:
    """The intensities in [0, 1], (H, W) or (H, W, 3), of an image of 8 or 16 bits, grey, colour or palette.

    It is turned upright by its EXIF tag. `srgb` makes the numbers linear; it is off for the paper's databases, which
    are used as they are. Colour becomes luminance unless `colour` keeps it. Transparency is not looked at.
    """
    if not data:
        raise ImageError(f"{name}: expected an image, got an empty file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below
            warnings.filterwarnings("ignore", message=".*(EXIF|metadata|tag|Corrupt|Truncated).*")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise ImageError(f"{name}: expected at most {MOST_PIXELS} pixels, got {width * height}")
                deep = _is_deep(image)
                if deep and image.format == "PNG":
                    values = _deep_numbers(image, data)
                else:
                    image.load()
                    values = _numbers(_upright(image), name)
                    if deep:
                        warnings.warn(f"{name}: of its 16 bits the upper 8 are read; a PNG is read whole", stacklevel=2)
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: expected an image ({', '.join(FORMATS)}), got something else") from error
    except Image.DecompressionBombError as error:  # Pillow's own limit, far above ours
        got = re.findall(r"[0-9]+", str(error))[:1] or ["more"]
        raise ImageError(f"{name}: expected at most {MOST_PIXELS} pixels, got {got[0]}") from error
    except Exception as error:  # Pillow's decoders raise many kinds of errors on damaged files
        raise ImageError(f"{name}: a damaged image ({error or type(error).__name__})") from error
    if values.dtype == np.uint8:  # by a table of all tones: powers of millions of numbers take long
        tones = np.arange(256, dtype=np.float32) / 255
        values = (srgb_to_linear(tones) if srgb else tones)[values]
    elif not np.all(np.isfinite(values)):
        raise ImageError(f"{name}: expected finite numbers, got some that are not")
    elif srgb:
        values = srgb_to_linear(values)
    if not colour:
        values = luminance(values)
    elif values.ndim == 2:
        values = np.repeat(values[..., None], 3, axis=-1)
    return np.ascontiguousarray(values, np.float32)


def read_image(
    source: Source, name: str, skipped: list[Skipped], *, srgb: bool, colour: bool = False
) -> np.ndarray | None:
    """The pixels of a source's file as `decode` has them; None where it cannot be read, which `skipped` is told."""
    try:
        return decode(source.read(name), name, srgb=srgb, colour=colour)
    except (ImageError, SourceError) as error:
        skipped.append(Skipped(name, f"unreadable: {error}"))
        return None


def image_shape(size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width, of which a single number is both."""
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size: expected at least 1 pixel, got {height}×{width}")
    return height, width


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a damaged EXIF block says nothing about which way is up
        return image


def _is_deep(image: Image.Image) -> bool:
    """Whether Pillow would drop the lower half of numbers of 16 bits, as it does in colour and with transparency."""
    kept = image.mode in ("F", "I") or image.mode.startswith("I;16")
    return not kept and any(word in repr(getattr(image, "tile", "")) for word in (";16", "65535"))


def _deep_numbers(image: Image.Image, data: bytes) -> np.ndarray:
    """Values in [0, 1], (H, W) or (H, W, 3), of a PNG of 16 bits, turned upright channel by channel."""
    from deep_lambertian.data.deep_png import read_deep_png

    channels = []
    found = read_deep_png(data)
    for numbers in np.moveaxis(np.atleast_3d(found), -1, 0):
        channel = Image.fromarray(np.ascontiguousarray(numbers))
        channel.info = dict(image.info)
        channels.append(np.asarray(_upright(channel)))
    values = np.stack(channels, axis=-1).astype(np.float32) / 65535
    return values[..., 0] if found.ndim == 2 else values


def _numbers(image: Image.Image, name: str) -> np.ndarray:
    """Bytes or values in [0, 1], (H, W) or (H, W, 3)."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N"):
        return np.asarray(image).astype(np.float32) / 65535
    if image.mode == "I":  # Pillow reads 16-bit PGM and some 16-bit PNG so
        values = np.asarray(image).astype(np.float32)
        if values.min(initial=0) < 0 or values.max(initial=0) > 65535:
            raise ImageError(f"{name}: expected 8 or 16 bits a number, got {values.min():g} to {values.max():g}")
        return values / 65535
    if image.mode == "F":
        values = np.asarray(image, np.float32)
        if values.min(initial=0) < 0 or values.max(initial=0) > 1:
            raise ImageError(f"{name}: expected numbers in [0, 1], got {values.min():g} to {values.max():g}")
        return values
    image.info.pop("transparency", None)  # of which Pillow would warn
    return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))


def luminance(image: np.ndarray) -> np.ndarray:
    """The brightness (H, W) of linear colours (H, W, 3); what is grey stays as it is."""
    return image @ LUMINANCE if image.ndim == 3 else image


def srgb_to_linear(values: np.ndarray) -> np.ndarray:
    """The transfer function of IEC 61966-2-1."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4).astype(np.float32)


def linear_to_srgb(values: np.ndarray) -> np.ndarray:
    """Its inverse; what lies outside [0, 1] is clipped."""
    values = np.clip(values, 0, 1)
    return np.where(values <= 0.0031308, values * 12.92, 1.055 * values ** (1 / 2.4) - 0.055).astype(np.float32)


# ---- Photos of one thing, by the same camera


def read_photos(paths: Sequence[str | Path], *, srgb: bool = True, colour: bool = True) -> list[tuple[str, np.ndarray]]:
    """Names and linear colours of photos of the same thing, which must be of one size."""
    if not paths:
        raise ValueError("expected at least one photo, got none")
    found = []
    for path in map(Path, paths):
        if not path.is_file():
            raise ValueError(f"{path}: expected a photo, found {'a folder' if path.is_dir() else 'nothing'}")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        found.append((path.name, decode(data, str(path), srgb=srgb, colour=colour)))
    one_size([(name, image.shape) for name, image in found], "photos")
    return found


def read_mask(path: str | Path, shape: tuple[int, int]) -> np.ndarray:
    """A picture of the photos' `shape` that is white where their pixels count, as (H, W) in [0, 1]."""
    mask = some_white(decode(Path(path).read_bytes(), str(path), srgb=False), path)
    if mask.shape != shape:
        (h, w), (oh, ow) = shape, mask.shape
        raise ValueError(f"{path}: expected a mask of the photos' size, {w}×{h}, got {ow}×{oh}")
    return mask


def some_white(mask: np.ndarray, name: object) -> np.ndarray:
    """The mask as it is, or a ValueError where it would leave nothing."""
    if not mask.max() > 0.5:
        raise ValueError(f"{name}: expected a mask with some white in it, got none")
    return mask


def one_size(sizes: Sequence[tuple[str, tuple[int, ...]]], label: str) -> None:
    """Refuse images of the same thing, by name and shape, that are not all of one size."""
    if different := [(name, shape) for name, shape in sizes if shape[:2] != sizes[0][1][:2]]:
        (first, (h, w, *_)), (other, (oh, ow, *_)) = sizes[0], different[0]
        raise ValueError(
            f"{label}: expected images of one size, got {first!r} of {w}×{h} and {other!r} of {ow}×{oh}; "
            "images of one object must show it in the same place"
        )


# ---- Arrays as pictures: grey images, normals as colours, sheets of them with captions, and PNG files


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
