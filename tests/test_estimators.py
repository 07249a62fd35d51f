"""The scikit-learn estimators: its own checks, recognition from one image, and what they refuse."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import dome
from deep_lambertian import DLN, Gaussian, Product
from deep_lambertian.data import make_faces
from deep_lambertian.tasks.estimators import (
    IlluminationInvariantFeatures,
    LambertianSubspaceClassifier,
    as_images,
    fill_up,
    find_shape,
)

SIZE, PEOPLE = 16, 8


class Dome(DLN):
    """A DLN that is named in a word, for the names of the tests."""

    def __repr__(self) -> str:
        return "dome"


def tiny_dome() -> DLN:
    """A DLN of 4×4 pixels."""
    normals = dome(4, 4).reshape(-1, 3).T.reshape(-1)
    albedo = Gaussian.diagonal(np.full(16, 0.6), np.full(16, 0.04))
    prior = Product(albedo, Gaussian.diagonal(normals, np.full(48, 0.02)))
    return Dome.build(prior, (4, 4), noise_var=0.01, preset="quick")


# Every size of a batch is compiled anew. Whatever is about other things than faces makes do with these few.
FEATURES = IlluminationInvariantFeatures(tiny_dome(), iterations=3, chains=1, batch=16)
CLASSIFIER = LambertianSubspaceClassifier(tiny_dome(), iterations=3, chains=1, batch=1)


@pytest.mark.filterwarnings("ignore:X. expected light:UserWarning")  # the numbers of the checks are no images
@parametrize_with_checks([FEATURES, CLASSIFIER])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# ---- Faces


@pytest.fixture(scope="module")
def face_model() -> DLN:
    """A Gaussian prior of other people's albedo and normals: their mean and main directions."""
    people = make_faces(200, images=1, size=SIZE, seed=1)
    surfaces = np.concatenate([people.info["albedo"][:, None], np.moveaxis(people.info["normals"], -1, 1)], axis=1)
    surfaces = surfaces.reshape(200, -1)
    _, scale, directions = np.linalg.svd(surfaces - surfaces.mean(axis=0), full_matrices=False)
    factors = (directions[:40].T * scale[:40]) / np.sqrt(200)
    rest = np.maximum(surfaces.var(axis=0) - np.sum(factors**2, axis=1), 0) + 1e-3
    prior = Gaussian.of_factors(surfaces.mean(axis=0), rest, factors)
    parameters = {"noise_var": 4e-4, "light_mean": (0, 0, 0.9), "light_precision": 5.0}
    return DLN.build(prior, (SIZE, SIZE), preset="best", **parameters)


@pytest.fixture(scope="module")
def faces() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One image of each of a few people, their names, more images of them under other lights, and whose they are."""
    people = make_faces(PEOPLE, images=13, size=SIZE, seed=2, noise=0.02)
    names = np.array(people.names)
    rows = people.images.reshape(PEOPLE, 13, -1)
    return rows[:, 0], names, rows[:, 1:].reshape(-1, SIZE**2), np.repeat(names, 12)


@pytest.fixture(scope="module")
def known(face_model, faces) -> LambertianSubspaceClassifier:
    images, names, _, _ = faces
    return LambertianSubspaceClassifier(face_model, iterations=100, chains=1, batch=PEOPLE).fit(images, names)


def test_one_image_of_each_person_is_enough(known, faces):
    images, names, probes, truth = faces
    pixels = KNeighborsClassifier(1).fit(images, names).score(probes, truth)
    assert known.scaled_normals_.shape == (PEOPLE, SIZE**2, 3)
    for rule in ("shadow", "plain"):
        score = clone(known).set_params(rule=rule).fit(images, names).score(probes, truth)
        assert score > max(0.9, pixels + 0.4), (rule, score, pixels)


def test_probabilities_are_neither_certain_nor_idle(known, faces):
    _, _, probes, truth = faces
    found = known.predict_proba(probes)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(known.classes_[found.argmax(axis=1)], known.predict(probes))
    confidence, right = found.max(axis=1).mean(), np.mean(known.predict(probes) == truth)
    assert abs(confidence - right) < 0.1
    # What is half as bright is no less sure.
    np.testing.assert_allclose(known.predict_proba(0.5 * probes), found, atol=1e-4)


def test_decision_is_minus_the_distance(known, faces):
    _, _, probes, _ = faces
    scores = known.decision_function(probes)
    assert scores.shape == (len(probes), PEOPLE)
    assert np.all(scores < 0)
    np.testing.assert_array_equal(known.classes_[scores.argmax(axis=1)], known.predict(probes))


def test_a_fitted_classifier_is_pickled_without_its_model(known, faces, tmp_path):
    images, names, probes, _ = faces
    copy = pickle.loads(pickle.dumps(known))
    np.testing.assert_array_equal(copy.decision_function(probes), known.decision_function(probes))
    known.model.save(tmp_path / "faces.safetensors")
    by_name = clone(known).set_params(model=tmp_path / "faces.safetensors").fit(images, names)
    np.testing.assert_allclose(by_name.scaled_normals_, known.scaled_normals_, atol=1e-5)
    assert len(pickle.dumps(by_name)) < 2 * known.scaled_normals_.nbytes


@pytest.mark.parametrize("output", ["albedo", "scaled_normals"])
def test_features_serve_another_classifier(face_model, faces, output):
    images, names, probes, truth = faces
    features = IlluminationInvariantFeatures(face_model, output, iterations=100, chains=1, batch=PEOPLE)
    pipeline = Pipeline([("features", features), ("neighbor", KNeighborsClassifier(1, metric="cosine"))])
    pixels = KNeighborsClassifier(1, metric="cosine").fit(images, names).score(probes, truth)
    assert pipeline.fit(images, names).score(probes, truth) > max(0.6, pixels + 0.2)
    names_out = pipeline[:1].get_feature_names_out()
    assert names_out[1] == {"albedo": "albedo_0_1", "scaled_normals": "scaled_normals_0_0_y"}[output]
    assert len(names_out) == len(set(names_out)) == SIZE**2 * (1 if output == "albedo" else 3)


# ---- Within scikit-learn


@pytest.fixture
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Images of 3 objects under 10 lights, at another size than the model's."""
    people = make_faces(3, images=10, size=8, seed=3)
    return people.images.reshape(30, -1), np.repeat(["a", "b", "c"], 10)


