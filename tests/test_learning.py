"""Learning: the covariance start, Algorithm 1, its settings, and what happens when it is stopped."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deep_lambertian as dl
from deep_lambertian import Config
from deep_lambertian.data import Dataset, make_faces
from deep_lambertian.energy import Observation
from deep_lambertian.geometry import angles
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.learning import train as training
from deep_lambertian.learning.augmentation import augment, dome, mirror, random_translations
from deep_lambertian.learning.config import PRESETS
from deep_lambertian.learning.covariance import CovarianceOptions, _largest, covariance_gaussian, local_covariance
from deep_lambertian.learning.e_step import Stats, sums
from deep_lambertian.learning.m_step import m_step, start_params
from deep_lambertian.learning.run import TrainingRun
from deep_lambertian.surface import Surface

ENVIRONMENT = os.environ | {
    "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
}
SMALL = {
    "iterations": 3,
    "tolerance": 0.0,
    "e_step.iterations": 8,
    "e_step.burn_in": 4,
    "e_step.leapfrogs": 3,
    "e_step.epochs": 1,
    "covariance.directions": 20,
}
NET = {
    "iterations": 2,
    "albedo_hidden": [12, 6],
    "normals_hidden": [14, 5],
    "e_step.iterations": 8,
    "e_step.burn_in": 4,
    "e_step.leapfrogs": 3,
    "e_step.epochs": 1,
    "cd.epochs": 2,
    "pretrain.epochs": 2,
}


@lru_cache
def faces(count: int = 8, images: int = 4, size: int = 12) -> Dataset:
    return make_faces(count, images=images, size=size, seed=3)


def small() -> Config:
    return Config.of_preset("quick").override(**SMALL)


def net() -> Config:
    return Config.of_preset("paper").override(**NET)


# ---- The covariance start


def correlated(rows: int = 4000, seed: int = 0) -> np.ndarray:
    """Samples of 12 elements (3 × 4 pixels) with one strong direction and one of half its variance."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(12, 2)))[0] * [1.0, 0.7]
    return 0.5 + rng.normal(size=(rows, 2)) @ directions.T + 0.1 * rng.normal(size=(rows, 12))


PLAIN = CovarianceOptions(reach=None, shrinkage=1e-6, noise_share=0.3, least=1.2)


def test_a_gaussian_of_all_directions_has_the_covariance():
    data = correlated()
    found = covariance_gaussian(data, (3, 4), replace(PLAIN, least=1 + 1e-9))
    full = np.asarray(found.factors @ found.factors.T) + np.diag(found.variance)
    whole = local_covariance(data, (3, 4), PLAIN)
    # Exactly the variance of the data along each direction, in units of σ.
    scale = 1 / np.sqrt(np.asarray(found.variance))
    vectors = scale[:, None] * np.asarray(found.factors)
    vectors /= np.linalg.norm(vectors, axis=0)
    wanted = vectors.T @ (scale[:, None] * whole * scale) @ vectors
    np.testing.assert_allclose(vectors.T @ (scale[:, None] * full * scale) @ vectors, wanted, atol=0.02)


def test_far_pixels_are_made_independent_and_variances_stay():
    data = np.random.default_rng(1).normal(size=(6, 4 * 100))  # few samples: chance correlations everywhere
    kept = local_covariance(data, (10, 10), CovarianceOptions(reach=0.1, shrinkage=0.3))
    np.testing.assert_allclose(np.diag(kept), data.var(axis=0), rtol=1e-4)
    corners = kept.reshape(4, 100, 4, 100)[:, 0, :, 99]
    assert np.all(np.abs(corners) < 1e-6)
    plain = np.cov(data, rowvar=False, bias=True)
    near = kept.reshape(4, 100, 4, 100)[0, 0, 1, 0]  # two components of one pixel: only shrunk
    assert near == pytest.approx(0.7 * plain[0, 100], rel=1e-4)


