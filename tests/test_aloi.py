"""ALOI: a miniature drawn here, in which everything is known, and a few real objects where they are at hand."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deep_lambertian.data.aloi import load_aloi, split_aloi
from deep_lambertian.data.dataset import View, stack_objects
from deep_lambertian.data.masks import bounding_box, flawed, offset, shift_back
from deep_lambertian.data.sources import SourceError
from deep_lambertian.support.resampling import average_areas

DATA = Path(os.environ.get("DLN_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
HEIGHT, WIDTH = 48, 64
SHIFTS = {1: (0.0, 0.0), 2: (0.6, -0.8), 3: (1.5, 1.2)}  # down, right
LEAN = {1: -1.2, 2: -0.6, 3: 0.0, 4: 0.6, 5: 1.2, 6: -0.9, 7: 0.9, 8: 0.0}  # where the light stands, left to right


def ellipse(shift: tuple[float, float] = (0.0, 0.0), grow: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates (H, W) about an ellipse's middle, in units of its half axes, and how much of each pixel it covers."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    y, x = (y - 26 - shift[0]) / (14 * grow), (x - 30 - shift[1]) / (11 * grow)
    return y, x, np.clip((1 - np.hypot(y, x)) * 12 + 0.5, 0, 1)


def photograph(number: int, light: int, camera: int, dark: float = 0.25) -> np.ndarray:
    """An ellipsoid whose left half is dark, chequered, before a dark and noisy backdrop with a table (H, W, 3)."""
    y, x, cover = ellipse(SHIFTS[camera])
    depth = np.sqrt(np.clip(1 - x * x - y * y, 0, 1))
    lean = LEAN[light] + 0.25 * (camera - 1)
    shading = np.clip((lean * x + 0.3 * -y + depth) / np.hypot(1, lean), 0.05, 1)
    albedo = np.where(x < 0, dark, 0.8) * np.where(np.sin(9 * y + number) * np.sin(7 * x) > 0, 1, 0.7)
    behind = np.where(np.arange(HEIGHT) > 32, 14, 7)[:, None] / 255 * np.ones((1, WIDTH))
    grey = cover * albedo * shading + (1 - cover) * behind
    noise = np.random.default_rng([number, light, camera]).normal(0, 1 / 255, (HEIGHT, WIDTH, 3))
    return np.clip(grey[..., None] * [1, 0.9, 0.8] + noise, 0, 1)


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.round(255 * image).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Objects 3 and 12; of the latter one picture has a green bar, and another is cut short."""
    made = {
        f"png4/{n}/{n}_l{light}c{camera}.png": png(photograph(n, light, camera))
        for n in (3, 12)
        for light in LEAN
        for camera in SHIFTS
    }
    barred = photograph(12, 1, 2)
    barred[1:4] = barred[1:4] / 2 + [0, 0.2, 0]
    made["png4/12/12_l1c2.png"] = png(barred)
    made["png4/12/12_l4c3.png"] = made["png4/12/12_l4c3.png"][:700]
    made["png4/readme.txt"] = b"hello"
    return made


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def folder(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("aloi"), files)


def expected_box() -> tuple[slice, slice]:
    return bounding_box(ellipse()[2] > 0.5)


def test_the_miniature_is_found_cropped_and_laid_over(folder: Path):
    data = load_aloi(folder, size=24)
    assert data.names == ("3", "12")
    assert data.images.shape == (2, 15, 24, 24)
    assert data.images.dtype == np.float32
    assert data.image_names[0][:4] == ("3_l1c1.png", "3_l1c2.png", "3_l1c3.png", "3_l2c1.png")
    assert data.rig[1].tolist()[:4] == ["l1c1", "l1c3", "l2c1", "l2c2"]  # one is flawed
    assert not data.images[~data.mask].any()
    assert (data.mask[0] == data.mask[0, :1]).all()
    # The ellipse fills its box: its dark half is in, and the corners are out.
    truth = average_areas((ellipse()[2] > 0.5)[expected_box()].astype(np.float32), (24, 24)) > 0.5
    assert (data.mask[0, 0] & truth).sum() / (data.mask[0, 0] | truth).sum() > 0.93
    assert not data.mask[0, 0][[0, 0, -1, -1], [0, -1, 0, -1]].any()
    shifts = data.info["shifts"]["3"]
    for camera, (down, right) in SHIFTS.items():
        assert shifts[f"c{camera}"] == pytest.approx((right, down), abs=0.5)
    assert {k: v for k, v in data.info.items() if k != "shifts"} == {
        "kind": "aloi",
        "path": str(folder),
        "linearised": False,
        "masks": "derived",
    }
    json.dumps(data.info)


def test_registration_brings_cameras_closer(folder: Path):
    """Lights 3 and 8 stand alike, so that cameras 1 and 3 differ by little once they lie over each other."""
    data = load_aloi(folder, size=24, objects=[3])
    images = dict(zip(data.image_names[0], data.images[0], strict=True))
    rows, columns = expected_box()
    mask = data.mask[0, 0]
    apart = np.abs(photograph(3, 3, 3) - photograph(3, 3, 1))[rows, columns].mean()
    assert np.abs(images["3_l3c3.png"] - images["3_l3c1.png"])[mask].mean() < 0.6 * apart


