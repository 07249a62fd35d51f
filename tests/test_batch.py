"""Inference over a folder of objects: every object's result is its own, what is missing is done, bad ones are named."""

import csv
import json
import shutil
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deep_lambertian import DLN, Layout, Posterior
from deep_lambertian.cli import main
from deep_lambertian.data import folder_objects, load_folder
from deep_lambertian.data.folder import Entry
from deep_lambertian.data.images import encode_png16
from deep_lambertian.photos import batch
from deep_lambertian.photos.batch import BatchOptions, BatchResult
from deep_lambertian.support import compiled

COUNTS = (4, 3, 4, 4, 4)  # three and four images go together: one compiled shape


def infer_folder(
    model: DLN, path: Path, out: Path, iterations: int = 6, seed: int = 0, srgb: bool = False, **options
) -> BatchResult:
    """A short chain for each object."""
    sampler = model.sampler.override(iterations=iterations)
    return batch.infer_folder(model, path, out, sampler, seed=seed, options=BatchOptions(srgb=srgb, **options))


def write_object(folder: Path, images: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for i, image in enumerate(np.clip(images, 0, 1)):
        Image.fromarray(np.round(255 * image).astype(np.uint8)).save(folder / f"{i}.png")


@pytest.fixture(scope="module")
def objects(tmp_path_factory, small) -> Path:
    root = tmp_path_factory.mktemp("objects")
    drawn = small.sample(len(COUNTS), images=4, seed=4, iterations=6).images
    for i, (count, images) in enumerate(zip(COUNTS, drawn, strict=True)):
        write_object(root / f"thing{i}", images[:count])
    return root


@pytest.fixture(scope="module")
def results(tmp_path_factory, objects, small) -> Path:
    out = tmp_path_factory.mktemp("results") / "out"
    found = infer_folder(small, objects, out)
    assert (found.done, found.before, found.failed) == (len(COUNTS), 0, {})
    return out


@pytest.fixture
def copied(results, tmp_path) -> Path:
    return Path(shutil.copytree(results, tmp_path / "out"))


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "summary.csv").open() as file:
        return list(csv.DictReader(file))


def assert_alike(a: Posterior, b: Posterior) -> None:
    for name in ("albedo", "normals", "lights", "normals_std"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=2e-3 if "std" not in name else 0.1)


def test_names_are_listed_without_decoding_and_some_are_read(objects, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"no image")
    assert folder_objects(tmp_path) == ["broken"]
    assert folder_objects(objects) == [f"thing{i}" for i in range(5)]
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", objects)
    assert folder_objects(archive) == folder_objects(objects)
    some = load_folder(objects, 8, objects=["thing3", "thing1"], srgb=False)
    whole = load_folder(objects, 8, srgb=False)
    assert some.names == ("thing3", "thing1")
    np.testing.assert_array_equal(some.images[0], whole.object("thing3").images[0])
    with pytest.raises(ValueError, match="no object 'cat' among the 5 in it"):
        load_folder(objects, 8, objects=["cat"])


def test_every_object_gets_its_files(results, objects, small):
    data = load_folder(objects, 8, srgb=False)
    for number, (name, images, _, _) in enumerate(data.each()):
        post = Posterior.load(results / name / "posterior.npz")
        assert post.lights.shape == (len(images), 3)
        assert post.info["number"] == number
        assert post.info["images"] == [f"{i}.png" for i in range(len(images))]
        lights = json.loads((results / name / "lights.json").read_text())
        np.testing.assert_allclose([each["light"] for each in lights["lights"]], post.lights, rtol=1e-6)
        albedo = np.asarray(Image.open(results / name / "albedo.png"), np.float64) / 65535
        np.testing.assert_allclose(albedo, np.clip(post.albedo, 0, 1), atol=1e-5)
        with Image.open(results / name / "normals.png") as picture:  # Pillow reads the upper 8 bits of 16
            assert picture.size == (8, 8)
            np.testing.assert_allclose(np.asarray(picture) / 255, (post.normals + 1) / 2, atol=1 / 128)
    assert [row["object"] for row in rows(results)] == list(data.names)
    assert {row["ok"] for row in rows(results)} == {"yes"}


def test_sixteen_bits_are_kept():
    values = np.random.default_rng(0).random((3, 5, 3))
    data = encode_png16(values)
    start = data.index(b"IDAT")
    length = int.from_bytes(data[start - 4 : start], "big")
    lines = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(3, -1)
    assert not lines[:, 0].any()
    found = np.ascontiguousarray(lines[:, 1:]).view(">u2").reshape(values.shape)
    np.testing.assert_allclose(found / 65535, values, atol=0.5 / 65535 + 1e-9)
    with pytest.raises(ValueError, match=r"got shape \(2,\)"):
        encode_png16(np.zeros(2))


