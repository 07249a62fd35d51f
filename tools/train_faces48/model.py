"""The model `faces48`: a Gaussian prior over the surfaces of heads that were drawn, and plain choices for all else."""

from dataclasses import replace

import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.data.morphable import Heads, Morphable, Variety
from deep_lambertian.learning.augmentation import augment
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.covariance import CovarianceOptions, covariance_gaussian
from deep_lambertian.learning.misfit import misfit_of_others
from deep_lambertian.learning.task import prepare
from deep_lambertian.model import DLN
from deep_lambertian.synthetic.scenes import photograph
from tools.train_faces48.textures import draw_textures

PEOPLE = 3000  # heads that the prior is learned from, each with its mirror image
SKINS = 1000  # textures that they share
OTHERS, PHOTOS = 28, 12  # heads that it has not seen, and images of each, on which its misfit is measured
# How people hold their heads and how faces are cropped: our guesses, a few degrees and a fiftieth of the frame.
VARIETY = Variety(expression=0.07, pitch=4.0, yaw=2.5, place=0.02)
# With thousands of surfaces less has to be done to their covariance than with 28.
COVARIANCE = CovarianceOptions(reach=0.5, shrinkage=0.3, noise_share=0.1)
# Light mostly from ahead, of about the strength that makes skin half as bright as white.
LIGHT_MEAN, LIGHT_VARIANCE = (0.0, 0.0, 0.8), (0.35, 0.2, 0.1)
# Noise of 6 % of white at 24×24 pixels. What a model gets wrong hangs together over neighbours, so that more pixels say
# no more: the variance grows with their number. With less of it chains do not converge at 48×48.
NOISE_VARIANCE, NOISE_SIZE = 0.004, 24
MISFIT_NOISE = 0.02  # standard deviation of what is added to the photographs that the misfit is measured on


def draw_people(head: Morphable, count: int, size: int, seed: int) -> Heads:
    """Heads with albedo."""
    textures = draw_textures(head, min(count, SKINS), seed)
    return head.draw(count, size, seed, variety=VARIETY, textures=textures)


def learn(head: Morphable, size: int, seed: int = 0, count: int = PEOPLE) -> DLN:
    """The model at `size`×`size` pixels."""
    shape = (size, size)
    rows = augment(draw_people(head, count, size, seed).surface.pack(), shape, 1, 0, mirrored=True, seed=seed)
    made = {"objects": [], "heads": count, "seed": seed, "variety": vars(VARIETY), "covariance": vars(COVARIANCE)}
    model = DLN.build(
        covariance_gaussian(rows, shape, COVARIANCE, seed=seed),
        shape,
        noise_var=NOISE_VARIANCE * (size / NOISE_SIZE) ** 2,
        light_mean=LIGHT_MEAN,
        light_precision=np.diag(1 / np.array(LIGHT_VARIANCE)),
        preset="best",
        info={**made, "licence": "Apache-2.0", "notice": head.licence},
    )
    return replace(model, misfit=_misfit(model, draw_people(head, OTHERS, size, seed + 1), seed))


def _misfit(model: DLN, heads: Heads, seed: int):
    """What the model gets wrong of heads that it has not seen, photographed with shadows: a lower bound of what it gets
    wrong of people, who have hair, shine, and are no heads of this kind. So it adds to the posterior's own spread, and
    never makes that smaller.
    """
    images, lights = photograph(heads, PHOTOS, seed, cast_shadows=True)
    noise = MISFIT_NOISE * np.random.default_rng([seed, 13]).standard_normal(images.shape)
    names = tuple(f"head{i:03}" for i in range(len(heads)))
    image_names = tuple(tuple(f"{name}_{p:02}" for p in range(PHOTOS)) for name in names)
    mask = np.array(np.broadcast_to(heads.mask[:, None], images.shape))
    data = Dataset((images + noise).astype(np.float32), mask, names, image_names, lights)
    config = Config(seed=seed, held_out=0)
    found = misfit_of_others(model, heads.surface.pack(), prepare(data, config), config)
    return replace(found, growth=np.maximum(found.growth, 1))
