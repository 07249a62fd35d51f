"""Angles in degrees: between vectors, and of a light as a viewer tells them (x right, y up, z towards the viewer)."""

from typing import Any

import numpy as np


def direction(azimuth: float, elevation: float) -> np.ndarray:
    """The unit vector to a light, from degrees to the right of the viewer and above: (0, 0) is the viewer's place."""
    a, e = np.radians([azimuth, elevation])
    return np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)], np.float32)


def around(count: int, tilt: float = 45.0) -> list[np.ndarray]:
    """`count` unit vectors to lights that go once round the viewer, `tilt` degrees off."""
    turns, t = 2 * np.pi * np.arange(count) / count, np.radians(tilt)
    return [np.array([np.sin(t) * np.sin(a), np.sin(t) * np.cos(a), np.cos(t)], np.float32) for a in turns]


def angles_of(light: Any) -> tuple[float, float]:
    """Azimuth and elevation of a light in degrees: the opposite of `direction`."""
    x, y, z = np.asarray(light, np.float64) / max(float(np.linalg.norm(light)), 1e-12)
    return float(np.degrees(np.arctan2(x, z))), float(np.degrees(np.arcsin(np.clip(y, -1, 1))))


def angles(one: np.ndarray, other: np.ndarray, axis: int = -2) -> np.ndarray:
    """Degrees between normals (..., 3, V) of any length, (..., V), or vectors along another `axis`."""
    lengths = np.linalg.norm(one, axis=axis) * np.linalg.norm(other, axis=axis)
    cosine = np.sum(one * other, axis=axis) / np.maximum(lengths, 1e-12)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))
