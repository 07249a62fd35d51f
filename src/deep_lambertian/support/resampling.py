"""Pictures at another size or place: four ways, for what each is good at.

`average_areas` is exact and keeps light; `sample_affine` follows any linear map; `enlarge_cubic` is smooth, for fields
that are; `shrink_quickly` is for where time counts more than the last per cent. Pixels are areas: two pictures of the
same thing share its edges, whatever their sizes.
"""

import math

import numpy as np
from PIL import Image
from scipy import ndimage

Size = tuple[int, int]  # rows and columns
STRIP = 2048  # rows of a large picture that are looked at at once


def average_areas(image: np.ndarray, size: Size) -> np.ndarray:
    """An image (H, W) or (H, W, 3) whose pixels are each the mean of just what they cover, fractions included.

    Along an axis that grows, pixels are interpolated linearly instead. (Pillow's box filter rounds to whole pixels, and
    loses or repeats some where the ratio is no whole number.)
    """
    for axis, new in enumerate(size):
        if new <= image.shape[axis]:
            image = _average(image, new, axis)
        else:
            rows, columns = (new, image.shape[1]) if axis == 0 else (image.shape[0], new)
            y, x = image.shape[0] / rows, image.shape[1] / columns
            image = sample_affine(image, np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2]]), (rows, columns))
    return np.ascontiguousarray(image, np.float32)


def _average(image: np.ndarray, size: int, axis: int) -> np.ndarray:
    old = image.shape[axis]
    if size == old:
        return image
    if old % size == 0:
        blocks = (*image.shape[:axis], size, old // size, *image.shape[axis + 1 :])
        return image.reshape(blocks).mean(axis=axis + 1)
    moved = np.moveaxis(image, axis, 0)
    integral = np.concatenate([np.zeros_like(moved[:1], np.float64), np.cumsum(moved, axis=0, dtype=np.float64)])
    edges = np.arange(size + 1) * old / size
    below = np.minimum(edges.astype(int), old - 1)
    part = (edges - below).reshape(-1, *[1] * (moved.ndim - 1))
    at_edges = (1 - part) * integral[below] + part * integral[below + 1]
    return np.moveaxis(np.diff(at_edges, axis=0) * (size / old), 0, axis)


def sample_affine(image: np.ndarray, matrix: np.ndarray, size: Size) -> np.ndarray:
    """An image of `size` whose pixel (x, y) is the mean of `image` over the pixel's area around matrix·(x, y, 1).

    Beyond its edge the image is continued.
    """
    if image.ndim == 3:
        return np.stack([sample_affine(image[..., c], matrix, size) for c in range(image.shape[-1])], axis=-1)
    rows, columns = size
    # As many samples a pixel as it covers pixels of the source, so that none is passed over.
    across, down = (max(1, math.ceil(np.hypot(*matrix[:, axis]) - 1e-6)) for axis in (0, 1))
    if rows > 1 and rows * down > STRIP:
        upper = rows // 2
        below = np.column_stack([matrix[:, :2], matrix @ (0, upper, 1)])
        parts = (matrix, (upper, columns)), (below, (rows - upper, columns))
        return np.concatenate([sample_affine(image, *part) for part in parts])
    source, corner = _around(image, matrix, size)
    step = matrix[:, :2] / (across, down)  # from one sample to the next
    # Pillow, a fourth of SciPy's time, takes (½, ½) for the middle of the first pixel, of either picture.
    shift = matrix @ (0.5 / across - 0.5, 0.5 / down - 0.5, 1) - corner + 0.5 - step @ (0.5, 0.5)
    way = Image.Transform.AFFINE, tuple(np.column_stack([step, shift]).ravel()), Image.Resampling.BILINEAR
    samples = source.transform((columns * across, rows * down), *way)
    return np.asarray(samples.reduce((across, down)), np.float64)


def _around(image: np.ndarray, matrix: np.ndarray, size: Size) -> tuple[Image.Image, np.ndarray]:
    """What of an image (H, W), continued beyond its edge, pixels of `size` cover, and where the first of it is."""
    rows, columns = size
    corners = matrix @ [[-0.5, columns, -0.5, columns], [-0.5, -0.5, rows, rows], [1, 1, 1, 1]]
    low, high = np.floor(corners.min(axis=1)).astype(int) - 1, np.ceil(corners.max(axis=1)).astype(int) + 2
    x, y = (np.arange(*ends).clip(0, n - 1) for *ends, n in zip(low, high, image.shape[::-1], strict=True))
    part = image[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
    if part.shape != (len(y), len(x)):
        part = part[np.ix_(y - y[0], x - x[0])]
    return Image.fromarray(np.ascontiguousarray(part, np.float32)), low


def enlarge_cubic(values: np.ndarray, size: Size) -> np.ndarray:
    """A smooth (h, w) or (h, w, 3) at a larger size, by cubic splines."""
    # Along one axis they are a linear map (new, old), which all rows and channels share.
    down, across = (
        np.asarray(ndimage.zoom(np.eye(old), (new / old, 1), order=3, mode="nearest", grid_mode=True))
        for old, new in zip(values.shape[:2], size, strict=True)
    )
    return np.ascontiguousarray(np.einsum("ij,jk...,lk->il...", down, values, across, optimize=True), np.float32)


def shrink_quickly(image: np.ndarray, size: Size) -> np.ndarray:
    """An image (H, W) or (H, W, 3) by Pillow's box filter; one that grows is interpolated linearly."""
    if image.ndim == 3:
        return np.stack([shrink_quickly(image[..., c], size) for c in range(image.shape[-1])], axis=-1)
    shrinks = size[0] < image.shape[0] or size[1] < image.shape[1]
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    picture = Image.fromarray(np.ascontiguousarray(image, np.float32))
    return np.asarray(picture.resize((size[1], size[0]), method))
