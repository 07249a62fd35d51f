"""Surfaces drawn from a morphable head: against a ball, whose normals are known, and on the real head where it is."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deep_lambertian.cli import main
from deep_lambertian.data import Frame, Heads, Morphable, Variety, load_morphable
from deep_lambertian.geometry import angles
from deep_lambertian.model import load_model
from deep_lambertian.surface import Surface
from deep_lambertian.synthetic.scenes import photograph, shade

DATA = Path(os.environ.get("DLN_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
FRAME = Frame(eyes=0.3, mouth=0.7, apart=0.4, middle=0.5, pitch=0.0)
STILL = Variety(identity=0.0, expression=0.0)


def ball(rings: int = 60) -> Morphable:
    """A ball of radius 1 with eyes and a mouth on it; identity makes it wider, expression moves the mouth."""
    polar, around = np.meshgrid(np.linspace(0, np.pi, rings), np.linspace(0, 2 * np.pi, 2 * rings), indexing="ij")
    sides = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar)], axis=-1)
    number = np.arange(polar.size).reshape(polar.shape)
    a, b, c, d = (number[i, j].ravel() for i in (slice(-1), slice(1, None)) for j in (slice(-1), slice(1, None)))
    triangles = np.concatenate([np.stack([a, c, b], axis=1), np.stack([b, c, d], axis=1)])
    vertices = sides.reshape(-1, 3).astype(np.float32)
    nearest = lambda x, y: int(np.argmin(np.sum((vertices - [x, y, np.sqrt(1 - x * x - y * y)]) ** 2, axis=1)))
    landmarks = np.zeros(68, int)
    landmarks[36:42], landmarks[42:48], landmarks[48:60] = nearest(-0.4, 0.4), nearest(0.4, 0.4), nearest(0, -0.4)
    part = np.zeros(len(vertices), np.uint8)
    wider, lower = np.zeros((1, *vertices.shape)), np.zeros((2, *vertices.shape))
    wider[0, :, 0], lower[:, landmarks[48], 1] = 0.1 * vertices[:, 0], -0.1
    return Morphable(vertices, triangles, wider, lower, ("jaw_L", "jaw_R"), landmarks, part, "MIT License\nwords")


def seen_from(size: int, radius: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The normals (H, W, 3) of the ball in `FRAME`, and where it is: eyes are 0.8 apart on it, and 0.4 in the frame."""
    y, x = np.meshgrid((0.5 - (np.arange(size) + 0.5) / size) / 0.5, ((np.arange(size) + 0.5) / size - 0.5) / 0.5)
    x, y = x.T / radius, y.T / radius
    return np.stack([x, y, np.sqrt(np.maximum(1 - x * x - y * y, 0))], axis=-1), np.hypot(x, y) < 1


@pytest.mark.parametrize("size", [24, 96, 100])
def test_normals_height_and_mask_of_a_ball(size):
    heads = ball().draw(1, size, frame=FRAME, variety=STILL)
    normals, inside = seen_from(size)
    assert heads.squeeze == pytest.approx(1, abs=0.03)
    sure = (np.hypot(normals[..., 0], normals[..., 1]) < 0.9) & inside
    assert angles(heads.normals[0], normals, axis=-1)[sure].max() < 4
    assert angles(heads.normals[0], normals, axis=-1)[sure].mean() < 1.5
    assert np.mean(heads.mask[0] != inside) < 0.03
    np.testing.assert_allclose(np.linalg.norm(heads.normals, axis=-1), 1, atol=1e-5)  # beyond the outline as well
    deep = heads.height[0] - heads.height[0].max()
    np.testing.assert_allclose(deep[sure], (normals[..., 2] - 1)[sure], atol=0.08)  # half of the frame is the radius


def test_a_nod_and_a_turn_move_the_normals():
    up = ball().draw(1, 48, frame=replace(FRAME, pitch=10.0), variety=STILL)
    middle = up.normals[0, 24, 24]
    assert middle[2] > 0.9  # a ball that nods is still a ball
    turned = ball().draw(40, 24, frame=FRAME, variety=replace(STILL, yaw=5.0, pitch=5.0, place=0.02))
    assert turned.height.std(axis=0).max() > 0.01


def test_who_a_head_is_depends_on_the_seed_and_its_number_alone():
    head = ball()
    few, many = head.draw(2, 24, seed=3, frame=FRAME), head.draw(20, 24, seed=3, frame=FRAME)
    np.testing.assert_allclose(few.normals, many.normals[:2], atol=1e-6)
    assert not np.allclose(many.normals[0], many.normals[1])
    assert not np.allclose(head.draw(1, 24, seed=4, frame=FRAME).normals, few.normals[:1])


def test_textures_are_carried_and_come_back():
    head = ball()
    y, x = np.mgrid[:48, :48] / 47
    pictures = np.stack([0.3 + 0.4 * x, 0.7 - 0.4 * y])
    textures = head.texture(pictures, FRAME)
    heads = head.draw(12, 48, frame=FRAME, variety=STILL, textures=textures)
    assert heads.albedo is not None
    middle = (slice(16, 32), slice(16, 32))
    off = [min(np.abs(albedo[middle] - each[middle]).max() for each in pictures) for albedo in heads.albedo]
    assert max(off) < 0.03
    worn = {int(np.argmin([np.abs(albedo - each)[middle].max() for each in pictures])) for albedo in heads.albedo}
    assert worn == {0, 1}
    assert heads.surface.pack().shape == (12, 4 * 48 * 48)
    with pytest.raises(ValueError, match=r"textures: expected shape \(n, 7200\), got \(2, 5\)"):
        head.draw(1, 24, textures=np.ones((2, 5)))


