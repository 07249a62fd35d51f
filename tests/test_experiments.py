"""The paper's experiments on a made-up database: protocol, tables, resuming, and what is refused."""

import csv
import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from deep_lambertian import DLN, load_model
from deep_lambertian.cli import main
from deep_lambertian.data import load_yaleb
from deep_lambertian.data.yaleb import PROTOCOLS, light_direction
from deep_lambertian.experiments import few_images, yaleb
from deep_lambertian.experiments.few_images import Choice, RecognitionTest
from deep_lambertian.learning.covariance import CovarianceOptions, covariance_gaussian
from deep_lambertian.report.recognition import recognition_table
from deep_lambertian.surface import Surface
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
    rows = Surface.from_pictures(people.albedo, people.normals).pack()
    prior = covariance_gaussian(rows, (SIZE, SIZE), CovarianceOptions())
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
    for shares in (*results["calibration"]["normals"].values(), *results["calibration_subsets"]["light"].values()):
        assert 0 <= shares["0.1"] <= shares["0.5"] <= shares["0.9"] <= 1
    assert set(results["calibration"]) == {"normals", "albedo", "light", "relit"}
    assert sum(results["simulation"]["albedo"]["histogram"]) == 16 * results["simulation"]["albedo"]["quantities"]
    assert set(results["density"]) == set(results["samples_auc"]) == {"gaussian", "gaussian_binary", "grbm", "dbn"}
    assert results["density_error"]["gaussian"] == 0 < results["density_error"]["dbn"]
    assert all(0 <= area <= 1 for area in results["samples_auc"].values())
    for name in ("figure4-dln.png", "figure5.png", "figure6.png", "figure7.png", "calibration.png", "density.png"):
        assert np.asarray(Image.open(out / name)).std() > 5
    page = (out / "report.html").read_text()
    assert "Missing subjects" in page
    assert page.count("data:image/png") == 6
    assert "http" not in page.replace("http-equiv", "")
    with (out / "recognition.csv").open() as file:
        assert len(list(csv.reader(file))) == len(results["recognition"]) + 1

    def again(*_, **__):
        raise AssertionError("inferred again")

    monkeypatch.setattr(yaleb, "common_map", again)
    monkeypatch.setattr(few_images, "recognition_errors", again)
    monkeypatch.setattr("deep_lambertian.model.DLN.infer_many", again)
    assert command(database, model_path, out, "--only", "recognition") == 0
    assert command(database, model_path, out, "--seed", "1") == 1
    assert "holds the results of another run: seed was 0, now 1" in capsys.readouterr().err


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
    test = RecognitionTest.of(load_yaleb(database, SIZE))
    choices = test.choices(each=10, seed=0)
    one = [choice for choice in choices if choice.k == 1]
    assert [set(choice.images[:, 0]) for choice in one] == [{0}, {1}, {2}]
    assert [choice.k for choice in choices].count(2) == 10
    assert all(len(set(row)) == choice.k for choice in choices for row in choice.images)
    again = test.choices(each=10, seed=0)
    assert all(np.array_equal(a.images, b.images) for a, b in zip(choices, again, strict=True))
    shown = test.shown(choices)
    assert len(set(shown)) == len(shown)
    assert {len(images) for _, images in shown} == {1, 2, 3}


def test_the_true_surfaces_are_recognized_without_error(database, faces):
    test = RecognitionTest.of(load_yaleb(database, SIZE))
    choices = test.choices()
    truth = (faces.albedo[..., None] * faces.normals).reshape(len(SUBJECTS), -1, 3)
    surfaces = {key: {"scaled": truth[key[0]]} for key in test.shown(choices)}
    methods = few_images.surface_methods("dln", test, surfaces, np.full(SIZE**2, 0.01))
    assert few_images.recognition_errors(methods["dln_shadow"], test, choices)["1"]["error"] == 0
    confused = {(person, images): {"scaled": truth[(person + 1) % len(SUBJECTS)]} for person, images in surfaces}
    methods = few_images.surface_methods("dln", test, confused)
    assert few_images.recognition_errors(methods["dln"], test, choices[:1])["1"]["error"] > 60


