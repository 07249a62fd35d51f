"""The paper's experiments on a made-up database: protocol, tables, resuming, and what is refused."""

import csv
import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from deep_lambertian import DLN, Gaussian, load_model
from deep_lambertian.cli import main
from deep_lambertian.data import load_yaleb
from deep_lambertian.data.yaleb import light_direction
from deep_lambertian.experiments import one_shot as recognise
from deep_lambertian.experiments import yaleb
from deep_lambertian.experiments.cache import Cache
from deep_lambertian.experiments.trials import Test as Held  # not a class of tests
from deep_lambertian.experiments.trials import Trial
from deep_lambertian.learning.augmentation import to_rows
from deep_lambertian.learning.covariance import CovarianceOptions, principal, to_gaussian
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.scenes import shade

LIGHTS = [(0, 0), (5, 10), (-10, 0), (20, 10), (-20, -10), (35, 15), (-50, 0), (70, 0), (-60, 20)]
SUBJECTS = ["yaleB11", "yaleB12", "yaleB13", "yaleB30", "yaleB31", "yaleB32"]
SIZE = 8


@pytest.fixture(scope="module")
def faces():
    return draw_faces(len(SUBJECTS), images=1, size=SIZE, seed=3, noise=0)


@pytest.fixture(scope="module")
def database(tmp_path_factory, faces):
    """Yale B as it is distributed, of made-up people under nine lights."""
    path = tmp_path_factory.mktemp("yale") / "CroppedYale.zip"
    with zipfile.ZipFile(path, "w") as file:
        for person, subject in enumerate(SUBJECTS):
            for azimuth, elevation in LIGHTS:
                light = light_direction(azimuth, elevation)[None]
                image = shade(faces.albedo[person], faces.normals[person], light)[0]
                picture = Image.fromarray(np.round(255 * np.clip(image, 0, 1)).astype(np.uint8))
                data = io.BytesIO()
                picture.resize((168, 192), Image.Resampling.NEAREST).save(data, "PPM")
                file.writestr(f"CroppedYale/{subject}/{subject}_P00A{azimuth:+04}E{elevation:+03}.pgm", data.getvalue())
    return path


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    """A model that knows such faces: a Gaussian fitted to others like them."""
    people = draw_faces(60, images=1, size=SIZE, seed=4, noise=0)
    found = principal(to_rows(people.albedo, people.normals), (SIZE, SIZE), CovarianceOptions())
    prior: Gaussian = to_gaussian(found)
    model = DLN.build(prior, (SIZE, SIZE), noise_var=1e-3, light_mean=(0, 0, 0.9), preset="quick")
    path = tmp_path_factory.mktemp("model") / "faces.safetensors"
    model.save(path)
    return path


def command(database, model_path, out, *more):
    words = ["reproduce", "yaleb", str(database), "--model", str(model_path), "--allow-missing", "--quick", "--quiet"]
    return main([*words, "--out", str(out), *more])


