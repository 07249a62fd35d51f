"""What inference returns: albedo, normals and lights of one object, with their uncertainty."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.inference.chain import Sampled
from deep_lambertian.inference.diagnostics import Diagnostics
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.support.files import load_arrays, part, save_arrays
from deep_lambertian.surface import Shape, as_field, as_picture, illuminate

FORMAT = "deep_lambertian posterior"


@dataclass(frozen=True)
class Posterior:
    """Posterior means and standard deviations over the sweeps after the burn-in, of all chains together.

    `albedo`, `albedo_std` (H, W); `normals` (H, W, 3) of unit length, `normals_std` (H, W) their angular spread in
    degrees; `lights`, `lights_std` (P, 3); `scaled_normals` (H, W, 3), the mean of a·n, which spans the images of
    the object under any light. `samples` holds the kept states, if any were asked for:
    `albedo` (C, K, H, W), `normals` (C, K, H, W, 3), `lights` (C, K, P, 3).
    """

    albedo: np.ndarray
    albedo_std: np.ndarray
    normals: np.ndarray
    normals_std: np.ndarray
    lights: np.ndarray
    lights_std: np.ndarray
    scaled_normals: np.ndarray
    diagnostics: Diagnostics
    samples: dict[str, np.ndarray]
    info: dict[str, Any]

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

    def header_and_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything, as JSON and as named arrays, from which `restore` makes the same posterior."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"samples/{name}": value for name, value in self.samples.items()}
        arrays |= {f"trace/{name}": value for name, value in self.diagnostics.trace.items()}
        header = {"info": self.info, "burn_in": self.diagnostics.burn_in}
        return header, arrays | {"acceptance": self.diagnostics.acceptance}

    @classmethod
    def restore(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Posterior":
        """The opposite of `header_and_arrays`, or a ValueError that says what is missing."""
        try:
            diagnostics = Diagnostics(part(arrays, "trace/"), int(header["burn_in"]), arrays["acceptance"])
            values = {name: arrays[name] for name in _ARRAYS}
            return cls(**values, diagnostics=diagnostics, samples=part(arrays, "samples/"), info=header["info"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected a whole posterior, got one without {error}") from error

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file."""
        save_arrays(path, FORMAT, *self.header_and_arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        """Read a file that `save` wrote. Nothing in the file is executed."""
        return cls.restore(*load_arrays(path, FORMAT))


_ARRAYS = tuple(f.name for f in fields(Posterior) if f.name not in ("diagnostics", "samples", "info"))


def summarise(
    found: Sampled, index: int, shape: Shape, images: int, sampler: Sampler, info: dict[str, Any]
) -> Posterior:
    """The posterior of object `index` of a finished run; images that only filled it up are cut off."""

    def pooled(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean over all chains, and the standard deviation within and between them."""
        within, mean = np.mean(found.variance[name][index], axis=0), found.mean[name][index].astype(np.float64)
        return np.mean(mean, axis=0), np.sqrt(within + np.var(mean, axis=0))

    albedo, albedo_std = pooled("albedo")
    lights, lights_std = pooled("lights")
    direction, _ = pooled("directions")
    resultant = np.linalg.norm(direction, axis=0)
    trace = {name: values[index] for name, values in found.trace.items()}
    trace["lights"] = trace["lights"][:, :, :images]
    burn_in = sampler.burn_in * trace["energy"].shape[1] // sampler.iterations
    samples = {}
    if sampler.keep:
        kept = {name: values[index] for name, values in found.kept.items()}
        samples = {
            "albedo": as_picture(kept["albedo"], shape),
            "normals": as_field(kept["normals"], shape),
            "lights": kept["lights"][:, :, :images],
        }
    return Posterior(
        albedo=as_picture(albedo, shape),
        albedo_std=as_picture(albedo_std, shape),
        normals=as_field(direction / np.maximum(resultant, 1e-9), shape),
        # The mean cosine to the mean direction is the length of the mean unit vector.
        normals_std=as_picture(np.degrees(np.arccos(np.clip(resultant, 0.0, 1.0))), shape),
        lights=lights[:images].astype(np.float32),
        lights_std=lights_std[:images].astype(np.float32),
        scaled_normals=as_field(pooled("scaled_normals")[0], shape),
        diagnostics=Diagnostics(trace, burn_in, as_picture(pooled("acceptance")[0], shape)),
        samples=samples,
        info=info,
    )
