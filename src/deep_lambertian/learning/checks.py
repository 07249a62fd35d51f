"""Three checks of a prior that its reconstructions do not make: they expose one that will not generalise.

- The mean of the prior's own samples should be the mean of the surfaces it was taught.
- A chain that starts AT the truth of a held-out object, and sees one image, should stay there.
- The same chain from the prior's mean should get there.

The truth of a held-out object is what the E-step found from all of its images.
"""

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from deep_lambertian.energy import Observation, Params
from deep_lambertian.geometry import angles
from deep_lambertian.inference import chain
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.support.pictures import grey, normal_colours, sheet

SAMPLES = 16  # chains that see no image: their states are samples of the prior
SWEEPS = 80
SHOWN = 8  # objects and samples of a picture


def check_prior(
    params: Params,
    taught: np.ndarray,
    truth: np.ndarray,
    photos: np.ndarray,
    masks: np.ndarray,
    config: Config,
    iteration: int,
) -> tuple[dict[str, float], np.ndarray]:
    """The figures, and samples (n, 4V) of the prior. Of held-out objects: `truth` (S, 4V), one photo, its mask (S, V).

    All chains run in one batch: two for each held-out object, and those that see nothing.
    """
    count, pixels = photos.shape
    images = np.concatenate([photos, photos, np.zeros((SAMPLES, pixels))])[:, None]
    weights = np.concatenate([masks, masks, np.zeros((SAMPLES, pixels))])[:, None]
    mean = taught.mean(axis=0)
    starts = np.concatenate([truth, np.tile(mean, (count + SAMPLES, 1))]).astype(np.float32)
    sampler = config.e_step.override(iterations=SWEEPS, burn_in=SWEEPS // 2)
    run = chain.run(
        params,
        Observation(jnp.asarray(images, jnp.float32), jnp.asarray(weights, jnp.float32)),
        sampler,
        seed=seed_of(config.seed, "check", iteration),
        given={
            "albedo": jnp.asarray(starts[:, :pixels]),
            "normals": jnp.asarray(starts[:, pixels:].reshape(-1, 3, pixels)),
        },
    )
    found = {name: values[:, 0] for name, values in run.mean.items()}
    true_normals = truth[:, pixels:].reshape(-1, 3, pixels)
    seen = masks > 0

    def off(which: slice) -> float:
        return float(angles(found["directions"][which], true_normals)[seen].mean())

    alone = slice(2 * count, None)
    own_mean = found["directions"][alone].mean(axis=0)
    figures = {
        "drift_deg": off(slice(count)),
        "one_image_deg": off(slice(count, 2 * count)),
        "mean_shape_deg": float(angles(mean[pixels:].reshape(3, pixels)[None], true_normals)[seen].mean()),
        "sample_mean_deg": float(angles(own_mean, mean[pixels:].reshape(3, pixels)).mean()),
        "sample_mean_albedo": float(np.sqrt(np.mean((found["albedo"][alone].mean(axis=0) - mean[:pixels]) ** 2))),
    }
    samples = jax.tree.map(lambda x: x[alone, 0], run.state.surface)
    return figures, samples.pack()


def training_sheet(
    names: list[str],
    photos: np.ndarray,
    albedo: np.ndarray,
    normals: np.ndarray,
    sampled: tuple[np.ndarray, np.ndarray],
) -> Image.Image:
    """How far a training has come: a few objects as the model sees them, and samples of its prior.

    Rows of photos (S, H, W), albedo (S, H, W) and normals (S, H, W, 3), then those of the samples.
    """
    shown = range(min(SHOWN, len(names)))
    bright = float(max(np.quantile(albedo, 0.99), 1e-3))
    rows = [
        [(names[i][:18], grey(photos[i], max(float(photos[i].max()), 1e-3))) for i in shown],
        [("albedo", grey(albedo[i], bright)) for i in shown],
        [("normals", normal_colours(normals[i])) for i in shown],
    ]
    own_albedo, own_normals = sampled
    count = range(min(SHOWN, len(own_albedo)))
    rows.append([("prior: albedo", grey(own_albedo[i], bright)) for i in count])
    rows.append([("prior: normals", normal_colours(own_normals[i])) for i in count])
    return sheet(rows, tile=96)
