r"""Recognition by detail: whose lids, brows and folds are these, whatever the light?

A surface tells how light falls on a face. What makes the face this one is fine detail, which a prior has smoothed away;
and filters that keep detail do not know the light. So the known photo itself is brought under the light ℓ of the probe,
by what the surface says of both:

$$r_i = I_i\, \frac{\max(\mathbf n_i^\top\boldsymbol\ell, 0) + \tfrac12 |\boldsymbol\ell|}
  {\max(\mathbf n_i^\top\boldsymbol\ell_I, \tfrac15 |\boldsymbol\ell_I|)}$$

with ℓ_I that of the photo; the half is light from all around, which keeps the detail of what lies in shadow. Of both, a
filter keeps a band of sizes: f is the difference of two Gaussian means of x^¼, bounded and of length 1. The distance in
detail is $D = \min (1 - f(\text{probe})^\top f(r))$, over the person's photos and over shifts of the probe by a pixel,
as faces are not cropped more exactly than that.

The distance to the surface's cone (`distances`), C, as a part of the probe's own square, and D of each size are three
errors of unknown variance. Each variance integrated out, as in Jeffreys' prior, leaves for ν independent residuals

$$p(g \mid \text{probe}) \propto \bigl(C_g \textstyle\prod_s D_{sg}\bigr)^{-\nu/2}$$

whose logarithm is one sum: the smallest product is the most probable person.
"""

from collections.abc import Sequence

import numpy as np
from scipy.ndimage import gaussian_filter

from deep_lambertian.geometry import unit
from deep_lambertian.recognition.distances import fit_cone
from deep_lambertian.surface import Shape

AROUND, LEAST = 0.5, 0.2  # light from all around, and the least shading of the photo, as parts of a light's strength
FULL = 48  # rows of a face in which a pixel is as fine as it is aligned; with as many, half as many are looked at too
WIDTH = 1 / 48  # of the height: that of the wider Gaussian; the other is half a pixel less
BOUND = 3.0  # mean absolute values at which the filter's answers saturate


def band(images: np.ndarray) -> np.ndarray:
    """What the filter keeps of images (..., h, w): rows (..., h·w) of length 1."""
    bent = np.sqrt(np.sqrt(np.maximum(images, 0)))
    outer = WIDTH * images.shape[-2]
    inner, still = max(outer - 0.5, 0), (0,) * (images.ndim - 2)
    kept = gaussian_filter(bent, (*still, inner, inner)) - gaussian_filter(bent, (*still, outer, outer))
    size = np.mean(np.abs(kept), axis=(-2, -1), keepdims=True)
    kept = np.tanh(kept / np.maximum(BOUND * size, 1e-12))
    return unit(kept.reshape(*images.shape[:-2], -1))


def shifted(images: np.ndarray) -> np.ndarray:
    """Images (N, h, w) moved by up to a pixel to each side (9, N, h, w); not at all (1, …) where pixels are large."""
    height, width = images.shape[1:]
    if height < FULL:
        return images[None]
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    return np.stack([wide[:, y : y + height, x : x + width] for y in range(3) for x in range(3)])


def sizes_of(shape: Shape) -> list[Shape]:
    """At which sizes images of a shape are looked at."""
    return [shape] if shape[0] < FULL else [(shape[0] // 2, shape[1] // 2), shape]


def smaller(images: np.ndarray, size: Shape) -> np.ndarray:
    """Images (..., h, w) as they are, or at half their size; an odd last row or column is lost."""
    if images.shape[-2:] == size:
        return images
    height, width = size
    blocks = images[..., : 2 * height, : 2 * width].reshape(*images.shape[:-2], height, 2, width, 2)
    return blocks.mean(axis=(-3, -1))


def relit(photos: np.ndarray, normals: np.ndarray, own: np.ndarray, lights: np.ndarray) -> np.ndarray:
    """Photos (k, V) of unit normals (V, 3) under lights `own` (k, 3), brought under other lights (N, 3): (N, k, V)."""
    strength, own_strength = (np.linalg.norm(each, axis=1, keepdims=True) for each in (lights, own))
    wanted = np.maximum(lights @ normals.T, 0) + AROUND * strength
    had = np.maximum(own @ normals.T, LEAST * np.maximum(own_strength, 1e-9))
    return wanted[:, None] * (photos / had)[None]


def detail_terms(
    scaled_normals: np.ndarray, photos: Sequence[np.ndarray], probes: np.ndarray, noise_var: np.ndarray, shape: Shape
) -> np.ndarray:
    """C and D of each size (T, N, G), of probes (N, V), for people with scaled normals (G, V, 3) and photos (k, V)."""
    probes, precision = np.asarray(probes, np.float64), 1 / np.asarray(noise_var, np.float64).reshape(-1)
    sizes = sizes_of(shape)
    moved = shifted(probes.reshape(-1, *shape).astype(np.float32))
    seen = [band(smaller(moved, size)) for size in sizes]  # (shifts, N, pixels)
    black = np.maximum(probes**2 @ precision, 1e-12)
    found = np.empty((1 + len(sizes), len(probes), len(photos)))
    for g, (surface, mine) in enumerate(zip(np.asarray(scaled_normals, np.float64), photos, strict=True)):
        mine, normals = np.asarray(mine, np.float64), unit(surface)
        fitted = fit_cone(surface, np.concatenate([probes, mine]), precision)
        lights, own = fitted[: len(probes)], fitted[len(probes) :]
        residual = probes - np.maximum(lights @ surface.T, 0)
        found[0, :, g] = residual**2 @ precision / black
        pictures = relit(*(each.astype(np.float32) for each in (mine, normals, own, lights)))
        pictures = pictures.reshape(len(probes), len(mine), *shape)
        for number, (size, probe) in enumerate(zip(sizes, seen, strict=True), 1):
            known = band(smaller(pictures, size))
            found[number, :, g] = 1 - np.max(np.einsum("snv,nkv->nsk", probe, known, optimize=True), axis=(1, 2))
    return np.maximum(found, 1e-9)
