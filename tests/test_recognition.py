"""Recognition by detail, and of strangers: what the rule must tell apart, and what it must not mind."""

from dataclasses import replace

import numpy as np
import pytest

from deep_lambertian import LambertianSubspaceClassifier, load_model
from deep_lambertian.data import make_faces
from deep_lambertian.recognition.detail import band, relit, shifted, unlit
from deep_lambertian.recognition.distances import fit_cone, fit_cones
from deep_lambertian.recognition.known import Known, chance_known, learn_odds, probabilities
from deep_lambertian.tasks.people import UNKNOWN, Answer, count_errors

SIDE = np.array([0.6, 0.1, 0.8])
FRONT = np.array([0.0, 0.0, 1.0])


def bowl(size: int) -> np.ndarray:
    """Unit normals (V, 3) of a smooth bump."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    normals = np.stack([0.8 * x, -0.8 * y, np.ones_like(x)], axis=-1).reshape(-1, 3)
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def paint(size: int, seed: int) -> np.ndarray:
    """Albedo (V,) that is the same for all but for its detail."""
    return (
        0.6
        + 0.15 * np.random.default_rng(seed).uniform(-1, 1, (size // 2, size // 2)).repeat(2, 0).repeat(2, 1).ravel()
    )


def photo(size: int, seed: int, light: np.ndarray) -> np.ndarray:
    return paint(size, seed) * np.maximum(bowl(size) @ light, 0)


def people(size: int, count: int = 3) -> Known:
    """People of one smooth surface, who differ in nothing but detail, each known by a photo from in front."""
    surfaces = np.repeat(0.6 * bowl(size)[None], count, axis=0)
    photos = [photo(size, seed, FRONT)[None] for seed in range(count)]
    return Known(surfaces, photos, (size, size), np.full(size**2, 1e-3))


@pytest.mark.parametrize("size", [24, 48])
def test_detail_tells_apart_whom_surfaces_do_not(size):
    known = people(size)
    probes = np.stack([photo(size, seed, SIDE) for seed in range(3)])
    np.testing.assert_allclose(np.ptp(known.distances(probes, "shadow"), axis=1), 0, atol=1e-9)
    assert known.distances(probes).argmin(axis=1).tolist() == [0, 1, 2]
    assert probabilities(known.distances(probes)).max(axis=1).min() > 0.9


def test_a_probe_may_be_off_by_a_pixel_where_pixels_are_fine():
    known, size = people(48), 48
    probes = np.stack([photo(size, seed, SIDE).reshape(size, size) for seed in range(3)])
    moved = np.roll(probes, (1, -1), axis=(1, 2)).reshape(3, -1)
    assert known.distances(moved).argmin(axis=1).tolist() == [0, 1, 2]
    assert shifted(probes).shape == (9, 3, size, size)
    np.testing.assert_array_equal(shifted(probes)[4], probes)
    assert len(shifted(probes[:, ::2, ::2])) == 1


def test_a_photo_under_another_light_is_what_the_surface_makes_of_it():
    """But for light from all around, which is the same for all and leaves ratios of paint as they are."""
    normals, light = bowl(24), 1.3 * FRONT
    bare = unlit(photo(24, 0, light)[None], paint(24, 0)[:, None] * normals, np.ones(24**2))
    found = relit(bare, normals, SIDE[None])[0, 0]
    expected = paint(24, 0) * (np.maximum(normals @ SIDE, 0) + 0.5 * np.linalg.norm(SIDE))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_filter_minds_neither_exposure_nor_size_of_contrast_and_survives_black():
    picture = photo(24, 1, SIDE).reshape(24, 24)
    np.testing.assert_allclose(band(picture), band(3 * picture), atol=1e-6)
    assert np.linalg.norm(band(picture)) == pytest.approx(1)
    assert not band(np.zeros((24, 24))).any()
    black = people(24).distances(np.zeros((1, 576)))
    assert np.isfinite(black).all()
    np.testing.assert_allclose(probabilities(black), 1 / 3, atol=1e-6)


def test_more_photos_of_a_person_are_never_further():
    known, probes = people(24), np.stack([photo(24, seed, SIDE) for seed in range(3)])
    more = [np.concatenate([each, photo(24, seed, SIDE + 0.1)[None]]) for seed, each in enumerate(known.photos)]
    one, two = (replace(known, photos=photos).terms(probes) for photos in (known.photos, more))
    assert (two[1] <= one[1] + 1e-5).all()


def test_many_people_at_a_time_are_the_same_as_one_by_one():
    """Whichever there are fewer of, people or probes, they are taken in turn, and pictures in blocks."""
    rng = np.random.default_rng(0)
    surfaces = rng.uniform(0.3, 1, (7, 24**2, 1)) * bowl(24)
    photos = [np.maximum(each @ rng.normal(FRONT, 0.2, (1 + g % 3, 3)).T, 0).T for g, each in enumerate(surfaces)]
    known = Known(surfaces, photos, (24, 24), rng.uniform(1e-3, 1e-2, 24**2))
    probes = np.maximum(surfaces[:4] @ SIDE, 0) + 0.02 * rng.normal(size=(4, 24**2))
    apart = [replace(known, scaled_normals=surfaces[[g]], photos=photos[g : g + 1]).terms(probes) for g in range(7)]
    np.testing.assert_allclose(known.terms(probes), np.concatenate(apart, axis=2), rtol=2e-4)
    lights = fit_cones(surfaces, probes, np.ones(24**2))
    np.testing.assert_allclose(lights[2, 5], fit_cone(surfaces[5], probes[2:3], np.ones(24**2))[0], rtol=1e-9)


def test_of_several_croppings_the_nearest_counts_for_each_person():
    known, odds = people(24), np.array([-1.0, -2, -0.5, -1, -0.3, -1, -4])
    probes = np.stack([[photo(24, seed, SIDE), photo(24, 9, SIDE)] for seed in range(3)])
    (first, sure), (second, _) = (known.judged(probes[:, i], odds=odds) for i in range(2))
    distances, chances = known.judged(probes[:, ::-1], odds=odds)
    np.testing.assert_allclose(distances, np.minimum(first, second), rtol=1e-4)
    assert distances.argmin(axis=1).tolist() == [0, 1, 2]
    assert chances.shape == (3, 3)
    assert (chances.sum(axis=1) < 1).all()
    np.testing.assert_allclose(known.judged(probes[:, 0], odds=odds)[1], sure)
    np.testing.assert_allclose(known.judged(probes, "plain")[1].sum(axis=1), 1)


# ---- Strangers


def drawn(rng: np.random.Generator, count: int, probes: int) -> tuple[np.ndarray, np.ndarray]:
    """Terms of probes that are near to one person of `count`, and about as far from all others."""
    who = np.repeat(np.arange(count), probes)
    logs = rng.normal(-1.0, 0.2, (3, len(who), count))
    logs[:, np.arange(len(who)), who] -= 1.5
    return np.exp(logs), who


def test_strangers_are_told_from_those_who_are_known():
    rng = np.random.default_rng(0)
    odds = learn_odds(*drawn(rng, 12, 20), seed=0)
    terms, who = drawn(rng, 10, 40)
    chance, known = chance_known(odds, terms[:, :, :5]), who < 5
    assert chance[known].mean() > 0.95
    assert chance[~known].mean() < 0.05
    nothing = people(24).terms(np.zeros((0, 576)))
    assert nothing.shape == (3, 0, 3)
    assert not learn_odds(nothing, who[:0], seed=0).any()  # nobody to learn from


@pytest.fixture(scope="module")
def faces():
    return make_faces(3, images=3, size=24, seed=7).images.reshape(3, 3, -1)


def test_the_classifier_has_a_column_for_strangers_if_asked(faces):
    machine = LambertianSubspaceClassifier("yaleb24", iterations=20, chains=1, strangers=True)
    machine.fit(faces[:, 0], list("abc"))
    found = machine.predict_proba(faces[:, 1])
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    plain = machine.set_params(strangers=False).predict_proba(faces[:, 1])
    np.testing.assert_allclose(found[:, :3], plain * (1 - found[:, 3:]))


def test_a_model_that_knows_no_strangers_says_so(faces):
    model = replace(load_model("yaleb24"), misfit=None)
    with pytest.raises(ValueError, match="expected a model that has learned how strangers differ"):
        LambertianSubspaceClassifier(model, strangers=True, iterations=20).fit(faces[:, 0], list("abc"))


def test_strangers_who_are_not_named_are_counted_as_right():
    answers = [
        Answer("a/1", "a", "a"),
        Answer("a/2", "a", UNKNOWN),
        Answer("x/1", "x", UNKNOWN),
        Answer("x/2", "x", "a"),
    ]
    told = count_errors(answers, ["a", "b"])
    assert (told["judged"], told["wrong"], told["strangers"], told["named"], told["unknown"]) == (2, 1, 2, 1, 2)
