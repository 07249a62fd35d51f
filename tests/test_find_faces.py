"""Finding faces in photos and aligning them: exact transforms, clear errors, and real faces pasted into scenes."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from benchmarks.face_finder import folds_of, scene
from deep_lambertian.faces import find as face_detector
from deep_lambertian.faces.alignment import FRAME, Alignment
from deep_lambertian.faces.find import NoFaceError, SeveralFacesError, find_face, find_faces
from deep_lambertian.support import resampling
from deep_lambertian.support.resampling import sample_affine
from tools.train_face_finder import marks as face_marks
from tools.train_face_finder import samples as face_samples
from tools.train_face_finder.training import to_arrays

DATA = Path(os.environ.get("DLN_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
TURNED = Alignment.from_pose((70.0, 60.0), 80.0, 0.3)


def pattern(height: int = 192, width: int = 168) -> np.ndarray:
    """Something with the layout of a face: dark eyes, brows and mouth, a nose, on a smooth light ground."""
    v, u = np.meshgrid((np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij")

    def spot(x: float, y: float, w: float, h: float) -> np.ndarray:
        return np.exp(-0.5 * (((u - x) / w) ** 2 + ((v - y) / h) ** 2))

    dark = 0.45 * (spot(0.2, 0.25, 0.06, 0.03) + spot(0.78, 0.25, 0.06, 0.03) + spot(0.5, 0.78, 0.13, 0.025))
    dark += 0.25 * (spot(0.2, 0.14, 0.11, 0.025) + spot(0.8, 0.14, 0.11, 0.025) + spot(0.45, 0.6, 0.1, 0.03))
    dark += 0.12 * spot(0.62, 0.5, 0.03, 0.12)
    return 0.75 - dark - 0.2 * (u - 0.5) ** 2


def mean_face() -> np.ndarray:
    """A face (48, 48) that lies in CroppedYale's frame as people do on average."""
    return face_detector.bundled().mean


def displacement(found: Alignment, true: Alignment) -> tuple[float, float]:
    """Mean and largest displacement of the frame's pixels, in pixels of 24×24."""
    y, x = np.mgrid[: FRAME[0], : FRAME[1]]
    points = np.stack([x, y], -1).reshape(-1, 2).astype(float)
    apart = np.hypot(*(true.to_crop(found.to_photo(points)) - points).T)
    return float(apart.mean()), float(apart.max())


def ground(seed: int, shape: tuple[int, int] = (480, 640), kind: str = "smooth") -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "noise":
        return np.clip(rng.uniform(0.2, 0.7) + 0.12 * rng.normal(size=shape), 0, 1)
    if kind == "gradient":
        y, x = np.mgrid[: shape[0], : shape[1]] / np.array(shape)[:, None, None]
        turn = rng.uniform(0, 2 * np.pi)
        return 0.5 + 0.35 * (np.cos(turn) * (2 * x - 1) + np.sin(turn) * (2 * y - 1)) + 0.01 * rng.normal(size=shape)
    layers = [w * s * ndimage.gaussian_filter(rng.normal(size=shape), s) for w, s in ((0.5, 4), (1, 12), (2, 40))]
    texture = sum(layers)
    return np.clip(0.45 + 0.15 * (texture - texture.mean()) / texture.std(), 0, 1)


# --- transforms --------------------------------------------------------------------------------------------------


def test_points_go_to_the_photo_and_back():
    points = np.random.default_rng(0).uniform(0, 23, (3, 5, 2))
    np.testing.assert_allclose(TURNED.to_crop(TURNED.to_photo(points)), points, atol=1e-9)
    np.testing.assert_allclose(TURNED.to_photo(TURNED.to_crop(points, (7, 9)), (7, 9)), points, atol=1e-9)


