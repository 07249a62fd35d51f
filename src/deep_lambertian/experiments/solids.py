"""The first demonstration: painted, bumpy domes, of which a plain Gaussian prior knows the class.

A class of objects is drawn at random, a Gaussian is fitted to the albedo and normals of some of them, and another one,
which the prior has never seen, is recovered from one image and from more, under lights that nobody gave away.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from PIL import Image

from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.model import DLN
from deep_lambertian.priors import Gaussian
from deep_lambertian.report.pictures import grey, normal_colours, sheet

SIZE = 32
NOISE = 0.02


@dataclass(frozen=True)
class Found:
    """What was recovered from `images` images, and how far off it is, beside the prior's own guess."""

    images: int
    posterior: Posterior
    normals_deg: float
    relighting_rmse: float


def draw_solids(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Albedo (count, H, W) and unit normals (count, H, W, 3) of domes with bumps and dents, stripes and spots."""
    y, x = np.meshgrid(np.linspace(1, -1, SIZE), np.linspace(-1, 1, SIZE), indexing="ij")
    height = np.tile(-0.45 * (x**2 + 0.8 * y**2), (count, 1, 1))
    albedo = np.tile(np.full_like(x, 0.6), (count, 1, 1))
    for _ in range(5):
        cx, cy, size, bump, paint = (
            rng.normal(size=(5, count, 1, 1)) * np.array([0.5, 0.5, 0.06, 0.18, 0.1])[:, None, None, None]
        )
        blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * (0.25 + size) ** 2))
        height, albedo = height + bump * blob, albedo + paint * blob
    albedo += 0.12 * np.sign(np.sin(6 * x + 2 * y + rng.uniform(0, 6, (count, 1, 1))))
    step = 2 / (SIZE - 1)
    slope_y, slope_x = np.gradient(height, step, axis=(1, 2))
    normals = np.stack([-slope_x, slope_y, np.ones_like(height)], axis=-1)
    return np.clip(albedo, 0.1, 1), normals / np.linalg.norm(normals, axis=-1, keepdims=True)


def fit_gaussian(albedo: np.ndarray, normals: np.ndarray, rank: int = 60) -> Gaussian:
    """The linear-Gaussian prior of rank `rank` over x = [a, vec(N)] with the mean and main directions of the data."""
    surfaces = np.concatenate(
        [albedo.reshape(len(albedo), -1), np.moveaxis(normals, -1, 1).reshape(len(normals), -1)], 1
    )
    mean = surfaces.mean(axis=0)
    _, scale, directions = np.linalg.svd(surfaces - mean, full_matrices=False)
    factors = directions[:rank].T * scale[:rank] / np.sqrt(len(surfaces))
    rest = np.maximum(surfaces.var(axis=0) - np.sum(factors**2, axis=1), 0) + 1e-3
    return Gaussian(*(jnp.asarray(v, jnp.float32) for v in (mean, rest, factors)))


def demonstrate(seed: int = 0, iterations: int = 400, progress: bool = False) -> tuple[list[Found], Found, Image.Image]:
    """What 1, 3 and 8 images tell of an unseen object; the prior's guess; and a picture of it all."""
    rng = np.random.default_rng(seed)
    prior = fit_gaussian(*draw_solids(400, rng))
    model = DLN.build(
        prior, (SIZE, SIZE), noise_var=NOISE**2, light_mean=(0, 0, 0.9), light_precision=6.0, preset="best"
    )
    (albedo,), (normals,) = draw_solids(1, rng)
    lights = np.concatenate([[[0.5, 0.35, 0.75]], rng.normal([0, 0, 0.9], 0.4, (7, 3))])
    clean = albedo * np.einsum("hwk,pk->phw", normals, lights)
    images = (clean + rng.normal(0, NOISE, clean.shape)).astype(np.float32)
    new_lights = rng.normal([0, 0, 0.9], 0.4, (20, 3))
    truth = albedo * np.einsum("hwk,pk->phw", normals, new_lights)

    def judge(count: int, post: Posterior) -> Found:
        cosine = np.clip(np.sum(post.normals * normals, axis=-1), -1, 1)
        off = post.relight(new_lights, shadows=False) - truth
        return Found(count, post, float(np.degrees(np.arccos(cosine)).mean()), float(np.sqrt(np.mean(off**2))))

    found = [
        judge(count, model.infer(images[:count], iterations=iterations, seed=seed, progress=progress))
        for count in (1, 3, 8)
    ]
    mean = model.infer(
        images[:1],
        iterations=8,
        albedo=np.asarray(prior.mean[: SIZE**2]).reshape(SIZE, SIZE),
        normals=np.moveaxis(np.asarray(prior.mean[SIZE**2 :]).reshape(3, SIZE, SIZE), 0, -1),
    )
    guess = judge(0, mean)
    top = [("photo", grey(images[0])), ("albedo", grey(albedo)), ("normals", normal_colours(normals))]
    rows = [[*top, *[(f"light {i + 1}", grey(t)) for i, t in enumerate(truth[:3])]]]
    for each in found:
        post = each.posterior
        relit = post.relight(new_lights[:3], shadows=False)
        pictures = [grey(post.albedo), normal_colours(post.normals), *map(grey, relit)]
        names = [f"albedo from {each.images}", f"normals from {each.images}", "relit 1", "relit 2", "relit 3"]
        spread = (f"spread 0-{post.normals_std.max():.0f}°", grey(post.normals_std, float(post.normals_std.max())))
        rows.append([spread, *zip(names, pictures, strict=True)])
    return found, guess, sheet(rows)
