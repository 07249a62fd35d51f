"""What contrastive divergence is told, and the two parts of it that a compiled epoch takes: numbers and a plan."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class CD:
    """How to learn. `momentum` is Adam's first decay too; `weight_decay` is on the weights only.

    `variance_bounds` are in units of each element's variance in the data, and a start outside them is moved inside;
    `variance_rate` is the learning rate of log σ² in units of `learning_rate`. With `patience` and held-out data,
    learning stops after that many epochs without a better held-out score (see `scores.held_out_score`), and the best
    parameters are returned. `samples` chains, moved on `sample_steps` an epoch, show what the model itself believes;
    persistent CD shows its particles instead.
    """

    epochs: int = 30
    batch_size: int = 100
    steps: int = 1
    persistent: bool = False
    optimiser: str = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 2e-4
    learn_variance: bool = True
    variance_rate: float = 0.1
    variance_bounds: tuple[float, float] = (1e-3, 10.0)
    patience: int | None = None
    samples: int = 16
    sample_steps: int = 10

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "steps", "samples", "sample_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"CD.{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "weight_decay", "variance_rate"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"CD.{name}: expected a finite number, not negative, got {getattr(self, name)}")
        if self.optimiser not in ("sgd", "adam"):
            raise ValueError(f'CD.optimiser: expected "sgd" or "adam", got {self.optimiser!r}')
        if not 0 <= self.momentum < 1:
            raise ValueError(f"CD.momentum: expected a number in [0, 1), got {self.momentum}")
        low, high = self.variance_bounds
        if not 0 < low <= high:
            raise ValueError(f"CD.variance_bounds: expected 0 < low ≤ high, got {self.variance_bounds}")

    @property
    def rates(self) -> "Rates":
        """The numbers that may change without compiling anew."""
        numbers = (self.learning_rate, self.momentum, self.weight_decay, self.variance_rate, *self.variance_bounds)
        return Rates(*(jnp.float32(number) for number in numbers))

    def plan(self, count: int) -> "Plan":
        """What the compiled program for `count` samples depends on."""
        batch_size = min(self.batch_size, count)
        return Plan(batch_size, self.steps, self.persistent, self.optimiser, self.learn_variance)


class Rates(NamedTuple):
    learning_rate: jax.Array
    momentum: jax.Array
    weight_decay: jax.Array
    variance_rate: jax.Array
    variance_low: jax.Array
    variance_high: jax.Array


class Plan(NamedTuple):
    batch_size: int
    steps: int
    persistent: bool
    optimiser: str
    learn_variance: bool
