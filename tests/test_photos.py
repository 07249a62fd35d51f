"""Photos in colour, of any size, with a face somewhere in them: found, refined, relit, saved, and named."""

import json

import numpy as np
import pytest
from PIL import Image

import deep_lambertian as dl
from deep_lambertian.cli import main
from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.geometry import angles, angles_of, around, direction
from deep_lambertian.inference.posterior import Diagnostics, Posterior
from deep_lambertian.photos.placing import Placement, mean_image, place, prepare_photos
from deep_lambertian.photos.result import chroma, infer_photos, refine
from deep_lambertian.recognition.distances import relighting_rmse
from deep_lambertian.report.photo import facing
from deep_lambertian.support.resampling import enlarge_cubic
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.portrait import draw_portrait
from deep_lambertian.synthetic.scenes import shade
from deep_lambertian.tasks.people import count_errors

SHORT = {"iterations": 24, "chains": 2}


@pytest.fixture(scope="module")
def model():
    return dl.load_model("yaleb24")


@pytest.fixture(scope="module")
def portrait():
    return draw_portrait(0)


@pytest.fixture(scope="module")
def result(model, portrait):
    return infer_photos(model, [("me.png", portrait.photo)], sampler=model.sampler.override(**SHORT, keep=2))


def save(path, linear):
    Image.fromarray(np.round(255 * linear_to_srgb(linear)).astype(np.uint8)).save(path)
    return path


def size_of(path) -> tuple[int, int, int]:
    """Width, height and number of frames of a picture."""
    with Image.open(path) as image:
        return *image.size, getattr(image, "n_frames", 1)


@pytest.fixture(scope="module")
def photo_file(portrait, tmp_path_factory):
    return save(tmp_path_factory.mktemp("photos") / "me.png", portrait.photo)


def test_a_portrait_is_found_and_its_light_is_told(result, portrait):
    found = result.photos[0].alignment
    assert np.abs(found.corners - portrait.alignment.corners).max() < 0.1 * portrait.alignment.height
    assert angles(result.posterior.lights[0], portrait.light, axis=-1) < 30
    assert angles_of(result.posterior.lights[0])[0] > 10  # it comes from the right
    height, width = result.scaled_normals.shape[:2]
    assert (height, width) == (384, 336)  # at the photo's own resolution: the face is 290 pixels high
    assert result.colour[height // 2, width // 2, 0] > result.colour[height // 2, width // 2, 2]  # skin is reddish
    assert any("sRGB" in note for note in result.notes)
    assert any("face was found" in note for note in result.notes)


def test_brightness_of_the_camera_does_not_matter(result, model, portrait):
    darker = infer_photos(model, [("me.png", 0.4 * portrait.photo)], sampler=model.sampler.override(**SHORT))
    assert darker.photos[0].exposure == pytest.approx(result.photos[0].exposure / 0.4, rel=0.02)
    assert angles(darker.posterior.normals, result.posterior.normals, axis=-1).mean() < 3


def test_the_photo_under_its_own_light_is_the_photo(result):
    """In shadow too, of which the light at hand explains little."""
    photo, light = result.photos[0], result.posterior.lights[0]
    np.testing.assert_allclose(result.relight_photo(light), np.clip(photo.colour, 0, 1), atol=1e-5)
    # The object alone comes from the surface, which explains all of the photo but for shadows and highlights.
    alone, seen = result.relight(light), photo.crop(result.colour.shape[:2])
    assert np.median(np.abs(alone - seen)) < 0.02
    assert np.mean(alone) == pytest.approx(np.mean(seen), rel=0.1)


def test_what_is_dark_in_the_photo_is_dark_in_the_albedo(result, model, portrait):
    darker = infer_photos(model, [("me.png", 0.4 * portrait.photo)], sampler=model.sampler.override(**SHORT))
    shown, dark = (facing(each.albedo, each.posterior).mean() for each in (result, darker))
    assert dark == pytest.approx(0.4 * shown, rel=0.05)


def test_relighting_changes_the_face_and_nothing_far_from_it(result):
    photo = result.photos[0]
    left, right = (result.relight_photo(direction(azimuth, 0), ambient=0.1) for azimuth in (-50, 50))
    size = (24, 24)
    halves = [photo.alignment.crop(picture, size)[..., 1] for picture in (left, right)]
    assert halves[0][:, :12].mean() > 1.2 * halves[1][:, :12].mean()
    assert halves[1][:, 12:].mean() > 1.2 * halves[0][:, 12:].mean()
    rows, columns = np.mgrid[: photo.colour.shape[0], : photo.colour.shape[1]]
    far = np.hypot(columns - photo.alignment.centre[0], rows - photo.alignment.centre[1]) > photo.alignment.height
    assert far.any()
    np.testing.assert_array_equal(left[far], np.clip(photo.colour, 0, 1)[far])


def test_a_result_is_saved_and_loaded(result, tmp_path):
    result.save(tmp_path / "result.npz")
    again = dl.Result.load(tmp_path)
    np.testing.assert_allclose(again.relight([0.3, 0.2, 0.8]), result.relight([0.3, 0.2, 0.8]), atol=2e-3)
    np.testing.assert_array_equal(again.posterior.albedo, result.posterior.albedo)
    assert again.notes == result.notes
    assert again.photos[0].name == "me.png"
    np.testing.assert_array_equal(again.photos[0].alignment.matrix, result.photos[0].alignment.matrix)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"expected a (result that dln infer wrote|file of version 2)"):
        dl.Result.load(tmp_path / "bad.npz")
    with pytest.raises(ValueError, match="found nothing there"):
        dl.Result.load(tmp_path / "nowhere")