def test_large_matrices_find_the_same_directions(monkeypatch):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    matrix = ((basis * np.geomspace(50, 0.01, 300)) @ basis.T).astype(np.float32)
    exact = _largest(matrix.copy(), 10, 0)
    monkeypatch.setattr("deep_lambertian.learning.covariance.EXACT", 10)
    values, vectors = _largest(matrix, 10, 0)
    np.testing.assert_allclose(values, exact[0], rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.sum(vectors * exact[1], axis=0)), 1, atol=1e-2)


# ---- Surfaces


def test_the_dome_faces_out_on_all_sides():
    x, y, z = dome((6, 8)).reshape(3, 6, 8)
    assert np.all(x[:, 0] < 0)
    assert np.all(x[:, -1] > 0)
    assert np.all(y[0] > 0)  # the top row looks up
    assert np.all(z > 0)


def test_augmentation_mirrors_and_moves():
    rows = Surface.from_pictures(np.arange(12.0).reshape(1, 3, 4), np.ones((1, 3, 4, 3))).pack()
    more = augment(rows, (3, 4), copies=4, shift=1, mirrored=True, seed=0)
    assert more.shape == (8, 48)
    albedo, normals = Surface.unpack(more).pictures((3, 4))
    np.testing.assert_allclose(albedo[4:], albedo[:4, :, ::-1])
    assert np.all(normals[:4, ..., 0] == 1)
    assert np.all(normals[4:, ..., 0] == -1)


def translate(albedo: np.ndarray, normals: np.ndarray, dy: int, dx: int) -> tuple[np.ndarray, np.ndarray]:
    """All surfaces moved down by `dy` and right by `dx` pixels; what enters at the edge repeats the edge."""
    height, width = albedo.shape[1:3]
    rows = np.clip(np.arange(height) - dy, 0, height - 1)
    columns = np.clip(np.arange(width) - dx, 0, width - 1)
    return albedo[:, rows][:, :, columns], normals[:, rows][:, :, columns]


def test_translation_and_mirror():
    rng = np.random.default_rng(0)
    albedo, normals = rng.uniform(0, 1, (3, 6, 7)), rng.normal(size=(3, 6, 7, 3))
    a, n = random_translations(albedo, normals, copies=40, most=2, seed=1)
    assert a.shape == (120, 6, 7)
    shifted = {(dy, dx): translate(albedo, normals, dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)}
    used = set()
    for k in range(120):  # each copy is one of the 25 shifts, of albedo and normals together
        match = [
            s for s, (sa, sn) in shifted.items() if np.array_equal(sa[k % 3], a[k]) and np.array_equal(sn[k % 3], n[k])
        ]
        assert match
        used.update(match)
    assert len(used) > 20
    again, _ = random_translations(albedo, normals, copies=40, most=2, seed=1)
    np.testing.assert_array_equal(a, again)
    m, mn = mirror(albedo, normals)
    np.testing.assert_array_equal(m, albedo[:, :, ::-1])
    np.testing.assert_array_equal(mn[..., 0], -normals[:, :, ::-1, 0])
    for before, after in zip((albedo, normals), mirror(m, mn), strict=True):
        np.testing.assert_array_equal(before, after)
    with pytest.raises(ValueError, match="at least one copy"):
        random_translations(albedo, normals, copies=0)


def test_mirroring_a_surface_mirrors_its_pictures():
    """Light from the left on the mirrored surface gives the mirror image of light from the right."""
    rng = np.random.default_rng(0)
    albedo, normals = rng.uniform(0, 1, (1, 5, 5)), rng.normal(size=(1, 5, 5, 3))
    light = np.array([0.7, 0.2, 0.6])
    ma, mn = mirror(albedo, normals)
    np.testing.assert_allclose(ma * (mn @ (light * [-1, 1, 1])), (albedo * (normals @ light))[:, :, ::-1])