def test_strangers_are_told_from_true_surfaces(database, faces):
    """With odds that grow as distances fall; and odds that know nothing take all alike."""
    test = RecognitionTest.of(load_yaleb(database, SIZE))
    choices = test.choices()
    truth = (faces.albedo[..., None] * faces.normals).reshape(len(SUBJECTS), -1, 3)
    surfaces = {key: {"scaled": truth[key[0]]} for key in test.shown(choices)}
    noise = np.full(SIZE**2, 0.01)
    found, blind = (
        few_images.stranger_errors(test, choices, surfaces, noise, np.array(odds, float), seed=0)
        for odds in ([-1.0] * 6 + [-8.0], [0.0] * 7)
    )
    assert found["area"] > 0.9
    assert found["one_percent"]["false_acceptance"] <= 2
    assert np.all(np.diff(found["roc"]["false_acceptance"]) <= 0)
    assert np.all(np.diff(found["roc"]["false_rejection"]) >= 0)
    assert blind["half"] == {"threshold": 0.5, "false_acceptance": 100, "false_rejection": 0}


def test_a_table_has_room_for_a_subset_that_some_methods_were_not_asked():
    shared = {"error": 1.0, "choices": 1}
    found = {"dln": {"1": {"subsets": {"2": 1.0, "5": 3.0}, **shared}}, "svd": {"1": {"subsets": {"2": 4.0}, **shared}}}
    assert recognition_table(found) == [
        ["method", "k = 1", "subset 2", "subset 5"],
        ["DLN", "1.0", "1.0", "3.0"],
        ["SVD subspace", "1.0", "4.0", ""],
    ]


def test_a_score_averages_choices_and_says_how_far_they_spread(database):
    test = RecognitionTest.of(load_yaleb(database, SIZE))

    def method(choice: Choice) -> np.ndarray:  # right about everyone in the first choice, about nobody in the second
        distances = 1.0 - np.eye(len(SUBJECTS))[test.people]
        return distances if choice.images[0, 0] == 0 else -distances

    choices = [choice for choice in test.choices() if choice.k == 1][:2]
    found = few_images.recognition_errors(method, test, choices)["1"]
    assert found["error"] == pytest.approx(50)
    assert found["interval"][0] == 0
    assert found["subsets"] == {"2": 50, "3": 50, "4": 50}


def test_configurations_of_a_run_stand_beside_each_other():
    found = yaleb.configs(yaleb.Options(seed=3))
    assert {name: (c.preset, c.prior, c.seed) for name, c in found.items()} == {
        "dln": ("best", "joint", 3),
        "dln_separate": ("best", "separate", 3),
        "dln_paper": ("paper", "separate", 3),
    }
    assert list(yaleb.configs(yaleb.Options(preset="paper"))) == ["dln"]
    with pytest.raises(ValueError, match="parts: expected some of samples"):
        yaleb.Options(parts=("poems",))


def test_a_model_of_another_size_is_shown_images_of_its_size(database, model_path):
    assert load_yaleb(database, load_model(model_path).shape).shape == (SIZE, SIZE)


def test_protocols_test_people_whom_they_do_not_train_on():
    everybody = {f"yaleB{i}" for i in range(11, 40) if i != 14}
    for name, (train, test) in PROTOCOLS.items():
        assert not set(train) & set(test), name
        assert len(test) == 10
    assert PROTOCOLS["confirm"][1] == [f"yaleB{i}" for i in range(20, 30)]
    assert everybody == set().union(*PROTOCOLS["confirm"]) == set().union(*PROTOCOLS["dev"])
    assert not set(PROTOCOLS["confirm"][1]) & set(PROTOCOLS["dev"][1])