def test_results_do_not_depend_on_the_batch(results, objects, small, tmp_path):
    infer_folder(small, objects, tmp_path / "out", batch=2)
    for name in folder_objects(objects):
        first, second = (Posterior.load(out / name / "posterior.npz") for out in (results, tmp_path / "out"))
        assert_alike(first, second)


def test_an_object_keeps_its_draws_with_its_number(results, objects, small):
    data = load_folder(objects, 8, srgb=False).object("thing3")
    alone = small.infer_many([data.images[0]], layout=Layout([3]), iterations=6)[0]
    assert_alike(alone, Posterior.load(results / "thing3" / "posterior.npz"))
    other = small.infer_many([data.images[0]], layout=Layout([2]), iterations=6)[0]
    assert np.abs(other.albedo - alone.albedo).max() > 1e-3
    assert_alike(small.infer_many([data.images[0]], iterations=6)[0], small.infer(data.images[0], iterations=6))
    with pytest.raises(ValueError, match="numbers: expected one for each of 1 objects, got 2"):
        small.infer_many([data.images[0]], layout=Layout([1, 2]))


@pytest.mark.parametrize("damage", [None, (b"lights", b"nights"), (b"0.", b"1."), (b"{", b"[")])
def test_only_what_is_missing_or_damaged_is_done_to_the_same_bytes(copied, results, objects, small, damage):
    if damage is None:
        (copied / "thing2" / "posterior.npz").unlink()
    else:
        figures = copied / "thing2" / "lights.json"
        figures.write_bytes(figures.read_bytes().replace(*damage, 1))
    (copied / "summary.csv").unlink()
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*.npz") if path.parent.name != "thing2"}
    outcomes = []
    found = infer_folder(small, objects, copied, on_object=lambda *outcome: outcomes.append(outcome))
    assert outcomes == [("thing2", "")]
    assert (found.done, found.before) == (1, 4)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for path in results.rglob("*.*"):
        if path.is_file() and path.name != ".lock":  # which says who was at work
            assert (copied / path.relative_to(results)).read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 7}, r"settings.iterations was 6, now 7; .*--restart"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"srgb": True}, "srgb was false, now true"),
    ],
)
def test_other_settings_are_refused(copied, objects, small, changes, message):
    with pytest.raises(ValueError, match=message):
        infer_folder(small, objects, copied, **changes)


def test_another_model_and_other_objects_are_refused_until_restart(copied, objects, small, tmp_path):
    other = DLN.build(small.params.prior, (8, 8), noise_var=0.02, light_precision=4.0, preset="quick")
    with pytest.raises(ValueError, match=r"another run: model was .*--restart"):
        infer_folder(other, objects, copied)
    renamed = Path(shutil.copytree(objects, tmp_path / "renamed"))
    (renamed / "thing4").rename(renamed / "thing9")
    with pytest.raises(ValueError, match=r"listing was .*, now "):
        infer_folder(small, renamed, copied)
    found = infer_folder(other, renamed, copied, restart=True)
    assert (found.done, found.before) == (5, 0)
    assert not (copied / "thing4" / "posterior.npz").exists()
    (copied / "batch.json").unlink()
    with pytest.raises(ValueError, match=r"no batch\.json"):
        infer_folder(other, renamed, copied)
    with pytest.raises(ValueError, match="expected a folder outside"):
        infer_folder(small, objects, objects / "out")


def test_bad_objects_do_not_stop_the_rest(objects, small, tmp_path, capsys):
    root = Path(shutil.copytree(objects, tmp_path / "some-bad"))
    for image in (root / "thing0").iterdir():
        image.write_bytes(b"no image")
    Image.new("L", (9, 9)).save(root / "thing2" / "1.png")
    (root / "thing3" / "1.png").write_bytes(b"")  # one of four: the others serve
    path, out = tmp_path / "model.safetensors", tmp_path / "out"
    small.save(path)
    arguments = ["infer", str(path), str(root), "--out", str(out), "--iterations", "6", "--linear"]
    assert main([*arguments, "--json"]) == 1
    printed = capsys.readouterr()
    counts = json.loads(printed.out)
    assert (counts["done"], counts["before"], counts["failed"]) == (3, 0, 2)
    assert "thing2: expected images of one size" in printed.err
    table = {row["object"]: row for row in rows(out)}
    assert [row["ok"] for row in table.values()] == ["no", "yes", "no", "yes", "yes"]
    assert "thing0: no image can be used (thing0/0.png: unreadable" in table["thing0"]["reason"]
    assert table["thing3"]["images"] == "3"
    assert "left out: thing3/1.png" in table["thing3"]["reason"]
    shutil.copy(objects / "thing2" / "1.png", root / "thing2" / "1.png")  # mended: it is tried again
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert "1 done, 3 before, 1 failed" in printed
    assert str(out / "summary.csv") in printed


