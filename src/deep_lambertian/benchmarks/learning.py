"""How fast learning is: contrastive divergence against the machine's matrix product and against scikit-learn."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian import draws
from deep_lambertian.learning import cd

Figures = dict[str, float]
PRODUCTS = 5  # of a CD-1 minibatch: up, down, up, and the correlations of data and of fantasies


def fastest(functions: dict[str, Callable[[], Any]], seconds: float, least: int = 3) -> dict[str, float]:
    """Seconds of the fastest call of each, called in turn: what each does when the machine is left to it."""
    best = dict.fromkeys(functions, np.inf)
    for function in functions.values():
        jax.block_until_ready(function())  # compiles
    stop, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < stop or rounds < least:
        rounds += 1
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def made_up(visible: int, samples: int, seed: int, *, binary: bool) -> np.ndarray:
    data = np.random.default_rng(seed).uniform(0, 1, (samples, visible)).astype(np.float32)
    return (data > 0.5).astype(np.float32) if binary else data


def epoch_of(data: np.ndarray, hidden: int, config: cd.CD, seed: int, *, binary: bool) -> dict[str, Callable[[], Any]]:
    """The learning and the monitors of one epoch on made-up data."""
    on_device, weights = jnp.asarray(data), jnp.ones(len(data))
    rbm = cd.initial(draws.make_key(seed), on_device, hidden, binary=binary)
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
    times = fastest(epoch_of(data, hidden, cd.CD(batch_size=batch), seed, binary=False) | products, seconds)
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
    config = cd.CD(batch_size=batch, persistent=True, learning_rate=0.01)
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