def test_grids_and_folds(pictures):
    grid = GridSearchCV(CLASSIFIER, {"rule": ["shadow", "plain"], "iterations": np.array([3, 4])}, cv=2)
    assert grid.fit(*pictures).best_params_["rule"] in ("shadow", "plain")
    pipeline = Pipeline([("features", FEATURES), ("neighbor", KNeighborsClassifier(1))])
    grid = GridSearchCV(pipeline, {"features__output": ["albedo", "scaled_normals"]}, cv=2).fit(*pictures)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    assert cross_val_score(pipeline, *pictures, cv=2).shape == (2,)


def test_a_clone_has_a_model_of_its_own():
    copy = clone(CLASSIFIER)
    assert copy.model is not CLASSIFIER.model
    assert copy.model.checksum == CLASSIFIER.model.checksum
    assert copy.set_params(model="yaleb24").model == "yaleb24"


def test_one_image_of_each_of_many_is_no_regression(pictures):
    images, _ = pictures
    fitted = clone(CLASSIFIER).fit(images, np.arange(30))  # scikit-learn warns of so many classes, and warnings fail
    assert fitted.predict(images).shape == (30,)


def test_black_and_constant_images(pictures):
    images, labels = pictures
    images = np.concatenate([images, np.zeros((6, 64)), np.ones((6, 64))])
    labels = np.concatenate([labels, ["black"] * 6, ["white"] * 6])
    assert np.isfinite(FEATURES.fit_transform(images)).all()
    for rule in ("shadow", "plain"):
        fitted = clone(CLASSIFIER).set_params(rule=rule).fit(images, labels)
        found = fitted.predict_proba(images)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[30:36], 0.2)  # black is what anything looks like in the dark


def test_rows_do_not_know_each_other(pictures):
    images, _ = pictures
    features = clone(FEATURES).fit(images)
    found = features.transform(images)  # in two batches, the second of them filled up
    np.testing.assert_array_equal(features.transform(images[::-1]), found[::-1])
    np.testing.assert_array_equal(features.transform(images[5:6]), found[5:6])


def test_shapes():
    assert find_shape("auto", 576) == (24, 24)
    assert find_shape("auto", 192 * 168) == (192, 168)
    assert find_shape("auto", 7) == (7, 1)
    assert find_shape([2, 6], 12) == (2, 6)
    image = np.arange(24.0).reshape(4, 6)
    np.testing.assert_allclose(
        as_images(image.reshape(1, -1), (4, 6), (2, 3))[0], image.reshape(2, 2, 3, 2).mean((1, 3))
    )
    assert [fill_up(count) for count in (1, 2, 4, 5, 17)] == [1, 4, 4, 16, 64]


def test_wide_images_are_read_as_such(pictures):
    images, labels = pictures
    wide = clone(CLASSIFIER).set_params(shape=(4, 16)).fit(images, labels)
    assert wide.shape_ == (4, 16)
    assert not np.allclose(wide.scaled_normals_, clone(CLASSIFIER).fit(images, labels).scaled_normals_)


# ---- What is refused


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shape": (5, 5)}, "multiply to the 64 features of X, got 5×5"),
        ({"shape": "square"}, r'shape: expected "auto" or \(height, width\), got \'square\''),
        ({"shape": (4, 4, 4)}, r"shape: expected .* got \(4, 4, 4\)"),
        ({"model": "nobody"}, "model: nobody: expected a model file or the name of a bundled model"),
        ({"model": 3}, "model: expected a DLN, a path or the name of a bundled model, got int"),
        ({"iterations": 0}, "iterations: expected a whole number of at least 1, got 0"),
        ({"chains": 0}, "chains: expected a whole number of at least 1, got 0"),
        ({"batch": 1.5}, "batch: expected a whole number of at least 1, got 1.5"),
    ],
)
@pytest.mark.parametrize("estimator", [FEATURES, CLASSIFIER], ids=["features", "classifier"])
def test_wrong_settings(estimator, wrong, message, pictures):
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**wrong).fit(*pictures)


def test_wrong_choices(pictures):
    with pytest.raises(ValueError, match="output: expected one of albedo, scaled_normals, got 'depth'"):
        clone(FEATURES).set_params(output="depth").fit(*pictures)
    with pytest.raises(ValueError, match="rule: expected one of detail, shadow, plain, got 'fast'"):
        clone(CLASSIFIER).set_params(rule="fast").fit(*pictures)


def test_wrong_images(pictures):
    images, labels = pictures
    broken = images.copy()
    broken[3, 5] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clone(CLASSIFIER).fit(broken, labels)
    features, fitted = clone(FEATURES).fit(images), clone(CLASSIFIER).fit(images, labels)
    for method in (features.transform, fitted.predict, fitted.predict_proba, fitted.decision_function):
        with pytest.raises(ValueError, match=r"X has 63 features, but .* is expecting 64"):
            method(images[:, 1:])
        with pytest.raises(ValueError, match="NaN"):
            method(broken)
    with pytest.warns(UserWarning, match=r"X: expected light of about \[0, 1\], got up to 255"):
        features.transform(np.full((1, 64), 255.0))
