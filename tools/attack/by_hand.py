"""Archives made by hand, each to be refused, or read without harm: slips, links, bombs, lies, locks and doubles."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator

from tools.attack.originals import encoded

PHOTO = encoded("png")
SLIPS = ("../a/1.png", "/a/1.png", "C:/a/1.png", "a/../../1.png", "..\\a\\1.png", "a/..", "//host/share/1.png")
ODD = (
    "",
    ".",
    "a/",
    "a/./1.png",
    "a//1.png",
    "./a/1.png",
    "a/\n.png",
    "a/\x1b[2J.png",
    "a/²1.png",
    "é/1.png",
    "a/" * 300 + "1.png",
)
Made = tuple[str, str, bytes]  # name, suffix, data


def archives() -> Iterator[Made]:
    """All of them. None may take more than seconds, or memory out of all proportion."""
    for made in (_names, _links, _bombs, _lies, _nested):
        yield from made()


def _zip(
    files: list[tuple[str, bytes]], change: Callable[[zipfile.ZipInfo], None] | None = None, method: int = 8
) -> bytes:
    out = io.BytesIO()
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as file:
        warnings.simplefilter("ignore")
        for name, data in files:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method
            (change or (lambda _: None))(info)
            file.writestr(info, data)
    return out.getvalue()


def _tar(files: list[tuple[str, bytes]], change: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as file:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            (change or (lambda _: None))(info)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _names() -> Iterator[Made]:
    for number, name in enumerate((*SLIPS, *ODD)):
        yield f"name {number}", ".zip", _zip([("a/0.png", PHOTO), (name, PHOTO)])
        yield f"name {number}", ".tar", _tar([("a/0.png", PHOTO), (name, PHOTO)])
    for form, make in ((".zip", _zip), (".tar", _tar)):
        yield (
            "doubles",
            form,
            make([("a/1.png", PHOTO), ("a/1.png", encoded("png", 1)), ("a//1.png", PHOTO), ("./a/1.png", PHOTO)]),
        )
        yield (
            "a file and a folder",
            form,
            make([("a", PHOTO), ("a/1.png", PHOTO), ("a.png", PHOTO), ("a.png/1.png", PHOTO)]),
        )
        yield "many", form, make([(f"{i}.txt", b"") for i in range(20_000)] + [("a/1.png", PHOTO)])


def _links() -> Iterator[Made]:
    def as_link(info: zipfile.ZipInfo) -> None:
        info.external_attr = 0o120777 << 16

    yield "link", ".zip", _zip([("a/1.png", b"/etc/passwd")], as_link)
    for kind in (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
        b"V",
    ):

        def as_kind(info: tarfile.TarInfo, kind: bytes = kind) -> None:
            info.type, info.linkname, info.size = kind, "../../etc/passwd", 0

        yield f"type {kind!r}", ".tar", _tar([("a/1.png", b"")], as_kind)


def _bombs() -> Iterator[Made]:
    zeros = bytes(64 * 2**20)
    yield "bomb", ".zip", _zip([("a/1.png", zeros)])
    yield "many bombs", ".zip", _zip([(f"a/{i}.png", zeros[: 2**20]) for i in range(50)])
    info = tarfile.TarInfo("a/1.png")
    info.size = 600 * 2**20
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):  # each may be of many streams
        yield "bomb", f".tar{suffix}", module.compress(info.tobuf()) + module.compress(zeros[: 2**23]) * 75
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # which claim to be small
        yield f"liar {method}", ".zip", _claim(_zip([("a/1.png", zeros[: 2**24])], method=method), 10**6)
    for kind in (b"L", b"x", b"g"):
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = kind, 2**30
        body = info.tobuf(tarfile.GNU_FORMAT) + bytes(2**22)
        yield f"header of a gigabyte {kind!r}", ".tar", body
        yield (
            f"header of a gigabyte {kind!r}",
            ".tar.gz",
            gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + gzip.compress(bytes(2**24)) * 16,
        )
        info.size = 2**20
        one = info.tobuf(tarfile.GNU_FORMAT) + (b"20 path=" if kind != b"L" else b"") + b"a" * 2**20
        yield f"many headers {kind!r}", ".tar.gz", gzip.compress(one[: 512 + 2**20]) * 60
    sparse = _tar(
        [("a/1.png", PHOTO)], lambda info: info.pax_headers.update({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    )
    yield "sparse", ".tar", sparse


def _claim(data: bytes, size: int) -> bytes:
    """A zip whose directory, and the entry itself, claim that a member is of another size."""
    raw = bytearray(data)
    at = raw.rfind(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", size)
    raw[22:26] = struct.pack("<I", size)
    return bytes(raw)


def _lies() -> Iterator[Made]:
    plain = _zip([("a/1.png", PHOTO), ("a/2.png", PHOTO)])
    for size in (0, 1, 10**9, 2**32 - 1):
        yield f"claims {size} bytes", ".zip", _claim(plain, size)
    at = plain.rfind(b"PK\x01\x02")
    for where, value, name in (
        (8, 1, "locked"),
        (8, 0x41, "locked well"),
        (10, 99, "AES"),
        (10, 9, "deflate64"),
        (42, 0, "overlapping"),
    ):
        yield name, ".zip", plain[: at + where] + struct.pack("<H", value) + plain[at + where + 2 :]

    def as_zip64(info: zipfile.ZipInfo) -> None:
        info.extra = struct.pack("<HHQQ", 1, 16, 2**62, 2**62)

    yield "zip64", ".zip", _zip([("a/1.png", PHOTO)], as_zip64)
    for size in (2**33 - 1, -1, 10**15):
        yield f"claims {size} bytes", ".tar", _tar_size(size)


def _tar_size(size: int) -> bytes:
    info = tarfile.TarInfo("a/1.png")
    info.size = max(size, 0)
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if size < 0:
        head[124:136] = b"\xff" * 12
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + PHOTO


def _nested() -> Iterator[Made]:
    data = _zip([("a/1.png", bytes(10**6))])
    for _ in range(6):
        data = _zip([(f"a/{i}.zip", data) for i in range(8)])
    yield "nested", ".zip", data
    yield "a zip in a tar", ".tar", _tar([("a/1.png", data), ("a/2.zip", data)])
    yield "a zip that is a picture too", ".zip", PHOTO + _zip([("a/1.png", PHOTO)])
    yield "nothing", ".zip", b""
    yield "nothing", ".tar", bytes(10240)
    yield "only an end", ".zip", b"PK\x05\x06" + bytes(18)