def test_the_pose_is_what_was_asked_for():
    assert TURNED.height == pytest.approx(80)
    assert TURNED.angle == pytest.approx(0.3)
    np.testing.assert_allclose(TURNED.centre, [70, 60])
    top_left, top_right, _, bottom_left = TURNED.corners
    assert np.hypot(*(top_right - top_left)) == pytest.approx(80 * 168 / 192)
    assert np.hypot(*(bottom_left - top_left)) == pytest.approx(80)


def test_sizes_of_a_crop_agree_on_where_things_are():
    """The middle of the frame, and its corners, do not depend on how many pixels it is cut into."""
    for size in ((24, 24), (48, 42), (5, 11)):
        middle = (np.array(size)[::-1] - 1) / 2
        np.testing.assert_allclose(TURNED.to_photo(middle, size), [70, 60], atol=1e-9)
        np.testing.assert_allclose(TURNED.to_photo([-0.5, -0.5], size), TURNED.corners[0], atol=1e-9)


def test_a_crop_is_the_mean_over_each_pixel():
    photo = np.random.default_rng(1).uniform(size=(192, 168))
    frame = Alignment.from_box((0, 0, 168, 192))
    blocks = photo.reshape(24, 8, 24, 7).mean(axis=(1, 3))
    np.testing.assert_allclose(frame.crop(photo), blocks, atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 0.2, -0.35])
def test_paste_puts_a_crop_where_crop_took_it(angle):
    pose = Alignment.from_pose((90, 80), 96, angle)
    photo = ground(2, (160, 180), "gradient")
    face = pattern(96, 84)
    pasted = pose.paste(photo, face)
    small = slice(3, -3)  # the frame's edge runs through photo pixels that it shares with the photo
    np.testing.assert_allclose(pose.crop(pasted, (96, 84))[small, small], face[small, small], atol=0.02)
    outside = np.ones(photo.shape, bool)
    outside[15:146, 15:166] = False
    np.testing.assert_array_equal(pasted[outside], photo[outside])


def test_paste_and_crop_of_whole_pixels_are_exact():
    pose = Alignment.from_box((5, 7, 24, 24))
    photo, face = np.zeros((40, 50)), np.random.default_rng(3).uniform(size=(24, 24))
    pasted = pose.paste(photo, face)
    np.testing.assert_allclose(pasted[7:31, 5:29], face, atol=1e-9)
    assert np.count_nonzero(pasted > 1e-9) == face.size
    np.testing.assert_allclose(pose.crop(pasted), face, atol=1e-9)


def test_a_feathered_paste_fades_in_from_the_edge():
    pose = Alignment.from_box((10, 10, 60, 60))
    pasted = pose.paste(np.zeros((80, 80)), np.ones((24, 24)), feather=0.25)
    row = pasted[40, 10:40]
    assert row[0] < 0.1
    assert row[-1] == pytest.approx(1)
    assert np.all(np.diff(row) >= -1e-9)


def test_colour_is_kept_and_grey_goes_onto_colour():
    photo = np.random.default_rng(4).uniform(size=(100, 120, 3))
    pose = Alignment.from_pose((60, 50), 60, 0.1)
    assert pose.crop(photo).shape == (24, 24, 3)
    np.testing.assert_allclose(pose.crop(photo)[..., 1], pose.crop(photo[..., 1]))
    pasted = pose.paste(photo, np.full((24, 24), 0.5))
    np.testing.assert_allclose(pasted[50, 60], 0.5)
    with pytest.raises(ValueError, match="grey crop for a grey photo, got a crop in colour"):
        pose.paste(photo[..., 0], np.zeros((24, 24, 3)))


def test_a_frame_beyond_the_photo_is_cut_off():
    photo = ground(5, (50, 60), "gradient")
    away = Alignment.from_pose((500, 500), 60)
    np.testing.assert_array_equal(away.paste(photo, np.zeros((24, 24))), photo)
    assert np.all(np.isfinite(Alignment.from_pose((0, 0), 60).crop(photo)))


# --- the mean face, pasted into scenes that need no data ------------------------------------------------------------


