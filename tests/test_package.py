"""The package as a whole: what importing does, how often things compile, devices, and the command line."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from deep_lambertian.cli import COMMANDS
from deep_lambertian.support import compiled

ROOT = Path(__file__).parent.parent

IMPORTS = """
import pkgutil, importlib, sys
import deep_lambertian
assert "jax" not in sys.modules, "importing the package alone loads JAX"
for module in pkgutil.walk_packages(deep_lambertian.__path__, "deep_lambertian."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name in deep_lambertian.__all__:
    assert getattr(deep_lambertian, name) is not None
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "importing runs JAX"
"""


# Processes that the tests start share what has been compiled with them.
ENVIRONMENT = {**os.environ, "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**ENVIRONMENT, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_importing_computes_nothing():
    python(IMPORTS)


DEVICES = """
import numpy as np, jax
jax.config.update("jax_num_cpu_devices", {devices})
import jax.numpy as jnp
import deep_lambertian as dl
assert len(jax.local_devices()) == {devices}

def net(seed, bias, hidden):
    net = dl.DBN.random(jax.random.key(seed), len(bias), hidden)
    base = dl.GRBM(bias, net.base.hidden_bias, net.base.weights, jnp.full(len(bias), 0.1))
    return dl.DBN(base, net.layers)

ahead = jnp.concatenate([jnp.zeros(128), jnp.ones(64)])
prior = dl.Product(net(0, jnp.full(64, 0.6), (30, 10)), net(1, ahead, (40, 10)))
model = dl.DLN.build(prior, (8, 8), noise_var=0.05, preset="quick")
rng = np.random.default_rng(0)
images = [rng.uniform(0.2, 0.8, (2 + i % 2, 8, 8)) for i in range(5)]
posts = model.infer_many(images, iterations=6)
rows = [np.concatenate([p.albedo.ravel(), p.normals.ravel(), p.lights[:2].ravel()]) for p in posts]
np.save({path!r}, np.stack(rows))
"""


def test_one_device_and_two_give_the_same(tmp_path):
    """Five objects of unequal numbers of images, on one device and shared out over two."""
    results = []
    for devices in (1, 2, 2):
        path = str(tmp_path / f"{devices}.npy")
        python(DEVICES.format(devices=devices, path=path))
        results.append(np.load(path))
    one, two, again = results
    np.testing.assert_array_equal(two, again)  # the same layout gives the same bytes
    np.testing.assert_allclose(one, two, atol=2e-4)


@pytest.mark.parametrize("alone", [True, False])
def test_each_shape_is_compiled_once(small, alone):
    """However long the chain, whatever the seed, the step or the burn-in: one program for a shape."""
    # Numbers of images that no other test has, which may have run before in the same process.
    images = small.sample(2, images=13).images
    infer = (lambda images, **options: small.infer(images[0], **options)) if alone else small.infer_many

    infer(images)
    before = len(compiled._programs)
    infer(images, iterations=7, seed=3)
    infer(images + 0.01, sampler=small.sampler.override(iterations=31, burn_in=3, anneal=4.0))
    infer(images)
    assert len(compiled._programs) == before
    # Where a chain starts is compiled anew for another step; the chain itself is not.
    infer(images, sampler=small.sampler.override(step_size=0.02))
    assert len(compiled._programs) == before + 1
    infer(images[:, :11])
    assert len(compiled._programs) == before + 3


def test_programs_may_be_compiled_beside_other_work(small):
    """As `dln infer` does: a short chain on a blank picture leaves the real one nothing to compile."""
    images = small.sample(1, images=12).images[0]
    with ThreadPoolExecutor() as pool:
        compiled.compile_in(pool)
        try:
            short = small.sampler.override(iterations=2, burn_in=1)
            pool.submit(small.infer, np.full_like(images, 0.5), sampler=short).result()
            before = len(compiled._programs)
            beside = small.infer(images, iterations=6)
            assert len(compiled._programs) == before
        finally:
            compiled.compile_in(None)
    np.testing.assert_array_equal(beside.albedo, small.infer(images, iterations=6).albedo)


def dln(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deep_lambertian.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_has_an_example(command):
    done = dln(*command, *(["check"] if "data" in command else []), "--help")  # of which there are two
    assert done.returncode == 0
    assert re.search(r"examples?:\s+dln", done.stdout)
    if command:
        assert all(option in done.stdout for option in ("--seed", "--json", "--quiet"))


def test_help_does_not_load_jax():
    code = "import sys; from deep_lambertian.cli import build_parser; build_parser(); assert 'jax' not in sys.modules"
    python(code)


@pytest.mark.slow
def test_demo_beats_its_baselines_and_writes_its_reports(tmp_path):
    done = dln("demo", "--out", str(tmp_path / "new"), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["normals_deg"] < result["normals_deg_mean_shape"]
    assert result["relighting_rmse"] < 0.7 * result["relighting_rmse_mean_shape"]
    assert result["one_shot_error"] < 0.2 * result["one_shot_error_nearest_neighbor"]
    for page in ("report", "portrait"):
        assert "<canvas" in Path(result[page]).read_text()
    assert (tmp_path / "new" / "faces.png").read_bytes().startswith(b"\x89PNG")
    assert "learning from" in done.stderr


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = dln("demo", "--out", str(tmp_path / "file"))
    assert done.returncode == 1
    assert done.stderr.startswith("dln demo: ")
    assert len(done.stderr.strip().splitlines()) == 1
    done = dln("demo", "--out", str(tmp_path / "new"), "--iterations", "0")
    assert done.returncode == 1
    assert "iterations: expected at least 1, got 0" in done.stderr
    assert dln("dance").returncode == 2
    assert "Traceback" in dln("demo", "--iterations", "0", "--debug").stderr


@pytest.mark.slow
def test_bench_reports_what_it_promises():
    done = dln("bench", "inference", "--quick", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    for pixels in ("576", "16128"):
        assert figures["hmc"]["speedup_over_blackjax"][pixels] > 1
        assert figures["hmc"]["ns_per_pixel_leapfrog"][pixels] > 0
    assert set(figures["infer"]) >= {"single_image_ms", "images_per_s", "hmc_share"}
    assert 0 < figures["infer"]["hmc_share"] < 1
    for what in ("pixels", "images", "objects"):
        assert np.isfinite(figures["growth"][what]["exponent"])
    assert next(iter(figures["memory"].values())) > 0


@pytest.mark.slow
def test_a_photo_is_timed():
    done = dln("bench", "photo", "--quick", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["photo"]
    assert figures["again_s"] < figures["first_s"]
    assert figures["memory_mb"] < 1500
    assert figures["import_jax_s"] > 0


@pytest.mark.slow
def test_a_gallery_is_timed():
    done = dln("bench", "recognition", "--quick", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    for figures in json.loads(done.stdout)["recognition"].values():
        assert figures["people_20"]["of_64_ms"] < figures["people_20"]["alone_ms"]


def test_the_versions_agree():
    import tomllib

    import deep_lambertian

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == deep_lambertian.__version__
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    extras = [name for group in project["optional-dependencies"].values() for name in group]
    for requirement in project["dependencies"] + extras:
        assert requirement.split(">=")[0].lower() in pinned, f"{requirement} is not pinned in constraints.txt"
    assert jax.__version__ in (ROOT / "constraints.txt").read_text()


def test_a_command_that_is_done_has_said_all_and_left(tmp_path):
    """`dln` leaves without taking JAX apart: what it wrote and said must be whole by then, and its exit code right."""
    photo = tmp_path / "grey.png"
    Image.fromarray(np.full((200, 200, 3), 90, np.uint8)).save(photo)
    done = dln("infer", "yaleb24", str(photo), "--out", str(tmp_path / "out"))  # while its chains are being compiled
    assert done.returncode == 1
    assert done.stderr.startswith("dln infer: expected a photo with one frontal face")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    done = dln("models", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)
