"""How fast learning is: contrastive divergence against the machine's matrix product and scikit-learn, and EM."""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import exponent, fastest
from deep_lambertian.learning import contrastive_divergence as cd
from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.priors import GRBM, BinaryRBM
from deep_lambertian.support import draws

Figures = dict[str, float]
PRODUCTS = 5  # of a CD-1 minibatch: up, down, up, and the correlations of data and of fantasies


def made_up(visible: int, samples: int, seed: int, *, binary: bool) -> np.ndarray:
    data = np.random.default_rng(seed).uniform(0, 1, (samples, visible)).astype(np.float32)
    return (data > 0.5).astype(np.float32) if binary else data


def epoch_of(data: np.ndarray, hidden: int, config: CD, seed: int, *, binary: bool) -> dict[str, Callable[[], Any]]:
    """The learning and the monitors of one epoch on made-up data."""
    on_device, weights = jnp.asarray(data), jnp.ones(len(data))
    rbm = (BinaryRBM if binary else GRBM).of_data(draws.make_key(seed), on_device, hidden)
    state = cd.start(rbm, on_device, config, draws.make_key(seed))
    rates, plan = config.rates, config.plan(len(data))
    return {
        "learn": lambda: cd.learn_compiled(state, on_device, weights, rates, plan),
        "monitors": lambda: cd.look(state, on_device, config),
    }


def sgemm(size: int = 2048) -> tuple[dict[str, Callable[[], Any]], float]:
    """Square products in JAX and in numpy's BLAS, the peak being the better of the two; and their operations."""
    square = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    on_device = jnp.asarray(square)
    product = jax.jit(jnp.dot)
    return {"jax": lambda: product(on_device, on_device), "numpy": lambda: square @ square}, 2.0 * size**3


def cd_throughput(
    visible: int = 1728, hidden: int = 1000, batch: int = 100, seed: int = 0, seconds: float = 10.0
) -> Figures:
    """CD-1 on a GRBM, with shuffling, draws, momentum, decay and variances, against the sgemm peak.

    The epoch is a short one, so that it and the product it is compared with take about as long, and are as likely to
    have the machine to themselves. The monitors, once an epoch of any length, are given in minibatches.
    """
    batches = 8
    data = made_up(visible, batches * batch, seed, binary=False)
    products, operations = sgemm()
    times = fastest(epoch_of(data, hidden, CD(batch_size=batch), seed, binary=False) | products, seconds)
    peak = operations / min(times[name] for name in products) / 1e9
    rate = PRODUCTS * 2.0 * visible * hidden * len(data) / times["learn"] / 1e9
    return {
        "cd.gflops": rate,
        "cd.sgemm_gflops": peak,
        "cd.share_of_sgemm_peak": rate / peak,
        "cd.samples_per_s": len(data) / times["learn"],
        "cd.monitors_in_minibatches": batches * times["monitors"] / times["learn"],
    }


def against_sklearn(
    visible: int = 1728, hidden: int = 1000, batch: int = 100, seed: int = 0, seconds: float = 10.0
) -> Figures:
    """Persistent CD-1 on a binary RBM against scikit-learn's BernoulliRBM, which learns that way too.

    It is given the same single-precision numbers, and double-precision ones, which are what numpy makes unless told
    otherwise. What is timed is its inner step, one minibatch after the other, to which `fit` adds drawing the first
    weights; and `partial_fit`, the public name of that step, which turns everything into double precision.
    """
    try:
        from sklearn.neural_network import BernoulliRBM
    except ImportError:
        return {}
    batches = 4
    data = made_up(visible, batches * batch, seed, binary=True)
    config = CD(batch_size=batch, persistent=True, learning_rate=0.01)
    functions = {"ours": epoch_of(data, hidden, config, seed, binary=True)["learn"]}
    for name, values in {"theirs": data, "theirs_double": data.astype(np.float64)}.items():
        peer = BernoulliRBM(n_components=hidden, batch_size=batch, learning_rate=0.01, n_iter=1, random_state=seed)
        peer.fit(values[:batch])
        rng = np.random.RandomState(seed)

        def one_by_one(peer: Any = peer, values: np.ndarray = values, rng: Any = rng) -> Any:
            for rows in np.split(values, batches):
                peer._fit(rows, rng)
            return peer.components_

        functions[name] = one_by_one
    public = BernoulliRBM(n_components=hidden, batch_size=batch, learning_rate=0.01, random_state=seed)
    functions["theirs_public"] = lambda: [public.partial_fit(rows) for rows in np.split(data, batches)]
    times = fastest(functions, seconds)
    return {
        "cd.binary_samples_per_s": len(data) / times["ours"],
        "cd.bernoulli_rbm_samples_per_s": len(data) / times["theirs"],
        "cd.speedup_over_sklearn": times["theirs"] / times["ours"],
        "cd.speedup_over_sklearn_double": times["theirs_double"] / times["ours"],
        "cd.speedup_over_sklearn_partial_fit": times["theirs_public"] / times["ours"],
    }


