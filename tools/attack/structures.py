"""Files taken apart and put together again with a part changed, so that lengths and checksums of the container hold."""

import bz2
import gzip
import io
import json
import lzma
import random
import struct
import tarfile
import zipfile
import zlib

from tools.attack.mutations import HOSTILE, mutate, mutate_tree

NAMES = (
    *("../out.png", "/etc/passwd", "C:\\x.png", "a/../../b.png", "a\\..\\b.png", "", ".", "//", "\0.png", "a\nb.png"),
    *(
        "\x1b[2J.png",
        "²1.png",
        "mask.png",
        "lights.txt",
        "x" * 3000 + ".png",
        "a/" * 500 + "b.png",
        "ｅ\u202e.png",
        "header.npy",
    ),
)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def mutate_zip(data: bytes, rng: random.Random) -> bytes:
    """A member changed, renamed, doubled or left out, with the right checksum; or the container's own numbers."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = [(name, file.read(name)) for name in file.namelist()]
    at, act = rng.randrange(len(members)), rng.randrange(7)
    name, inner = members[at]
    if act <= 1:
        members[at] = name, (mutate_npy if name.endswith(".npy") else mutate)(inner, rng)
    elif act == 2:
        members[at] = rng.choice(NAMES), inner
    elif act == 3:
        members.append((rng.choice((name, "./" + name, name.upper())), mutate(inner, rng)))
    elif act == 4:
        del members[at]
    elif act == 5:
        members[at] = name, rng.choice(members)[1]
    out, method = io.BytesIO(), rng.choice(METHODS) if act == 6 else zipfile.ZIP_DEFLATED
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, inner in members:
            info = zipfile.ZipInfo(name or "e")
            info.compress_type = method
            file.writestr(info, inner)
    return _directory(out.getvalue(), rng) if rng.random() < 0.3 else out.getvalue()


def _directory(data: bytes, rng: random.Random) -> bytes:
    """A number of an entry of the directory (version, flags, method, sizes, offset ...) becomes another."""
    at = data.find(b"PK\x01\x02", rng.randrange(len(data)))
    at = data.rfind(b"PK\x01\x02") if at < 0 else at
    where, size = rng.choice(((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (38, 4), (42, 4)))
    value = rng.choice((0, 1, 8, 12, 14, 99, 0xFFFF, 0xFFFFFFFF, rng.randrange(2**32))) % 2 ** (8 * size)
    return data[: at + where] + value.to_bytes(size, "little") + data[at + where + size :]


def mutate_npy(data: bytes, rng: random.Random) -> bytes:
    """The header of an array, which is Python's text, or its numbers."""
    length = int.from_bytes(data[8:10], "little")
    text, rest = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    act = rng.randrange(4)
    if act == 0:
        return mutate(data, rng)
    if act == 1:
        return data[: 10 + length] + mutate(rest, rng)
    if act == 2:
        kind = rng.choice(
            ("'|O'", "'<f8'", "'<f2'", "'>f4'", "'<U9'", "'<c8'", "'<M8[s]'", "[('a','<f4')]", "'V9'", "1", "'?'")
        )
        text = text.replace(text.partition("'descr': ")[2].partition(", 'fortran")[0], kind)
    else:
        shape = rng.choice(
            ("(-1,)", "()", "(10**9, 10**9)", "(99999999999,)", "(0, 3)", "(1.5,)", "None", "((((((", "(3,)")
        )
        text = text.replace(text.partition("'shape': ")[2].rpartition(", }")[0], shape)
    return data[:8] + struct.pack("<H", len(text)) + text.encode("latin1") + rest


