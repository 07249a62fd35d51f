"""Trains the nets of `faces.find`: see `__main__.py`."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from deep_lambertian.faces.find import FINDER, JUDGE, Detector, Look, Net
from deep_lambertian.support.progress import track
from tools.train_face_finder.marks import MIRRORED, fit_steps, judged_crops, mean_face, yale_crops
from tools.train_face_finder.samples import Samples, backgrounds, faces48, make_many

CHANNELS = {FINDER: (12, 24, 32), JUDGE: (12, 24, 40, 48)}


def first_weights(rng: np.random.Generator, look: Look) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random weights of a net for a look: the last convolution covers all that is left of the input."""
    channels = CHANNELS[look]
    rows, columns = ((n - 5) // 2 + 1 for n in look.input)
    shapes: list[tuple[int, ...]] = [(5, 5, 1, channels[0])]
    for i in range(1, len(channels) - 1):
        rows, columns = ((rows - 2) // 2, (columns - 2) // 2) if i == 1 else (rows - 2, columns - 2)
        shapes.append((3, 3, channels[i - 1], channels[i]))
    shapes += [(rows, columns, channels[-2], channels[-1]), (channels[-1], 5)]
    spread = [math.sqrt(2 / math.prod(shape[:-1])) for shape in shapes]
    spread[-1] *= 0.05  # ways are short: large first answers would switch all units off
    return [
        (rng.normal(0, s, shape).astype(np.float32), np.zeros(shape[-1], np.float32))
        for s, shape in zip(spread, shapes, strict=True)
    ]


def train(samples: Samples, look: Look, seed: int, epochs: int, rate: float = 2e-3, batch: int = 128) -> Net:
    """Adam on the log loss of "face" and the squared error of the way, its rate falling to zero along a cosine."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    images, labels, ways = samples
    rng = np.random.default_rng(seed)
    params = [(jnp.asarray(w), jnp.asarray(b)) for w, b in first_weights(rng, look)]

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def convolve(x: Any, layer: Any, stride: int = 1) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, layer[0], (stride, stride), "VALID", dimension_numbers=dimensions) + layer[1]

    def forward(params: Any, x: Any) -> Any:
        hidden = jax.nn.relu(convolve(x[..., None], params[0], 2))
        hidden = pool(jax.nn.relu(convolve(hidden, params[1])))
        for layer in params[2:-1]:
            hidden = jax.nn.relu(convolve(hidden, layer))
        return hidden[:, 0, 0] @ params[-1][0] + params[-1][1]

    def loss(params: Any, x: Any, label: Any, way: Any) -> Any:
        out = forward(params, x)
        judged = jnp.mean(jax.nn.softplus(jnp.where(label, -out[:, 0], out[:, 0])))
        missed = jnp.sqrt(jnp.sum((out[:, 1:] - way) ** 2, axis=1) + 1e-4)  # like the mean displacement it stands for
        return judged + 12 * jnp.sum(jnp.where(label, missed, 0.0)) / jnp.maximum(jnp.sum(label), 1)

    steps = epochs * (len(images) // batch)

    @jax.jit
    def update(params: Any, moments: Any, step: Any, x: Any, label: Any, way: Any) -> Any:
        slope = jax.grad(loss)(params, x, label, way)
        first, second = moments
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = jax.tree.map(lambda v, g: 0.995 * v + 0.005 * g * g, second, slope)
        t = step + 1.0
        now = rate * 0.5 * (1 + jnp.cos(jnp.pi * step / steps)) * jnp.minimum(1.0, t / 200)
        scale = now * jnp.sqrt(1 - 0.995**t) / (1 - 0.9**t)
        params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return params, (first, second)

    zeros = jax.tree.map(jnp.zeros_like, params)
    moments = (zeros, zeros)
    order = np.concatenate([rng.permutation(len(images)) for _ in range(epochs)])
    for i in track(range(steps), "training"):
        chosen = np.sort(order[i * batch : (i + 1) * batch])
        x, way, flip = images[chosen].astype(np.float32), ways[chosen], rng.random(len(chosen)) < 0.5
        x[flip], way = x[flip, :, ::-1], way * np.where(flip[:, None], MIRRORED, 1).astype(np.float32)
        params, moments = update(params, moments, jnp.float32(i), x, labels[chosen], way)
    return Net(tuple((np.asarray(w), np.asarray(b)) for w, b in params))


def train_detector(data: Path, seed: int = 0, step: int = 1, workers: int = 2) -> Detector:
    """Everything: both nets from faces48 and backgrounds, the last steps from Yale B.

    The same seed gives the same inputs; the weights learnt from them can differ, as sums are rounded differently.
    `step` makes so many times fewer inputs, and takes every so many crops of Yale B, for a try.
    """
    faces, grounds = faces48(data), backgrounds(data)
    nets = {}
    for look, count in ((FINDER, 94_000), (JUDGE, 114_000)):
        samples = make_many(1000 * seed, count // step, faces, grounds, look, workers)
        nets[look] = train(samples, look, seed, epochs=3)
    crops = yale_crops(data, (1, 2, 3))
    judged = judged_crops(nets[JUDGE], crops[::step], seed)
    return Detector(nets[FINDER], nets[JUDGE], fit_steps(nets[JUDGE], judged), mean_face(crops))


def to_arrays(detector: Detector) -> dict[str, np.ndarray]:
    """Named arrays in half precision, which changes no answer by more than its own uncertainty."""
    arrays = {"steps": detector.steps, "mean": detector.mean}
    for name, net in (("finder", detector.finder), ("judge", detector.judge)):
        for i, (weights, bias) in enumerate(net.layers):
            arrays |= {f"{name}.weights{i}": weights, f"{name}.bias{i}": bias}
    return {name: array.astype(np.float16) for name, array in arrays.items()}