# ---- Settings


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_settings_survive_toml(name):
    config = Config.of_preset(name)
    assert config.preset == name
    assert Config.from_toml(config.to_toml()) == config


def test_a_few_settings_are_enough():
    config = Config.from_toml('preset = "paper"\nlight_start = [0, 0, 1]\n[cd]\nepochs = 3\n')
    assert config == Config.of_preset("paper").override(**{"light_start": (0.0, 0.0, 1.0), "cd.epochs": 3})


def test_an_optional_table_comes_and_goes():
    paper = Config.of_preset("paper")
    assert paper.e_step.shadow is None
    weighted = paper.override(**{"e_step.shadow.unlit": 0})  # a table of its defaults but for what is told
    assert weighted.e_step.shadow == ShadowLabels(unlit=0.0)
    assert Config.from_toml(weighted.to_toml()) == weighted
    assert weighted.override(**{"e_step.shadow": "none"}) == paper
    assert weighted.override(e_step=paper.e_step) == paper


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iteratons = 3", "no setting 'iteratons'; did you mean 'iterations'"),
        ("[cd]\nlearning_rat = 0.1", "no setting 'cd.learning_rat'; did you mean 'learning_rate'"),
        ('iterations = "many"', "expected int for 'iterations', got 'many'"),
        ("mirror = 1", "expected bool for 'mirror', got 1"),
        ("joint_hidden = [1.5]", "expected int for 'joint_hidden', got 1.5"),
        ("light_start = [0, 1]", r"expected tuple\[float, float, float\] for 'light_start', got \[0, 1\]"),
        ("iterations = [1]", r"expected int for 'iterations', got \[1\]"),
        ("covariance.reach = true", "expected float or none for 'covariance.reach', got True"),
        ('prior = "both"', "expected typing.Literal.* for 'prior', got 'both'"),
        ("iterations = 0", "iterations: expected a whole number of at least 1, got 0"),
        ("noise_floor = 0", "noise_floor: expected a positive number, got 0.0"),
        ("tolerance = -1", "tolerance: expected a finite number, not negative, got -1.0"),
        ("albedo_hidden = []", "albedo_hidden: expected one positive size or more, lowest layer first"),
        ("covariance.reach = 0", "reach: expected a positive number, got 0.0"),
        ('preset = "bst"', "did you mean 'best'"),
        ("e_step = 3", "expected Sampler for 'e_step', got 3"),
        ("seed = {a = 1}", "expected int for 'seed', got {'a': 1}"),
        ("e_step.shadow.unlti = 1", "no setting 'e_step.shadow.unlti'; did you mean 'unlit'"),
        ("= 3", "expected TOML"),
        (b"\xff\xfe", "expected TOML"),
        (f"tolerance = {10**400}", "expected float for 'tolerance', got 1000"),
        (f"e_step.until = {2**70}", "until: expected at most 2147483647, got 1180591620717411303424"),
        (f"iterations = {2**31}", "iterations: expected at most 2147483647"),
    ],
)
def test_bad_settings_are_explained(text, message):
    with pytest.raises(ValueError, match=message):
        Config.from_toml(text)


# ---- Maximum likelihood