def em_times(
    objects: int = 28, images: int = 12, size: int = 24, hidden: int = 1000, seed: int = 0
) -> dict[str, float]:
    """Seconds of the E-step and the M-step of an iteration of EM that compiles nothing any more."""
    from deep_lambertian.data import make_faces
    from deep_lambertian.learning.config import Config
    from deep_lambertian.learning.task import prepare
    from deep_lambertian.learning.train import iterate, start_point

    config = Config.of_preset("paper").override(
        seed=seed, albedo_hidden=(hidden, hidden // 4), normals_hidden=(hidden, hidden // 10), iterations=2
    )
    task = prepare(make_faces(objects, images=images, size=size, seed=seed), config)
    point = start_point(task, config, None)
    point, *_ = iterate(point, task, config)
    _, monitors, _ = iterate(point, task, config)
    return {"e_step": monitors["seconds_e_step"], "m_step": monitors["seconds_m_step"]}


def em_growth(what: str, sizes: list[int], seed: int, base: dict[str, int]) -> Figures:
    """Seconds of both steps as one of their sizes grows, and the powers by which they do."""
    found = [em_times(**(base | {what: size}), seed=seed) for size in sizes]
    counts = [size**2 for size in sizes] if what == "size" else sizes
    name = "pixels" if what == "size" else what
    figures = {
        f"em.{name}.{step}_s.{count}": times[step]
        for count, times in zip(counts, found, strict=True)
        for step in ("e_step", "m_step")
    }
    for step in ("e_step", "m_step"):
        seconds = [max(times[step], 1e-3) for times in found]
        figures[f"em.{name}.{step}_exponent"] = exponent(counts, seconds, len(counts))
    return figures


def processes(seed: int, objects: int = 28) -> Figures:
    """An iteration of EM in one process, and shared between two on the same machine."""
    figures: Figures = {}
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
            probe.close()
            words = [sys.executable, "-m", "deep_lambertian.cli", "train", "synthetic", "--preset", "paper", "--quiet"]
            words += ["--objects", f"face00000..face{objects - 1:05}", "--set", "iterations=2", "--out", folder]
            words += ["--seed", str(seed)]
            if count > 1:
                words += ["--coordinator", address, "--processes", str(count), "--process-id"]
            started = [
                subprocess.Popen(
                    words + ([str(i)] if count > 1 else []), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                for i in range(count)
            ]
            if any([process.wait() for process in started]):
                raise OSError(f"training in {count} processes failed")
            last = json.loads((Path(folder) / "log.jsonl").read_text().splitlines()[-1])
            figures[f"processes.{count}.e_step_s"] = last["seconds_e_step"]
            figures[f"processes.{count}.m_step_s"] = last["seconds_m_step"]
    return figures


def run(quick: bool = False, seed: int = 0) -> Iterator[tuple[str, Figures]]:
    """Yield one group of figures after the other, as they are measured."""
    seconds = 1.0 if quick else 10.0
    yield "contrastive divergence", cd_throughput(seed=seed, seconds=seconds)
    yield "scikit-learn", against_sklearn(seed=seed, seconds=seconds)
    base = {"objects": 6, "images": 4, "size": 12, "hidden": 40} if quick else {}
    yield "EM", {f"em.iteration.{step}_s": value for step, value in em_times(**base, seed=seed).items()}
    sizes = {"objects": [7, 14, 28], "images": [6, 12, 24], "size": [16, 24, 32], "hidden": [400, 800, 1600]}
    if quick:
        sizes = {"objects": [6, 8]}
    for what, values in sizes.items():
        yield f"EM, growth with {what}", em_growth(what, values, seed, base)
    if not quick:
        yield "processes", processes(seed)