def posterior_of(albedo, normals, lights) -> Posterior:
    """A posterior that knows the truth at a small size."""
    zeros = np.zeros_like(albedo)
    return Posterior(
        albedo=albedo,
        albedo_std=zeros,
        normals=normals,
        normals_std=zeros,
        lights=lights,
        lights_std=np.zeros_like(lights),
        scaled_normals=albedo[..., None] * normals,
        scaled_normals_std=np.zeros_like(normals),
        shadows=np.zeros((len(lights), *albedo.shape), np.float32),
        spread={},
        diagnostics=Diagnostics({}, 0, zeros + 1),
        samples={},
        info={},
    )


@pytest.mark.parametrize("images", [1, 4])
def test_refining_brings_back_what_the_small_size_has_lost(images):
    """The truth at 24 pixels, and photos of 96: the refined surface predicts new photos better than an enlarged one."""
    lights = np.array([[0.4, 0.3, 0.8], [-0.5, 0.1, 0.7], [0.1, -0.4, 0.8], [0.0, 0.5, 0.8]], np.float32)
    small, large = draw_faces(1, size=24, seed=3), draw_faces(1, size=96, seed=3)
    post = posterior_of(small.albedo[0], small.normals[0], lights[:images])
    photos = shade(large.albedo[0], large.normals[0], lights[:images])
    albedo, normals = refine(post, photos)
    fresh = shade(large.albedo[0], large.normals[0], np.array([[0.0, 0.0, 1.0], [-0.3, -0.2, 0.9]]))
    before = relighting_rmse(enlarge_cubic(post.scaled_normals, (96, 96)).reshape(-1, 3), fresh.reshape(2, -1))
    after = relighting_rmse((albedo[..., None] * normals).reshape(-1, 3), fresh.reshape(2, -1))
    assert after < (0.75 if images == 1 else 0.4) * before
    np.testing.assert_allclose(np.linalg.norm(normals, axis=-1), 1, atol=1e-4)
    if images == 4:
        off = [angles(n, large.normals[0], axis=-1).mean() for n in (enlarge_cubic(post.normals, (96, 96)), normals)]
        assert off[1] < 0.8 * off[0]