def test_the_m_step_finds_noise_and_lights_by_maximum_likelihood():
    """Sums at the true surfaces and lights: the estimates are those of the textbook."""
    rng = np.random.default_rng(0)
    objects, images, pixels, noise = 30, 20, 9, np.linspace(0.02, 0.2, 9)
    albedo, normals = rng.uniform(0.3, 1, (objects, 1, pixels)), rng.normal(size=(objects, 1, 3, pixels))
    lights = rng.multivariate_normal([0.1, 0.2, 0.8], np.diag([0.3, 0.2, 0.1]), (objects, 1, images))
    clean = albedo[:, 0, None] * np.einsum("spc,scv->spv", lights[:, 0], normals[:, 0])
    weights = (rng.random((objects, images, pixels)) < 0.8).astype(np.float32)
    seen = np.where(weights > 0, clean + noise * rng.normal(size=clean.shape), 99).astype(np.float32)
    there = np.ones((objects, images), np.float32)
    there[0, 5:] = 0  # images that are not there have no say in the lights
    lights[0, :, 5:] = 50
    weights[0, 5:] = 0
    kept = {k: jnp.asarray(v, jnp.float32) for k, v in (("albedo", albedo), ("normals", normals), ("lights", lights))}
    config = Config(noise_floor=1e-3)
    sampler = replace(config.e_step, shadow=None)
    start = start_params(dl.Gaussian.diagonal(jnp.zeros(36), jnp.ones(36)), config, pixels)
    data, shares = Observation(jnp.asarray(seen), jnp.asarray(weights)), jnp.full((objects, images, 3), 1 / 3)
    stats = sums(start, data, jnp.asarray(there), kept, shares, sampler)
    found = m_step(start, stats, config)
    error = noise**2 * np.sqrt(2 / weights.sum(axis=(0, 1)))
    above = noise**2 > 1e-3
    assert np.all(np.abs(np.asarray(found.noise_var) - noise**2)[above] < 4 * error[above])
    assert np.all(np.asarray(found.noise_var) >= np.float32(1e-3))
    true = lights[:, 0][there > 0]
    np.testing.assert_allclose(found.light_mean, true.mean(axis=0), atol=1e-4)
    covariance = np.linalg.inv(np.asarray(found.light_precision, np.float64))
    np.testing.assert_allclose(covariance, np.cov(true.T, bias=True), atol=1e-4)


def test_lights_that_are_all_alike_still_have_a_proper_prior():
    config = Config(light_floor=1e-3)
    start = start_params(dl.Gaussian.diagonal(jnp.zeros(8), jnp.ones(8)), config, 2)
    light = np.array([0.0, 0.0, 1.0])
    nothing = np.zeros(()), np.zeros(())
    stats = Stats(np.zeros(2), np.zeros(2), np.array(10.0), 10 * light, 10 * np.outer(light, light), *nothing)
    found = m_step(start, stats, config)
    found.validate()
    assert np.linalg.eigvalsh(found.light_precision)[-1] <= 1001


def test_the_m_step_finds_the_mean_of_what_is_dark():
    """Half of the pixels are in shadow, as labels tell by their probabilities; noise is that of the lit ones."""
    rng = np.random.default_rng(2)
    objects, images, pixels = 10, 8, 50
    albedo, normals = np.full((objects, 1, pixels), 0.7), np.zeros((objects, 1, 3, pixels))
    normals[:, :, 2] = 1
    lights = np.tile([0.0, 0.0, 0.9], (objects, 1, images, 1))
    lit = 0.63 + 0.03 * rng.normal(size=(objects, images, pixels))
    seen = np.where(np.arange(pixels) % 2 == 0, rng.exponential(0.03, lit.shape), lit).astype(np.float32)
    kept = {k: jnp.asarray(v, jnp.float32) for k, v in (("albedo", albedo), ("normals", normals), ("lights", lights))}
    config = Config()
    start = start_params(dl.Gaussian.diagonal(jnp.zeros(200), jnp.ones(200)), config, pixels)
    shares = jnp.tile(jnp.array([0.5, 0.45, 0.05]), (objects, images, 1))
    data = Observation(jnp.asarray(seen), jnp.ones(seen.shape))
    found = m_step(start, sums(start, data, jnp.ones((objects, images)), kept, shares, config.e_step), config)
    assert float(found.dark_mean) == pytest.approx(0.03, rel=0.1)
    assert float(jnp.mean(found.noise_var[1::2])) == pytest.approx(0.03**2, rel=0.1)


# ---- Training


