"""Learning a DLN from images (Algorithm 1): the loop around pretraining, E-steps and M-steps.

Whatever a step draws depends on the seed and the step's own number. A run that is stopped, at any moment, goes on from
its last checkpoint and ends with the same bytes as one that was not.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.data.images import save_png
from deep_lambertian.energy import Params
from deep_lambertian.geometry import angles
from deep_lambertian.learning.checks import Monitors, check_prior, light_errors, training_sheet
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.contrastive_divergence import State
from deep_lambertian.learning.e_step import Chains, e_step, start_chains
from deep_lambertian.learning.m_step import as_net, m_step, prior_step, start_params, start_prior
from deep_lambertian.learning.misfit import measure_misfit
from deep_lambertian.learning.pretraining import learn_net
from deep_lambertian.learning.run import TrainingRun
from deep_lambertian.learning.task import Task, face_rows, prepare
from deep_lambertian.model import DLN
from deep_lambertian.models import describe, rebuild
from deep_lambertian.priors import DBN
from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import distributed
from deep_lambertian.support.progress import track
from deep_lambertian.support.settings import flat, nested
from deep_lambertian.surface import Surface

Layers = tuple[list[Any], list[np.ndarray]]  # that are done, and the arrays of the one under way
LEAST_LEFT = 8  # objects, for two to be left out without a prior of the others being another one
STILL = 0.95  # EM has converged when normals move by more than this share of what they moved before


class TrainingError(ValueError):
    """Learning has run away: numbers are no longer finite."""


@dataclass(frozen=True)
class Point:
    """Where EM stands after some iterations."""

    iteration: int
    params: Params
    chains: Chains
    mean: np.ndarray
    samples: np.ndarray
    change: float = float("inf")  # degrees by which normals moved in the last iteration
    converged: bool = False


def train(
    dataset: Dataset,
    config: Config | None = None,
    *,
    faces: Any = None,
    out: str | Path | None = None,
    restart: bool = False,
    tensorboard: bool = False,
    on_step: Callable[[Monitors], None] | None = None,
) -> DLN:
    """Learn a DLN from many objects under several unknown lights each.

    `faces` (a `Dataset` of `load_faces`, or an array (n, H, W)) are what the albedo prior of a random start learns from
    first. The run is kept in the folder `out`: checkpoints, a log, a picture an iteration, and the model. A folder that
    holds a run of the same data and settings is resumed, unless `restart` is set. `on_step` is given the monitors of
    every step as they come.
    """
    config = config or Config()
    task = prepare(dataset, config)
    photos = face_rows(faces, config, task.shape)
    with distributed.peers():
        run = TrainingRun(out, config, dataset, photos, restart, on_step)
        found = run.latest(partial(_restore, config))
        if tensorboard:
            run.open_tensorboard()
        if isinstance(found, Point):
            point = found
        else:
            albedo = None if photos is None else _pretrain(photos, config, run, found)
            point = start_point(task, config, albedo)
        for _ in track(range(point.iteration, config.iterations), "EM"):
            if point.converged:
                break
            point, monitors, samples = iterate(point, task, config)
            run.record(monitors)
            if (path := run.path(f"pictures/em-{point.iteration:03}.png")) is not None:
                save_png(path, training_sheet(task, point.mean, samples))
            run.save(*_arrays(point))
        model = finish(point, task, config, run)
        run.close()
        return model


# ---- Step 1: the albedo prior, from faces


def _pretrain(rows: np.ndarray, config: Config, run: TrainingRun, resume: Layers | None) -> DBN:
    """Learn the albedo net from unlabelled faces, with a checkpoint after every epoch."""
    order = np.random.default_rng(seed_of(config.seed, "faces")).permutation(len(rows))
    held_out = max(1, min(len(rows) // 10, 1000))

    def after_epoch(done: Sequence[RBM], state: State, monitors: dict[str, float]) -> None:
        run.record({"phase": "pretrain", **monitors})
        arrays = {f"cd.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        layers = [describe(layer, f"layer{depth}", arrays) for depth, layer in enumerate(done)]
        run.save(arrays, {"phase": "pretrain", "layers": layers})

    layers, _ = learn_net(
        rows[order[held_out:]],
        config.pretrain,
        seed_of(config.seed, "pretraining"),
        config.albedo_hidden,
        held_out=rows[order[:held_out]],
        resume=resume,
        after_epoch=after_epoch,
        what="faces, ",
    )
    return as_net(layers, config)


# ---- EM


def start_point(task: Task, config: Config, albedo: DBN | None) -> Point:
    """Where EM starts; `albedo` is what has been learned from faces, if anything."""
    objects, pixels = len(task.names), task.data.images.shape[2]
    params = start_params(start_prior(config, task.shape, albedo), config, pixels)
    nothing = np.zeros((objects, 4 * pixels)), np.zeros((objects, 0, 4 * pixels))
    return Point(0, params, start_chains(params, task), *nothing)


def iterate(point: Point, task: Task, config: Config) -> tuple[Point, Monitors, np.ndarray]:
    """One iteration of EM: what it found, its monitors, and samples of the new prior."""
    began, number = time.perf_counter(), point.iteration + 1
    taught = _taught(task, config)
    expected = e_step(point.params, task, point.chains, config, point.iteration, taught)
    for block in ("albedo", "normals", "lights"):
        check_finite(expected.chains[block], block, "E-step", number)
    sampled = time.perf_counter()
    params, surfaces = m_step(point.params, expected.stats, config), (expected.mean, expected.samples)
    params, learned = prior_step(params, *surfaces, config, task.shape, point.iteration, taught)
    for block in ("noise_var", "light_mean", "light_precision", "prior"):
        check_finite(getattr(params, block), block, "M-step", number)
    fitted = time.perf_counter()
    unaware = params  # of the held-out objects
    if taught > task.train:
        unaware, _ = prior_step(params, *surfaces, config, task.shape, point.iteration, task.train)
    checked, samples = check_prior(unaware, expected.mean, task, config, point.iteration)
    normals, before = (Surface.unpack(mean).normals for mean in (expected.mean, point.mean))
    change = float(angles(normals, before).mean()) if point.iteration else float("inf")
    monitors: Monitors = {
        "phase": "em",
        "iteration": number,
        "noise": float(np.sqrt(np.mean(np.asarray(params.noise_var)))),
        **expected.monitors,
        "light_mean": [round(float(x), 4) for x in params.light_mean],
        "light_spread": [round(float(x), 4) for x in np.sqrt(np.diag(np.linalg.inv(params.light_precision)))],
        **({"change_deg": change} if point.iteration else {}),
        **light_errors(expected.lights, task),
        **checked,
        **learned,
        "seconds_e_step": round(sampled - began, 3),
        "seconds_m_step": round(fitted - sampled, 3),
        "seconds_checks": round(time.perf_counter() - fitted, 3),
    }
    # Averages of samples never come to rest: what no longer shrinks is their noise.
    converged = number > 1 and (change < config.tolerance or change > STILL * point.change)
    point = Point(number, params, expected.chains, *surfaces, change, converged)
    return point, monitors, samples


def _taught(task: Task, config: Config) -> int:
    """How many objects teach: all, where a prior without the held-out ones, for the checks, costs next to nothing."""
    return len(task.names) if config.refit and config.start == "covariance" else task.train


def check_finite(tree: Any, block: str, step: str, iteration: int) -> None:
    """Stop where a number is not finite: say which, and when."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        bad = int(np.sum(~np.isfinite(np.asarray(leaf))))
        if bad:
            raise TrainingError(
                f"{step} of iteration {iteration}: {bad} of {np.size(leaf)} numbers of "
                f"{block}{jax.tree_util.keystr(path)} are no longer finite; the last checkpoint is intact. "
                "A smaller learning rate (cd.learning_rate) or step size (e_step.step_size) may help"
            )


