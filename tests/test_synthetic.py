"""The drawn faces and solids: exact, the same for the same seed, alike at every size, and unlike each other."""

import re

import numpy as np
import pytest

from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.scenes import Scenes, sample_lights, shade
from deep_lambertian.synthetic.solids import draw_solids

FIELDS = ("images", "albedo", "normals", "height", "lights", "mask")
BOTH = pytest.mark.parametrize("draw", [draw_faces, draw_solids])


def same_bytes(one: Scenes, other: Scenes, people: slice = slice(None), images: slice = slice(None)) -> None:
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            a, b = (a[people, images], b[people, images]) if name in ("images", "lights") else (a[people], b[people])
            assert a.tobytes() == b.tobytes(), name


def normals_from_height(height: np.ndarray) -> np.ndarray:
    """By central differences, (S, H, W, 3)."""
    step = 2 / height.shape[-1]
    down, right = np.gradient(height.astype(np.float64), step, axis=(1, 2))
    normals = np.stack([-right, down, np.ones_like(right)], axis=-1)
    return normals / np.linalg.norm(normals, axis=-1, keepdims=True)


def angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.degrees(np.arccos(np.clip(np.sum(a * b, axis=-1), -1, 1)))


def shrink(pictures: np.ndarray, times: int) -> np.ndarray:
    *first, h, w = pictures.shape
    return pictures.reshape(*first, h // times, times, w // times, times).mean(axis=(-3, -1))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


@BOTH
def test_shapes_and_types(draw):
    scenes = draw(3, images=2, size=10, seed=4)
    shapes = {"images": (3, 2, 10, 10), "albedo": (3, 10, 10), "normals": (3, 10, 10, 3), "height": (3, 10, 10)}
    for name, shape in {**shapes, "lights": (3, 2, 3)}.items():
        assert getattr(scenes, name).shape == shape
        assert getattr(scenes, name).dtype == np.float32
        assert np.all(np.isfinite(getattr(scenes, name)))
    assert scenes.albedo.min() >= 0
    assert scenes.albedo.max() <= 1


@BOTH
def test_the_same_seed_gives_the_same_bytes(draw):
    options = {"images": 2, "size": 12, "noise": 0.1, "cast_shadows": True}
    same_bytes(draw(3, seed=1, **options), draw(3, seed=1, **options))
    assert not np.array_equal(draw(3, seed=1, **options).albedo, draw(3, seed=2, **options).albedo)


@BOTH
def test_more_people_or_images_change_nothing_about_the_first(draw):
    few, many = draw(3, images=2, noise=0.1), draw(130, images=4, noise=0.1)  # 130: more than are drawn at a time
    same_bytes(few, many, slice(3), slice(2))


@BOTH
def test_normals_are_those_of_the_height(draw):
    scenes = draw(4, size=256, seed=3)
    assert np.abs(np.linalg.norm(scenes.normals, axis=-1) - 1).max() < 1e-5
    off = angles(scenes.normals, normals_from_height(scenes.height))
    if scenes.mask is not None:  # away from the rim, where slopes are infinite
        off = off[scenes.normals[..., 2] * scenes.mask > 0.4]
    assert off.mean() < 0.2
    # Errors of differences fall with the square of the step: the rest is theirs, not the normals'.
    assert np.percentile(off, 99) < 2


@BOTH
def test_images_are_albedo_times_shading(draw):
    scenes = draw(5, images=3, seed=2)
    shading = np.einsum("shwk,spk->sphw", scenes.normals, scenes.lights)
    np.testing.assert_allclose(scenes.images, scenes.albedo[:, None] * np.maximum(shading, 0), atol=1e-6)


@BOTH
def test_given_lights_are_used(draw):
    shared = np.array([[0, 0, 1], [0.5, 0, 0.8]], np.float32)
    scenes = draw(3, images=2, lights=shared)
    np.testing.assert_array_equal(scenes.lights, np.broadcast_to(shared, (3, 2, 3)))
    own = sample_lights(np.random.default_rng(0), (3, 2))
    np.testing.assert_array_equal(draw(3, images=2, lights=own).lights, own)


def test_cast_shadows_only_darken():
    grazing = np.array([[0.9, 0.1, 0.25], [0, 0, 1]], np.float32)
    plain = draw_faces(4, images=2, size=48, lights=grazing)
    cast = draw_faces(4, images=2, size=48, lights=grazing, cast_shadows=True)
    assert np.all(cast.images <= plain.images)
    hidden = np.mean((plain.images > 0.05) & (cast.images == 0), axis=(2, 3))
    assert np.all(hidden[:, 0] > 0.003)
    np.testing.assert_array_equal(cast.images[:, 1], plain.images[:, 1])  # from the front nothing is hidden


@pytest.mark.parametrize("light", [(1, 0, 1), (-1, 0, 1), (0, 1, 1), (0, -1, 1)])
def test_a_wall_casts_its_shadow_away_from_the_light(light):
    size, thick, tall = 40, 2, 0.25
    height = np.zeros((size, size), np.float32)
    across = light[0] != 0
    (height.T if across else height)[19 : 19 + thick] = tall
    up = np.broadcast_to(np.array([0, 0, 1], np.float32), (size, size, 3))
    image = shade(np.ones((size, size)), up, np.array([light]), height, cast_shadows=True)[0]
    profile = image[20] if across else image[:, 20]
    dark = np.flatnonzero(profile < 0.5)
    # At 45° the shadow is as long as the wall is tall: 0.25 of half a frame of 20 pixels.
    assert abs(len(dark) - tall * size / 2) <= 1
    # A row's number grows downwards: a light from above throws the shadow to higher rows.
    toward_higher = light[0] < 0 or light[1] > 0
    assert np.all(dark > 20) if toward_higher else np.all(dark < 19)


@pytest.mark.parametrize("field", ["images", "albedo"])
def test_a_person_looks_the_same_at_every_size(field):
    small, large = (draw_faces(12, size=size, seed=5) for size in (24, 96))
    for a, b in zip(getattr(small, field), shrink(getattr(large, field), 4), strict=True):
        assert correlation(a, b) > 0.95
    assert angles(small.normals, normals_from_height(shrink(large.height, 4))).mean() < 6


@pytest.mark.parametrize("size", [4, 8, 33, 200])
def test_any_size(size):
    assert draw_faces(1, size=size).images.shape == (1, 1, size, size)


def test_people_differ_and_are_roughly_symmetric():
    faces = draw_faces(200, seed=6)
    flat = faces.albedo.reshape(200, -1)
    between = np.corrcoef(flat)[np.triu_indices(200, 1)]
    assert 0.3 < between.mean() < 0.75  # 0.56 among 28 real people in the same frame
    assert between.max() < 0.97
    mirrored = [correlation(a, a[:, ::-1]) for a in faces.albedo]
    assert np.mean(mirrored) > 0.8
    assert np.max(mirrored) < 0.9999
    assert faces.normals.std(axis=0).mean() > 0.05


def test_eyes_brows_and_mouth_are_where_faces_have_them():
    mean = draw_faces(300, size=48, seed=7).albedo.mean(axis=0)
    skin = np.median(mean)
    eye, brow, cheek = mean[11:13, 9:11], mean[5:8, 12:17], mean[20:26, 7:13]
    mouth, bridge, chin = mean[37:39, 20:28], mean[10:16, 22:26], mean[43:46, 20:28]
    for dark in (eye, brow, mouth):
        assert dark.mean() < 0.8 * skin
    for light in (cheek, bridge, chin):
        assert light.mean() > 0.9 * skin
    depth = draw_faces(50, size=48, seed=7).height.mean(axis=0)
    i, j = np.unravel_index(np.argmax(depth), depth.shape)
    assert 22 <= i <= 27  # the tip of the nose stands out most
    assert 22 <= j <= 25


def test_noise_and_saturation():
    clean, noisy = (draw_faces(20, seed=8, noise=noise) for noise in (0.0, 0.1))
    added = noisy.images - clean.images
    assert abs(added.std() - 0.1) < 0.003
    assert abs(added.mean()) < 0.005
    lights = np.array([[0, 0, 3]], np.float32)
    clipped = draw_faces(5, lights=lights, noise=0.1, saturate=True).images
    assert clipped.min() >= 0
    assert clipped.max() == 1
    assert draw_faces(5, lights=lights).images.max() > 1


def test_lights_come_from_the_front():
    lights = sample_lights(np.random.default_rng(0), (20_000,))
    assert lights[:, 2].min() > 0.15
    np.testing.assert_allclose(lights.mean(axis=0), [0, 0, 0.9], atol=0.02)
    for side in range(2):
        assert np.mean(np.abs(np.degrees(np.arctan2(lights[:, side], lights[:, 2]))) < 50) > 0.9


def test_solids_have_a_mask_and_a_background():
    solids = draw_solids(60, size=32, seed=9)
    assert solids.mask is not None
    assert solids.mask.dtype == bool
    covered = solids.mask.mean(axis=(1, 2))
    assert covered.min() > 0.1
    assert covered.max() < 0.95
    assert np.all(solids.albedo[~solids.mask] == 0)
    assert np.all(solids.albedo[solids.mask] > 0)
    assert np.all(solids.height[~solids.mask] == 0)
    assert np.all(solids.height[solids.mask] > 0)
    assert np.all(solids.normals[~solids.mask] == [0, 0, 1])
    assert np.all(solids.normals[solids.mask][:, 2] > 0)


def test_a_face_detector_finds_them():
    data = pytest.importorskip("skimage.data")
    feature = pytest.importorskip("skimage.feature")
    detector = feature.Cascade(data.lbp_frontal_face_cascade_filename())

    def found(draw) -> int:
        pictures = draw(20, size=96, seed=10, lights=np.array([[0.05, 0.1, 1.0]], np.float32)).images[:, 0]
        pictures = np.pad(np.clip(pictures, 0, 1) ** (1 / 2.2), ((0, 0), (48, 48), (48, 48)), mode="edge")
        return sum(bool(detector.detect_multi_scale(each, 1.1, 1, (60, 60), (190, 190))) for each in pictures)

    assert found(draw_faces) >= 18  # all 20 when measured, as it finds all of 28 real people
    assert found(draw_solids) <= 2


@BOTH
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"count": 0}, "count must be a whole number of at least 1; got 0"),
        ({"count": 2.5}, "count must be a whole number of at least 1; got 2.5"),
        ({"images": 0}, "images must be a whole number of at least 1; got 0"),
        ({"size": 3}, "size must be a whole number of at least 4; got 3"),
        ({"noise": -0.1}, "not negative; got -0.1"),
        ({"noise": float("nan")}, "finite and not negative; got nan"),
        ({"lights": [0, 0, 1]}, "lights must have the shape (1, 3) or (2, 1, 3); got (3,)"),
        ({"lights": [[0, 0, float("inf")]]}, "lights must be finite"),
    ],
)
def test_bad_input_is_refused(draw, asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw(**{"count": 2, **asked})


def test_cast_shadows_need_a_height():
    faces = draw_faces(1)
    with pytest.raises(ValueError, match="height"):
        shade(faces.albedo, faces.normals, faces.lights, cast_shadows=True)