def test_training_learns_and_leaves_a_record(tmp_path):
    model = dl.train(faces(), small(), out=tmp_path / "run", tensorboard=True)
    saved = dl.load_model(tmp_path / "run" / "model.safetensors")
    assert saved.shape == (12, 12)
    assert saved.info["objects"] == model.info["objects"]
    assert Config.from_toml(saved.info["config"]) == small()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    wanted = {"noise", "drift_deg", "one_image_deg", "sample_mean_deg", "light_deg", "directions", "acceptance"}
    assert wanted <= set(lines[-1])
    assert lines[-1]["checked_on"] == "held-out objects"
    assert all(np.isfinite(v) for line in lines for v in line.values() if isinstance(v, float))
    assert lines[-1]["noise"] < lines[0]["noise"]
    assert len(list((tmp_path / "run" / "pictures").glob("em-*.png"))) == 3
    assert list((tmp_path / "run").glob("events.out.tfevents.*"))
    post = saved.infer(faces().images[0, 0], iterations=20)
    assert post.normals.shape == (12, 12, 3)


def interrupted(config: Config, out: Path, steps: int, photos=None) -> None:
    """A training that is cut short after some steps, each with its checkpoint."""

    class Stop(Exception):
        pass

    count = 0

    def on_step(_):
        nonlocal count
        count += 1
        if count > steps:
            raise Stop

    with pytest.raises(Stop):
        dl.train(faces(), config, out=out, faces=photos, on_step=on_step)


