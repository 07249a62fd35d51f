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

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.ndimage import gaussian_filter

from deep_lambertian.geometry import unit
from deep_lambertian.recognition.distances import cone_residuals, fit_cone, fit_cones
from deep_lambertian.surface import Shape

AROUND, LEAST = 0.5, 0.2  # light from all around, and the least shading of the photo, as parts of a light's strength
FULL = 48  # rows of a face in which a pixel is as fine as it is aligned; with as many, half as many are looked at too
WIDTH = 1 / 48  # of the height: that of the wider Gaussian; the other is half a pixel less
PICTURES = 256  # that are relit at a time: more would not stay in the processor's cache
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


def unlit(photos: np.ndarray, scaled_normals: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Photos (k, V) of a surface (V, 3) without their shading, each by the light that suits it best."""
    own = fit_cone(scaled_normals, photos, precision)
    strength = np.linalg.norm(own, axis=1, keepdims=True)
    return photos / np.maximum(own @ unit(scaled_normals).T, LEAST * np.maximum(strength, 1e-9))


def relit(bare: np.ndarray, normals: np.ndarray, lights: np.ndarray) -> np.ndarray:
    """Photos without shading (k, V), of unit normals (V, 3), brought under lights (N, 3): (N, k, V)."""
    shading = np.maximum(lights @ normals.T, 0) + AROUND * np.linalg.norm(lights, axis=1, keepdims=True)
    return shading[:, None] * bare


def detail_terms(
    surfaces: np.ndarray, bare: Sequence[np.ndarray], probes: np.ndarray, precision: np.ndarray, shape: Shape
) -> np.ndarray:
    """C and D of each size (T, N, G), of probes (N, V), for people with scaled normals (G, V, 3) and photos (k, V)
    without their shading.
    """
    lights, black = fit_cones(surfaces, probes, precision), np.maximum(probes**2 @ precision, 1e-12)
    sizes, moved = sizes_of(shape), shifted(probes.reshape(-1, *shape).astype(np.float32))
    seen = [np.moveaxis(band(smaller(moved, size)), 0, 1) for size in sizes]  # (N, shifts, pixels)
    found = np.empty((1 + len(sizes), len(probes), len(bare)))
    found[0] = cone_residuals(surfaces, lights, probes, precision) / black[:, None]
    for some in _blocks(bare, max(1, PICTURES // len(probes))):
        pictures = np.concatenate([relit(bare[g], unit(surfaces[g]), lights[:, g]) for g in some], axis=1)
        pictures = pictures.reshape(len(probes), -1, *shape).astype(np.float32)
        starts = np.cumsum([0, *(len(bare[g]) for g in some[:-1])])
        for number, (size, probe) in enumerate(zip(sizes, seen, strict=True), 1):
            # Not by a matrix product, whose last digits would depend on how many there are.
            alike = np.max(np.einsum("nsv,nkv->nsk", probe, band(smaller(pictures, size))), axis=1)
            found[number][:, some] = 1 - np.maximum.reduceat(alike, starts, axis=1)
    return np.maximum(found, 1e-9)


def _blocks(photos: Sequence[np.ndarray], most: int) -> Iterator[list[int]]:
    """Numbers of people, one after another, with at most so many photos together, or one person's."""
    block, count = [], 0
    for g, mine in enumerate(photos):
        if block and count + len(mine) > most:
            yield block
            block, count = [], 0
        block, count = [*block, g], count + len(mine)
    yield block