def test_colour_is_what_each_channel_has_of_the_luminance():
    crop = np.full((4, 4, 3), 0.2) * [1.5, 1.0, 0.5]
    found = chroma([crop])
    np.testing.assert_allclose(found / found[..., 1:2], np.broadcast_to([1.5, 1.0, 0.5], crop.shape), rtol=1e-3)
    np.testing.assert_allclose(found @ [0.2126, 0.7152, 0.0722], 1, rtol=1e-3)
    assert np.all(np.isfinite(chroma([np.zeros((4, 4, 3))])))


def test_lights_have_angles():
    for azimuth, elevation in ((0, 0), (-60, 20), (35, -10), (0, 89)):
        assert angles_of(3 * direction(azimuth, elevation)) == pytest.approx((azimuth, elevation), abs=1e-3)
    lights = np.stack(around(8))
    np.testing.assert_allclose(np.linalg.norm(lights, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(lights.sum(axis=0)[:2], 0, atol=1e-5)


def test_photos_of_one_face_share_a_frame_where_nothing_moved(model):
    pictures = [draw_portrait(2, light).photo for light in ((0.0, 0.2, 0.9), (0.3, 0.2, 0.9))]
    frames, how = place(pictures, model.shape, mean_image(model), Placement())
    assert frames[0] is frames[1]
    assert "2 of 2" in how
    assert "did not move" in how
    black = np.zeros_like(pictures[0])
    frames, how = place([pictures[0], black], model.shape, mean_image(model), Placement())
    assert frames[1] is frames[0]  # too dark for a face to be found: the other photo says where it is
    assert "1 of 2" in how


def test_photos_that_cannot_be_used_say_why(model):
    blank = np.full((60, 50, 3), 0.4, np.float32)
    with pytest.raises(dl.data.NoFaceError, match="expected a photo with one frontal face, found none"):
        prepare_photos([("wall.png", blank)], model)
    with pytest.raises(ValueError, match=r"night.png: expected a photo that shows something, got one that is black"):
        prepare_photos([("night.png", 0 * blank)], model, Placement(align=False))
    with pytest.raises(ValueError, match=r"wall.png: expected a photo that shows something, got one that is even"):
        prepare_photos([("wall.png", blank)], model, Placement(align=False))
    blank[:30] = 0.2
    with pytest.raises(ValueError, match="a mask that hides all of it"):
        infer_photos(model, [("wall.png", blank)], placement=Placement(align=False), mask=np.zeros((60, 50)))


def test_what_is_white_does_not_count_and_leaves_the_prior_to_say(model, portrait):
    """The brighter the exposure, the more is cut off, and the less is known; all white is refused."""
    where, sampler = Placement(frame=portrait.alignment), model.sampler.override(**SHORT)
    exposed = [np.clip(gain * portrait.photo, 0, 1) for gain in (1.0, 2.5, 12.0)]
    usual, bright, white = (infer_photos(model, [("p", e)], placement=where, sampler=sampler) for e in exposed)
    assert not any("is white" in note for note in usual.notes)
    assert any("of the object is white, and was left out" in note for note in bright.notes)
    own = [float(each.posterior.spread["normals"].mean()) for each in (usual, bright, white)]
    assert own[0] < own[1] < own[2]
    with pytest.raises(ValueError, match="white where the object should be"):
        infer_photos(model, [("p", np.ones_like(portrait.photo))], placement=where)


# ---- The commands


def test_infer_writes_everything_and_relight_reads_it(photo_file, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["infer", "yaleb24", str(photo_file), "--out", str(out), "--iterations", "20", "--chains", "2"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lights"][0]["azimuth_deg"] > 0
    assert told["report"] == str(out / "report.html")
    files = {path.name for path in out.iterdir()}
    pictures = {
        "albedo.png",
        "normals.png",
        "albedo_std.png",
        "normals_std.png",
        "shadow.png",
        *(f"relit_{i}.png" for i in range(3)),
    }
    assert files >= pictures | {"albedo.npy", "normals.npy", "lights.json", "uncertainty.npz", "samples.npz"}
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
    assert np.load(out / "albedo.npy").shape == np.load(out / "normals.npy").shape == (384, 336, 3)
    assert size_of(out / "relit_0.png") == (640, 480, 1)

    assert main(["relight", str(out), "--light", "0.5,0.2,0.8"]) == 0
    assert main(["relight", str(out), "--azimuth", "-60", "--crop", "--out", str(tmp_path / "left.png")]) == 0
    assert size_of(tmp_path / "left.png") == (336, 384, 1)
    assert main(["relight", str(out), "--sweep", "4", "--gif", "--out", str(tmp_path / "round.gif")]) == 0
    assert size_of(tmp_path / "round.gif") == (320, 240, 4)
    assert main(["relight", str(out), "--sweep", "3", "--out", str(tmp_path / "round")]) == 0
    assert len(list((tmp_path / "round").glob("*.png"))) == 3
    capsys.readouterr()
    bad = {
        (): "expected one of --light",
        ("--light", "1,2"): "--light: expected X,Y,Z, got '1,2'",
        ("--sweep", "1"): "expected 2 to 360",
        ("--light", "0,0,1", "--gif"): "--gif: expected together with --sweep",
        ("--light", "0,0,1", "--photo", "2"): "--photo: expected 1 to 1, got 2",
        ("--light", "0,0,1", "--out", "a.doc"): "expected a picture's name",
    }
    for options, message in bad.items():
        assert main(["relight", str(out), *options]) == 1
        assert message in capsys.readouterr().err


def test_infer_takes_the_model_that_anyone_may_use_unless_one_is_named(
    model, photo_file, tmp_path, capsys, monkeypatch
):
    """And a model may be a file of any name, before options as well as before photos; a folder is none."""
    (tmp_path / "yaleb24").mkdir()
    monkeypatch.chdir(tmp_path)
    short = ["--iterations", "8", "--chains", "1", "--samples", "0", "--no-align", "--out", str(tmp_path / "out")]
    assert main(["infer", str(photo_file), *short]) == 0
    assert capsys.readouterr().out.startswith("model: faces48, which is taken where none is named")
    assert np.load(tmp_path / "out" / "uncertainty.npz")["albedo_std"].shape == (48, 48)
    model.save(tmp_path / "mine", compact=True)
    for given in (["yaleb24", *short, str(photo_file)], [str(tmp_path / "mine"), str(photo_file), *short]):
        assert main(["infer", *given, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == given[0]
        assert np.load(tmp_path / "out" / "uncertainty.npz")["albedo_std"].shape == (24, 24)


def test_known_lights_and_masks_come_from_files(model, tmp_path, capsys):
    people = draw_faces(1, images=3, size=48, seed=4, lights=np.array([[0.3, 0, 0.8], [-0.3, 0.1, 0.8], [0, 0.4, 0.8]]))
    paths = [str(save(tmp_path / f"{i}.png", image)) for i, image in enumerate(people.images[0])]
    (tmp_path / "lights.txt").write_text("0.3 0 0.8\n-0.3 0.1 0.8\n0 0.4 0.8\n")
    mask = np.zeros((48, 48), np.uint8)
    mask[4:44, 4:44] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    common = ["--no-align", "--iterations", "20", "--chains", "1", "--lights", str(tmp_path / "lights.txt")]
    common += ["--mask", str(tmp_path / "mask.png"), "--out", str(tmp_path / "out"), "--json"]
    assert main(["infer", "yaleb24", *paths, *common]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["lights"][1]["light"], [-0.3, 0.1, 0.8], atol=1e-4)
    assert told["lights"][1]["std"] == [0, 0, 0]
    (tmp_path / "lights.txt").write_text("0.3 0 0.8\n")
    assert main(["infer", "yaleb24", *paths, *common]) == 1
    assert "expected 3 lights, one for each image, got 1" in capsys.readouterr().err
    Image.fromarray(mask[:20]).save(tmp_path / "mask.png")
    (tmp_path / "lights.txt").write_text("0.3 0 0.8\n-0.3 0.1 0.8\n0 0.4 0.8\n")
    assert main(["infer", "yaleb24", *paths, *common]) == 1
    assert "expected a mask of the photos' size, 48×48, got 48×20" in capsys.readouterr().err


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Known photos and new ones of five people, cropped already."""
    folder = tmp_path_factory.mktemp("people")
    drawn = draw_faces(5, images=3, size=48, seed=11)
    for i, name in enumerate("ABCDE"):
        for where, images in (("gallery", drawn.images[i][:1]), ("probe", drawn.images[i][1:])):
            (folder / where / name).mkdir(parents=True)
            for k, image in enumerate(images):
                save(folder / where / name / f"{k}.png", np.clip(image, 0, 1))
    return folder


def test_recognize_names_people_from_one_photo_each(people, tmp_path, capsys):
    common = [
        "--gallery",
        str(people / "gallery"),
        "--probe",
        str(people / "probe"),
        "--no-align",
        "--iterations",
        "40",
    ]
    assert main(["recognize", "yaleb24", *common, "--json", "--out", str(tmp_path / "answers.csv")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["people"] == list("ABCDE")
    assert told["judged"] == 10
    assert sum(each["nearest"] != each["truth"] for each in told["answers"]) <= 3  # by chance it would be eight
    assert told["unknown"] == sum(each["label"] == "unknown" for each in told["answers"])
    for each in told["answers"]:
        assert each["distance"] <= each["second_distance"]
        assert 0 <= each["confidence"] <= 1
        assert each["label"] == (each["nearest"] if each["confidence"] >= 0.5 else "unknown")
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    assert lines[0].startswith("probe,truth,label,confidence,nearest,distance")
    assert len(lines) == 11
    assert main(["recognize", "yaleb24", *common, "--rule", "plain", "--threshold", "0"]) == 0
    told = capsys.readouterr().out
    assert "error: " in told
    assert "unknown" not in told
    assert main(["recognize", "yaleb24", *common, "--threshold", "1.5"]) == 1
    assert "expected a probability from 0 to 1" in capsys.readouterr().err


def test_recognize_goes_on_past_photos_it_cannot_read(people, tmp_path, capsys):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "new" / "who.png").write_bytes((people / "probe" / "B" / "0.png").read_bytes())
    common = [
        "--gallery",
        str(people / "gallery"),
        "--probe",
        str(tmp_path / "new"),
        "--no-align",
        "--iterations",
        "40",
    ]
    assert main(["recognize", *common, "--json", "--chains", "1"]) == 0  # by the model that is best at it
    told = json.loads(capsys.readouterr().out)
    problems = {each["probe"]: each["problem"] for each in told["answers"]}
    assert "expected an image" in problems["broken.jpg"]
    assert problems["who.png"] == ""
    assert "error" not in told  # nobody says who they are
    assert count_errors([], ["A"]) == {"probes": 0, "problems": 0, "unknown": 0}
    (tmp_path / "empty").mkdir()
    for gallery, message in (
        (tmp_path / "empty", "expected photos"),
        (people / "gallery" / "A", "at least two people"),
        (tmp_path / "nowhere", "nowhere"),
    ):
        assert main(["recognize", "yaleb24", "--gallery", str(gallery), *common[2:]]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1


def test_a_model_too_small_for_faces_says_what_to_do(small):
    with pytest.raises(ValueError, match=r"at least 12×12 pixels to look for a face with, got one of 8×8.*--no-align"):
        infer_photos(small, [("photo", np.full((60, 60, 3), 0.4, np.float32))])


def test_a_model_of_black_things_leaves_the_exposure_as_it_is():
    photo = np.random.default_rng(0).uniform(0.2, 0.9, (8, 8, 3)).astype(np.float32)
    model = dl.DLN.random((8, 8), (4,), (4,))  # whose mean albedo is 0
    (prepared,), _ = prepare_photos([("photo", photo)], model, Placement(align=False))
    assert prepared.exposure == 1