@pytest.mark.parametrize("kind", ["joint", "net"])
def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(tmp_path, kind):
    """Stopped after every one of its steps, in pretraining (4 of them, of two layers) and in EM."""
    config = small() if kind == "joint" else net()
    photos = None if kind == "joint" else faces(40).images[:, 0]
    dl.train(faces(), config, out=tmp_path / "whole", faces=photos)
    for step in (1, 2) if kind == "joint" else (1, 3, 5):
        interrupted(config, tmp_path / str(step), step, photos)
        dl.train(faces(), config, out=tmp_path / str(step), faces=photos)
        for name in ("model.safetensors", "config.toml"):
            assert (tmp_path / str(step) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (step, name)
        logs = [(tmp_path / run / "log.jsonl").read_text().splitlines() for run in (str(step), "whole")]
        steps = [[json.loads(line).get("iteration") for line in log] for log in logs]
        assert steps[0] == steps[1]


COMMAND = ["train", "synthetic", "--size", "12", "--objects", "face00000..face00007", "--preset", "quick"]


def command(out: Path, settings=SMALL) -> list[str]:
    chosen = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return [sys.executable, "-m", "deep_lambertian.cli", *COMMAND, "--out", str(out)] + [
        word for setting in chosen for word in ("--set", setting)
    ]


def test_after_kill_9_the_same_bytes(tmp_path):
    """A real process, killed without warning in the middle of its second iteration."""
    everything = make_faces(size=12)
    dl.train(everything.objects(everything.names[:8]), small(), out=tmp_path / "whole")
    victim = subprocess.Popen(command(tmp_path / "killed"), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert list(checkpoints.glob("step-*"))
    again = subprocess.run(command(tmp_path / "killed"), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    whole, killed = (tmp_path / run / "model.safetensors" for run in ("whole", "killed"))
    assert killed.read_bytes() == whole.read_bytes()


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    dl.train(faces(), small(), out=tmp_path / "whole")
    written = 0
    honest = os.fsync

    def fsync(handle):
        nonlocal written
        written += "checkpoints" in str(Path(f"/proc/self/fd/{handle}").readlink())
        if written == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=r"could not be written \(No space left on device\); those that were written"):
        dl.train(faces(), small(), out=tmp_path / "run")
    monkeypatch.undo()
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000001.safetensors"]
    dl.train(faces(), small(), out=tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_a_run_is_resumed_only_with_its_own_data_and_settings(tmp_path):
    interrupted(small(), tmp_path, 1)
    with pytest.raises(
        ValueError, match=r"another run: data was \"8 objects of up to 4 images, 12×12 .* now \"9 objects"
    ):
        dl.train(faces(9), small(), out=tmp_path)
    with pytest.raises(ValueError, match=r"another run: settings.noise_floor was 0.0005, now 0.01; go on with"):
        dl.train(faces(), small().override(noise_floor=0.01), out=tmp_path)
    dl.train(faces(), small().override(noise_floor=0.01), out=tmp_path, restart=True)


def test_of_many_changed_settings_a_few_are_listed(tmp_path):
    TrainingRun(tmp_path, small(), faces()).save({}, {"phase": "em"})
    other = small().override(keep=1, copies=1, shift=0, mirror=False, held_out=0, refit=False, **{"cd.epochs": 3})
    with pytest.raises(
        ValueError, match=r"settings.keep was 5, now 1; .*; settings.held_out was 2, now 0 and 2 more; go"
    ):
        TrainingRun(tmp_path, other, faces())


def test_a_run_is_resumed_only_with_its_own_faces(tmp_path):
    photos = faces(40).images[:, 0]
    rows = photos.reshape(40, -1)
    TrainingRun(tmp_path, net(), faces(), rows).save({}, {"phase": "pretrain", "layers": []})
    assert TrainingRun(tmp_path, net(), faces(), rows).latest(lambda *_: True)
    for others in (photos[:, ::-1], photos[1:], None):
        with pytest.raises(ValueError, match=r"faces was \"40 \(checksum .*, now .*; go on with"):
            dl.train(faces(), net(), faces=others, out=tmp_path)


def one_image_only() -> Dataset:
    chosen = np.ones((8, 4), bool)
    chosen[2, 1:] = False
    return faces().keep(chosen)


@pytest.mark.parametrize(
    ("data", "settings", "photos", "message"),
    [
        (lambda: faces().objects([0, 1]), {}, None, "at least 3 objects, .* got 2"),
        (one_image_only, {}, None, "at least two images of each object, .* got one of face00002"),
        (lambda: replace(faces(), lights=None), {"known_lights": True}, None, "light of all 32 images, got that of 0"),
        (faces, {}, np.zeros((5, 12, 12)), "only with start = 'random'"),
        (faces, NET | {"start": "random", "prior": "separate"}, np.zeros((5, 8, 8)), "faces: expected images of 12×12"),
        (lambda: replace(faces(), images=faces().images * np.nan), {}, None, "expected finite pixels"),
    ],
)
def test_data_that_cannot_teach_are_refused(data, settings, photos, message):
    with pytest.raises(ValueError, match=message):
        dl.train(data(), small().override(**settings), faces=photos)


def test_numbers_that_run_away_stop_the_run_with_the_block_and_the_iteration(tmp_path, monkeypatch):
    interrupted(small(), tmp_path, 1)
    honest = training.m_step
    monkeypatch.setattr(training, "m_step", lambda *a: replace(honest(*a), light_mean=jnp.array([0.0, jnp.nan, 1.0])))
    with pytest.raises(training.TrainingError, match=r"M-step of iteration 2: 1 of 3 numbers of light_mean"):
        dl.train(faces(), small(), out=tmp_path)
    monkeypatch.undo()
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    dl.train(faces(), small(), out=tmp_path)


def test_a_learning_rate_that_is_too_large_is_named():
    with pytest.raises(FloatingPointError, match=r"no longer finite after epoch .* smaller learning rate"):
        dl.train(faces(), net().override(**{"cd.learning_rate": 1e12, "cd.momentum": 0.0}))


def test_known_lights_stay_as_they_are(tmp_path):
    model = dl.train(faces(), small().override(known_lights=True))
    known = faces().lights
    assert known is not None
    np.testing.assert_allclose(model.params.light_mean, known.mean(axis=(0, 1)), atol=1e-4)


@pytest.mark.parametrize(
    "settings", [{"prior": "separate"}, pytest.param({"rows": "samples"}, marks=pytest.mark.slow), {"held_out": 0}]
)
def test_options_train_too(settings):
    model = dl.train(faces(), small().override(**settings, **{"cd.epochs": 2}))
    assert model.params.prior.size == 4 * 144
    model.params.validate()
    if settings == {"held_out": 0}:
        assert model.info["monitors"]["checked_on"] == "training objects"


@pytest.mark.slow
def test_parameters_are_recovered_from_a_models_own_samples():
    """Many objects drawn from a DLN: training finds its noise, its light and its mean surface again."""
    normals = dome((6, 6))
    rng = np.random.default_rng(0)
    mean = np.concatenate([rng.uniform(0.5, 0.8, 36), normals.ravel()]).astype(np.float32)
    factors = np.concatenate([0.06 * rng.normal(size=(36, 3)), 0.15 * rng.normal(size=(108, 3))]).astype(np.float32)
    spread = np.repeat([0.002, 0.004], [36, 108]).astype(np.float32)
    truth = dl.DLN.build(
        dl.Gaussian.of_factors(mean, spread, factors),
        (6, 6),
        noise_var=0.03**2,
        light_mean=(0.1, 0.1, 0.9),
        light_precision=np.diag([5.0, 8.0, 20.0]),
        norm_stiffness=100.0,
        preset="best",
    )
    drawn = truth.sample(60, images=12, seed=1)
    names = tuple(f"object{i:02}" for i in range(60))
    data = Dataset(
        drawn.images,
        np.ones(drawn.images.shape, bool),
        names,
        tuple(tuple(f"{name}_{p}" for p in range(12)) for name in names),
    )
    config = Config(
        iterations=6,
        shift=0,
        mirror=False,
        albedo_start=0.65,  # the scale of albedo against that of light is anybody's choice: the start makes it
        norm_stiffness=100.0,
        noise_floor=1e-5,
        tolerance=0.0,
    ).override(**{"e_step.shadow": "none", "covariance.reach": "none", "covariance.shrinkage": 0.01})
    model = dl.train(data, config)
    assert np.sqrt(np.mean(np.asarray(model.params.noise_var))) == pytest.approx(0.03, rel=0.1)
    np.testing.assert_allclose(model.params.light_mean, [0.1, 0.1, 0.9], atol=0.08)
    found = np.sqrt(np.diag(np.linalg.inv(model.params.light_precision)))
    np.testing.assert_allclose(found, 1 / np.sqrt([5.0, 8.0, 20.0]), rtol=0.25)
    learned = np.asarray(model.params.prior.centre)
    assert angles(learned[36:].reshape(3, 36), normals).mean() < 4
    np.testing.assert_allclose(learned[:36].mean(), mean[:36].mean(), atol=0.05)
    assert np.corrcoef(learned[:36], mean[:36])[0, 1] > 0.95


@pytest.mark.slow
def test_held_out_synthetic_faces_from_one_image_and_from_more():
    model = dl.train(make_faces(40, images=8, size=24, seed=0))
    unseen = make_faces(20, images=8, size=24, seed=999)
    off = []
    for count in (1, 2, 4, 8):
        posts = model.infer_many([images[:count] for images in unseen.images])
        cosine = [np.sum(p.normals * n, axis=-1) for p, n in zip(posts, unseen.info["normals"], strict=True)]
        off.append(np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean())
    print("normals off by", np.round(off, 2))
    assert off[0] < 12
    assert np.all(np.diff(off) < 0), off


@pytest.mark.slow
def test_ten_seeds_are_finite_and_no_layer_dies():
    for seed in range(10):
        seen: list[dict] = []
        dl.train(faces(), net().override(seed=seed), on_step=seen.append)
        dl.train(faces(), small().override(seed=seed), on_step=seen.append)
        assert all(np.isfinite(v) for line in seen for v in line.values() if isinstance(v, float))
        dead = [v for line in seen for k, v in line.items() if k.endswith((".dead", ".saturated"))]
        assert max(dead) < 0.9
