"""Sound files of every format, small, and the same for the same seed."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tools.attack.formats import DESCRIPTION, FORMATS, NAMES, PICTURES, TARS

SIZE = 12


def write_originals(folder: Path) -> dict[str, Path]:
    """One file of each format in a folder of its own; those that are there are left."""
    places = {
        name: folder / name.replace(" ", "-") / NAMES.get(name, f"file{form.suffix}") for name, form in FORMATS.items()
    }
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    if all(path.is_file() for path in places.values()):
        return places
    for writer in (_pictures, _archives, _texts, _ours):
        writer(places)
    return places


def face(number: int = 0, size: int = SIZE) -> np.ndarray:
    """A picture (H, W, 3) of 8 bits: a ball under a light that goes round with the number, and some noise."""
    rng = np.random.default_rng(abs(number))
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    inside = np.maximum(1 - x**2 - y**2, 0.05)
    lit = np.clip(0.6 * np.sqrt(inside) + 0.3 * x * np.cos(number) + 0.3 * y * np.sin(number), 0.02, 1)
    return np.round(
        255 * np.clip(lit[..., None] * [0.9, 0.7, 0.6] + rng.normal(0, 0.02, (size, size, 3)), 0, 1)
    ).astype(np.uint8)


def encoded(kind: str, number: int = 0, size: int = SIZE) -> bytes:
    data, picture = io.BytesIO(), Image.fromarray(face(number, size))
    picture = picture.convert("L") if kind == "pgm" else picture
    picture.save(data, {"jpg": "JPEG", "pgm": "PPM", "tif": "TIFF"}.get(kind, kind.upper()))
    return data.getvalue()


def _pictures(places: dict[str, Path]) -> None:
    from deep_lambertian.data.images import encode_png16

    for kind in PICTURES:
        places[f"picture {kind}"].write_bytes(encoded(kind))
    places["picture png of 16 bits"].write_bytes(encode_png16(face() / 255))
    data = io.BytesIO()
    Image.fromarray(face()).convert("P").save(data, "PNG")
    places["picture png palette"].write_bytes(data.getvalue())


def objects(count: int = 3, images: int = 3) -> dict[str, bytes]:
    """Files of a folder of objects, with a mask, lights and a rig among them."""
    files = {f"o{i}/{chr(97 + p)}.png": encoded("png", 10 * i + p) for i in range(count) for p in range(images)}
    data = io.BytesIO()
    Image.fromarray(np.full((SIZE, SIZE), 255, np.uint8)).save(data, "PNG")
    files["o0/mask.png"] = data.getvalue()
    files["o1/lights.txt"] = b"3\n0 0 1\n0.3 0 0.9\n0 0.4 0.8\n"
    files["o2/rig.csv"] = b"a.png,left\nb.png,right\n"
    return files


def _archives(places: dict[str, Path]) -> None:
    write_zip(places["objects zip"], objects())
    for kind in TARS:
        write_tar(places[f"objects {kind}"], objects())
    ball = Image.open(io.BytesIO(encoded("pgm", 3, 24))).resize((168, 192))
    data = io.BytesIO()
    ball.save(data, "PPM")
    yale = {f"CroppedYale/yaleB11/yaleB11_P00A{azimuth:+04}E+00.pgm": data.getvalue() for azimuth in (0, 10)}
    write_zip(places["Yale B"], yale)
    aloi = {
        f"red4/{1 + i}/{1 + i}_l{light}c{c}.png": encoded("png", light, 32)
        for i in range(2)
        for light in (1, 2, 3, 8)
        for c in (1, 2)
    }
    write_tar(places["ALOI"], aloi)
    faces = np.stack([face(i)[..., 0] for i in range(6)])
    np.savez_compressed(places["faces npz"], images=faces, target=np.arange(6))
    np.save(places["faces npy"], faces)


def write_zip(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    kind = path.name.rpartition("tar")[2].removeprefix(".")
    with tarfile.open(path, f"w:{kind}", format=tarfile.PAX_FORMAT) as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def _texts(places: dict[str, Path]) -> None:
    from deep_lambertian import Config

    places["settings"].write_text(Config.of_preset("best").to_toml())
    places["lights txt"].write_text("3\n0 0 1\n0.3 0 0.9\n0 0.4 0.8\n")
    places["lights csv"].write_text("image,x,y,z\na.png,0,0,1\nb.png,0.3,0,0.9\nc.png,0,0.4,0.8\n")
    places["rig txt"].write_text("left\nright\nleft\n")
    places["rig csv"].write_text("a.png,left\nb.png,right\nc.png,left\n")
    places["run description"].write_text(json.dumps(DESCRIPTION, indent=2))


def _ours(places: dict[str, Path]) -> None:
    """What the program writes itself: by its own writers."""
    from deep_lambertian import DLN
    from deep_lambertian.photos.batch import Photos, _save
    from deep_lambertian.photos.placing import Placement
    from deep_lambertian.photos.result import infer_photos
    from deep_lambertian.support.files import sealed
    from deep_lambertian.support.run_folder import RunFolder

    model = DLN.random((8, 8), (5, 3), (6, 3), info={"made": "for the attack"})
    model.save(places["model"])
    picture = face(1, 8).astype(np.float32) / 255
    post = model.infer(picture[..., 0], iterations=6, chains=1)
    post.save(places["posterior"])
    result = infer_photos(model, [("a.png", picture)], placement=Placement(align=False), sampler="quick")
    result.save(places["result"])
    photos = Photos("o", 0, picture[None, ..., 0], ["a.png"], np.ones((8, 8), bool), None, [])
    _save(places["object figures"].parent, photos, post)
    folder = RunFolder(places["run description"].parents[1] / "run", "training", DESCRIPTION)
    folder.save_checkpoint(
        2, {"x": np.arange(40.0).reshape(5, 8), "y": np.ones(3)}, {"iteration": 2, "history": [{"a": 1.5}] * 2}
    )
    (checkpoint,) = folder.checkpoints()
    checkpoint.replace(places["checkpoint"])
    for name, make in (
        ("arrays", lambda: {"x": np.arange(30.0), "y": np.eye(3)}),
        ("figures", lambda: {"a": [1.5, 2], "b": {"c": "d"}}),
    ):
        made = getattr(folder, name)("file", make)
        assert made
        suffix = places[f"stage {name}"].suffix
        (folder.path / "stages" / f"file{suffix}").replace(places[f"stage {name}"])
    places["traced program"].write_bytes(sealed(np.random.default_rng(0).bytes(5000)))
