"""Meshes seen from in front: which point of them each pixel shows, and what is there.

Only triangles that face the viewer are drawn. Each is tried at the pixels of its box, and of all that cover a pixel's
centre the nearest stays. It is NumPy alone: a head of 34,000 triangles takes hundredths of a second.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

INSIDE = -1e-5  # barycentric: a centre on the edge of two triangles belongs to both, so that no crack is left


@dataclass(frozen=True)
class Seen:
    """For the pixels in which a mesh is seen: their numbers, row by row from the top, the vertices (P, 3) of the
    triangle that is there, and the parts (P, 3) that these have in its point.
    """

    pixels: np.ndarray
    vertices: np.ndarray
    parts: np.ndarray

    def of(self, values: np.ndarray) -> np.ndarray:
        """What vertices carry, (M,) or (M, K), at these pixels."""
        found = values[self.vertices]
        return np.einsum("pj,pj...->p...", self.parts, found)


def rasterise(points: np.ndarray, triangles: np.ndarray, size: int) -> Seen:
    """What `size`×`size` pixels show of a mesh whose vertices (M, 3) are in pixels: x right, y down from the top left
    corner, z towards the viewer. Triangles (T, 3) go counterclockwise where they face the viewer.
    """
    x, y, z = (np.ascontiguousarray(points[:, k], np.float32)[triangles.T] for k in range(3))  # each (3, T)
    # Twice the area, negative where y goes down and the triangle faces the viewer.
    area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])
    left, right = _span(x, size)
    top, bottom = _span(y, size)
    wide, high = right - left + 1, bottom - top + 1
    drawn = np.flatnonzero((area < -1e-9) & (wide > 0) & (high > 0))
    left, top, wide, high = (each[drawn] for each in (left, top, wide, high))
    # One fragment for each pixel of each box.
    count = wide * high
    which = np.repeat(np.arange(len(drawn)), count)
    offset = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    down, across = np.divmod(offset, wide[which])
    column, row = left[which] + across, top[which] + down
    (x0, x1, x2), (y0, y1, y2), scale = x[:, drawn], y[:, drawn], 1 / area[drawn]
    # Barycentric parts are planes over the picture, of which every triangle has two.
    slopes = np.stack([(y1 - y2) * scale, (x2 - x1) * scale, (y2 - y0) * scale, (x0 - x2) * scale])
    away = np.stack([column + np.float32(0.5), row + np.float32(0.5)]) - np.stack([x2, y2])[:, which]
    one, two, three, four = slopes[:, which]
    first, second = one * away[0] + two * away[1], three * away[0] + four * away[1]
    third = 1 - first - second
    inside = np.flatnonzero((first >= INSIDE) & (second >= INSIDE) & (third >= INSIDE))
    which, pixel = which[inside], (row * size + column)[inside]
    parts = np.stack([first[inside], second[inside], third[inside]], axis=1)
    depth = np.einsum("pj,jp->p", parts, z[:, drawn[which]])
    # The nearest wins: ranks are unique, so that one pass over the fragments settles each pixel.
    order = np.argsort(depth)
    nearest = np.full(size * size, -1, np.int64)
    nearest[pixel[order]] = order
    shown = np.flatnonzero(nearest >= 0)
    chosen = nearest[shown]
    return Seen(shown, triangles[drawn[which[chosen]]], parts[chosen])


def _span(values: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and last pixel whose centre lies within the values (3, T) of each triangle."""
    low, high = np.minimum(np.minimum(*values[:2]), values[2]), np.maximum(np.maximum(*values[:2]), values[2])
    first = np.ceil(np.clip(low, -1, size + 1) - np.float32(0.5)).astype(np.int32)
    last = np.floor(np.clip(high, -1, size + 1) - np.float32(0.5)).astype(np.int32)
    return np.maximum(first, 0), np.minimum(last, size - 1)


def incidence(triangles: np.ndarray, count: int) -> sparse.csr_matrix:
    """Which triangles each of `count` vertices belongs to (M, T)."""
    number = np.repeat(np.arange(len(triangles)), 3)
    ones = np.ones(triangles.size, np.float32)
    return sparse.csr_matrix((ones, (triangles.ravel(), number)), shape=(count, len(triangles)))


def vertex_normals(vertices: np.ndarray, triangles: np.ndarray, around: sparse.csr_matrix) -> np.ndarray:
    """Unit normals (M, 3) of a mesh: the mean over the triangles around a vertex, by their areas."""
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    (ux, uy, uz), (vx, vy, vz) = (b - a).T, (c - a).T
    faces = np.stack([uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx], axis=1)
    summed = np.asarray(around @ faces)
    return summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-12)
