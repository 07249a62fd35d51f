"""Figure 8: what is predicted is predicted fairly, and a run that was made is not made again."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conftest import dome
from deep_lambertian import DLN, load_model
from deep_lambertian.data import Dataset, make_solids
from deep_lambertian.experiments import aloi, few_images
from deep_lambertian.experiments.aloi import Views, config_of, prediction_errors, summary
from deep_lambertian.recognition.distances import linear_rmse
from deep_lambertian.report import aloi_figures
from deep_lambertian.support.run_folder import RunFolder

SIZE, OBJECTS = 12, 12


def solids() -> Dataset:
    """Painted solids under the names that images of ALOI have."""
    data = make_solids(OBJECTS, images=15, size=SIZE, seed=2, noise=0.01)
    names = tuple(
        tuple(f"{n}_l{light}c{camera}.png" for light in range(1, 6) for camera in range(1, 4))
        for n in range(1, OBJECTS + 1)
    )
    return replace(data, names=tuple(map(str, range(1, OBJECTS + 1))), image_names=names, lights=None)


def views_of(surface: np.ndarray, lights: np.ndarray, mask: np.ndarray) -> Views:
    """One, then four, then the rest of the images of a surface (H, W, 3) under lights; garbage outside the mask."""
    images = np.where(mask, np.maximum(np.einsum("hwk,pk->phw", surface, lights), 0), 7.0)
    return Views("1", "1_l1c1.png", images[0], images[1:5], images[5:], mask)


def lights_about(spread: float, seed: int = 0) -> np.ndarray:
    return np.array([0, 0, 0.9]) + spread * np.random.default_rng(seed).normal(size=(15, 3))


# ---- Errors


def test_a_lambertian_object_is_predicted_by_its_surface_and_its_subspace():
    albedo = np.random.default_rng(1).uniform(0.3, 0.9, (8, 8, 1))
    surface = albedo * dome(8, 8)
    mask = np.ones((8, 8), bool)
    mask[:2, :3] = False
    views = views_of(surface, lights_about(0.1), mask)
    assert views.others[:, mask].min() > 0  # nothing in shadow
    flat = surface.reshape(-1, 3)
    errors = prediction_errors(views, {"dln": flat, "turned": flat @ np.array([[2, 1, 0], [0, 1, 1], [0, 0, 3]])})
    for name in ("dln", "turned", "svd", "svd_cone"):
        assert errors[name] < 1e-6, name
    for name in ("mean_image", "mean_image_unscaled", "input_image"):
        assert errors[name] > 0.01, name
    assert errors["mean_image"] < errors["mean_image_unscaled"]
    # Outside the mask neither the images nor the surface have a say.
    broken = np.where(mask.reshape(-1, 1), flat, 99.0)
    assert prediction_errors(views, {"dln": broken})["dln"] == errors["dln"]


def test_shadows_are_the_surfaces_to_predict():
    surface = 0.6 * dome(8, 8)
    views = views_of(surface, lights_about(1.0, seed=3), np.ones((8, 8), bool))
    assert (views.others == 0).mean() > 0.05
    errors = prediction_errors(views, {"dln": surface.reshape(-1, 3)})
    assert errors["dln"] < 1e-6 < 0.01 < errors["svd_cone"] <= errors["svd"]


def test_two_training_images_span_two_dimensions():
    views = views_of(0.6 * dome(8, 8), lights_about(0.1), np.ones((8, 8), bool))
    errors = prediction_errors(replace(views, taught=views.taught[:2]), {})
    assert 1e-4 < errors["svd"] < errors["mean_image"]
    assert errors["svd_cone"] == pytest.approx(errors["svd"], rel=1e-3)


def test_linear_rmse_is_the_distance_to_a_span():
    basis = np.eye(4)[:, :2]
    assert linear_rmse(basis, np.array([[5.0, -3.0, 2.0, 0.0]])) == pytest.approx(1.0)


def test_interval_of_a_mean():
    errors = np.random.default_rng(0).normal(1, 0.2, 400)
    found = summary(errors)
    low, high = found["interval"]
    assert found["mean"] == errors.mean()
    assert (high - low) / 2 == pytest.approx(1.96 * errors.std() / 20, rel=0.1)
    assert low < found["mean"] < high
    assert found == summary(errors)
    assert summary(np.full(5, 0.3))["interval"] == pytest.approx([0.3, 0.3])


def test_views_take_turns_and_leave_nothing_out():
    data = solids()
    learned, held_out = aloi.split_aloi(data)
    views = Views.of(learned, held_out)
    assert [each.photo_name.split("_l")[1][0] for each in views[:6]] == ["1", "2", "3", "4", "5", "1"]
    assert all(each.others.shape == (4, SIZE, SIZE) and each.taught.shape == (10, SIZE, SIZE) for each in views)
    for s, each in enumerate(views):
        whole = np.concatenate([each.photo[None], each.others, each.taught])
        assert {image.tobytes() for image in whole} == {image.tobytes() for image in data.images[s]}
        np.testing.assert_array_equal(each.mask, data.mask[s, 0])


def test_an_image_in_the_gallery_is_not_asked_about():
    test = aloi.test_of(aloi.split_aloi(solids())[1])
    choices = aloi.choices(test, (1, 2))
    one, last = choices[0], choices[-1]
    assert test.probes.shape[0] == 5 * len(test.names) == len(test.people)
    np.testing.assert_array_equal(test.asked(one), test.subsets != 1)
    np.testing.assert_array_equal(test.asked(last), test.subsets <= 3)
    told = lambda choice: 1.0 - np.eye(len(test.names))[np.where(test.asked(choice), test.people, 0)]
    assert few_images.recognition_errors(told, test, choices)["2"]["error"] == 0


# ---- The run


def reproduce(path: str, out: Path, **options: Any) -> tuple[dict[str, Any], Path]:
    """What the command does."""
    found = aloi.reproduce(path, out, **options)
    return found.results, aloi_figures.draw(found, out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """A smoke run on solids, as small as can be: its folder, figures, page and what it said."""
    out, said = tmp_path_factory.mktemp("aloi"), []
    patch = pytest.MonkeyPatch()
    asked: list[Any] = []

    def load(path: Any, size: int, objects: Any, backdrop: bool = False) -> Dataset:
        asked.append((size, list(objects), backdrop))
        return solids()

    patch.setattr(aloi, "load_aloi", load)
    patch.setattr(aloi, "BATCH", 8)  # so that the last batch is not full
    small = {"iterations": 1, "held_out": 0, "albedo_hidden": (20,), "normals_hidden": (30,), "cd.epochs": 1}
    small |= {"e_step.iterations": 8, "e_step.burn_in": 4, "e_step.leapfrogs": 3, "e_step.epochs": 1}
    patch.setattr(aloi, "SMOKE", aloi.SMOKE | small)
    results, page = reproduce("solids", out, size=SIZE, quick=True, say=said.append)
    yield SimpleNamespace(out=out, results=results, page=page, said=said, asked=asked)
    patch.undo()


def test_what_a_run_leaves(run: Any):
    numbers = list(range(1, 13))
    assert run.asked == [(SIZE, numbers, False), (SIZE, numbers, True)]
    results = json.loads((run.out / "results.json").read_text())
    assert results == run.results
    assert (results["protocol"], results["objects"], results["size"]) == ("aloi", 12, SIZE)
    assert results["images"] == {"train": 120, "input": 12, "predicted": 48}
    assert set(results["prediction_rmse"]) == set(aloi_figures.LABELS)
    for found in results["prediction_rmse"].values():
        assert 0 < found["interval"][0] <= found["mean"] <= found["interval"][1] < 1
    each = results["per_object"]
    for name, found in results["prediction_rmse"].items():
        assert np.mean([row[name] for row in each.values()]) == pytest.approx(found["mean"])
    least = results["dln_minus"]["svd"]["mean"]
    assert least == pytest.approx(results["prediction_rmse"]["dln"]["mean"] - results["prediction_rmse"]["svd"]["mean"])
    with (run.out / "objects.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["object"] for row in rows] == list(each)
    assert float(rows[3]["dln"]) == pytest.approx(each["4"]["dln"], abs=1e-6)
    page = run.page.read_text()
    assert page.count("data:image/png") == 3
    assert {"dln_detail", "photo_detail", "svd"} < set(results["recognition"])
    one = results["recognition"]["dln_detail"]["1"]
    assert one["choices"] == 5
    assert list(one["subsets"]) == ["1", "2", "3", "4", "5"]
    assert "A quick run" in page
    assert "DLN, one held-out image" in page
    assert any("training on 120 images" in line for line in run.said)


def test_what_is_there_is_not_made_again(run: Any, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("deep_lambertian.learning.train.iterate", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(DLN, "infer_many", refuse)
        results, page = reproduce("solids", run.out, size=SIZE, quick=True, say=run.said.append)
    assert results == run.results
    assert page == run.page
    # One batch that is missing is made alone, by the model that was kept, and is the same.
    (run.out / "stages" / "surfaces-dln-0008.npz").unlink()
    made = []
    infer = DLN.infer_many
    monkeypatch.setattr(DLN, "infer_many", lambda *a, **k: made.append(list(k["layout"].numbers)) or infer(*a, **k))
    assert reproduce("solids", run.out, size=SIZE, quick=True, say=run.said.append)[0] == run.results
    assert made == [[8, 9, 10, 11]]


def test_a_given_model_is_not_trained(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(aloi, "train", lambda *_, **__: pytest.fail("trained"))
    model = run.out / "training" / "model.safetensors"
    results, page = reproduce("solids", tmp_path, model=str(model), size=99, quick=True, say=run.said.append)
    assert run.asked[-1][0] == SIZE
    assert results["prediction_rmse"] == run.results["prediction_rmse"]
    assert "The model was given, not trained here: on 12 objects, 120 images" in page.read_text()


def test_another_experiments_folder_is_refused(run: Any, tmp_path: Path):
    with pytest.raises(ValueError, match=r"another run: seed was 0, now 1; .* choose another folder"):
        reproduce("solids", run.out, size=SIZE, seed=1, quick=True, say=run.said.append)
    RunFolder(tmp_path, "experiment", {"protocol": "dev", "size": SIZE}).figures("training", dict)
    with pytest.raises(ValueError, match="another run: protocol was"):
        reproduce("solids", tmp_path, size=SIZE, quick=True, say=run.said.append)
    assert not (tmp_path / "training").exists()


def test_a_restart_begins_anew(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The training too, and none of the old stages is left for another seed."""
    out, restarted = tmp_path / "again", []
    shutil.copytree(run.out, out)
    (out / "stages" / "surfaces-dln-9999.npz").write_bytes(b"old")

    def learn(*_: Any, **options: Any) -> DLN:
        restarted.append(options["restart"])
        return load_model(out / "training" / "model.safetensors")

    monkeypatch.setattr(aloi, "train", learn)
    results, _ = reproduce("solids", out, size=SIZE, seed=1, quick=True, restart=True, say=run.said.append)
    assert restarted == [True]
    assert not (out / "stages" / "surfaces-dln-9999.npz").exists()
    assert results["prediction_rmse"]["dln"] != run.results["prediction_rmse"]["dln"]
    assert results["prediction_rmse"]["svd"]["mean"] == run.results["prediction_rmse"]["svd"]["mean"]


def test_models_of_oblong_images_are_refused(run: Any, tmp_path: Path):
    DLN.random((6, 8), (4,), (4,)).save(tmp_path / "oblong.safetensors")
    with pytest.raises(ValueError, match="square images, as ALOI's objects are cropped, got 6×8"):
        reproduce("solids", tmp_path, model=str(tmp_path / "oblong.safetensors"), say=run.said.append)


def test_the_papers_layers():
    config = config_of(3, quick=False)
    assert (config.preset, config.seed) == ("paper", 3)
    assert (config.albedo_hidden, config.normals_hidden) == ((1000, 500), (1500, 500))
