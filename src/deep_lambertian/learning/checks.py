"""How a training is going: checks of its prior that reconstructions do not make, of its lights, and a picture.

Three checks expose a prior that will not generalise:

- The mean of the prior's own samples should be the mean of the surfaces it was taught.
- A chain that starts AT the truth of a held-out object, and sees one image, should stay there.
- The same chain from the prior's mean should get there.

The truth of a held-out object is what the E-step found from all of its images.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from deep_lambertian.data.images import grey, normal_colours, sheet
from deep_lambertian.energy import Observation, Params
from deep_lambertian.geometry import angles
from deep_lambertian.inference import chain
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.task import Task
from deep_lambertian.surface import Surface

SAMPLES = 16  # chains that see no image: their states are samples of the prior
SWEEPS = 80
SHOWN = 8  # objects and samples of a picture
Monitors = dict[str, Any]


def check_prior(
    params: Params, found: np.ndarray, task: Task, config: Config, iteration: int
) -> tuple[Monitors, np.ndarray]:
    """The figures, and samples (n, 4V) of the prior; `found` (S, 4V) are the surfaces of all objects.

    It is checked on the held-out objects, or on two that were trained on where none are held out. All chains run in one
    batch: two for each of these objects, and those that see nothing.
    """
    held_out = np.arange(task.train, len(task.names))
    which = held_out if len(held_out) else np.arange(min(2, task.train))
    photos, masks = (values[which] for values in task.brightest)
    count, pixels = photos.shape
    nothing = np.zeros((SAMPLES, pixels))
    images, weights = (np.concatenate([x, x, nothing])[:, None] for x in (photos, masks))
    mean = found[: task.train].mean(axis=0)
    starts = Surface.unpack(np.concatenate([found[which], np.tile(mean, (count + SAMPLES, 1))]).astype(np.float32))
    run = chain.run(
        params,
        Observation(jnp.asarray(images, jnp.float32), jnp.asarray(weights, jnp.float32)),
        config.e_step.override(iterations=SWEEPS, burn_in=SWEEPS // 2),
        seed=seed_of(config.seed, "check", iteration),
        given=jax.tree.map(jnp.asarray, vars(starts)),
    )
    directions, albedo = run.mean["directions"][:, 0], run.mean["albedo"][:, 0]
    true_normals, usual, alone = Surface.unpack(found[which]).normals, Surface.unpack(mean), slice(2 * count, None)

    def off(normals: np.ndarray) -> float:
        return float(angles(normals, true_normals)[masks > 0].mean())

    figures = {
        "checked_on": "held-out objects" if len(held_out) else "training objects",
        "drift_deg": off(directions[:count]),
        "one_image_deg": off(directions[count : 2 * count]),
        "mean_shape_deg": off(usual.normals[None]),
        "sample_mean_deg": float(angles(directions[alone].mean(axis=0), usual.normals).mean()),
        "sample_mean_albedo": float(np.sqrt(np.mean((albedo[alone].mean(axis=0) - usual.albedo) ** 2))),
    }
    return figures, jax.tree.map(lambda x: x[alone, 0], run.state.surface).pack()


def light_errors(lights: np.ndarray, task: Task) -> Monitors:
    """Where the true lights are known, though not shown: how far the inferred ones are off, in degrees.

    As they are, and after the one linear map, common to all objects, that brings them nearest to the truth.
    """
    if task.truth is None:
        return {}
    known = task.there & np.isfinite(task.truth).all(axis=-1)
    if known.sum() < 9:
        return {}
    found, truth = lights[known].T, task.truth[known].T
    common, *_ = np.linalg.lstsq(found.T, truth.T, rcond=None)
    return {
        "light_deg": float(angles(found, truth).mean()),
        "light_mapped_deg": float(angles(common.T @ found, truth).mean()),
    }


def training_sheet(task: Task, found: np.ndarray, samples: np.ndarray) -> Image.Image:
    """A few objects as the model sees them, and samples of its prior: surfaces (S, 4V) and (n, 4V)."""
    albedo, normals = Surface.unpack(found).pictures(task.shape)
    own_albedo, own_normals = Surface.unpack(samples).pictures(task.shape)
    photos = task.brightest[0].reshape(-1, *task.shape)
    shown, count = range(min(SHOWN, len(task.names))), range(min(SHOWN, len(samples)))
    bright = float(max(np.quantile(albedo, 0.99), 1e-3))
    rows = [
        [(task.names[i][:18], grey(photos[i], max(float(photos[i].max()), 1e-3))) for i in shown],
        [("albedo", grey(albedo[i], bright)) for i in shown],
        [("normals", normal_colours(normals[i])) for i in shown],
        [("prior: albedo", grey(own_albedo[i], bright)) for i in count],
        [("prior: normals", normal_colours(own_normals[i])) for i in count],
    ]
    return sheet(rows, tile=96)
