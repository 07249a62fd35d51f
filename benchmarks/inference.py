"""How fast inference is: `dln bench inference`.

HMC is compared with blackjax (vmapped over pixels; same target, same settings) in the same run. A user writes the
target in vector form, n·A·n; written out by components it is several times faster in blackjax too, and that figure is
reported beside the first.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import exponent, interleaved
from deep_lambertian.energy import Observation
from deep_lambertian.geometry import TRIANGLE
from deep_lambertian.inference import chain
from deep_lambertian.inference.normals import NormalsQuadratic, hmc
from deep_lambertian.inference.sampler import PRESETS, Sampler
from deep_lambertian.model import DLN
from deep_lambertian.support import draws

Figures = dict[str, float]
PAPER = PRESETS["paper"]
HMC = {"leapfrogs": PAPER.leapfrogs, "epochs": PAPER.epochs, "mass": PAPER.mass}


def run(quick: bool = False, seed: int = 0) -> Iterator[tuple[str, Figures]]:
    """Yield one group of figures after the other, as they are measured."""
    seconds = 0.5 if quick else 4.0
    for pixels in (576, 16_128):
        yield f"hmc at {pixels} pixels", hmc_figures(pixels, seed, seconds)
    yield "inference", infer_figures(seed, seconds, batch=4 if quick else 64)
    sizes = {"pixels": [16, 24, 32], "images": [4, 8, 16], "objects": [2, 4, 8]}
    if not quick:
        sizes = {"pixels": [48, 72, 96, 120], "images": [64, 128, 256, 512], "objects": [16, 32, 64, 128]}
    for what, values in sizes.items():
        yield f"growth with {what}", growth(what, values, seed, seconds)
    objects, images = (8, 5) if quick else (100, 45)
    yield "memory", {f"memory.{objects}x{images}_mb_above_jax": memory_above_jax(objects, images)}


def problem(pixels: int, seed: int) -> tuple[NormalsQuadratic, np.ndarray]:
    """Targets of the shape that one image of a face gives them, and their matrices (V, 3, 3)."""
    rng = np.random.default_rng(seed)
    a = np.einsum("vi,vj->vij", *[rng.normal(0, 5, (pixels, 3))] * 2) + 20 * np.eye(3)
    b = rng.normal(0, 10, (3, pixels))
    triangle = np.stack([a[:, i, j] for i, j in TRIANGLE])
    return NormalsQuadratic(jnp.asarray(triangle, jnp.float32), jnp.asarray(b, jnp.float32)), a.astype(np.float32)


def hmc_figures(pixels: int, seed: int, seconds: float) -> Figures:
    """Conditional 4 alone, with the paper's settings, against blackjax."""
    target, matrices = problem(pixels, seed)
    normals = jnp.tile(jnp.array([[0.0], [0.0], [1.0]]), pixels)
    eta, step = jnp.float32(100.0), jnp.full(pixels, PAPER.step_size)
    ours = jax.jit(partial(hmc, **HMC))
    functions: dict[str, Callable[[], Any]] = {"ours": partial(ours, draws.make_key(seed), target, eta, step, normals)}
    keys = jax.random.split(jax.random.key(seed), pixels)
    for name, sampler in blackjax_samplers().items():
        parameters = {
            "vector": (jnp.asarray(matrices), target.linear.T),
            "components": (target.quadratic.T, target.linear.T),
        }[name]
        functions[name] = partial(sampler, keys, normals.T, eta, *parameters)
    times = interleaved(functions, seconds)
    figures = {
        f"hmc.ms.{pixels}": 1e3 * times["ours"],
        f"hmc.ns_per_pixel_leapfrog.{pixels}": 1e9 * times["ours"] / (pixels * PAPER.leapfrogs * PAPER.epochs),
    }
    if "vector" in times:
        figures |= {
            f"hmc.blackjax_ms.{pixels}": 1e3 * times["vector"],
            f"hmc.speedup_over_blackjax.{pixels}": times["vector"] / times["ours"],
            f"hmc.blackjax_components_ms.{pixels}": 1e3 * times["components"],
            f"hmc.speedup_over_blackjax_components.{pixels}": times["components"] / times["ours"],
        }
    return figures