def test_what_is_broken_is_skipped_and_said(folder: Path):
    data = load_aloi(folder, size=16)
    reasons = {Path(each.name).name: each.reason for each in data.skipped}
    assert set(reasons) == {"12_l1c2.png", "12_l4c3.png", "readme.txt"}
    assert "bar" in reasons["12_l1c2.png"]
    assert "unreadable" in reasons["12_l4c3.png"]
    assert data.present.sum(axis=1).tolist() == [15, 13]
    assert "12_l1c2.png" not in data.image_names[1]


def test_archives_and_folders_alike(folder: Path, files: dict[str, bytes], tmp_path: Path):
    with tarfile.open(tmp_path / "aloi.tar", "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    one, other = load_aloi(folder, size=16), load_aloi(tmp_path / "aloi.tar", size=16)
    np.testing.assert_array_equal(one.images, other.images)
    assert one.image_names == other.image_names
    assert one.skipped == other.skipped
    # An object does not depend on which others are asked for, and comes in the order asked for.
    turned = load_aloi(tmp_path / "aloi.tar", size=16, objects=[12, 3])
    assert turned.names == ("12", "3")
    np.testing.assert_array_equal(turned.images[1], one.images[0])


def test_split(folder: Path):
    data = load_aloi(folder, size=8)
    train, test = split_aloi(data)
    assert train.present.sum(axis=1).tolist() == [10, 8]
    assert test.present.sum(axis=1).tolist() == [5, 5]
    for s in (0, 1):
        assert [name.split("_l")[1][0] for name in test.image_names[s]] == ["1", "2", "3", "4", "5"]
        assert len({name.split("c")[1][0] for name in test.image_names[s]}) == 3
        both = {*train.image_names[s], *test.image_names[s]} - {""}
        assert both == {*data.image_names[s]} - {""}
    assert split_aloi(data)[1].image_names == test.image_names
    assert split_aloi(data.objects(["12"]))[1].image_names[0] == test.image_names[1]
    assert split_aloi(data, train=13)[1].present.sum(axis=1).tolist() == [2, 2]
    with pytest.raises(ValueError, match="1 to 14"):
        split_aloi(data, train=15)
    with pytest.raises(ValueError, match="expected more than 14 images, got 13"):
        split_aloi(data.objects(["12"]), train=1)
    with pytest.raises(ValueError, match="images of ALOI"):
        split_aloi(stack_objects([("a", [View("a.png", np.zeros((4, 4)))])]))


@pytest.mark.parametrize("pattern", ["mask4/{n}/{n}_c{c}.png", "{n}_l3c{c}.png", "{n}/{n}.png", "m/{n}_r0.png"])
def test_given_masks(folder: Path, tmp_path: Path, pattern: str):
    """A given mask is taken, at twice the resolution too: one that is smaller than the object gives a closer crop."""
    for number in (3, 12):
        for camera, shift in SHIFTS.items() if "{c}" in pattern else [(1, (0.0, 0.0))]:
            mask = (ellipse(shift, grow=0.7)[2] > 0.5).repeat(2, axis=0).repeat(2, axis=1)
            file = tmp_path / pattern.format(n=number, c=camera)
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask.astype(np.uint8) * 255).save(file)
    data = load_aloi(folder, size=16, objects=[3], masks=tmp_path)
    assert data.info["masks"] == str(tmp_path)
    assert data.mask[0, 0].mean() == pytest.approx(np.pi / 4, abs=0.15)
    rows, columns = bounding_box(ellipse(grow=0.7)[2] > 0.5)
    luminance = photograph(3, 3, 1) @ [0.2126, 0.7152, 0.0722]
    inner = data.images[0, data.image_names[0].index("3_l3c1.png")]
    assert inner[data.mask[0, 0]].mean() == pytest.approx(luminance[rows, columns].mean(), rel=0.15)