def test_hostile_objects_do_not_stop_the_rest(objects, small, tmp_path, capsys, monkeypatch):
    """Lights that overflow, a name that no folder can have, one that would draw on the terminal, chains that end in no
    numbers.
    """
    archive = tmp_path / "hostile.zip"
    image = (objects / "thing0" / "0.png").read_bytes()
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("good", "x" * 300, "overflow", "wild"):
            file.writestr(f"{name}/0.png", image)
        file.writestr("overflow/lights.txt", "inf 1 2 3")
        file.writestr("\x1b[2Jwiped\nout/0.png", b"no image")
    path, out, original = tmp_path / "model.safetensors", tmp_path / "out", Posterior.is_finite.fget
    small.save(path)
    wild = iter([True, False])  # of those with an image and no lights, in the order of their names
    monkeypatch.setattr(Posterior, "is_finite", property(lambda self: next(wild, True) and original(self)))
    assert main(["infer", str(path), str(archive), "--out", str(out), "--iterations", "6", "--linear"]) == 1
    told = capsys.readouterr()
    assert "1 done, 0 before, 4 failed" in told.out
    assert "\x1b" not in told.err
    assert "skipped: \\x1b[2Jwiped\\nout: no image can be used" in told.err
    reasons = {row["object"]: row["reason"] for row in rows(out)}
    assert reasons["good"] == ""
    assert "give it another name" in reasons["x" * 300]
    assert "overflow/lights.txt: expected lights" in reasons["overflow"]
    assert "wild: inference ended in numbers that are not finite, from images of up to" in reasons["wild"]


def test_one_folder_of_an_archive_is_one_object_however_it_is_spelt(objects, tmp_path):
    with zipfile.ZipFile(tmp_path / "spelt.zip", "w") as file:
        for number, name in enumerate(("./a", "a", "a/")):
            file.write(objects / "thing0" / f"{number}.png", f"{name}/{number}.png")
    assert folder_objects(tmp_path / "spelt.zip") == ["a"]
    assert load_folder(tmp_path / "spelt.zip", 8).present.sum() == 3


def test_masks_and_known_lights_are_used(objects, small, tmp_path):
    root = tmp_path / "known"
    shutil.copytree(objects / "thing0", root / "a")
    shutil.copytree(objects / "thing2", root / "b")
    (root / "a" / "lights.txt").write_text("4  0 0 1  0.6 0 0.8  0 0 1  0 0.6 0.8")
    mask = np.zeros((8, 8), np.uint8)
    mask[:, :4] = 255
    Image.fromarray(mask).save(root / "b" / "mask.png")
    infer_folder(small, root, tmp_path / "out")
    known, masked = (Posterior.load(tmp_path / "out" / name / "posterior.npz") for name in "ab")
    np.testing.assert_allclose(known.lights, [[0, 0, 1], [0.6, 0, 0.8], [0, 0, 1], [0, 0.6, 0.8]], atol=1e-6)
    assert json.loads((tmp_path / "out" / "a" / "lights.json").read_text())["known"]
    assert masked.albedo_std[:, 4:].mean() > 1.5 * masked.albedo_std[:, :4].mean()


def test_the_command_refuses_what_it_cannot_use(objects, small, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    small.save(path)
    for folder, model, message in (
        (tmp_path / "nowhere", path, "found nothing"),
        (objects, tmp_path / "no.safetensors", "expected a model file, found nothing"),
    ):
        assert main(["infer", str(model), str(folder), "--out", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1


def listing(*counts: int) -> dict[str, Entry]:
    return {f"{i:03d}": Entry([], count, False) for i, count in enumerate(counts)}


def test_batches_share_few_sizes_that_do_not_depend_on_what_is_missing(monkeypatch):
    entries = listing(*[3, 4, 1, 9, 5] * 20)
    whole = batch.plan(entries, list(entries), batch=32)
    assert {size for _, size in whole} == {(20, 1), (20, 4), (20, 9), (20, 5)}
    assert sorted(name for names, _ in whole for name in names) == list(entries)
    some = batch.plan(entries, ["000", "099"], batch=32)
    assert {size for _, size in some} == {(20, 4), (20, 5)}
    monkeypatch.setattr("jax.process_count", lambda: 3)
    shares = []
    for process in range(3):
        monkeypatch.setattr("jax.process_index", lambda process=process: process)
        shares.append([name for names, _ in batch.plan(entries, list(entries), batch=7) for name in names])
    assert sorted(name for share in shares for name in share) == list(entries)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_batches_of_one_size_compile_once(objects, small, tmp_path):
    infer_folder(small, objects, tmp_path / "out", batch=2)
    before = len(compiled._programs)
    infer_folder(small, objects, tmp_path / "out", batch=2, restart=True)
    (tmp_path / "out" / "thing0" / "posterior.npz").unlink()
    infer_folder(small, objects, tmp_path / "out", batch=2)
    assert len(compiled._programs) == before