def blackjax_samplers() -> dict[str, Callable[..., Any]]:
    """blackjax's HMC vmapped over pixels, for both ways of writing the target; empty where it is not installed."""
    try:
        import blackjax
    except ImportError:
        return {}

    def vector(eta: jax.Array, a: jax.Array, b: jax.Array, n: jax.Array) -> jax.Array:
        return -(0.5 * n @ a @ n - b @ n + 0.5 * eta * (n @ n - 1) ** 2)

    def components(eta: jax.Array, a: jax.Array, b: jax.Array, n: jax.Array) -> jax.Array:
        x, y, z = n[0], n[1], n[2]
        cross = a[1] * x * y + a[2] * x * z + a[4] * y * z
        square = 0.5 * (a[0] * x * x + a[3] * y * y + a[5] * z * z)
        excess = x * x + y * y + z * z - 1
        return -(square + cross - b[0] * x - b[1] * y - b[2] * z + 0.5 * eta * excess * excess)

    def sampler(log_density: Callable[..., jax.Array]) -> Callable[..., Any]:
        def one(key: jax.Array, n: jax.Array, eta: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
            kernel = blackjax.hmc(
                partial(log_density, eta, a, b),
                step_size=PAPER.step_size,
                inverse_mass_matrix=jnp.full(3, 1 / PAPER.mass),
                num_integration_steps=PAPER.leapfrogs,
            )

            def epoch(state: Any, key: jax.Array) -> tuple[Any, None]:
                return kernel.step(key, state)[0], None

            first = blackjax.hmc.init(n, partial(log_density, eta, a, b))
            state, _ = jax.lax.scan(epoch, first, jax.random.split(key, PAPER.epochs))
            return state.position

        return jax.jit(jax.vmap(one, (0, 0, None, 0, 0)))

    return {"vector": sampler(vector), "components": sampler(components)}


def pictures(objects: int, images: int, pixels: int, seed: int) -> Observation:
    values = np.random.default_rng(seed).uniform(0, 1, (objects, images, pixels)).astype(np.float32)
    return Observation(jnp.asarray(values), jnp.ones_like(jnp.asarray(values)))


def infer_figures(seed: int, seconds: float, batch: int) -> Figures:
    """Whole inference with the paper's nets and settings at 24×24."""
    model = DLN.random(noise_var=0.01, seed=seed)
    image = np.asarray(pictures(1, 1, 576, seed).images).reshape(24, 24)
    target, _ = problem(576, seed)
    eta, step = jnp.float32(100.0), jnp.full(576, PAPER.step_size)

    @jax.jit
    def hmc_alone(normals: jax.Array) -> jax.Array:
        def sweep(t: jax.Array, n: jax.Array) -> jax.Array:
            return hmc(draws.fold_in(draws.make_key(seed), t), target, eta, step, n, **HMC)[0]

        return jax.lax.fori_loop(0, PAPER.iterations, sweep, normals)

    upright = jnp.tile(jnp.array([[0.0], [0.0], [1.0]]), 576)
    single = interleaved({"infer": lambda: model.infer(image).albedo, "hmc": lambda: hmc_alone(upright)}, seconds)
    many = [image] * batch
    together = interleaved({"batch": lambda: [p.albedo for p in model.infer_many(many)]}, seconds)["batch"]
    return {
        "infer.single_image_ms": 1e3 * single["infer"],
        "infer.hmc_alone_ms": 1e3 * single["hmc"],
        "infer.hmc_share": single["hmc"] / single["infer"],
        "infer.times_hmc_alone": single["infer"] / single["hmc"],
        "infer.images_per_s": batch / together,
    }


def growth(what: str, sizes: list[int], seed: int, seconds: float) -> Figures:
    """How the time of a sweep grows with pixels (sides of a square), images or objects, all else as in the paper."""
    sampler = Sampler(iterations=4, burn_in=0)
    times, counts = [], []
    for size in sizes:
        side = size if what == "pixels" else 24
        model = DLN.random((side, side), noise_var=0.01, seed=seed)
        objects, images = (size if what == other else 1 for other in ("objects", "images"))
        data = pictures(objects, images, side * side, seed)
        times.append(interleaved({"run": partial(chain.run, model.params, data, sampler)}, seconds, most=20)["run"])
        counts.append(side * side if what == "pixels" else size)
    figures = {f"growth.{what}.ms.{count}": 1e3 * t / 4 for count, t in zip(counts, times, strict=True)}
    return figures | {f"growth.{what}.exponent": exponent(counts, times)}


MEMORY = """
import pathlib, re, resource, sys
import jax, numpy as np

def peak():  # in MB; getrusage counts what the parent process held, where the kernel tells better ask it
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

jax.block_until_ready(jax.jit(lambda x: x @ x)(jax.numpy.ones((64, 64))))
before = peak()
from deep_lambertian.model import DLN
objects, images = map(int, sys.argv[1:])
data = np.random.default_rng(0).uniform(0, 1, (objects, images, 24, 24)).astype(np.float32)
DLN.random(noise_var=0.01).infer_many(list(data))
print(peak() - before)
"""


def memory_above_jax(objects: int, images: int) -> float:
    """Peak memory in MB, above that of a process that has only started JAX, in a process of its own."""
    command = [sys.executable, "-c", MEMORY, str(objects), str(images)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])
