"""The first demonstration: a face that the model has never seen, from one image of it and from more.

The prior is the plainest there is, a Gaussian fitted to the albedo and normals of other synthetic faces. The lights are
not given away, and the images have shadows.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from PIL import Image

from deep_lambertian.data.scenes import sample_lights, shade
from deep_lambertian.data.synthetic import draw_faces
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.sampler import ShadowWeights
from deep_lambertian.model import DLN
from deep_lambertian.priors import Gaussian
from deep_lambertian.report.pictures import grey, normal_colours, sheet

SIZE = 32
NOISE = 0.02


@dataclass(frozen=True)
class Found:
    """What was recovered from `images` images, and how far off it is: normals in degrees, new images in intensity."""

    images: int
    posterior: Posterior
    normals_deg: float
    relighting_rmse: float


def fit_gaussian(albedo: np.ndarray, normals: np.ndarray, rank: int) -> Gaussian:
    """The linear-Gaussian prior over x = [a, vec(N)] with the mean and the `rank` main directions of the data."""
    columns = np.moveaxis(normals, -1, 1).reshape(len(normals), -1)
    surfaces = np.concatenate([albedo.reshape(len(albedo), -1), columns], axis=1)
    mean = surfaces.mean(axis=0)
    _, scale, directions = np.linalg.svd(surfaces - mean, full_matrices=False)
    factors = directions[:rank].T * scale[:rank] / np.sqrt(len(surfaces))
    rest = np.maximum(surfaces.var(axis=0) - np.sum(factors**2, axis=1), 0) + 1e-3
    return Gaussian(*(jnp.asarray(v, jnp.float32) for v in (mean, rest, factors)))


def fit_lights(scaled_normals: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The lights (P, 3) that explain images (P, H, W) best, by least squares over what is not in shadow.

    Albedo and light are known only up to a common factor, so a recovered surface is judged with its lights fitted.
    """
    return np.stack([np.linalg.lstsq(scaled_normals[i > 0.02], i[i > 0.02], rcond=None)[0] for i in images])


def demonstrate(seed: int = 0, iterations: int = 400, progress: bool = False) -> tuple[list[Found], Found, Image.Image]:
    """What 1, 3 and 8 images tell of the unseen face; the same for the mean face; and a picture of it all."""
    people = draw_faces(401, images=8, size=SIZE, seed=seed, noise=NOISE)
    prior = fit_gaussian(people.albedo[1:], people.normals[1:], rank=80)
    model = DLN.build(
        prior, (SIZE, SIZE), noise_var=NOISE**2, light_mean=(0, 0, 0.9), light_precision=5.0, preset="best"
    )
    images, albedo, normals = people.images[0], people.albedo[0], people.normals[0]
    new_lights = sample_lights(np.random.default_rng(seed), 20)
    truth = shade(albedo, normals, new_lights)

    def judge(count: int, post: Posterior) -> Found:
        cosine = np.clip(np.sum(post.normals * normals, axis=-1), -1, 1)
        off = post.relight(fit_lights(post.scaled_normals, truth)) - truth
        return Found(count, post, float(np.degrees(np.arccos(cosine)).mean()), float(np.sqrt(np.mean(off**2))))

    settings = {"iterations": iterations, "shadow": ShadowWeights(), "seed": seed, "progress": progress}
    found = [judge(count, model.infer(images[:count], **settings)) for count in (1, 3, 8)]
    mean_albedo, *mean_normals = np.asarray(prior.mean).reshape(4, SIZE, SIZE)
    mean = model.infer(images[:1], albedo=mean_albedo, normals=np.stack(mean_normals, axis=-1), iterations=8)
    return found, judge(0, mean), picture(found, images[0], albedo, normals, new_lights[:3])


def picture(
    found: list[Found], photo: np.ndarray, albedo: np.ndarray, normals: np.ndarray, new_lights: np.ndarray
) -> Image.Image:
    """A sheet: the truth in the first row, then what each number of images gives."""
    truth = shade(albedo, normals, new_lights)
    rows = [[("photo", grey(photo)), ("true albedo", grey(albedo)), ("true normals", normal_colours(normals))]]
    rows[0] += [(f"true, light {i + 1}", grey(image)) for i, image in enumerate(truth)]
    for each in found:
        post = each.posterior
        most = float(post.normals_std.max())
        images = "1 image" if each.images == 1 else f"{each.images} images"
        row = [(f"spread 0-{most:.0f}°", grey(post.normals_std, most)), (f"albedo, {images}", grey(post.albedo))]
        row += [(f"normals, {images}", normal_colours(post.normals))]
        rows.append(row + [(f"relit {i + 1}", grey(image)) for i, image in enumerate(post.relight(new_lights))])
    return sheet(rows)
