r"""What inference returns: albedo, normals and lights of one object, with their uncertainty.

A posterior is as right as its model. That the prior has seen few objects, that light is not one point, that surfaces
are not Lambertian, no chain can see: it is measured on objects that were left out of the prior (`learning.misfit`),
and added. With s the posterior's own standard deviation, of pixel i and of light p,

$$\sigma_i^2 = e^{\rho u} \Bigl[\alpha\, s_i^2 + \Bigl(\gamma + \frac{1 - \gamma}k + \kappa\, q_i\Bigr) B_i\Bigr],
  \qquad \boldsymbol\sigma_p^2 = \alpha\, \mathbf s_p^2 + \mathbf V \boldsymbol\ell_p^2$$

where α says how far errors follow the posterior's spread, which depends on the image, and B is what they have besides.
A share γ of it stays however many images k there are; where a share q of them, on average over draws, does not show the
pixel lit, κq comes on top. Images leave a linear map of the lights open; V has the variances of its elements, squares
being taken element by element. Whoever surprises the model is known worse: u is 0 for those who do as left-out objects
did on average, in as many images and as much shadow, and 1 at the limit that about one in a hundred of them is beyond;
ρ says how far errors follow. From there on σ² grows in a straight line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.inference.chain import Sampled
from deep_lambertian.inference.observers import Diagnostics, record_of
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.support.archives import DAMAGE
from deep_lambertian.support.files import load_arrays, part, save_arrays
from deep_lambertian.surface import Leaf, Shape, as_field, as_picture, illuminate

FORMAT = "deep_lambertian posterior"
MOSTLY_DARK = 0.9  # of the pixels: there is next to nothing to go by


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Misfit:
    """B of each quantity, for lights V, and in this order α in `growth`, γ in `lasting`, κ in `shaded`, ρ in `unlike`.

    Normals are in degrees². `surprise` says what is usual, of the logarithm: of one image without shadows, what it has
    more if all is in shadow, and if there are ever so many images, and how far from there the limit is. `strangers` has
    the odds that a probe is of somebody known (`recognition.known`), all 0 if never learned.
    """

    albedo: Leaf  # (V,)
    normals: Leaf  # (V,)
    scaled_normals: Leaf  # (3, V)
    lights: Leaf  # (3, 3)
    growth: Leaf  # (4,)
    lasting: Leaf  # (4,)
    shaded: Leaf  # (4,)
    unlike: Leaf  # (4,)
    surprise: Leaf  # (4,)
    strangers: Leaf  # (7,)

    def unlikeness(self, surprise: float, shadow: float = 0.0, images: int = 1) -> float:
        """u of an object that has so many images, of which a share is in shadow; beyond 1 it is further off than nearly
        all left out.
        """
        usual, dark, many, reach = (float(each) for each in self.surprise)
        return (np.log(max(surprise, 1e-12)) - usual - dark * shadow - many * (1 - 1 / images)) / reach

    def widen(
        self, name: str, spread: np.ndarray, around: np.ndarray | None = None, images: int = 1, unlike: float = 0.0
    ) -> np.ndarray:
        """The standard deviation σ of a quantity whose posterior has the standard deviation `spread`; `around` has the
        lights (P, 3) themselves, or for surfaces q (V,).
        """
        beyond, which = np.asarray(getattr(self, name), np.float64), QUANTITIES.index(name)
        lasting, shaded = float(self.lasting[which]), float(self.shaded[which])
        share = lasting + (1 - lasting) / images
        if around is not None:
            around = np.asarray(around, np.float64)
            beyond, share = (around**2 @ beyond.T, share) if name == "lights" else (beyond, share + shaded * around)
        variance = float(self.growth[which]) * np.asarray(spread, np.float64) ** 2 + share * beyond
        return np.sqrt(growing(float(self.unlike[which]), unlike) * variance)

    def validate(self, pixels: int) -> None:
        for name, shape in shapes(pixels).items():
            found = np.asarray(getattr(self, name))
            if found.shape != shape or not np.all(np.isfinite(found)):
                raise ValueError(f"misfit.{name}: expected finite numbers of shape {shape}, got {found.shape}")
            if name not in ("strangers", "surprise") and found.min() < 0:
                raise ValueError(f"misfit.{name}: expected numbers of at least 0, got {found.min():g}")
        if not float(self.surprise[3]) > 0:
            raise ValueError(f"misfit.surprise: expected a limit above what is usual, got {float(self.surprise[3]):g}")


QUANTITIES = tuple(field.name for field in fields(Misfit))[:4]


def shapes(pixels: int) -> dict[str, tuple[int, ...]]:
    """Of the arrays of a `Misfit` for so many pixels."""
    maps = {"albedo": (pixels,), "normals": (pixels,), "scaled_normals": (3, pixels), "lights": (3, 3)}
    numbers = {name: (4,) for name in ("growth", "lasting", "shaded", "unlike")}
    return maps | numbers | {"surprise": (4,), "strangers": (7,)}


def growing(rho: float, unlike: Any) -> Any:
    """What σ² is multiplied by: as errors of left-out objects grow and, beyond what was seen, along the tangent."""
    seen = np.clip(unlike, -1, 1)
    return np.exp(rho * seen) * (1 + rho * np.maximum(np.asarray(unlike) - 1, 0))


# ---- Which interval just covers the truth?


def level_of_angle(error: Any, spread: Any) -> np.ndarray:
    """The level of the interval, 0 to 1, that an angular error is at the edge of: angles of a direction that is spread
    evenly about its mean, with root mean square `spread`, follow Rayleigh's law.
    """
    return 1 - np.exp(-((np.asarray(error) / np.maximum(spread, 1e-9)) ** 2))


def level_of_error(error: Any, spread: Any) -> np.ndarray:
    """The same of a number's error, which follows Gauss's law."""
    from scipy.special import erf

    return np.asarray(erf(np.abs(error) / (np.sqrt(2) * np.maximum(spread, 1e-9))))


class InferenceError(ValueError):
    """Chains have ended in numbers that are not finite; `objects` are the places, in the batch, of whose they were."""

    def __init__(self, message: str, objects: list[int]) -> None:
        super().__init__(message)
        self.objects = objects


@dataclass(frozen=True)
class Posterior:
    """Posterior means over the sweeps after the burn-in, of all chains together, and their standard errors.

    `albedo`, `albedo_std` (H, W); `normals` (H, W, 3) of unit length, `normals_std` (H, W) their error in degrees, root
    mean square; `lights`, `lights_std` (P, 3); `scaled_normals`, `scaled_normals_std` (H, W, 3), the mean of a·n, which
    spans the images of the object under any light. `*_std` is what is known of the error: the posterior's own spread,
    which `spread` has by name, and what a model that has measured it adds for being a model (see `Misfit`).
    Albedo is known up to the brightness of the light. `shadows` (P, H, W) has the probability of each pixel that it is
    not lit, but in shadow or a highlight. `samples` holds the kept states, if any were asked for:
    `albedo` (C, K, H, W), `normals` (C, K, H, W, 3), `lights` (C, K, P, 3).
    """

    albedo: np.ndarray
    albedo_std: np.ndarray
    normals: np.ndarray
    normals_std: np.ndarray
    lights: np.ndarray
    lights_std: np.ndarray
    scaled_normals: np.ndarray
    scaled_normals_std: np.ndarray
    shadows: np.ndarray
    spread: dict[str, np.ndarray]
    diagnostics: Diagnostics
    samples: dict[str, np.ndarray]
    info: dict[str, Any]

    @property
    def notes(self) -> list[str]:
        """What a person should know of what was shown, each in a sentence; empty where nothing is unusual."""
        found = []
        dark = float(np.mean(self.shadows))
        if dark > MOSTLY_DARK:
            found.append(f"{dark:.0%} of it is not lit: what is shown is what such objects mostly look like.")
        unlike = self.info.get("unlike", 0.0)
        if unlike > 1:
            found.append(
                f"This is unlike what the model knows: {unlike:.1f} times the limit that 99 of 100 objects keep to "
                "that it had not seen. Uncertainties are widened, and may still be too small."
            )
        return found

    @property
    def is_finite(self) -> bool:
        """Whether all of its numbers are."""
        found = (*(getattr(self, name) for name in _ARRAYS), *self.spread.values(), *self.samples.values())
        return all(np.isfinite(each).all() for each in found)

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.albedo.shape
        return height, width

    def relight(self, light: ArrayLike, *, shadows: bool = True) -> np.ndarray:
        """The object's image (H, W) under a new light (3,), or images (P, H, W) under several (P, 3).

        It is the posterior mean of a n·ℓ; where the surface turns away from the light it is dark, unless `shadows` is
        false, as in Eq. 5.
        """
        light = np.asarray(light, np.float32)
        if light.shape[-1:] != (3,) or light.ndim not in (1, 2) or not np.all(np.isfinite(light)):
            raise ValueError(f"light: expected three finite numbers, or several such rows, got shape {light.shape}")
        return illuminate(self.scaled_normals, light, shadows=shadows)

    def relight_std(self, light: ArrayLike) -> np.ndarray:
        """The standard error (H, W) of `relight` under a light (3,): errors of a·n are taken as independent."""
        light = np.asarray(light, np.float64)
        return np.sqrt(self.scaled_normals_std.astype(np.float64) ** 2 @ light**2).astype(np.float32)

    def header_and_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything, as JSON and as named arrays, from which `restore` makes the same posterior."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"samples/{name}": value for name, value in self.samples.items()}
        arrays |= {f"spread/{name}": value for name, value in self.spread.items()}
        arrays |= {f"trace/{name}": value for name, value in self.diagnostics.trace.items()}
        header = {"info": self.info, "burn_in": self.diagnostics.burn_in}
        return header, arrays | {"acceptance": self.diagnostics.acceptance}

    @classmethod
    def restore(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Posterior":
        """The opposite of `header_and_arrays`, or a ValueError that says what is missing."""
        try:
            diagnostics = Diagnostics(part(arrays, "trace/"), int(header["burn_in"]), arrays["acceptance"])
            values = {name: arrays[name] for name in _ARRAYS}
            samples, spread = part(arrays, "samples/"), part(arrays, "spread/")
            (height, width), images = values["albedo"].shape, len(values["lights"])
            for name, value in values.items():
                of = (images,) if name.startswith(("lights", "shadows")) else ()
                wanted = of + (() if name.startswith("lights") else (height, width))
                wanted += (3,) if name.removesuffix("_std") in ("lights", "scaled_normals") or name == "normals" else ()
                if value.shape != wanted or value.dtype.kind != "f":
                    raise ValueError(f"{name} as numbers of shape {wanted}, but {value.dtype} of {value.shape}")
            info = dict(header["info"])
            return cls(**values, diagnostics=diagnostics, samples=samples, spread=spread, info=info)
        except DAMAGE as error:
            raise ValueError(f"expected a whole posterior, got one without {error}") from error

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file."""
        save_arrays(path, FORMAT, *self.header_and_arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        """Read a file that `save` wrote. Nothing in the file is executed."""
        found = load_arrays(path, FORMAT)
        try:
            return cls.restore(*found)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


_ARRAYS = tuple(f.name for f in fields(Posterior) if f.name not in ("diagnostics", "samples", "spread", "info"))


def check_finite(posteriors: Sequence[Posterior], given: Sequence[dict[str, np.ndarray]], names: Sequence[str]) -> None:
    """Refuse results that are not finite, and say how large what was `given` for the first of them was."""
    if lost := [number for number, posterior in enumerate(posteriors) if not posterior.is_finite]:
        sizes = (f"{what} of up to {np.abs(value).max():.2g}" for what, value in given[lost[0]].items())
        raise InferenceError(
            f"{names[lost[0]]}: inference ended in numbers that are not finite, from {' and '.join(sizes)}; bring what "
            "is large to about 1, take a model whose noise is not so small, or a smaller step_size",
            lost,
        )


def summarise(
    found: Sampled, index: int, shape: Shape, images: int, sampler: Sampler, misfit: Misfit | None, info: dict[str, Any]
) -> Posterior:
    """The posterior of object `index` of a finished run; images that only filled it up are cut off."""

    def pooled(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean over all chains, and the standard deviation within and between them."""
        within, mean = np.mean(found.variance[name][index], axis=0), found.mean[name][index].astype(np.float64)
        return np.mean(mean, axis=0), np.sqrt(within + np.var(mean, axis=0))

    mean, spread = {}, {}
    for name in ("albedo", "lights", "directions", "scaled_normals"):
        mean[name], spread[name] = pooled(name)
    direction, lights = mean["directions"], mean["lights"][:images]
    resultant = np.linalg.norm(direction, axis=0)
    # The mean cosine to the mean direction is the length of the mean unit vector.
    spread["normals"] = np.degrees(np.arccos(np.clip(resultant, 0.0, 1.0)))
    spread["lights"] = spread["lights"][:images]
    del spread["directions"]
    trace = {name: values[index] for name, values in found.trace.items()}
    trace["lights"] = trace["lights"][:, :, :images]
    burn_in = record_of(sampler.burn_in, sampler.most)
    diagnostics = Diagnostics(trace, burn_in, as_picture(pooled("acceptance")[0], shape))
    total = dict(spread)
    if misfit is not None:
        shadows = pooled("shadows")[0][:images].mean(axis=0)
        unlike = misfit.unlikeness(diagnostics.surprise, float(np.mean(shadows)), images)
        info = info | {"unlike": unlike}
        known = {"lights"} if "lights" in info["known"] else set(QUANTITIES) - {"lights"} if info["known"] else set()
        for name in set(QUANTITIES) - known:
            around = lights if name == "lights" else shadows
            total[name] = misfit.widen(name, spread[name], around, images=images, unlike=unlike)
    samples = {}
    if sampler.keep:
        kept = {name: values[index] for name, values in found.kept.items()}
        samples = {
            "albedo": as_picture(kept["albedo"], shape),
            "normals": as_field(kept["normals"], shape),
            "lights": kept["lights"][:, :, :images],
        }
    return Posterior(
        albedo=as_picture(mean["albedo"], shape),
        albedo_std=as_picture(total["albedo"], shape),
        normals=as_field(direction / np.maximum(resultant, 1e-9), shape),
        normals_std=as_picture(total["normals"], shape),
        lights=lights.astype(np.float32),
        lights_std=total["lights"].astype(np.float32),
        scaled_normals=as_field(mean["scaled_normals"], shape),
        scaled_normals_std=as_field(total["scaled_normals"], shape),
        spread={
            "albedo": as_picture(spread["albedo"], shape),
            "normals": as_picture(spread["normals"], shape),
            "scaled_normals": as_field(spread["scaled_normals"], shape),
            "lights": spread["lights"].astype(np.float32),
        },
        shadows=as_picture(pooled("shadows")[0][:images], shape),
        diagnostics=diagnostics,
        samples=samples,
        info=info,
    )
