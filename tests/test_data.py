"""Data sets: the one type, the loaders on small sets made here, and the command that looks at data."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deep_lambertian.data import Dataset, load_faces, load_folder, load_photos, load_yaleb, protocol
from deep_lambertian.data.dataset import View, stack_objects
from deep_lambertian.data.folder import natural, read_lights
from deep_lambertian.data.yaleb import SUBSET_ANGLES, illumination_subset, light_direction
from deep_lambertian.report.data_check import check, contact_sheet
from test_package import dln


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray((np.clip(image, 0, 1) * 255).round().astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def ragged(counts=(3, 1, 4), size=(4, 5)) -> Dataset:
    """Objects with unequal numbers of images; image p of object s is s + p/10 throughout."""

    def view(s: int, p: int) -> View:
        return View(f"i{p}", np.full(size, s + p / 10), light=np.array([s, p, 1.0]), subset=1 + p % 2)

    return stack_objects([(f"o{s}", [view(s, p) for p in range(n)]) for s, n in enumerate(counts)])


def test_ragged_objects_in_one_array():
    data = ragged()
    assert data.images.shape == (3, 4, 4, 5)
    assert data.present.sum(axis=1).tolist() == [3, 1, 4]
    assert not data.mask[1, 1:].any()
    assert np.isnan(data.lights[1, 1:]).all()
    assert [(name, len(images)) for name, images, _, _ in data.each()] == [("o0", 3), ("o1", 1), ("o2", 4)]
    assert "3 objects, 8 images" in repr(data)


def test_slicing_by_object_subset_and_image():
    data = ragged()
    assert data.objects(["o2", 0]).names == ("o2", "o0")
    assert data.object(-1).names == ("o2",)
    second = data.subset(2)
    assert second.names == ("o0", "o2")  # o1 has no image of subset 2
    assert second.image_names == (("i1", ""), ("i1", "i3"))
    np.testing.assert_allclose(second.images[1, 1], 2.3)
    np.testing.assert_array_equal(second.lights[1, 1], [2, 3, 1])
    assert not second.mask[0, 1].any()
    for bad, message in ((lambda: data.object("x"), "no object 'x'; there are o0"), (lambda: data.objects([]), "none")):
        with pytest.raises(ValueError, match=message):
            bad()
    with pytest.raises(ValueError, match="at least one image to keep"):
        data.subset(5)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=12), st.integers(0, 1000), st.floats(0.2, 0.8))
@settings(max_examples=50, deadline=None)
def test_splits_are_deterministic_and_lose_nothing(counts, seed, share):
    data = ragged(tuple(counts))
    if not 1 <= round(share * len(data)) < len(data):
        return
    first, second = data.split(share, seed=seed)
    assert sorted(first.names + second.names) == sorted(data.names)
    again, _ = data.split(share, seed=seed)
    assert again.names == first.names
    np.testing.assert_array_equal(again.images, first.images)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_keeping_images_keeps_just_those(counts, draw):
    data = ragged(tuple(counts))
    chosen = np.array(draw.draw(st.lists(st.booleans(), min_size=data.present.size, max_size=data.present.size)))
    chosen = chosen.reshape(data.present.shape) & data.present
    if not chosen.any():
        return
    kept = data.keep(chosen)
    pairs = lambda d, which: {
        (d.names[s], d.image_names[s][p]): float(d.images[s, p].mean()) for s, p in np.argwhere(which)
    }
    assert pairs(kept, kept.present) == pairs(data, chosen)
    assert np.array_equal(kept.mask.any(axis=(2, 3)), kept.present)


def test_inconsistent_sets_are_refused():
    data = ragged()
    with pytest.raises(ValueError, match=r"mask: expected shape \(3, 4, 4, 5\), got \(1,\)"):
        Dataset(data.images, np.ones(1, bool), data.names, data.image_names)
    with pytest.raises(ValueError, match="got some twice"):
        Dataset(data.images, data.mask, ("a", "a", "b"), data.image_names)
    with pytest.raises(ValueError, match="expected \\(objects, images, height, width\\)"):
        Dataset(data.images[0], data.mask[0], data.names, data.image_names)


def test_yale_lights_and_subsets():
    np.testing.assert_allclose(light_direction(0, 0), [0, 0, 1], atol=1e-6)
    assert light_direction(35, 0)[0] < 0  # a positive azimuth lights the left of the image
    assert light_direction(0, 40)[1] > 0
    np.testing.assert_allclose(np.linalg.norm(light_direction(-70, 45)), 1, rtol=1e-5)
    assert illumination_subset(0, 0) == 1
    assert illumination_subset(35, 40) == 3  # at 51.1°
    assert illumination_subset(-110, 15) == 5
    assert len(SUBSET_ANGLES) == 5


@pytest.fixture
def yale(tmp_path) -> Path:
    """A small archive in the form of the database, with everything that is to be skipped."""
    path = tmp_path / "CroppedYale.zip"
    rng = np.random.default_rng(0)

    def pgm(height=192, width=168):
        return b"P5\n%d %d\n255\n" % (width, height) + rng.integers(0, 255, height * width, np.uint8).tobytes()

    with zipfile.ZipFile(path, "w") as file:
        for subject in ("yaleB11", "yaleB30"):
            for light in ("A+000E+00", "A-020E+10", "A+035E+40", "A+070E-35", "A+110E+15"):
                file.writestr(f"CroppedYale/{subject}/{subject}_P00{light}.pgm", pgm())
            file.writestr(f"CroppedYale/{subject}/{subject}_P00_Ambient.pgm", pgm(480, 640))
            file.writestr(f"CroppedYale/{subject}/{subject}_P00A+050E-40.pgm.bad", b"corrupt")
            file.writestr(f"CroppedYale/{subject}/{subject}_P00.info", b"list")
        file.writestr("CroppedYale/yaleB30/DEADJOE", b"stray")
        file.writestr("CroppedYale/yaleB30/yaleB30_P00A+005E+10.pgm", pgm()[:1000])
        file.writestr("CroppedYale/yaleB30/yaleB30_P00A+010E+00.pgm", b"")
        file.writestr("CroppedYale/yaleB30/yaleB30_P00A-005E+20.pgm", pgm(100, 100))
    return path


def test_yale_reads_what_is_there_and_counts_the_rest(yale):
    data = load_yaleb(yale)
    assert data.images.shape == (2, 4, 24, 24)
    assert data.subsets.tolist() == [[1, 2, 3, 4], [1, 3, 4, 2]] or sorted(data.subsets[0].tolist()) == [1, 2, 3, 4]
    assert set(data.rig[0]) == set(data.rig[1]) == {"A+000E+00", "A-020E+10", "A+035E+40", "A+070E-35"}
    reasons = data.skipped_reasons()
    assert reasons["marked as corrupt (.bad)"] == 2
    assert reasons["ambient light only"] == 2
    assert reasons["not an image of the database"] == 1
    assert sum(count for reason, count in reasons.items() if reason.startswith("unreadable")) == 2
    assert reasons["100×100 pixels, not the cropped 168×192"] == 1
    assert load_yaleb(yale, size=(12, 10), subjects=[30], subsets=[5]).images.shape == (1, 1, 12, 10)
    with pytest.raises(ValueError, match="did not find yaleB12"):
        load_yaleb(yale, subjects=["yaleB11", "yaleB12"])
    with pytest.raises(ValueError, match="subsets: expected some of 1 to 5"):
        load_yaleb(yale, subsets=[6])
    with pytest.raises(ValueError, match="protocol 'dev' needs subjects that are not there: yaleB12"):
        protocol(data, "dev")
    with pytest.raises(ValueError, match="unknown protocol"):
        protocol(data, "test")


def test_faces_from_arrays_files_and_archives(tmp_path):
    rng = np.random.default_rng(0)
    faces = rng.uniform(0, 1, (5, 30, 28)).astype(np.float32)
    data = load_faces(faces, size=12)
    assert data.images.shape == (5, 1, 12, 12)
    np.testing.assert_allclose(data.images.mean(axis=(1, 2, 3)), 0.5, atol=0.01)
    np.testing.assert_allclose(data.images.std(axis=(1, 2, 3)), 0.15, atol=0.01)
    np.testing.assert_allclose(load_faces(faces * 255, size=12).images, data.images, atol=1e-4)
    np.savez(tmp_path / "faces.npz", images=(faces * 255).astype(np.uint8))
    np.testing.assert_allclose(load_faces(tmp_path / "faces.npz", size=12).images, data.images, atol=0.02)
    colour = np.repeat(faces[..., None], 3, axis=-1)
    np.testing.assert_allclose(load_faces(colour, size=12).images, data.images, atol=1e-3)
    (tmp_path / "many").mkdir()
    for i, face in enumerate(faces):
        (tmp_path / "many" / f"{i}.png").write_bytes(png(face))
    (tmp_path / "many" / "flat.png").write_bytes(png(np.full((9, 9), 0.4)))
    (tmp_path / "many" / "readme.txt").write_text("hello")
    read = load_faces(tmp_path / "many", size=12)
    np.testing.assert_allclose(read.images, data.images, atol=0.02)
    assert read.skipped_reasons() == {"no contrast": 1, "not an image by its name": 1}


def test_bad_face_collections(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    rows = np.random.default_rng(0).uniform(size=(2, 8, 8))
    np.savez(tmp_path / "names.npz", images=rows, names=np.array([{}], object))
    assert len(load_faces(tmp_path / "names.npz", size=8)) == 2  # what is not asked for is not looked at
    np.savez_compressed(tmp_path / "bomb.npz", images=np.zeros((300, 1000, 1000), np.uint8))
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,), }".ljust(69) + b"\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\1\0" + bytes([len(header), 0]) + header)
    (tmp_path / "text.npz").write_text("no array")
    (tmp_path / "empty").mkdir()
    cases = {
        tmp_path / "other.npz": r"expected an array 'images' in it, found \['x'\]",
        tmp_path / "text.npz": "expected an archive of arrays",
        tmp_path / "bomb.npz": "images.npy' is 300000128 bytes, expected at most",
        tmp_path / "huge.npy": r"expected an array, got a damaged one \(float32 of shape \(9999999999,\)",
        tmp_path / "absent.npz": "found nothing",
        tmp_path / "empty": "found none among 0 files",
    }
    for path, message in cases.items():
        with pytest.raises(ValueError, match=message):
            load_faces(path)
    with pytest.raises(ValueError, match=r"got float64 \(3,\)"):
        load_faces(np.ones(3))
    with pytest.raises(ValueError, match="without any contrast"):
        load_faces(np.ones((2, 8, 8)))
    with pytest.raises(ValueError, match="finite"):
        load_faces(np.full((2, 8, 8), np.nan))


def own_objects(root: Path, lights: str | None = "lights.txt") -> Path:
    rng = np.random.default_rng(1)
    for name in ("cup", "shoe"):
        (root / name).mkdir(parents=True)
        for i in range(11):
            (root / name / f"{name}.{i}.png").write_bytes(
                png(np.full((20, 30), (i + 1) / 20) + rng.uniform(0, 0.01, (20, 30)))
            )
        mask = np.zeros((20, 30))
        mask[5:15, 10:20] = 1
        (root / name / "mask.png").write_bytes(png(mask))
        if lights == "lights.txt":
            rows = "\n".join(f"{0.01 * i} 0 1" for i in range(11))
            (root / name / "lights.txt").write_text(f"11\n{rows}")
        if lights == "lights.csv":
            rows = "\n".join(f"{name}.{i}.png,{0.01 * i},0,1" for i in reversed(range(11)))
            (root / name / "lights.csv").write_text(f"name,x,y,z\n{rows}")
    return root


def test_odd_numbers_of_lights_and_names():
    for text in (b"inf 0 0 1", b"nan 0 0 1", b"-inf 0 0", b"1e400 0 0 1"):
        with pytest.raises(ValueError, match=r"lights.txt: expected"):
            read_lights(text, "lights.txt", ["a.png"])
    assert natural("²1.png") == [(-1, "²"), (1, ""), (-1, ".png")]


@pytest.mark.parametrize("lights", ["lights.txt", "lights.csv", None])
def test_own_objects_with_masks_and_lights(tmp_path, lights):
    data = load_folder(own_objects(tmp_path / "mine", lights), size=10, srgb=False)
    assert data.names == ("cup", "shoe")
    assert data.images.shape == (2, 11, 10, 10)
    # Number 2 comes before number 10, and light i belongs to image i.
    assert data.image_names[0][2] == "cup.2.png"
    np.testing.assert_allclose(data.images[0].mean(axis=(1, 2)), np.arange(1, 12) / 20 + 0.005, atol=0.005)
    if lights is None:
        assert data.lights is None
    else:
        np.testing.assert_allclose(data.lights[1, :, 0], 0.01 * np.arange(11), atol=1e-6)
    assert 0.1 < data.mask[0, 0].mean() < 0.3
    assert data.info["linearised"] is False
    assert load_folder(tmp_path / "mine").images.max() < 0.4  # 0.56 as sRGB is darker in linear light


def test_images_under_the_same_light_are_told_by_its_name(tmp_path):
    root = own_objects(tmp_path / "mine", None)
    assert load_folder(root, size=10).rig is None
    (root / "rig.txt").write_text("\n".join(f"lamp {i}" for i in range(11)))  # serves all
    (root / "shoe" / "rig.csv").write_text("name,light\nshoe.2.png,left\nshoe.1.png, lamp 1 \n")
    data = load_folder(root, size=10)
    assert data.rig.tolist() == [[f"lamp {i}" for i in range(11)], ["", "lamp 1", "left", *[""] * 8]]
    assert not data.skipped
    chosen = np.zeros((2, 11), bool)
    chosen[0, [3, 10]] = chosen[1, 2] = True
    assert data.keep(chosen).rig.tolist() == [["lamp 3", "lamp 10"], ["left", ""]]
    assert data.object("shoe").rig.tolist() == [data.rig[1].tolist()]
    assert {len(part.rig) for part in data.split(0.5)} == {1}
    (root / "shoe" / "rig.csv").write_text("lamp\nlamp\n")
    with pytest.raises(ValueError, match="one name of a light for each of 11 images, got 2 rows"):
        load_folder(root)
    (root / "shoe" / "rig.csv").write_text("boot.1.png,left\n")
    with pytest.raises(ValueError, match=r"expected rows such as 'shoe\.0\.png,left', got none"):
        load_folder(root)
    with pytest.raises(ValueError, match=r"rig: expected shape \(2, 11\), got \(2,\)"):
        replace(data, rig=np.array(["a", "b"]))


def test_own_objects_with_faults(tmp_path):
    root = own_objects(tmp_path / "mine")
    (root / "cup" / "cup.3.png").write_bytes(b"")
    (root / "cup" / "cup.4.png").write_text("a text")
    (root / "cup" / "notes.doc").write_text("notes")
    data = load_folder(root, size=10, srgb=False)
    assert data.present.sum(axis=1).tolist() == [9, 11]
    np.testing.assert_allclose(data.lights[0, :4, 0], [0, 0.01, 0.02, 0.05], atol=1e-6)  # lights stay with their images
    assert len(data.skipped) == 3
    (root / "shoe" / "lights.txt").write_text("0 0 1")
    with pytest.raises(ValueError, match="expected 11 lights, one for each image, got 1"):
        load_folder(root)
    (root / "shoe" / "lights.txt").write_text("a b c")
    with pytest.raises(ValueError, match="expected lights, three numbers each"):
        load_folder(root)
    (root / "shoe" / "lights.txt").unlink()
    (root / "shoe" / "shoe.5.png").write_bytes(png(np.ones((7, 7))))
    with pytest.raises(ValueError, match=r"shoe: expected images of one size, got 'shoe.0.png' of 30×20 and .* of 7×7"):
        load_folder(root)
    (root / "shoe" / "mask.png").write_bytes(png(np.zeros((20, 30))))
    (root / "shoe" / "shoe.5.png").unlink()
    with pytest.raises(ValueError, match="expected a mask with some white"):
        load_folder(root)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="found none among 0 files"):
        load_folder(tmp_path / "nothing")


def test_photos_of_one_thing(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(np.full((6, 9), 0.2 + 0.2 * i)))
    one = load_photos(tmp_path / "0.png", srgb=False)
    assert one.images.shape == (1, 1, 6, 9)
    several = load_photos([tmp_path / f"{i}.png" for i in range(3)], size=4, srgb=False)
    np.testing.assert_allclose(several.images[0, :, 0, 0], [0.2, 0.4, 0.6], atol=0.01)
    (tmp_path / "big.png").write_bytes(png(np.ones((12, 9))))
    with pytest.raises(
        ValueError, match=r"photos: expected images of one size, got '0.png' of 9×6 and 'big.png' of 9×12"
    ):
        load_photos([tmp_path / "0.png", tmp_path / "big.png"])
    with pytest.raises(ValueError, match="found nothing"):
        load_photos(tmp_path / "absent.png")
    with pytest.raises(ValueError, match="at least one photo"):
        load_photos([])
    (tmp_path / "dot.png").write_bytes(png(np.ones((1, 1))))
    assert load_photos(tmp_path / "dot.png", size=8).images.shape == (1, 1, 8, 8)


def test_natural_order_and_light_files():
    assert sorted(["c10", "c9", "c1", "b"], key=natural) == ["b", "c1", "c9", "c10"]
    lights = read_lights(b"0,0,1\n1,0,1\n", "lights.csv", ["a", "b"])
    np.testing.assert_array_equal(lights, [[0, 0, 1], [1, 0, 1]])
    with pytest.raises(ValueError, match="no light for 'b'"):
        read_lights(b"a,0,0,1\n", "lights.csv", ["a", "b"])
    with pytest.raises(ValueError, match="three finite numbers"):
        read_lights(b"0 0 nan", "lights.txt", ["a"])


@given(st.binary(max_size=200), st.sampled_from(["lights.txt", "lights.csv"]))
@settings(max_examples=200, deadline=None)
def test_fuzz_light_files(text, name):
    try:
        lights = read_lights(text, name, ["a.png", "b.png"])
    except ValueError:
        return
    assert np.isfinite(lights).all()


def test_check_finds_what_is_wrong(tmp_path):
    data = ragged((3, 1, 2))
    report = check(data)
    assert report.objects == 3
    assert report.images == 6
    assert report.subsets == {"1": 4, "2": 2}
    assert report.known_lights == 6
    assert any("single image" in warning for warning in report.warnings)
    assert "o1/i0" in report.saturated  # all of it is 1.0
    assert "o0/i0" in report.dark
    assert contact_sheet(data).size[0] > 0


def test_data_check_command(yale, tmp_path):
    sheet = tmp_path / "out" / "sheet.png"
    done = dln("data", "check", "yaleb", str(yale), "--json", "--sheet", str(sheet))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["objects"] == 2
    assert report["skipped"]["marked as corrupt (.bad)"] == 2
    with Image.open(sheet) as picture:
        assert picture.size[0] > 100
    text = dln("data", "check", "yaleb", str(yale), "--sheet", str(sheet)).stdout
    assert "images by illumination subset: 1: 2" in text
    assert "skipped 2: marked as corrupt (.bad)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["yaleb", "absent.zip"], "found nothing"),
        (["yaleb"], "expected the path"),
        (["folder", "text.zip"], "found another kind of file"),
        (["faces", "text.npz"], "expected an archive of arrays"),
        (["folder", "empty"], "found none among 0 files"),
        (["yaleb", "empty"], "expected cropped Yale B images"),
        (["yaleb", "empty", "--size", "0"], "expected at least 1 pixel"),
    ],
)
def test_data_check_says_in_one_line_why_not(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.zip").write_text("no archive")
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty").mkdir()
    done = dln("data", "check", *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
