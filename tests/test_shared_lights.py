"""Lights that objects share: an object's own tilt comes back out of its lights, and nothing else changes."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import deep_lambertian as dl
from deep_lambertian import Config
from deep_lambertian.data import Dataset, make_faces
from deep_lambertian.energy import State
from deep_lambertian.geometry import angles
from deep_lambertian.inference.chain import Sampled
from deep_lambertian.learning.shared_lights import align, aligning_maps, rig_numbers
from deep_lambertian.surface import Surface, illuminate

OBJECTS, IMAGES, SIZE = 10, 15, 12
RNG = np.random.default_rng(0)
RIG = np.stack([RNG.uniform(-0.7, 0.7, IMAGES), RNG.uniform(-0.5, 0.6, IMAGES), RNG.uniform(0.6, 0.9, IMAGES)], axis=1)
NUMBERS = np.tile(np.arange(IMAGES), (OBJECTS, 1))
QUICK = {"tolerance": 0.0, "iterations": 3, "e_step.iterations": 20, "e_step.burn_in": 10, "covariance.directions": 20}


def nods() -> np.ndarray:
    """Rotations (S, 3, 3) about the x axis by up to 12°, up and down alike."""
    angle = np.radians(np.linspace(-12, 12, OBJECTS))
    maps = np.tile(np.eye(3), (OBJECTS, 1, 1))
    maps[:, 1, 1] = maps[:, 2, 2] = np.cos(angle)
    maps[:, 1, 2], maps[:, 2, 1] = np.sin(angle), -np.sin(angle)
    return maps


def found_by_chains(maps: np.ndarray) -> tuple[Sampled, Surface]:
    """Faces under one rig as chains would find them that have moved maps (S, 3, 3) into the lights; and the truth."""
    drawn = make_faces(OBJECTS, images=1, size=SIZE, seed=3).info
    truth = Surface.from_pictures(drawn["albedo"], drawn["normals"])
    moved = np.linalg.inv(maps).swapaxes(1, 2) @ truth.scaled_normals
    length = np.linalg.norm(moved, axis=1)
    surface = jax.tree.map(lambda x: x[:, None].astype(np.float32), Surface(length, moved / length[:, None]))
    lights = (RIG @ maps.swapaxes(1, 2))[:, None].astype(np.float32)
    mean = {"albedo": surface.albedo, "directions": surface.normals, "lights": lights}
    kept = {name: value[:, :, None] for name, value in (*vars(surface).items(), ("lights", lights))}
    nothing = np.zeros(0)
    state = State(surface, lights, nothing, nothing, nothing, nothing, nothing)
    return Sampled(1, state, mean, {}, {}, kept), truth


@pytest.mark.parametrize("kind", ["rotation", "linear"])
def test_tilt_comes_back_from_the_lights_and_images_stay(kind):
    rotate = kind == "rotation"
    moved = nods() if rotate else np.eye(3) + np.random.default_rng(1).normal(0, 0.1, (OBJECTS, 3, 3))
    moved = moved if rotate else np.linalg.solve(moved.mean(axis=0), moved)
    found, truth = found_by_chains(moved)
    aligned, maps = align(found, NUMBERS, rotate)
    spread = lambda lights: np.degrees(lights.std(axis=0).max())
    assert spread(found.mean["lights"]) > 5 > 5 * spread(aligned.mean["lights"])
    before, after = found.mean["directions"][:, 0], aligned.mean["directions"][:, 0]
    np.testing.assert_allclose(maps.mean(axis=0), np.eye(3), atol=0.01)
    common = np.linalg.lstsq(np.concatenate(after, axis=1).T, np.concatenate(truth.normals, axis=1).T, rcond=None)[0]
    assert angles(before, truth.normals).mean() > 3
    assert angles(common.T @ after, truth.normals).mean() < 1
    for old, new in (
        ((vars(found.state.surface), found.state.lights), (vars(aligned.state.surface), aligned.state.lights)),
        ((found.kept, found.kept["lights"]), (aligned.kept, aligned.kept["lights"])),
    ):
        images = [lights @ (one["albedo"][..., None, :] * one["normals"]) for one, lights in (old, new)]
        np.testing.assert_allclose(*images, atol=2e-6)
        lengths = [np.linalg.norm(one["normals"], axis=-2) for one, _ in (old, new)]
        np.testing.assert_allclose(*lengths, rtol=1e-5)


def test_one_object_that_is_quite_wrong_does_not_turn_the_others():
    maps = np.tile(np.eye(3), (OBJECTS, 1, 1))
    lights = np.tile(RIG, (OBJECTS, 1, 1))
    lights[0] = np.random.default_rng(5).normal(0, 1, RIG.shape)
    found = aligning_maps(lights, NUMBERS, rotate=True)[1:]
    np.testing.assert_allclose(np.linalg.inv(found[0]) @ found, maps[1:], atol=1e-6)


def test_only_lights_that_enough_objects_share_have_numbers():
    rig = np.array([["a", "b", ""], ["a", "b", "c"], ["a", "c", "b"], ["d", "", "a"]])
    there = np.ones(rig.shape, bool)
    there[0, 1] = False  # which leaves b to two
    numbers = rig_numbers(rig, there)
    assert numbers is not None
    assert numbers.tolist() == [[0, -1, -1], [0, -1, -1], [0, -1, -1], [-1, -1, 0]]
    assert rig_numbers(rig[:2], there[:2]) is None
    assert rig_numbers(np.array([[7], [7], [7]]), np.ones((3, 1), bool)) is not None  # numbers are names too


def tilted_faces() -> Dataset:
    """Faces that nod, each of them under the same lights."""
    data = make_faces(OBJECTS, images=IMAGES, size=SIZE, seed=3, lights=RIG)
    turned = data.info["normals"] @ nods()[:, None]
    scaled = data.info["albedo"][..., None] * turned
    images = np.stack([illuminate(one, RIG) for one in scaled]).astype(np.float32)
    rig = np.tile([f"lamp {p}" for p in range(IMAGES)], (OBJECTS, 1))
    return replace(data, images=images, rig=rig, info={"normals": turned})


def test_training_on_one_rig_finds_the_tilt_of_each_object():
    data = tilted_faces()
    off = {}
    for kind in ("none", "rotation", "linear"):
        seen = []
        config = Config().override(**QUICK, shared_lights=kind)
        dl.train(data, config, on_step=seen.append)
        off[kind] = seen[-1]["light_mapped_deg"]
        assert ("tilt_deg" in seen[-1]) == (kind != "none")
    print(off)
    assert max(off["rotation"], off["linear"]) < 0.7 * off["none"]


def test_without_names_of_lights_nothing_changes():
    data = replace(tilted_faces(), rig=None)
    known = replace(data, rig=np.full((OBJECTS, IMAGES), ""))
    models = [
        dl.train(each, Config().override(**QUICK, shared_lights=kind))
        for each, kind in ((data, "none"), (data, "rotation"), (known, "linear"))
    ]
    leaves = [jax.tree.leaves(model.params) for model in models]
    for one in leaves[1:]:
        for a, b in zip(leaves[0], one, strict=True):
            np.testing.assert_array_equal(a, b)