@pytest.mark.parametrize(("angle", "height"), [(0, 110), (12, 90), (-18, 140)])
def test_a_known_pose_is_found_in_a_rough_box(angle, height):
    pose = Alignment.from_pose((150, 130), height, math.radians(angle))
    photo = pose.paste(ground(6, (260, 300), "gradient"), mean_face())
    width = 0.9 * height
    found = find_face(photo, box=(152 - width / 2, 127 - height / 2, width, height))
    assert displacement(found, pose)[0] < 0.6


@pytest.mark.parametrize("side", [-1, 1])
def test_light_from_the_side_moves_it_by_less_than_a_pixel(side):
    pose = Alignment.from_pose((150, 130), 130, 0.1)
    lit = mean_face() * np.exp(side * 1.5 * (np.arange(48) / 47 - 0.5))  # brightest 4.5 times darkest
    photo = pose.paste(ground(7, (260, 300), "gradient"), 0.6 * lit)
    assert displacement(find_face(photo, box=(90, 65, 120, 130)), pose)[0] < 1


def test_a_face_is_found_without_a_box_in_grey_and_colour():
    pose = Alignment.from_pose((210, 140), 120, math.radians(-10))
    photo = pose.paste(ground(8, (300, 400), "gradient"), mean_face())
    for seen in (photo, photo[..., None] * np.array([1.0, 0.8, 0.6])):
        assert displacement(find_face(seen), pose)[0] < 0.6


def test_several_faces_are_an_error_that_names_the_ways_out():
    scene = ground(9, (300, 500), "gradient")
    poses = [Alignment.from_pose((120, 150), 130), Alignment.from_pose((370, 150), 110, 0.1)]
    for pose in poses:
        scene = pose.paste(scene, mean_face())
    faces = find_faces(scene)
    assert len(faces) == 2
    assert displacement(faces[0], poses[0])[0] < 0.6  # the largest comes first
    with pytest.raises(SeveralFacesError, match=r"found 2; choose one \(--box .*--all-faces.*--no-align"):
        find_face(scene)
    assert displacement(find_face(scene, box=(315, 90, 110, 120)), poses[1])[0] < 0.6


def test_a_box_without_a_face_is_the_frame():
    box = (40, 30, 90, 100)
    found = find_face(ground(10, (240, 320), "gradient"), box=box)
    np.testing.assert_array_equal(found.matrix, Alignment.from_box(box).matrix)


def test_a_reference_that_is_no_face_leaves_faces_in_the_nets_frame():
    photo = Alignment.from_pose((210, 140), 120).paste(ground(8, (300, 400), "gradient"), mean_face())
    stripes = np.tile(np.linspace(0.2, 0.8, 4), (24, 6))
    np.testing.assert_array_equal(find_face(photo, stripes).matrix, find_face(photo).matrix)


@pytest.mark.parametrize("kind", ["gradient", "noise"])
def test_no_face_is_an_error_that_names_the_ways_out(kind):
    with pytest.raises(NoFaceError, match=r"found none in 320×240 pixels; .*--box.*--no-align"):
        find_face(ground(10, (240, 320), kind), pattern(24, 24))


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (23, 200), (30, 30)])
def test_tiny_photos_hold_no_face(shape):
    photo = np.linspace(0.2, 0.8, math.prod(shape)).reshape(shape)
    assert find_faces(photo, pattern(24, 24)) == []


def test_a_black_photo_holds_no_face():
    assert find_faces(np.zeros((100, 120)), pattern(24, 24)) == []


def test_without_alignment_the_box_or_the_photo_is_the_frame():
    photo = ground(11, (96, 84), "gradient")
    whole = find_face(photo, pattern(24, 24), align=False)
    np.testing.assert_allclose(whole.corners[[0, 2]], [[-0.5, -0.5], [83.5, 95.5]])
    part = find_face(photo, pattern(24, 24), box=(10, 20, 40, 48), align=False)
    np.testing.assert_allclose(part.corners[[0, 2]], [[9.5, 19.5], [49.5, 67.5]])


