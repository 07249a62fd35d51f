"""Fields over the picture that carry their own slopes: sums, products and smooth steps of them stay exact."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Jet:
    """A field with its slopes along x and y, which every operation carries along by the chain rule."""

    value: np.ndarray
    dx: np.ndarray | float
    dy: np.ndarray | float

    def __add__(self, other):
        if isinstance(other, Jet):
            return Jet(self.value + other.value, self.dx + other.dx, self.dy + other.dy)
        return Jet(self.value + other, self.dx, self.dy)

    def __mul__(self, other):
        if isinstance(other, Jet):
            dx = self.dx * other.value + self.value * other.dx
            return Jet(self.value * other.value, dx, self.dy * other.value + self.value * other.dy)
        return Jet(self.value * other, self.dx * other, self.dy * other)

    def __sub__(self, other):
        return self + other * -1.0

    def __rsub__(self, other):
        return self * -1.0 + other

    __radd__, __rmul__ = __add__, __mul__
    __array_ufunc__ = None  # let an array on the left leave the operation to us

    def through(self, value: np.ndarray, slope: np.ndarray) -> "Jet":
        """f of this field, of which the value and the derivative are given."""
        return Jet(value, slope * self.dx, slope * self.dy)


def logistic(t: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * t) + 0.5


def step(t: Jet) -> Jet:
    s = logistic(t.value)
    return t.through(s, s * (1 - s))


def ramp(t: Jet) -> Jet:
    """0 far below zero and t far above it, smoothly."""
    return t.through(np.maximum(t.value, 0) + np.log1p(np.exp(-np.abs(t.value))), logistic(t.value))


def root(t: Jet) -> Jet:
    r = np.sqrt(t.value)
    return t.through(r, 0.5 / r)


def inverse(t: Jet) -> Jet:
    v = 1 / t.value
    return t.through(v, -v * v)


def bell(t: Jet) -> Jet:
    """exp(-t), for t from 0; beyond 60 nothing is left but slow arithmetic with tiny numbers."""
    e = np.exp(-np.minimum(t.value, 60))
    return t.through(e, -e)
