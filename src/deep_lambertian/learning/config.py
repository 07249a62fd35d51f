"""What a training is told: one small dataclass, its presets, and TOML to keep it in."""

import zlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.learning.binary_units import BinaryUnits
from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.learning.covariance import CovarianceOptions
from deep_lambertian.support import settings
from deep_lambertian.support.settings import Count, Must, NotNegative, Positive, Whole

Sizes = Annotated[
    tuple[int, ...], Must("one positive size or more, lowest layer first", lambda sizes: min(sizes, default=0) >= 1)
]
E_STEP = Sampler(
    iterations=50, burn_in=25, step_size=0.02, leapfrogs=8, epochs=2, target_acceptance=0.8, shadow=ShadowLabels()
)


@dataclass(frozen=True)
class Config:
    """Settings of Algorithm 1. The defaults are the preset `best`.

    The prior: `prior` is one over albedo and normals together or, as in the paper, two; `start` says where it comes
    from: a Gaussian with the covariance of the surfaces, or random weights and contrastive divergence (`cd`) alone.
    Random starts have layers of sizes `joint_hidden`, or `albedo_hidden` and `normals_hidden`, lowest first; the
    message from above is mixed with the lowest layer's own by `top_weight`. `binary` has the units that a Gaussian may
    be given, none unless told (see `learning.binary_units`): they need thousands of surfaces. `pretrain` is the
    contrastive divergence that learns the albedo prior from a collection of faces, where one is given; `cd` that of
    every M-step.

    EM: at most `iterations`, fewer once normals move by less than `tolerance` degrees, or no less than before. `e_step`
    is the sampler, whose chains live on from one iteration to the next. Training data for the prior are `rows`: each
    object's posterior mean, or `keep` samples of it, each also moved by up to ±`shift` pixels in `copies` ways, and
    mirrored; what is `moved` is the whole surface or, as in the paper, the normals alone.
    `held_out` objects are what the monitors check the prior on. With `refit` they end up in it all the same: of random
    starts the last M-step takes them in; those of a covariance learn from them throughout, and the checks are made of
    a prior without them.

    `shared_lights` turns each object, by a rotation or a linear map, so that its lights agree with those of others
    under the same rig, where the data name these (see `learning.shared_lights`). With `misfit` what the model cannot
    know of itself is measured at the end, on objects left out of a covariance.

    The start, common to all objects: a dome of normals, albedo `albedo_start`, light from `light_start`, noise
    `noise_start`. Floors keep the noise variance, the light's variance and the mean of shadows proper.
    `norm_stiffness` is η while training, `final_stiffness` that of the trained model, whose inference takes the sampler
    of `preset`. `final_noise` multiplies the noise variance of the trained model: what is learned is how near surfaces
    came to many images at once, and chains on one image that hold it to that are slow and find no better surfaces.
    """

    preset: str = "best"
    seed: int = 0
    prior: Literal["joint", "separate"] = "joint"
    start: Literal["covariance", "random"] = "covariance"
    joint_hidden: Sizes = (1500, 400)
    albedo_hidden: Sizes = (800, 200)
    normals_hidden: Sizes = (1000, 100)
    top_weight: float = 0.3
    iterations: Count = 4
    tolerance: NotNegative = 0.5
    rows: Literal["mean", "samples"] = "mean"
    keep: Count = 5
    copies: Count = 5
    shift: Whole = 1
    moved: Literal["surface", "normals"] = "surface"
    mirror: bool = True
    known_lights: bool = False
    shared_lights: Literal["none", "rotation", "linear"] = "none"
    held_out: Whole = 2
    refit: bool = True
    misfit: bool = True
    albedo_start: Positive = 0.5
    albedo_variance: Positive = 0.04
    normals_variance: Positive = 0.1
    light_start: tuple[float, float, float] = (0.0, 0.0, 0.9)
    light_precision: Positive = 4.0
    light_floor: Positive = 1e-3
    noise_start: Positive = 0.01
    noise_floor: Positive = 5e-4
    dark_floor: Positive = 5e-3
    norm_stiffness: NotNegative = 20.0
    final_stiffness: Positive = 100.0
    final_noise: Positive = 4.0
    e_step: Sampler = E_STEP
    covariance: CovarianceOptions = field(default_factory=CovarianceOptions)
    binary: BinaryUnits = field(default_factory=BinaryUnits)
    cd: CD = field(default_factory=lambda: CD(epochs=10, learning_rate=2e-3, variance_bounds=(0.05, 1.0)))
    pretrain: CD = field(default_factory=lambda: CD(epochs=30, learning_rate=2e-3, variance_bounds=(0.05, 1.0)))

    def __post_init__(self) -> None:
        settings.check(self)

    def override(self, **changes: Any) -> "Config":
        """The same with some settings changed; those of a table by their dotted name, such as `"cd.epochs"`."""
        return settings.override(self, changes)

    def to_toml(self) -> str:
        """All settings as TOML; `from_toml` gives back the same."""
        return settings.to_toml(self)

    @classmethod
    def from_toml(cls, text: str | bytes) -> "Config":
        """Settings from TOML: a `preset` to start from, and what is to be different from it."""
        values = settings.from_toml(text)
        return settings.override(cls.of_preset(str(values.get("preset", "best"))), values)

    @classmethod
    def of_preset(cls, name: str) -> "Config":
        """One of `paper`, `best` and `quick`."""
        if name not in PRESETS:
            close = settings.nearest(name, PRESETS)
            raise ValueError(f"preset: expected one of {sorted(PRESETS)}, got {name!r}{close}")
        return settings.override(cls(), PRESETS[name])


# `paper` is Algorithm 1 as published: two deep belief nets, contrastive divergence from random weights on samples whose
# normals are moved, the sampler of Sec. 4.1, no labels of shadows. Its rate, of which the paper is silent, is one by
# which 28 people do not undo what is known of a face; docs/training.md has all that is not as published. `quick` is for
# demonstrations and tests.
PRESETS: dict[str, dict[str, Any]] = {
    "best": {},
    "paper": {
        "preset": "paper",
        "prior": "separate",
        "top_weight": 1.0,
        "start": "random",
        "iterations": 20,
        "rows": "samples",
        "shift": 1,
        "moved": "normals",
        "mirror": False,
        "held_out": 0,
        "cd": {"learning_rate": 1e-4},
        "norm_stiffness": 100.0,
        "final_noise": 1.0,
        "e_step": {"step_size": 0.01, "leapfrogs": 20, "epochs": 10, "target_acceptance": None, "shadow": None},
    },
    "quick": {
        "preset": "quick",
        "iterations": 3,
        "misfit": False,
        "e_step": {"iterations": 30, "burn_in": 15},
        "covariance": {"directions": 150},
    },
}


def seed_of(seed: int, *part: int | str) -> int:
    """A 31-bit seed for a part of a run, named by numbers and words: no part knows of another."""
    numbers = [zlib.crc32(p.encode()) if isinstance(p, str) else p for p in part]
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1)[0] >> 1)