def finish(point: Point, task: Task, config: Config, run: TrainingRun) -> DLN:
    """The trained model; with `refit`, what was held out has its say in the prior at the end."""
    params, objects = point.params, len(task.names)
    if config.refit and _taught(task, config) < objects:
        params, _ = prior_step(params, point.mean, point.samples, config, task.shape, point.iteration, objects)
        check_finite(params.prior, "prior", "last M-step", point.iteration)
    noise_var = params.noise_var * config.final_noise
    params = replace(params, norm_stiffness=jnp.float32(config.final_stiffness), noise_var=noise_var)
    last = next((line for line in reversed(run.history) if line.get("phase") == "em"), {})
    info = {
        "config": config.to_toml(),
        "objects": task.names if config.refit else task.names[: task.train],
        "images": int(task.there[: objects if config.refit else task.train].sum()),
        "iterations": point.iteration,
        "monitors": {k: v for k, v in last.items() if not k.startswith("seconds")},
    }
    misfit = None
    if config.misfit and config.start == "covariance" and objects >= LEAST_LEFT:
        misfit = measure_misfit(params, point.mean, task, config)
    model = DLN(params, task.shape, config.preset, info, misfit)
    if (path := run.path("model.safetensors")) is not None:
        model.save(path)
    return model


# ---- Files


def _arrays(point: Point) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A point as what a checkpoint holds."""
    arrays: dict[str, np.ndarray] = {}
    tree = vars(point) | {"params": dict(vars(point.params))}
    meta = {"phase": "em", **{name: tree.pop(name) for name in ("iteration", "change", "converged")}}
    meta["prior"] = describe(tree["params"].pop("prior"), "prior", arrays)
    return arrays | {name: np.asarray(value) for name, value in flat(tree).items()}, meta


def _restore(config: Config, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Point | Layers:
    """Where a training of these settings stood, by a checkpoint; a ValueError where it cannot have stood there."""
    if meta["phase"] == "pretrain":
        done = [rebuild(layer, f"layer{depth}", arrays) for depth, layer in enumerate(meta["layers"])]
        if len(done) >= len(config.albedo_hidden):
            raise ValueError(f"expected less than {len(config.albedo_hidden)} layers to be done, got {len(done)}")
        return done, [arrays[f"cd.{i}"] for i in range(len(arrays))]
    point = _point(arrays, meta)
    steps = sum(line.get("phase") == "em" for line in meta["history"])
    if point.iteration != steps or not 1 <= steps <= config.iterations:
        raise ValueError(f"expected iteration {steps} of {config.iterations}, got {point.iteration}")
    point.params.validate()
    return point


def _point(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Point:
    """The opposite of `_arrays`."""
    prior = rebuild(meta["prior"], "prior", arrays)
    tree = nested(arrays)
    params = Params(prior, **jax.tree.map(jnp.asarray, tree.pop("params")))
    return Point(params=params, **tree, **{name: meta[name] for name in ("iteration", "change", "converged")})