def test_bad_masks(folder: Path, tmp_path: Path):
    with pytest.raises(SourceError, match="found nothing"):
        load_aloi(folder, masks=tmp_path / "none")
    with pytest.raises(ValueError, match=r"a mask of object 3, such as 3_c1\.png, found none"):
        load_aloi(folder, masks=tmp_path)
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "3_c1.png")
    with pytest.raises(ValueError, match="found only empty ones"):
        load_aloi(folder, masks=tmp_path)
    (tmp_path / "3_c1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"3_c1\.png: expected an image"):
        load_aloi(folder, masks=tmp_path)


def test_bad_inputs(folder: Path, tmp_path: Path):
    with pytest.raises(SourceError, match="found nothing"):
        load_aloi(tmp_path / "none")
    with pytest.raises(ValueError, match=r"such as png4/9/9_l1c2\.png, found 0 files"):
        load_aloi(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match=r"found 1 files, none of which is one \(the first is 'a.txt'\)"):
        load_aloi(tmp_path)
    with pytest.raises(ValueError, match="did not find objects 4; there are 3, 12"):
        load_aloi(folder, objects=[3, 4])
    with pytest.raises(ValueError, match="size: expected at least 1"):
        load_aloi(folder, size=0)
    for objects in ([], [3, 3]):
        with pytest.raises(ValueError, match="objects: expected at least one"):
            load_aloi(folder, objects=objects)
    (tmp_path / "5_l1c1.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"objects 5 cannot be used \(no usable image"):
        load_aloi(tmp_path)


def test_objects_that_cannot_be_used_are_said(folder: Path, files: dict[str, bytes], tmp_path: Path):
    """Nothing but backdrop, an image of another size, a file that is there twice: the rest is loaded."""
    write_folder(tmp_path, {name: data for name, data in files.items() if "/3_" in name})
    for light in (1, 2, 3):
        noise = np.random.default_rng(light).normal(8, 1, (HEIGHT, WIDTH, 3)) / 255
        noise[20:24, 30:34] = 0  # so that it is not of one brightness
        (tmp_path / f"7_l{light}c1.png").write_bytes(png(np.clip(noise, 0, 1)))
    (tmp_path / "png4/3/3_l8c3.png").write_bytes(png(np.zeros((30, 30, 3))))
    (tmp_path / "z").mkdir()
    (tmp_path / "z/3_l1c1.png").write_bytes(png(photograph(3, 1, 1)))
    data = load_aloi(tmp_path, size=8)
    assert data.names == ("3",)
    assert data.present.sum() == 15
    reasons = {each.name: each.reason for each in data.skipped}
    assert "stands out" in reasons["object 7"] or "no usable" in reasons["object 7"]
    assert reasons["png4/3/3_l8c3.png"].startswith("30×30 pixels")
    assert reasons["z/3_l1c1.png"].startswith("a second file")


@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.5, -0.5), (-1.7, 1.3), (2.0, 0.25)])
def test_offset_and_back(shift: tuple[float, float]):
    still = ellipse()[2] * 0.6 + 0.03
    moved = ellipse(shift)[2] * 0.3 + 0.03  # under half the light
    assert offset(still, moved, most=2) == pytest.approx(shift, abs=0.15)
    back = shift_back(moved, shift)
    assert np.abs(back - still / 2 - 0.015).mean() < 0.01


def test_flaws_are_not_seen_in_good_pictures():
    good = [photograph(3, light, 1) for light in LEAN]
    assert flawed(good) == [""] * 8
    for colour in ([0, 0.3, 0], [0.8, 0.8, 0.8]):
        column = [image.copy() for image in good]
        column[4][:, 50:53] += colour
        assert [bool(reason) for reason in flawed(column)] == [i == 4 for i in range(8)]
    assert flawed([np.full((20, 20, 3), 0.5)])[0].startswith("an empty picture")


# Real objects, looked at: 9 is a child's shoe, 32 a brown bear of plush, 27 a dark lump, 55 reaches out of the picture.


@pytest.fixture(scope="module")
def real():
    if not (DATA / "aloi_red4_ill.tar").is_file():
        pytest.skip(f"no aloi_red4_ill.tar in {DATA}")
    return load_aloi(DATA / "aloi_red4_ill.tar", objects=[9, 32, 31, 38])


@pytest.mark.data
def test_the_shoe_with_the_green_bar(real):
    """One of its pictures has a bar of green at the top; those of objects as wide as the picture are all good."""
    assert [each.name for each in real.skipped] == ["png4/9/9_l1c2.png"]
    assert real.present.sum(axis=1).tolist() == [14, 15, 15, 15]
    train, test = split_aloi(real)
    assert test.present.sum(axis=1).tolist() == [5, 5, 5, 5]
    assert train.present.sum(axis=1).tolist() == [9, 10, 10, 10]


@pytest.mark.data
def test_real_masks(real):
    """The bear's shadowed belly and paws are in, the gap beside its head is out; so is what is above the shoe's toe."""
    shoe, bear = real.mask[0, 0], real.mask[1, 0]
    assert bear[20:42, 10:33].all()
    assert bear[38:41, 1:46].all()
    assert not bear[:8, :10].any()
    assert not bear[:26, 42:].any()
    assert 0.6 < bear.mean() < 0.75
    assert shoe[26:42, 4:44].all()
    assert not shoe[:20, 34:].any()
    assert 0.6 < shoe.mean() < 0.75


@pytest.mark.data
def test_real_registration(real):
    """Camera 3's picture lies two to three rows lower, camera 2's about one; laid back, their edges agree."""
    for name in ("9", "32"):
        shifts = real.info["shifts"][name]
        assert shifts["c2"][1] == pytest.approx(1.0, abs=0.3)
        assert shifts["c3"][1] == pytest.approx(2.7, abs=0.4)
        row = real.object(name)
        pairs = list(zip(row.image_names[0], row.images[0], strict=True))
        means = [np.mean([image for file, image in pairs if f"c{c}." in file], axis=0) for c in (1, 2, 3)]
        for other in means[1:]:
            assert np.hypot(*offset(means[0], other, most=3)) < 0.5