def test_the_experiment_writes_tables_pictures_and_a_page_and_is_not_run_twice(
    database, model_path, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    assert command(database, model_path, out, "--json", str(tmp_path / "all.json")) == 0
    results = json.loads((tmp_path / "all.json").read_text())
    assert results["protocol"] == "dev"
    assert results["subjects"]["test"] == ["yaleB30", "yaleB31", "yaleB32"]
    assert "yaleB15" in results["subjects"]["missing"]
    surfaces = {"dln", "dln_shadow", "mean_shape"}
    images = {"nearest_neighbor", "dbn_svm", "correlation", "svd", "tan_triggs", "gradientfaces"}
    assert surfaces | images <= set(results["recognition"])
    for table in results["recognition"].values():
        assert set(table["1"]) == {"error", "subsets", "choices", "interval"}
        assert set(table["1"]["subsets"]) == {"2", "3", "4"}
        assert 0 <= table["1"]["error"] <= 100
    assert set(results["recognition"]["dln"]) == {"1", "2"}
    assert results["recognition"]["dln_shadow"]["1"]["error"] < 30  # of three people: chance is 67
    assert 0 < results["relighting_rmse"]["dln"]["1"] < 0.04  # of intensities up to 1
    assert results["albedo_correlation"]["dln"]["1"] > 0.8
    assert results["normals_deg"]["dln"]["1"]["mean"] < 25
    for name in ("figure4-dln.png", "figure5.png", "figure6.png", "figure7.png"):
        assert np.asarray(Image.open(out / name)).std() > 5
    page = (out / "report.html").read_text()
    assert "Missing subjects" in page
    assert page.count("data:image/png") == 4
    assert "http" not in page.replace("http-equiv", "")
    with (out / "recognition.csv").open() as file:
        assert len(list(csv.reader(file))) == len(results["recognition"]) + 1

    def again(*_, **__):
        raise AssertionError("inferred again")

    monkeypatch.setattr(yaleb, "common_map", again)
    monkeypatch.setattr(recognise, "score", again)
    monkeypatch.setattr("deep_lambertian.model.DLN.infer_many", again)
    assert command(database, model_path, out, "--only", "recognition") == 0
    assert command(database, model_path, out, "--seed", "1") == 1
    assert "holds the results of another experiment: seed was 0, now 1" in capsys.readouterr().err


def test_missing_subjects_are_named(database, tmp_path, capsys):
    words = ["reproduce", "yaleb", str(database), "--out", str(tmp_path / "out")]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "needs subjects that are not there: yaleB15" in error
    assert "--allow-missing" in error
    assert main([*words, "--allow-missing", "--protocol", "paper"]) == 1
    assert "expected at least two test subjects, found 0" in capsys.readouterr().err


def test_missing_subsets_are_named(database):
    data = load_yaleb(database, SIZE)
    lacking = data.keep(~((data.subsets == 4) & (np.arange(len(data)) == 0)[:, None]))
    with pytest.raises(ValueError, match=r"none of yaleB11 \(subset 4\)"):
        yaleb.check_subsets(lacking, allow_missing=False)
    yaleb.check_subsets(lacking, allow_missing=True)


def test_choices_are_the_same_for_every_method_and_cover_the_gallery(database):
    test = Held.of(load_yaleb(database, SIZE))
    trials = test.trials(choices=10, seed=0)
    one = [trial for trial in trials if trial.k == 1]
    assert [set(trial.images[:, 0]) for trial in one] == [{0}, {1}, {2}]
    assert [trial.k for trial in trials].count(2) == 10
    assert all(len(set(row)) == trial.k for trial in trials for row in trial.images)
    again = test.trials(choices=10, seed=0)
    assert all(np.array_equal(a.images, b.images) for a, b in zip(trials, again, strict=True))
    shown = test.shown(trials)
    assert len(set(shown)) == len(shown)
    assert {len(images) for _, images in shown} == {1, 2, 3}


def test_the_true_surfaces_are_recognised_without_error(database, faces):
    test = Held.of(load_yaleb(database, SIZE))
    trials = test.trials()
    truth = (faces.albedo[..., None] * faces.normals).reshape(len(SUBJECTS), -1, 3)
    surfaces = {key: truth[key[0]] for key in test.shown(trials)}
    methods = recognise.surface_methods("dln", test, surfaces, np.full(SIZE**2, 0.01))
    assert recognise.score(methods["dln_shadow"], test, trials)["1"]["error"] == 0
    confused = {(person, images): truth[(person + 1) % len(SUBJECTS)] for person, images in surfaces}
    methods = recognise.surface_methods("dln", test, confused)
    assert recognise.score(methods["dln"], test, trials[:1])["1"]["error"] > 60


def test_a_score_averages_choices_and_says_how_far_they_spread(database):
    test = Held.of(load_yaleb(database, SIZE))

    def method(trial: Trial) -> np.ndarray:  # right about everyone in the first choice, about nobody in the second
        distances = 1.0 - np.eye(len(SUBJECTS))[test.people]
        return distances if trial.images[0, 0] == 0 else -distances

    trials = [trial for trial in test.trials() if trial.k == 1][:2]
    found = recognise.score(method, test, trials)["1"]
    assert found["error"] == pytest.approx(50)
    assert found["interval"][0] == 0
    assert found["subsets"] == {"2": 50, "3": 50, "4": 50}


def test_a_stage_is_made_once(tmp_path):
    made = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"x": np.arange(3)}

    for _ in range(2):
        found = Cache(tmp_path, {"seed": 0}).arrays("stage", make)
        np.testing.assert_array_equal(found["x"], [0, 1, 2])
    assert len(made) == 1
    with pytest.raises(ValueError, match="another experiment: seed was 0, now 1"):
        Cache(tmp_path, {"seed": 1})
    Cache(tmp_path, {"seed": 1}, restart=True).arrays("stage", make)
    assert len(made) == 2


def test_configurations_of_a_run_stand_beside_each_other():
    found = yaleb.configs(yaleb.Options(seed=3))
    assert {name: (c.preset, c.prior, c.seed) for name, c in found.items()} == {
        "dln": ("best", "joint", 3),
        "dln_separate": ("best", "separate", 3),
        "dln_paper": ("paper", "separate", 3),
    }
    assert list(yaleb.configs(yaleb.Options(preset="paper"))) == ["dln"]
    with pytest.raises(ValueError, match="parts: expected some of samples"):
        yaleb.Options(parts=("dreams",))


def test_a_model_of_another_size_is_shown_images_of_its_size(database, model_path):
    assert load_yaleb(database, load_model(model_path).shape).shape == (SIZE, SIZE)