def test_what_cannot_be_a_photo_is_refused():
    photo = np.full((40, 40), 0.5)
    photo[3, 4:6] = np.nan
    with pytest.raises(ValueError, match="photo: expected finite pixels, got 2 that are NaN or infinite"):
        find_faces(photo, pattern(24, 24))
    with pytest.raises(ValueError, match=r"photo: expected shape \(H, W\) or \(H, W, 3\).*got \(4, 5, 2\)"):
        find_faces(np.zeros((4, 5, 2)))
    with pytest.raises(ValueError, match=r"reference: expected a mean face .* got shape \(5, 5\)"):
        find_faces(np.zeros((40, 40)), np.zeros((5, 5)))
    with pytest.raises(ValueError, match=r"box: expected left, top, and a positive width"):
        find_face(np.zeros((40, 40)), pattern(24, 24), box=(1, 2, 0, 5))
    with pytest.raises(ValueError, match=r"box: expected one about the face in a photo of 40×40"):
        find_face(np.zeros((40, 40)), pattern(24, 24), box=(400, 400, 20, 20))
    with pytest.raises(ValueError, match=r"matrix: expected an invertible"):
        Alignment(np.zeros((2, 3)))


def test_eight_bit_photos_mean_the_same():
    photo = np.random.default_rng(12).integers(0, 256, (60, 50), np.uint8)
    np.testing.assert_allclose(TURNED.crop(photo), TURNED.crop(photo / 255))


def test_resampling_keeps_a_straight_ramp():
    y, x = np.mgrid[:90, :100].astype(float)
    points = TURNED.to_photo(np.stack(np.meshgrid(np.arange(8.0, 16), np.arange(8.0, 16)), -1))
    ramp = sample_affine(0.01 * x + 0.02 * y, TURNED.matrix, FRAME)[8:16, 8:16]
    np.testing.assert_allclose(ramp, 0.01 * points[..., 0] + 0.02 * points[..., 1], atol=1e-6)


def test_a_crop_interpolates_and_continues_the_photo_beyond_its_edge(monkeypatch):
    photo, matrix = np.random.default_rng(13).random((40, 50)), np.array([[0.8, -0.3, -9.0], [0.2, 0.9, 5.0]])
    y, x = np.mgrid[:60, :70]
    points = [matrix[i, 0] * x + matrix[i, 1] * y + matrix[i, 2] for i in (1, 0)]
    expected = ndimage.map_coordinates(photo, points, order=1, mode="nearest")
    np.testing.assert_allclose(sample_affine(photo, matrix, (60, 70)), expected, atol=1e-6)
    monkeypatch.setattr(resampling, "STRIP", 16)  # in parts, as a large photo is
    np.testing.assert_allclose(sample_affine(photo, matrix, (60, 70)), expected, atol=1e-6)


# --- the nets ------------------------------------------------------------------------------------------------------


def test_a_way_leads_from_one_frame_to_the_other_and_back():
    other = Alignment.from_pose((90.0, 55.0), 60.0, -0.4)
    arrived = face_detector.move(TURNED, face_detector.way_to(TURNED, other))
    np.testing.assert_allclose(arrived.matrix, other.matrix, atol=1e-9)
    np.testing.assert_allclose(face_detector.way_to(other, other), 0, atol=1e-9)


def test_the_length_of_a_way_is_about_the_displacement():
    for i in range(4):
        way = 0.02 * np.eye(4)[i]
        assert displacement(face_detector.move(TURNED, way), TURNED)[0] == pytest.approx(0.02 * 24, rel=0.2)


def test_dense_answers_are_those_of_patches():
    net = face_detector.bundled().finder
    image = np.random.default_rng(13).normal(size=(43, 51)).astype(np.float32)
    dense = net.answers(net.features(image[None])[0])
    (rows, columns), step = face_detector.FINDER.input, face_detector.STRIDE
    for i, j in ((0, 0), (2, 1), (4, 7)):
        patch = image[step * i : step * i + rows, step * j : step * j + columns]
        np.testing.assert_allclose(net.answers(net.features(patch[None])[0, 0, 0]), dense[i, j], atol=1e-4)