def mutate_safetensors(data: bytes, rng: random.Random) -> bytes:
    """The header of the file, or the description within it, or numbers of the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    act = rng.randrange(4)
    if act == 0:
        header = mutate_tree(header, rng)
    elif act == 1:
        body = mutate(body, rng)
    else:
        (key, text), *_ = header["__metadata__"].items()
        inner = mutate_tree(json.loads(text), rng)
        if act == 3 and isinstance(inner, dict):
            inner.pop("checksum", None)
        header["__metadata__"][key] = json.dumps(inner)
    try:
        described = json.dumps(header).encode()
    except RecursionError:
        described = b"{}"
    described += b" " * (-len(described) % 8)
    return struct.pack("<Q", len(described)) + described + body


def mutate_png(data: bytes, rng: random.Random) -> bytes:
    """A chunk changed with the right checksum, lost, doubled or moved; or other pixels, packed anew."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    i, act = rng.randrange(len(chunks)), rng.randrange(6)
    kind, body = chunks[i]
    if act <= 1:
        head = bytearray(chunks[0][1])
        where = rng.randrange(13)
        head[where] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255, rng.randrange(256)))
        chunks[0] = b"IHDR", bytes(head)
    elif act == 2:
        chunks[i] = kind, mutate(body, rng)
    elif act == 3:
        chunks.insert(rng.randrange(len(chunks) + 1), chunks.pop(i) if rng.random() < 0.5 else chunks[i])
    elif act == 4:
        i = next(i for i, chunk in enumerate(chunks) if chunk[0] == b"IDAT")
        chunks[i] = b"IDAT", zlib.compress(mutate(zlib.decompress(chunks[i][1]), rng))
    else:
        text = (
            rng.choice((b"eXIf", b"tRNS", b"PLTE", b"gAMA", b"iCCP", b"zTXt", b"acTL", b"fcTL")),
            rng.randbytes(rng.randrange(40)),
        )
        chunks.insert(1, text)
    whole = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return data[:8] + b"".join(whole)


PACKERS = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7z": lzma}


def mutate_tar(data: bytes, rng: random.Random) -> bytes:
    """A field of a header with the right checksum, or one header more, of the next member; packed as it was."""
    module = next((module for magic, module in PACKERS.items() if data.startswith(magic)), None)
    plain = bytearray(data if module is None else module.decompress(data))
    starts = [at for at in range(0, len(plain) - 512, 512) if plain[at + 257 : at + 262] == b"ustar"]
    if starts:
        at = rng.choice(starts)
        if rng.random() < 0.6:
            where, size = rng.choice(
                ((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155))
            )
            digits = [
                b"",
                b"7" * size,
                b"-1",
                b"\x80" + b"\xff" * (size - 1),
                rng.choice(NAMES).encode()[:size],
                rng.randbytes(size),
            ]
            value = rng.choice(
                digits if size > 1 else [b"0", b"1", b"2", b"3", b"5", b"6", b"L", b"K", b"S", b"x", b"g", b"Z"]
            )
            plain[at + where : at + where + size] = value[:size].ljust(size, b"\0")
            _tar_sum(plain, at)
        else:
            plain[at:at] = _extension(rng)
    else:
        plain = bytearray(mutate(bytes(plain), rng))
    return bytes(plain) if module is None else module.compress(bytes(plain))


def _tar_sum(plain: bytearray, at: int) -> None:
    plain[at + 148 : at + 156] = b" " * 8
    plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + 512])


def _extension(rng: random.Random) -> bytes:
    """A header of pax or GNU with something hostile in it."""
    info = tarfile.TarInfo("././@LongLink")
    info.type = rng.choice((b"x", b"g", b"L", b"K"))
    word = rng.choice(HOSTILE).encode("utf-8", "surrogatepass")[:3000]
    name = rng.choice((b"path", b"size", b"GNU.sparse.map", b"GNU.sparse.size", b"mtime", b"linkpath", b"hdrcharset"))
    body = (
        rng.choice((b"%d " % (len(name) + len(word) + 5), b"0 ", b"-5 ", b"99999999 ", b""))
        + name
        + b"="
        + word
        + b"\n"
    )
    info.size = rng.choice((len(body), 10**6, 2**33 - 1))
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)
