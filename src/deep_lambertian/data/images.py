"""One image file to an array of linear light."""

import io
import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from deep_lambertian.data.dataset import Skipped
from deep_lambertian.data.sources import Source, SourceError

FORMATS = ("PPM", "PNG", "JPEG", "TGA", "TIFF", "BMP", "GIF", "WEBP")
SUFFIXES = (".pgm", ".ppm", ".pbm", ".pnm", ".png", ".jpg", ".jpeg", ".tga", ".tif", ".tiff", ".bmp", ".gif", ".webp")
MOST_PIXELS = 100_000_000  # a hundred megapixels: 400 MB as floats
LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)  # of linear sRGB (ITU-R BT.709)


class ImageError(ValueError):
    """A file that is no image, or not one that can be used."""


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
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", message=".*(EXIF|metadata|tag|Corrupt|Truncated).*")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise ImageError(f"{name}: expected at most {MOST_PIXELS} pixels, got {width}×{height}")
                image.load()
                values = _numbers(_upright(image), name)
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: expected an image ({', '.join(FORMATS)}), got something else") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ImageError(f"{name}: expected at most {MOST_PIXELS} pixels, got more ({error})") from error
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