def test_contrast_does_not_depend_on_the_strength_of_light():
    image = ground(14, (60, 50))
    bright, dim = (face_detector.contrast(factor * image, 40) for factor in (1.0, 0.2))
    np.testing.assert_allclose(bright, dim, atol=0.02)


def test_a_detector_keeps_its_answers_in_a_file(tmp_path):
    detector = face_detector.bundled()
    np.savez_compressed(tmp_path / "weights.npz", **to_arrays(detector))
    again = face_detector.Detector.from_arrays(np.load(tmp_path / "weights.npz"))
    assert (tmp_path / "weights.npz").stat().st_size < 300_000
    for one, other in zip(detector.judge.layers, again.judge.layers, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


# --- real faces ----------------------------------------------------------------------------------------------------


def test_one_face_is_found_in_a_portrait():
    """A picture that comes with scikit-image, of a woman before a flag and a model of a space shuttle."""
    from skimage.data import astronaut

    photo = astronaut()[40:200, 140:300]
    face = find_face(photo)
    eyes_and_mouth = face.to_photo([[4.5, 5.2], [18.3, 5.2], [11.6, 18.1]])
    np.testing.assert_allclose(eyes_and_mouth, [[66, 59], [105, 60], [84, 101]], atol=5)


@pytest.mark.parametrize("name", ["moon", "clock"])
def test_no_face_is_found_in_pictures_without_one(name):
    import skimage.data

    assert find_faces(getattr(skimage.data, name)()[:240, :320]) == []


def test_the_frame_follows_the_reference():
    """In a mean face that sits two pixels of 24×24 lower in its frame: so does every face in its own."""
    from skimage.data import astronaut

    photo, mean = astronaut()[40:200, 140:300], face_detector.bundled().mean
    usual, lower = find_face(photo, mean), find_face(photo, np.roll(mean, 4, axis=0))
    np.testing.assert_allclose(usual.to_crop(lower.centre) - usual.to_crop(usual.centre), [0, -2], atol=0.5)


def real_data(*names: str) -> Path:
    for name in names:
        if not (DATA / name).is_file():
            pytest.skip(f"no {name} in {DATA}")
    return DATA


@pytest.mark.data
def test_unseen_people_are_found_and_their_eyes_and_mouth_placed_within_a_pixel():
    """One fold of `benchmarks.face_finder`: all that knows Yale B is fitted, on fewer images, without these people.

    The bundled nets have never seen Yale B. The guards are a little under what the benchmark measures for this fold;
    docs/data.md says why the crops' own edges are met less often than irises and mouth.
    """
    crops = face_marks.yale_crops(real_data("CroppedYale.zip"), (1, 2))
    fold = folds_of(sorted({crop[0] for crop in crops}))[1]
    training = [crop for crop in crops if crop[0] not in fold][::2]
    nets = face_detector.bundled()
    steps = face_marks.fit_steps(nets.judge, face_marks.judged_crops(nets.judge, training, copies=1))
    detector = replace(nets, steps=steps, mean=face_marks.mean_face(training))
    marks = face_marks.mean_marks([crop[0] for crop in training])
    strict, marked = [], []
    for i, (subject, image, _) in enumerate([crop for crop in crops if crop[0] in fold][::6]):
        photo, frame = scene(np.random.default_rng([50, i]), image, face_samples.TEXTURES[i % 4], (i // 4) % 2 == 0)
        faces = find_faces(photo, detector.mean, detector)
        goal = face_marks.marked_frame(subject, frame, marks)
        strict.append(min((displacement(face, frame)[0] for face in faces), default=np.inf))
        marked.append(min((displacement(face, goal)[0] for face in faces), default=np.inf))
    assert np.mean(np.array(strict) < 3) >= 0.95  # found
    assert np.mean(np.array(marked) <= 1) >= 0.9
    assert np.mean(np.array(strict) <= 1) >= 0.4
