"""Uncertainty that holds: what is added to the posterior's spread, how it is measured, and whether it covers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from conftest import dome
from deep_lambertian import DLN, Config, Gaussian, load_model
from deep_lambertian.data import make_faces
from deep_lambertian.experiments import calibration
from deep_lambertian.geometry import angles
from deep_lambertian.inference.posterior import QUANTITIES, Misfit, level_of_angle, level_of_error, shapes
from deep_lambertian.learning import misfit as learning_misfit
from deep_lambertian.learning.train import train
from deep_lambertian.synthetic.heads import draw_faces

PIXELS = 64
SHORT = Config.of_preset("best").override(
    **{"iterations": 1, "held_out": 0, "e_step.iterations": 12, "e_step.burn_in": 6}
)


def some_misfit(**changes) -> Misfit:
    arrays = {name: np.full(shape, 0.5, np.float32) for name, shape in shapes(PIXELS).items()}
    return Misfit(**arrays | {"surprise": np.array([0.0, 0.0, 0.0, 1.0], np.float32)} | changes)


def test_levels_are_those_of_the_laws():
    """A truth drawn from what is reported is at the edge of every level equally often."""
    rng = np.random.default_rng(0)
    assert stats.kstest(level_of_error(rng.normal(0, 0.3, 20_000), 0.3), "uniform").pvalue > 0.01
    angle = np.linalg.norm(rng.normal(0, 7 / np.sqrt(2), (20_000, 2)), axis=1)
    assert np.sqrt(np.mean(angle**2)) == pytest.approx(7, rel=0.02)
    assert stats.kstest(level_of_angle(angle, 7.0), "uniform").pvalue > 0.01


def test_what_is_added_falls_with_images_and_grows_in_shadow():
    found = some_misfit(lasting=np.array([0.25, 0.25, 0.25, 1.0], np.float32))
    spread = np.full(PIXELS, 0.2)
    one = found.widen("albedo", spread)
    np.testing.assert_allclose(one, np.sqrt(0.5 * 0.04 + 0.5))
    np.testing.assert_allclose(found.widen("albedo", spread, images=3), np.sqrt(0.5 * 0.04 + (0.25 + 0.25) * 0.5))
    dark = np.linspace(0, 1, PIXELS)  # where no image shows the pixel lit
    lights = np.array([[1.0, 0.0, 2.0]])
    np.testing.assert_allclose(found.widen("albedo", spread, dark), np.sqrt(0.5 * 0.04 + (1 + 0.5 * dark) * 0.5))
    np.testing.assert_allclose(found.widen("lights", np.zeros((1, 3)), lights), np.sqrt(0.5 * 5) * np.ones((1, 3)))


def test_who_surprises_is_known_worse():
    """Surprise is judged by what is usual in so much shadow; variances follow it, and never fall where it grows."""
    found = some_misfit(
        surprise=np.array([0.5, 0.2, -0.1, 0.1], np.float32), unlike=np.array([0.4, 0, 0.4, 0], np.float32)
    )
    assert found.unlikeness(np.exp(0.5)) == pytest.approx(0, abs=1e-6)
    assert found.unlikeness(np.exp(0.7), shadow=0.5) == pytest.approx(1, abs=1e-5)
    assert found.unlikeness(np.exp(0.5), images=2) == pytest.approx(0.5, abs=1e-5)
    spread = np.full(PIXELS, 0.2)
    usual = found.widen("albedo", spread)
    np.testing.assert_allclose(found.widen("albedo", spread, unlike=0.5) ** 2, np.exp(0.2) * usual**2)
    np.testing.assert_allclose(found.widen("albedo", spread, unlike=-9.0) ** 2, np.exp(-0.4) * usual**2)
    np.testing.assert_allclose(found.widen("albedo", spread, unlike=3.0) ** 2, np.exp(0.4) * 1.8 * usual**2)
    np.testing.assert_array_equal(found.widen("normals", spread, unlike=3.0), found.widen("normals", spread))
    variances = [found.widen("albedo", spread, unlike=u)[0] for u in np.linspace(-3, 6, 91)]
    assert np.all(np.diff(variances) >= 0)


def test_a_misfit_of_wrong_shape_or_sign_is_refused():
    some_misfit().validate(PIXELS)
    for changes, told in (
        ({"albedo": np.zeros(3)}, r"albedo: expected finite numbers of shape \(64,\), got \(3,\)"),
        ({"growth": np.full(4, -1.0)}, "growth: expected numbers of at least 0, got -1"),
        ({"surprise": np.full(4, np.nan)}, "surprise: expected finite numbers"),
    ):
        with pytest.raises(ValueError, match=told):
            some_misfit(**changes).validate(PIXELS)
    with pytest.raises(ValueError, match=r"misfit\.surprise: expected a limit above what is usual, got 0"):
        some_misfit(surprise=np.zeros(4)).validate(PIXELS)


@pytest.fixture(scope="module")
def dome_model() -> DLN:
    """A DLN of 8×8 pixels that knows domes, has a misfit, and runs the sampler of `best`, but for fewer sweeps."""
    mean = np.concatenate([np.full(PIXELS, 0.6), dome(8, 8).reshape(-1, 3).T.ravel()])
    slopes = np.stack([np.linspace(-1, 1, 256), np.cos(np.arange(256) / 10)], axis=1)
    prior = Gaussian.of_factors(mean, np.repeat([0.004, 0.002], [PIXELS, 3 * PIXELS]), 0.05 * slopes)
    model = DLN.build(prior, (8, 8), noise_var=1e-3, light_precision=4.0, preset="best")
    images = [each for each in model.sample(20, seed=3).images]
    told = [post.diagnostics.surprise for post in model.infer_many(images, iterations=40)]
    limit = np.array([np.log(np.mean(told)), 0, 0, np.log1p(3 * np.std(told) / np.mean(told))], np.float32)
    ones = np.ones(4, np.float32)
    return replace(model, misfit=some_misfit(surprise=limit, growth=ones, unlike=ones))


def test_spreads_are_widened_and_the_posteriors_own_are_kept(dome_model):
    drawn = dome_model.sample(1, images=2, seed=5)
    own = replace(dome_model, misfit=None).infer(drawn.images[0], iterations=40)
    wide = dome_model.infer(drawn.images[0], iterations=40)
    np.testing.assert_array_equal(own.albedo, wide.albedo)
    assert "unlike" not in own.info
    for name in QUANTITIES:
        np.testing.assert_array_equal(getattr(own, f"{name}_std"), wide.spread[name])
        np.testing.assert_array_equal(own.spread[name], wide.spread[name])
        assert np.all(getattr(wide, f"{name}_std") > 0.6 * wide.spread[name])  # e^-½: less is never said
    dark, unlike = wide.shadows.mean(axis=0).ravel(), wide.info["unlike"]
    expected = dome_model.misfit.widen("albedo", own.albedo_std.ravel(), dark, images=2, unlike=unlike)
    np.testing.assert_allclose(wide.albedo_std.ravel(), expected, rtol=1e-5)
    light = np.array([0.3, 0.1, 0.9])
    np.testing.assert_allclose(
        wide.relight_std(light) ** 2, np.sum(wide.scaled_normals_std**2 * light**2, axis=-1), rtol=1e-5
    )
    known = dome_model.infer(drawn.images[0], lights=drawn.lights[0], iterations=40)
    assert not known.lights_std.any()  # what is given is known


def test_what_is_unlike_is_said_to_be_and_is_less_sure(dome_model):
    """An ordinary object says nothing; one turned inside out, noise, and a black picture each say what is wrong."""
    ordinary = dome_model.sample(1, seed=9).images[0, 0]
    calm = dome_model.infer(ordinary, iterations=60)
    assert calm.notes == []
    noise = np.random.default_rng(1).uniform(0, 1, (8, 8))
    for image in (noise, np.eye(8)[::-1] * 0.9 + 0.05):
        odd = dome_model.infer(image, iterations=60)
        assert odd.info["unlike"] > 1
        assert "unlike what the model knows" in odd.notes[-1]
        assert odd.normals_std.mean() > calm.normals_std.mean()
    black = dome_model.infer(np.full((8, 8), 0.01), iterations=60)
    assert "is not lit" in black.notes[0]
    # Nothing is seen: the posterior is the prior.
    drawn = dome_model.sample(200, seed=1).albedo
    assert black.spread["albedo"].mean() == pytest.approx(drawn.std(axis=0).mean(), rel=0.15)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[DLN, object]:
    faces = make_faces(12, images=5, size=10, seed=2)
    return train(faces, SHORT), faces


def test_training_measures_what_the_model_cannot_know(trained, tmp_path, monkeypatch):
    model, _ = trained
    found = model.misfit
    found.validate(100)
    assert found.normals.mean() > 1  # degrees²
    assert found.surprise[3] > 0  # the limit is above what is usual
    assert np.all(found.unlike >= 0)
    assert found.unlike[QUANTITIES.index("lights")] == 0
    square = found.normals.reshape(10, 10)
    np.testing.assert_allclose(square, square[:, ::-1], rtol=1e-4)  # the same from left and right
    assert np.all((found.lasting >= 0) & (found.lasting <= 1))
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors").misfit
    for name, value in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), value)


def test_intervals_cover_objects_that_were_left_out(trained):
    """Of other faces of the same kind, from one image each: at least as many are covered as is said, which the
    posterior alone does not reach, and not because everything would be.
    """
    model, _ = trained
    others = make_faces(10, images=3, size=10, seed=77)
    posts = model.infer_many([row[0] for row in others.images], iterations=60)
    truth = draw_faces(10, images=3, size=10, seed=77)
    scaled = truth.albedo[..., None] * truth.normals
    found = [calibration.levels_of(post, scaled[s], others, s, [0], 1e-3) for s, post in enumerate(posts)]
    for name in ("normals", "albedo"):
        assert np.mean(np.concatenate([each[name] for each in found]) < 0.9) > 0.85, name
    off = np.array([angles(post.normals, truth.normals[s], axis=-1) for s, post in enumerate(posts)])
    own = np.array([post.spread["normals"] for post in posts])
    told = np.array([post.normals_std for post in posts])
    assert np.mean(level_of_angle(off, own) < 0.9) < 0.85
    assert np.sqrt(np.mean(told**2)) < 3 * np.sqrt(np.mean(off**2))


def test_without_known_lights_the_surfaces_of_all_images_have_to_do(trained):
    _, faces = trained
    model = train(replace(faces, lights=None), SHORT)
    assert not np.any(model.misfit.lights)  # nobody knows how far these are off
    assert model.misfit.normals.mean() > 0


def test_too_few_objects_have_no_misfit():
    few = make_faces(4, images=3, size=10, seed=2)
    assert train(few, SHORT).misfit is None


def test_the_factor_makes_intervals_cover_what_they_say():
    rng = np.random.default_rng(0)
    errors = rng.normal(0, 0.5, 50_000)
    factor = learning_misfit._matching(level_of_error, errors, np.full(50_000, 0.2), (0.5, 0.9))
    assert np.sqrt(factor) * 0.2 == pytest.approx(0.5, rel=0.03)


def test_simulated_objects_are_ranked_evenly_and_a_wrong_model_is_found_out(dome_model):
    """Simulation-based calibration, and its negative control: a model that believes that objects differ by half as much
    as they do.
    """
    model = replace(dome_model, misfit=None)
    found = calibration.simulation(model, seed=1, count=48, say=lambda _: None)
    assert all(each["p"] > 0.01 for each in found.values()), found
    assert sum(found["light"]["histogram"]) == 48 * 3
    images, drawn = calibration.simulate(model, 48, 1, (17, 2, 1))
    prior = model.params.prior
    narrow = replace(prior, variance=prior.variance / 4, factors=prior.factors / 2)
    sure = replace(model, params=replace(model.params, prior=narrow))
    ranked = calibration.ranks_of(sure, images, drawn, seed=2)
    assert min(each["p"] for each in ranked.values()) < 0.01
