"""Reference surfaces, distances, baselines and relighting: what each must get right by its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_lambertian.geometry import angles
from deep_lambertian.learning.stereo import photometric_stereo
from deep_lambertian.recognition.distances import (
    cone_distances,
    cone_residuals,
    fit_cone,
    fit_cones,
    nearest,
    relighting_rmse,
    subspace_distances,
)
from deep_lambertian.tasks import baselines
from deep_lambertian.tasks.baselines import mean_normals, mean_shape

PIXELS, SHAPE = 48, (6, 8)


def surface(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    normals = np.concatenate([rng.normal(0, 0.5, (PIXELS, 2)), np.ones((PIXELS, 1))], axis=1)
    return rng.uniform(0.3, 1, (PIXELS, 1)) * normals / np.linalg.norm(normals, axis=1, keepdims=True)


def lights(seed: int, count: int, side: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed + 100)
    return np.concatenate([rng.normal(0, side, (count, 2)), np.full((count, 1), 0.9)], axis=1)


def photos(m: np.ndarray, l: np.ndarray) -> np.ndarray:  # noqa: E741
    return np.maximum(l @ m.T, 0)


def test_stereo_finds_the_surface_though_some_pixels_are_in_shadow_and_some_are_spoiled():
    truth, known = surface(0), lights(0, 30, side=0.8)
    images = photos(truth, known)
    assert (images == 0).any()
    images[3, :5] = 0.9  # highlights
    found = photometric_stereo(images.reshape(-1, *SHAPE), known).reshape(-1, 3)
    assert np.quantile(angles(found, truth, axis=-1), 0.9) < 1
    np.testing.assert_allclose(np.median(found / truth, axis=0), 1, atol=0.02)


def test_stereo_survives_a_pixel_that_was_never_lit_and_refuses_unknown_lights():
    images = np.zeros((5, *SHAPE))
    assert np.isfinite(photometric_stereo(images, lights(0, 5))).all()
    with pytest.raises(ValueError, match="expected 5 rows of three finite numbers"):
        photometric_stereo(images, np.full((5, 3), np.nan))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_an_image_of_a_surface_lies_in_its_span_and_in_its_cone(seed):
    surfaces = np.stack([surface(seed), surface(seed + 1), surface(seed + 2)])
    flat, shadowed = surfaces[1] @ lights(seed, 1)[0], photos(surfaces[1], lights(seed, 1, side=1.5))[0]
    spans = subspace_distances(surfaces, flat[None])
    assert spans[0, 1] < 1e-9 * np.sum(flat**2) + 1e-12
    assert nearest(spans)[0] == 1
    cones = cone_distances(surfaces, shadowed[None], np.full(PIXELS, 0.01))
    assert nearest(cones)[0] == 1
    assert cones[0, 1] < 1e-2 * cones[0, [0, 2]].min()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_distance_to_a_cone_is_no_more_than_that_of_any_light_tried(seed):
    m, rng = surface(seed), np.random.default_rng(seed)
    probe = photos(m, lights(seed, 1, side=1.0))[0] + 0.1 * rng.normal(size=PIXELS)
    precision = rng.uniform(0.5, 2, PIXELS)
    best = fit_cone(m, probe[None], precision)[0]
    found = cone_residuals(m[None], best[None, None], probe[None], precision)[0, 0]
    for other in best + 0.05 * rng.normal(size=(20, 3)):
        # The search is local: another set of lit pixels may be a little better.
        assert found <= np.sum(precision * (probe - np.maximum(m @ other, 0)) ** 2) * 1.05


def test_a_pixel_that_is_far_off_does_not_decide_who_it_is():
    """By squares the highlight, which another surface happens to explain, would."""
    m, light = surface(1), lights(1, 1)[0]
    bright = np.argsort(m @ light)[-5]
    other = m * np.random.default_rng(1).uniform(0.88, 1.12, (PIXELS, 1))
    other[bright] = 1.4 * m[bright]
    probe = np.maximum(m @ light, 0)
    probe[bright] *= 1.4
    noise, both = np.full(PIXELS, 1e-4), np.stack([m, other])
    squares = cone_residuals(both, fit_cones(both, probe[None], 1 / noise), probe[None], 1 / noise)
    assert nearest(squares)[0] == 1
    assert nearest(cone_distances(both, probe[None], noise))[0] == 0


def test_distances_do_not_depend_on_how_a_subspace_is_written():
    m, probes = surface(0), np.random.default_rng(0).normal(size=(4, PIXELS))
    turned = m @ np.array([[2.0, 1, 0], [0, 1, 0], [0.3, 0, 5]])
    np.testing.assert_allclose(subspace_distances(m[None], probes), subspace_distances(turned[None], probes))


def test_every_baseline_recognizes_the_image_it_has_seen():
    gallery = np.stack([photos(surface(i), lights(i, 3)) for i in range(5)])
    probes = gallery[:, 1]
    for distances in (baselines.nearest_neighbor, baselines.correlation, baselines.svd):
        np.testing.assert_array_equal(nearest(distances(gallery, probes)), np.arange(5))
    for transform in (baselines.tan_triggs, baselines.gradientfaces):
        found = baselines.correlation(transform(gallery, SHAPE), transform(probes, SHAPE))
        np.testing.assert_array_equal(nearest(found), np.arange(5))


def test_filters_do_not_mind_how_bright_an_image_is():
    image = photos(surface(0), lights(0, 1))
    for transform in (baselines.tan_triggs, baselines.gradientfaces):
        np.testing.assert_allclose(transform(image, SHAPE), transform(0.3 * image, SHAPE), atol=1e-6)


def test_the_svm_separates_what_its_features_separate():
    gallery = np.eye(4)[:, None] + 0.01 * np.random.default_rng(0).normal(size=(4, 2, 4))
    np.testing.assert_array_equal(nearest(baselines.svm_distances(gallery, np.eye(4))), np.arange(4))
    two = baselines.svm_distances(gallery[:2], np.eye(4)[:2])
    assert two.shape == (2, 2)
    np.testing.assert_array_equal(nearest(two), [0, 1])


def test_the_mean_shape_is_exact_where_the_shape_is_the_mean():
    truth = surface(0)
    normals = mean_normals(np.stack([truth, 2 * truth])[:, :, None])[:, 0]
    assert angles(normals, truth, axis=-1).max() < 1e-4
    white = normals  # of a white surface least squares finds the light exactly
    found = mean_shape(normals, np.maximum(lights(0, 1, side=0.1) @ white.T, 0))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=0.15)


def test_relighting_error_is_nothing_for_the_truth_and_something_for_another_surface():
    truth, new = surface(0), lights(5, 6, side=0.8)
    images = photos(truth, new)
    assert relighting_rmse(truth, images) < 1e-3
    wrong = relighting_rmse(surface(1), images)
    assert wrong > 0.02
