"""Reading: image files of every kind, and folders and archives alike, however hostile."""

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deep_lambertian.data import images as image_module
from deep_lambertian.data.images import ImageError, decode, linear_to_srgb, srgb_to_linear
from deep_lambertian.data.sources import Limits, SourceError, open_source
from deep_lambertian.support.resampling import average_areas

RAMP = np.linspace(0, 255, 12 * 8).reshape(8, 12).astype(np.uint8)


def encode(picture: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PPM", "PNG", "TGA", "TIFF", "BMP"])
def test_eight_bits_grey(kind):
    picture = decode(encode(Image.fromarray(RAMP), kind), srgb=False)
    np.testing.assert_allclose(picture, RAMP / 255, atol=1e-6)


def test_jpeg_is_near():
    pixels = decode(encode(Image.fromarray(RAMP), "JPEG", quality=95), srgb=False)
    np.testing.assert_allclose(pixels, RAMP / 255, atol=0.05)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits(kind):
    deep = RAMP.astype(np.uint16) * 257
    deep[0, 0] = 300  # below what eight bits can tell
    np.testing.assert_allclose(decode(encode(Image.fromarray(deep), kind), srgb=False), deep / 65535, atol=1e-6)


def filtered_png(values: np.ndarray, colour: int) -> bytes:
    """A PNG of 16 bits whose rows are filtered in each of PNG's ways in turn, by the book and pixel by pixel."""
    height, width, channels = values.shape
    size, whole = 2 * channels, values.astype(">u2").reshape(height, -1).view(np.uint8).astype(int)
    text = b""
    for r, row in enumerate(whole):
        text += bytes([r % 5])
        for i, byte in enumerate(row):
            left = row[i - size] if i >= size else 0
            above = whole[r - 1, i] if r else 0
            corner = whole[r - 1, i - size] if r and i >= size else 0
            paeth = min((left, above, corner), key=lambda x: abs(left + above - corner - x))
            text += bytes([(byte - (0, left, above, (left + above) // 2, paeth)[r % 5]) % 256])
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(text)), (b"IEND", b"")
    parts = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_in_colour(colour, channels):
    deep = np.random.default_rng(0).integers(0, 65536, (11, 7, channels), np.uint16)
    data = filtered_png(deep, colour)
    upper = np.asarray(Image.open(io.BytesIO(data)))[..., 0]  # Pillow agrees on the upper half
    np.testing.assert_array_equal(upper, deep[..., 0] >> 8)
    seen = deep[..., :3] if channels > 2 else np.repeat(deep[..., :1], 3, axis=-1)
    np.testing.assert_allclose(decode(data, srgb=False, colour=True), seen / 65535, atol=1e-7)
    for damaged in (data[:-40], data[:60] + bytes([data[60] ^ 1]) + data[61:]):
        with pytest.raises(ImageError, match=r"photo.png: a damaged image"):
            decode(damaged, "photo.png")


def test_a_strip_without_end_in_sixteen_bits_is_refused_and_so_is_nothing():
    """The filters of the one would be undone pixel after pixel, for hours. Of two headers Pillow goes by the last."""
    strip = filtered_png(np.ones((40, 1, 3), np.uint16), 2)
    whole = strip[8:33]
    for width, height, after in ((1, 90_000_000, b""), (0, 1, whole)):
        header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
        changed = strip[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + after + strip[33:]
        with pytest.raises(ImageError, match=f"expected 1 to 32767 pixels a side in 16 bits, got {width}×{height}"):
            decode(changed, "strip.png")


def test_sixteen_bits_in_colour_are_turned_upright_and_said_of_other_formats():
    picture = np.random.default_rng(0).uniform(0, 1, (8, 12, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    data, block = image_module.encode_png16(picture), exif.tobytes()[6:]
    chunk = struct.pack(">I", len(block)) + b"eXIf" + block + struct.pack(">I", zlib.crc32(b"eXIf" + block))
    turned = decode(data[:33] + chunk + data[33:], srgb=False, colour=True)
    np.testing.assert_allclose(turned, np.rot90(picture, -1), atol=1e-5)
    with pytest.warns(UserWarning, match="of its 16 bits the upper 8 are read"):
        decode(b"P6 2 1 65535\n" + bytes(range(12)), srgb=False)


def test_colour_palette_and_alpha():
    rgb = np.stack([RAMP, 255 - RAMP, RAMP // 2], axis=-1)
    colour = decode(encode(Image.fromarray(rgb), "PNG"), srgb=False, colour=True)
    np.testing.assert_allclose(colour, rgb / 255, atol=1e-6)
    grey = decode(encode(Image.fromarray(rgb), "PNG"), srgb=False)
    np.testing.assert_allclose(grey, rgb / 255 @ [0.2126, 0.7152, 0.0722], atol=1e-5)
    palette = decode(encode(Image.fromarray(rgb).quantize(256), "PNG"), srgb=False, colour=True)
    np.testing.assert_allclose(palette, rgb / 255, atol=0.05)
    rgba = np.concatenate([rgb, RAMP[..., None]], axis=-1)
    seen = decode(encode(Image.fromarray(rgba), "PNG"), srgb=False, colour=True)
    np.testing.assert_allclose(seen, rgb / 255, atol=1e-6)
    grey = decode(encode(Image.fromarray(np.stack([RAMP, 255 - RAMP], axis=-1)), "PNG"), srgb=False)
    np.testing.assert_allclose(grey, RAMP / 255, atol=1e-6)
    some = encode(Image.fromarray(rgb).quantize(256), "PNG", transparency=bytes(range(256)))
    np.testing.assert_array_equal(decode(some, srgb=False, colour=True), palette)


def test_exif_turns_the_picture_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    pixels = decode(encode(Image.fromarray(RAMP), "JPEG", quality=95, exif=exif), srgb=False)
    assert pixels.shape == (12, 8)
    np.testing.assert_allclose(pixels, np.rot90(RAMP, -1) / 255, atol=0.05)


def test_srgb_becomes_linear_and_back():
    linear = decode(encode(Image.fromarray(RAMP), "PNG"))
    np.testing.assert_allclose(linear, srgb_to_linear(RAMP / 255), atol=1e-6)
    assert srgb_to_linear(np.array(0.5)) == pytest.approx(0.21404, abs=1e-4)  # IEC 61966-2-1
    np.testing.assert_allclose(linear_to_srgb(linear), RAMP / 255, atol=1e-5)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_shrinking_keeps_the_mean_and_constants(h, w, new_h, new_w):
    image = np.random.default_rng(0).uniform(0, 1, (h, w)).astype(np.float32)
    small = average_areas(image, (new_h, new_w))
    assert small.shape == (new_h, new_w)
    assert small.min() >= image.min() - 1e-5
    assert small.max() <= image.max() + 1e-5
    if new_h <= h and new_w <= w:
        assert small.mean() == pytest.approx(float(image.mean()), abs=1e-4)
    np.testing.assert_allclose(average_areas(np.full((h, w), 0.3, np.float32), (new_h, new_w)), 0.3, atol=1e-6)


def test_area_averaging_is_exact_by_blocks():
    image = np.random.default_rng(0).uniform(0, 1, (192, 168)).astype(np.float32)
    blocks = image.reshape(24, 8, 24, 7).mean(axis=(1, 3))
    np.testing.assert_allclose(average_areas(image, (24, 24)), blocks, atol=1e-6)


BAD_IMAGES = {
    "empty": (b"", "an empty file"),
    "text": (b"this is no image", "got something else"),
    "truncated": (encode(Image.fromarray(np.tile(RAMP, (20, 20))), "PNG")[:200], "damaged"),
    "huge": (b"P5 20000 20000 255\n", "at most 100000000 pixels, got 400000000"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_what_is_no_image_is_refused(case):
    data, message = BAD_IMAGES[case]
    with pytest.raises(ImageError, match=message) as caught:
        decode(data, "photo.png")
    assert str(caught.value).startswith("photo.png: ")


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(image_module, "MOST_PIXELS", 50)
    with pytest.raises(ImageError, match="expected at most 50 pixels, got 96"):
        decode(encode(Image.fromarray(RAMP), "PNG"))


@given(st.binary(max_size=300), st.integers(0, 5), st.integers(0, 10_000))
@settings(max_examples=300, deadline=None)
def test_fuzz_damaged_images_give_the_one_error_or_a_picture(noise, kind, at):
    kinds = ["PPM", "PNG", "JPEG", "TGA", "TIFF", "BMP"]
    whole = encode(Image.fromarray(RAMP), kinds[kind])
    at %= len(whole)
    for data in (noise, whole[:at], whole[:at] + noise + whole[at + len(noise) :]):
        try:
            picture = decode(data)
        except ImageError:
            continue
        assert np.isfinite(picture).all()


FILES = {"a/1.txt": b"one", "a/2.txt": b"two", "top.txt": b"three", "a/b/ü.txt": b"four"}


def as_folder(path: Path) -> Path:
    for name, data in FILES.items():
        (path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "set" / name).write_bytes(data)
    return path / "set"


def as_zip(path: Path) -> Path:
    with zipfile.ZipFile(path / "set.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in FILES.items():
            file.writestr(name, data)
    return path / "set.zip"


def as_tar(path: Path, mode: str = "w", name: str = "set.tar") -> Path:
    with tarfile.open(path / name, mode) as file:  # type: ignore[call-overload]
        for member, data in FILES.items():
            info = tarfile.TarInfo(f"./{member}")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path / name


@pytest.mark.parametrize("make", [as_folder, as_zip, as_tar, lambda p: as_tar(p, "w:gz", "set.tar.gz")])
def test_folders_and_archives_are_alike(make, tmp_path):
    with open_source(make(tmp_path)) as source:
        assert source.names == sorted(FILES)
        assert {name: source.read(name) for name in source.names} == FILES
        assert source.folders() == {"": ["top.txt"], "a": ["a/1.txt", "a/2.txt"], "a/b": ["a/b/ü.txt"]}
        with pytest.raises(SourceError, match="no file 'absent'"):
            source.read("absent")


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../out", "C:\\windows", "..\\up"])
def test_names_that_lead_out_are_refused(name, tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as file:
        file.writestr(name, b"x")
    with pytest.raises(SourceError, match="leads out of the archive"):
        open_source(tmp_path / "bad.zip")
    with tarfile.open(tmp_path / "bad.tar", "w") as file:
        file.addfile(tarfile.TarInfo(name))
    with pytest.raises(SourceError, match="leads out of the archive"):
        open_source(tmp_path / "bad.tar")


def test_links_in_archives_are_refused(tmp_path):
    with tarfile.open(tmp_path / "bad.tar", "w") as file:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    with pytest.raises(SourceError, match="is a link, which is not followed"):
        open_source(tmp_path / "bad.tar")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as file:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(entry, "/etc/passwd")
    with pytest.raises(SourceError, match="is a link"):
        open_source(tmp_path / "bad.zip")


def test_bombs_and_absurd_sizes_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(20_000_000))
    with pytest.raises(SourceError, match=r"would grow \d+ times when unpacked"):
        open_source(tmp_path / "bomb.zip", Limits(inflation=100))
    folder = as_folder(tmp_path)
    with pytest.raises(SourceError, match="expected at most 2 files, found 4"):
        open_source(folder, Limits(members=2))
    with pytest.raises(SourceError, match="expected at most 3"):
        open_source(as_zip(tmp_path), Limits(file_bytes=3))
    with pytest.raises(SourceError, match="more than is sensible"):
        open_source(as_tar(tmp_path), Limits(total_bytes=5))


def tar_header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_SPARSE])
@pytest.mark.parametrize("size", [3 * 2**20, 2**33 - 1, -(2**20)])
def test_headers_of_a_tar_are_bounded(tmp_path, kind, size, monkeypatch):
    path, sizes = tmp_path / "bomb.tar.gz", []
    with gzip.open(path, "wb") as file:
        file.write(tar_header(kind, size) + bytes(max(0, min(size, 3 * 2**20))))
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, n=-1: (sizes.append(n), read(self, n))[1])
    with pytest.raises(SourceError, match=r"larger than is sensible|no ordinary file|more than is sensible|cannot be"):
        open_source(path)
    assert all(0 <= n <= 2**20 for n in sizes)


def test_a_sparse_map_that_never_ends(tmp_path):
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    info.size = 512
    path = tmp_path / "endless.tar"
    path.write_bytes(info.tobuf(tarfile.PAX_FORMAT) + b"99999999\n".ljust(512, b"1"))
    with pytest.raises(SourceError):
        open_source(path)


def test_damage_that_has_errors_of_its_own(tmp_path):
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):  # a small claim would be inflated to gigabytes
        with zipfile.ZipFile(tmp_path / "l.zip", "w", method) as file:
            file.writestr("data", bytes(10**6))
        with pytest.raises(SourceError, match="'data' is packed in a rare way; zip it anew, by deflate"):
            open_source(tmp_path / "l.zip")
    with zipfile.ZipFile(tmp_path / "n.zip", "w") as file:
        file.writestr("Q", b"nameless")
    (tmp_path / "n.zip").write_bytes((tmp_path / "n.zip").read_bytes().replace(b"Q", b"\0"))  # where a name ends
    with pytest.raises(SourceError, match=r"cannot be opened|leads out"):
        open_source(tmp_path / "n.zip")


def test_a_zip_that_lies_about_its_sizes_fills_no_memory(tmp_path):
    path = tmp_path / "liar.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data", bytes(100_000))
    raw = bytearray(path.read_bytes())
    at = raw.rfind(b"PK\x01\x02")
    raw[at + 24 : at + 28] = (10).to_bytes(4, "little")  # the directory claims ten bytes
    path.write_bytes(raw)
    with open_source(path) as source, pytest.raises(SourceError, match=r"larger than|cannot be read"):
        source.read("data")


def test_places_that_are_no_source(tmp_path):
    with pytest.raises(SourceError, match=r"expected a folder or an archive .* found nothing"):
        open_source(tmp_path / "absent")
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(SourceError, match="found another kind of file"):
        open_source(tmp_path / "text.zip")
    whole = as_zip(tmp_path).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"found another kind of file|cannot be opened"):
        open_source(tmp_path / "cut.zip")


def test_unreadable_permissions(tmp_path, monkeypatch):
    folder = as_folder(tmp_path)

    def forbidden(path: Path, *_: object) -> None:  # as for anyone but root, to whom nothing is forbidden
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", forbidden)
    with open_source(folder) as source, pytest.raises(SourceError, match="permission denied"):
        source.read("top.txt")


def test_odd_and_long_names(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / ("n" * 250)).write_bytes(b"long")
    odd = os.fsencode(folder) + b"/\xff\xfe.txt"
    with open(odd, "wb") as file:  # noqa: PTH123 (pathlib takes no bytes)
        file.write(b"odd")
    with open_source(folder) as source:
        assert sorted(source.read(name) for name in source.names) == [b"long", b"odd"]
        assert all(name.encode() for name in source.names)  # can be printed


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_fuzz_damaged_archives_give_the_one_error_or_their_files(tmp_path_factory, data):
    tmp = tmp_path_factory.mktemp("fuzz")
    make = data.draw(st.sampled_from([as_zip, as_tar, lambda p: as_tar(p, "w:gz", "set.tar.gz")]))
    path = make(tmp)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(1, len(raw)))])
    try:
        with open_source(path) as source:
            for name in source.names:
                source.read(name)
    except SourceError:
        pass


def test_zlib_errors_are_caught(tmp_path):
    path = as_zip(tmp_path)
    raw = bytearray(path.read_bytes())
    at = raw.find(b"a/1.txt") + len(b"a/1.txt")
    raw[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(raw)
    with open_source(path) as source, pytest.raises(SourceError, match="cannot be read"):
        source.read("a/1.txt")
    assert issubclass(zlib.error, Exception)