def test_shadows_attached_and_cast():
    heads = ball().draw(3, 48, frame=FRAME, variety=STILL)
    images, lights = photograph(heads, 2, seed=1, cast_shadows=True)
    assert images.shape == (3, 2, 48, 48)
    assert lights.shape == (3, 2, 3)
    assert (images[~np.broadcast_to(heads.mask[:, None], images.shape)] == 0).all()
    side = np.array([[1.0, 0.0, 0.2]], np.float32)
    attached = shade(heads.surface.pictures((48, 48))[0][0], heads.normals[0], side)
    np.testing.assert_allclose(attached[0], np.maximum(heads.normals[0] @ side[0], 0), atol=1e-6)
    # A wall in the middle of a plane shades what is beyond it, further in a frame that is not squeezed.
    height = np.zeros((48, 48))
    height[22:24] = 0.5
    plain, up = np.broadcast_to([0.0, 0, 1], (48, 48, 3)), np.array([[0.0, 1, 1]], np.float32)
    dark = [(shade(np.ones((48, 48)), plain, up, height, True, q)[0] < 0.5).sum() for q in (1.0, 2.0)]
    assert dark[1] < 0.7 * dark[0]


def test_a_file_is_checked_and_said_what_is_wrong_with(tmp_path):
    head, path = ball(12), tmp_path / "head.npz"
    whole = {name: np.array(value) for name, value in vars(head).items()}
    np.savez(path, **whole)
    again = load_morphable(path)
    np.testing.assert_array_equal(again.vertices, head.vertices)
    assert again.licence == head.licence
    far = np.full_like(head.triangles, 10**6)
    for name, value, words in (
        ("triangles", far, r"triangles: expected numbers of vertices from 0 to 287, got others"),
        ("identity", head.identity[:, :5], r"identity: expected shape \(n, 288, 3\), got \(1, 5, 3\)"),
        ("vertices", np.full_like(head.vertices, np.nan), r"vertices: expected finite floating-point numbers"),
        ("landmarks", head.landmarks[:5], r"landmarks: expected shape \(68\), got \(5,\)"),
        ("vertices", head.vertices * [1, -1, 1], r"landmarks: expected x to the right and y upwards"),
        (
            "expression_names",
            np.array(["one"]),
            r"expression_names: expected one for each expression, got 1 names for 2",
        ),
    ):
        np.savez(path, **{**whole, name: value})
        with pytest.raises(ValueError, match=words):
            load_morphable(path)
    np.savez(path, vertices=head.vertices)
    with pytest.raises(ValueError, match="expected an array 'triangles' in it, found vertices"):
        load_morphable(path)
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="cannot be read as a morphable head"):
        load_morphable(path)
    with pytest.raises(FileNotFoundError, match="expected a morphable head"):
        load_morphable(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="count: expected a whole number of at least 1, got 0"):
        head.draw(0)
    with pytest.raises(ValueError, match="must be finite and not negative"):
        Variety(identity=-1)


def test_the_command_draws_and_its_file_is_read(tmp_path, capsys):
    head, path, out = ball(), tmp_path / "head.npz", tmp_path / "out.npz"
    np.savez(path, **{name: np.array(value) for name, value in vars(head).items()})
    np.savez(tmp_path / "skins.npz", images=np.full((2, 24, 24), 0.4))
    asked = ["--count", "3", "--size", "24", "--images", "2", "--cast-shadows", "--skins", str(tmp_path / "skins.npz")]
    shown = ["--out", str(out), "--sheet", str(tmp_path / "sheet.png"), "--json", "--seed", "5"]
    assert main(["data", "make-surfaces", str(path), *asked, *shown]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 3
    heads = Heads.load(out)
    expected = head.draw(3, 24, seed=5)
    np.testing.assert_allclose(heads.normals, expected.normals, atol=2e-3)
    assert heads.images is not None
    assert heads.images.shape == (3, 2, 24, 24)
    assert heads.albedo is not None
    assert np.abs(heads.albedo[heads.mask] - 0.4).max() < 0.1
    assert (tmp_path / "sheet.png").is_file()
    assert main(["data", "make-surfaces", str(tmp_path / "none.npz"), "--out", str(out)]) == 1
    assert "expected a morphable head (.npz), found nothing" in capsys.readouterr().err


@pytest.mark.data
def test_the_real_head_lies_as_cropped_faces_do():
    if not (DATA / "ict_face.npz").is_file():
        pytest.skip(f"no ict_face.npz in {DATA}")
    head = load_morphable(DATA / "ict_face.npz")
    start = time.process_time()
    heads = head.draw(40, 96)
    assert (time.process_time() - start) / 40 < 0.06  # 0.02 s; a thousand are to take less than 30 s of two cores
    assert heads.mask.mean() > 0.97
    mean = Surface.unpack(np.asarray(load_model("yaleb48").params.prior.centre))
    drawn = head.draw(60, 48)
    seen = drawn.mask.all(axis=0)
    off = angles(drawn.normals.mean(axis=0), mean.pictures((48, 48))[1], axis=-1)
    assert off[seen].mean() < 8.5  # 7.7 of a thousand heads
