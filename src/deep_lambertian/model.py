"""The Deep Lambertian Network as its users meet it: build, draw, infer, save and load."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian import models
from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference import chain
from deep_lambertian.inference.chain import Layout
from deep_lambertian.inference.posterior import InferenceError, Misfit, Posterior, check_finite, summarise
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.priors import DBN, Prior, Product
from deep_lambertian.priors.contract import LARGEST, check_array
from deep_lambertian.support import draws
from deep_lambertian.support.archives import DAMAGE
from deep_lambertian.surface import Shape, Surface, as_picture, render

MOST_BELOW = 100.0  # times as much below 0 as above, in sum: objects that a model draws, lit from behind, have some


@dataclass(frozen=True)
class Drawn:
    """Objects drawn from a DLN: `images` (S, P, H, W), and the `albedo`, `normals` and `lights` that made them."""

    images: np.ndarray
    albedo: np.ndarray
    normals: np.ndarray
    lights: np.ndarray


@dataclass(frozen=True)
class Request:
    """One object's images (P, V), weights (P, V), and the blocks that are known, as the sampler holds them."""

    images: np.ndarray
    weights: np.ndarray
    known: dict[str, np.ndarray]
    name: str = "images"


@dataclass(frozen=True)
class DLN:
    r"""A Deep Lambertian Network for images of `shape` (H, W).

    $$p(V, a, N, L) = p(a, N) \prod_p p(\ell_p)
      \prod_{ip} \mathcal N(v_{ip} \mid a_i\, n_i^\top \ell_p, \sigma_{v_i}^2)$$

    `preset` names the sampler settings that `infer` takes unless told otherwise; `info` is free for what a person may
    want to know of the model, such as what it was trained on, and is saved with it. `misfit` is what inference adds to
    the posterior's spread, where it has been measured.
    """

    params: Params
    shape: tuple[int, int]
    preset: str = "paper"
    info: dict[str, Any] = field(default_factory=dict)
    misfit: Misfit | None = None

    def __post_init__(self) -> None:
        Sampler.of_preset(self.preset)  # refuses a name that is none
        self.params.validate()
        if self.misfit is not None:
            self.misfit.validate(self.params.pixels)
        (height, width), pixels = self.shape, self.params.pixels
        if height * width != pixels or height < 1 or width < 1:
            raise ValueError(f"shape: expected {pixels} pixels, as the parameters have, got {height}×{width}")

    @classmethod
    def build(
        cls,
        prior: Prior,
        shape: tuple[int, int],
        *,
        noise_var: ArrayLike = 0.01,
        light_mean: ArrayLike = (0.0, 0.0, 1.0),
        light_precision: ArrayLike = 4.0,
        norm_stiffness: float = 100.0,
        preset: str = "paper",
        info: dict[str, Any] | None = None,
    ) -> "DLN":
        """A DLN with given parameters; a single `noise_var` serves all pixels, a single `light_precision` all axes."""
        pixels = shape[0] * shape[1]
        noise_var, precision = jnp.asarray(noise_var, jnp.float32), jnp.asarray(light_precision, jnp.float32)
        params = Params(
            prior=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), prior),
            noise_var=jnp.full(pixels, noise_var) if noise_var.ndim == 0 else noise_var.reshape(-1),
            light_mean=jnp.asarray(light_mean, jnp.float32),
            light_precision=precision * jnp.eye(3) if precision.ndim == 0 else precision,
            norm_stiffness=jnp.asarray(norm_stiffness, jnp.float32),
        )
        return cls(params, shape, preset, info or {})

    @classmethod
    def random(
        cls,
        shape: tuple[int, int] = (24, 24),
        albedo_hidden: tuple[int, ...] = (800, 200),
        normals_hidden: tuple[int, ...] = (1000, 100),
        seed: int = 0,
        **parameters: Any,
    ) -> "DLN":
        """Step 2 of Algorithm 1 at the paper's sizes: what learning starts from."""
        albedo_key, normals_key = draws.split(draws.make_key(seed), 2)
        pixels = shape[0] * shape[1]
        albedo = DBN.random(albedo_key, pixels, albedo_hidden)
        normals = DBN.random(normals_key, 3 * pixels, normals_hidden)
        return cls.build(Product(albedo, normals), shape, **{"noise_var": 1.0, **parameters})

    @property
    def sampler(self) -> Sampler:
        """How `infer` samples unless told otherwise: the model's preset."""
        return Sampler.of_preset(self.preset)

    def infer(
        self,
        images: ArrayLike,
        lights: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        iterations: int | None = None,
        chains: int | None = None,
        seed: int = 0,
        *,
        until: int | None = None,
        sampler: Sampler | str | None = None,
    ) -> Posterior:
        """Albedo, normals and lights, with their uncertainty, from one image or several of the same object.

        `images` is (H, W) or (P, H, W): linear intensities of about [0, 1], or integers whose full range means that.
        Noise may take some below 0; images with next to nothing above it are refused. What a NumPy array masks
        does not count. A posterior with numbers that are not finite is never returned, but an `InferenceError` raised.
        `lights` (P, 3) are held fixed where they are given: known lights make it photometric stereo. `mask`, (H, W) or
        (P, H, W), says how much a pixel counts, from 0 to 1. `sampler` says how to sample, as a `Sampler` or the name
        of a preset; `iterations` and `chains` change these of its settings, and chains that have not converged by then
        go on, for `until` sweeps at most.
        """
        request = check_request(self.shape, images, lights, mask)
        return self._run([request], self._sampler(sampler, iterations, chains, until), seed)[0]

    def infer_lights(
        self,
        images: ArrayLike,
        surface: Surface,
        mask: ArrayLike | None = None,
        iterations: int | None = None,
        seed: int = 0,
        *,
        sampler: Sampler | str | None = None,
    ) -> Posterior:
        """The light of each image of a known surface (see `Surface.from_pictures`), which is held fixed."""
        request = check_request(self.shape, images, None, mask, surface)
        return self._run([request], self._sampler(sampler, iterations, None), seed)[0]

    def infer_many(
        self,
        images: Sequence[ArrayLike],
        lights: Sequence[ArrayLike] | None = None,
        mask: Sequence[ArrayLike] | None = None,
        iterations: int | None = None,
        chains: int | None = None,
        seed: int = 0,
        *,
        sampler: Sampler | str | None = None,
        layout: Layout | None = None,
    ) -> list[Posterior]:
        """`infer` for many objects at once, each with its own number of images, shared out over the devices at hand.

        An object's draws come from the seed and its number in the `layout`: with the same number it gets the same
        result in another batch, to rounding. For the same reason chains end after their `iterations`, converged or not.
        """
        if len(images) == 0:
            raise ValueError("images: expected at least one object, got none")
        for what, values in {"lights": lights, "mask": mask, "numbers": layout and layout.numbers}.items():
            if values is not None and len(values) != len(images):
                raise ValueError(f"{what}: expected one for each of {len(images)} objects, got {len(values)}")
        nothing = [None] * len(images)
        objects = zip(images, nothing if lights is None else lights, nothing if mask is None else mask, strict=True)
        requests = [check_request(self.shape, *each, name=f"images[{i}]") for i, each in enumerate(objects)]
        return self._run(requests, self._sampler(sampler, iterations, chains, until=0), seed, layout)

    def _sampler(
        self, sampler: Sampler | str | None, iterations: int | None, chains: int | None, until: int | None = None
    ) -> Sampler:
        if sampler is None or isinstance(sampler, str):
            sampler = Sampler.of_preset(sampler or self.preset)
        return sampler.override(iterations=iterations, chains=chains, until=until)

    def _run(
        self, requests: list[Request], sampler: Sampler, seed: int, layout: Layout | None = None
    ) -> list[Posterior]:
        layout = layout or Layout()
        data, known = stack(requests, layout.size)
        if layout.numbers is not None:  # what only fills the batch up needs numbers too
            layout = replace(layout, numbers=[*layout.numbers, *[0] * (len(data.images) - len(requests))])
        found = chain.run(self.params, data, sampler, seed=seed, given=known, known=frozenset(known), layout=layout)
        sweeps = {"chains": sampler.chains, "iterations": found.iterations, "burn_in": sampler.burn_in}
        info = {"seed": seed, **sweeps, "known": sorted(known)}
        posteriors = [
            summarise(found, i, self.shape, len(r.images), sampler, self.misfit, info) for i, r in enumerate(requests)
        ]
        check_finite(posteriors, [r.known | {"images": r.images} for r in requests], [r.name for r in requests])
        return posteriors

    def sample(
        self,
        count: int = 1,
        images: int = 1,
        lights: ArrayLike | None = None,
        seed: int = 0,
        iterations: int = 200,
        *,
        sampler: Sampler | str | None = None,
    ) -> Drawn:
        """Draw whole objects: a surface from the prior, lights from theirs unless given, images by Eq. 5 with noise.

        The surface comes from a Gibbs chain that sees no image, so that the soft norm constraint is in force.
        """
        if count < 1 or images < 1:
            raise ValueError(f"expected at least one object and one image, got {count} and {images}")
        nothing = jnp.zeros((1, 1, self.params.pixels))
        settings = self._sampler(sampler, iterations, count)
        found = chain.run(self.params, Observation(nothing, nothing), settings, seed=seed)
        surface = jax.tree.map(lambda x: jnp.asarray(x[0]), found.state.surface)
        if not np.isfinite(surface.pack()).all():
            raise InferenceError("surfaces drawn from the prior ended in numbers that are not finite", [])
        light_key, noise_key = draws.split(draws.make_key(seed), 2)
        if lights is None:
            lights = self._lights(light_key, (count, images, 3))
        else:
            given = np.atleast_2d(_known("lights", lights, np.shape(lights)))
            lights = jnp.broadcast_to(given, (count, images, 3))
        clean = jax.vmap(render)(surface, lights)
        noise = jnp.sqrt(self.params.noise_var)[None, None] * draws.normal(noise_key, clean.shape)
        albedo, normals = surface.pictures(self.shape)
        return Drawn(as_picture(clean + noise, self.shape), albedo, normals, np.asarray(lights))

    def sample_lights(self, count: int, seed: int = 0) -> np.ndarray:
        """Lights (count, 3) from what the model believes of them."""
        return np.asarray(self._lights(draws.make_key(seed), (count, 3)))

    def _lights(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        spread = jnp.linalg.cholesky(jnp.linalg.inv(self.params.light_precision))
        mean = self.params.light_mean.reshape(*[1] * (len(shape) - 1), 3)
        return mean + draws.normal(key, shape) @ spread.T

    @property
    def checksum(self) -> str:
        """The same for models of the same parameters, and for no others."""
        found = hashlib.sha256(repr(self.shape).encode())
        for where, leaf in jax.tree_util.tree_leaves_with_path(self.params):
            found.update(f"{jax.tree_util.keystr(where)} {leaf.shape}".encode())
            found.update(np.ascontiguousarray(leaf).tobytes())
        return found.hexdigest()[:16]

    def save(self, path: str | Path, *, compact: bool = False) -> None:
        """Write the model to one safetensors file, whole or not at all; `compact` stores matrices in half precision."""
        header = {"shape": list(self.shape), "preset": self.preset, "info": self.info}
        models.write(path, self.params, header, self.misfit, compact=compact)


def load_model(path: str | Path) -> DLN:
    """Load a model from a file that `DLN.save` wrote, or one that comes with the package, by its name."""
    path = models.find(path)
    params, misfit, header = models.read(path)
    try:
        height, width = header["shape"]
        return DLN(params, (height, width), header["preset"], dict(header["info"]), misfit)
    except DAMAGE as error:
        raise models.ModelFileError(f"{path}: expected a consistent {models.KEY} model, got {error}") from error


# ---- What a caller may hand to inference, checked once at the door; messages say what was got and what was expected


def check_request(
    shape: Shape,
    images: ArrayLike,
    lights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    surface: Surface | None = None,
    name: str = "images",
) -> Request:
    """Bring one object's inputs to the sampler's form, or raise a ValueError."""
    pixels, hidden = _images(shape, images, name)
    count = pixels.shape[0]
    seen = np.ones_like(pixels) if mask is None else _mask(shape, count, mask)
    if hidden.any():
        seen = np.where(hidden, np.float32(0), seen)
        if not seen.any():
            raise ValueError(f"{name}: expected at least one pixel that counts, got all of them masked")
    usable = np.abs(pixels) <= LARGEST  # NaN is not
    if bad := int((~usable & (seen > 0)).sum()):
        told = f"got {bad} that are NaN or infinite, or beyond {LARGEST:g}"
        raise ValueError(f"{name}: expected finite pixels, {told}; mend them or mask them out")
    pixels = np.where(usable, pixels, 0).astype(np.float32)
    above, below = ((np.maximum(sign * pixels, 0) * (seen > 0)).sum(dtype=np.float64) for sign in (1, -1))
    if below > MOST_BELOW * above:
        told = f"got some that are nearly all negative, down to {pixels.min():g}"
        raise ValueError(f"{name}: expected intensities, of which noise alone takes some below 0, {told}")
    known = {}
    if lights is not None:
        known["lights"] = _known("lights", lights, (count, 3))
    if surface is not None:
        size = shape[0] * shape[1]
        known["albedo"] = _known("surface.albedo", surface.albedo, (size,))
        known["normals"] = _known("surface.normals", surface.normals, (3, size))
    return Request(pixels, seen, known, name)


def _images(shape: Shape, images: ArrayLike, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (P, V), and which of them the caller's own masked arrays hide."""
    several = isinstance(images, list | tuple) and any(isinstance(each, np.ma.MaskedArray) for each in images)
    try:
        if several:  # NumPy itself would forget their masks
            images = np.ma.stack(images)  # type: ignore[call-overload]
        hidden = np.ma.getmaskarray(images if isinstance(images, np.ma.MaskedArray) else np.zeros(np.shape(images)))
        array = np.asarray(images)
    except ValueError as error:
        raise ValueError(f"{name}: expected images of one size, got a ragged sequence ({error})") from error
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{name}: expected real numbers, got {array.dtype}")
    height, width = shape
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one image of {height}×{width} pixels, got none")
    if array.ndim not in (2, 3):
        raise ValueError(
            f"{name}: expected ({height}, {width}) for one image or (P, {height}, {width}) for several, "
            f"got shape {array.shape}"
        )
    if array.shape[-2:] != shape:
        raise ValueError(
            f"{name}: the model was built for {height}×{width} pixels, got {array.shape[-2]}×{array.shape[-1]}; "
            f"resize the images to {height}×{width}, or take a model of their size"
        )
    if np.issubdtype(array.dtype, np.integer):  # the full range of the type is [0, 1], as in image libraries
        array = array.astype(np.float64) / np.iinfo(array.dtype).max
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is then refused by name
        return array.reshape(-1, height * width).astype(np.float32), hidden.reshape(-1, height * width)


def _plain(what: str, value: ArrayLike) -> np.ndarray:
    if np.ma.is_masked(value):
        raise ValueError(f"{what}: expected all of its numbers, got a masked array; fill in what it hides")
    with np.errstate(over="ignore"):
        return np.asarray(value, np.float32)


def _mask(shape: Shape, count: int, value: ArrayLike) -> np.ndarray:
    array = _plain("mask", value)
    if array.shape not in (shape, (count, *shape)):
        raise ValueError(f"mask: expected shape {shape} or {(count, *shape)}, got {array.shape}")
    if not np.all((array >= 0) & (array <= 1)):
        raise ValueError(f"mask: expected values between 0 and 1, got {array.min():g} to {array.max():g}")
    if not array.any():
        raise ValueError("mask: expected at least one pixel that counts, got a mask that is 0 everywhere")
    return np.broadcast_to(array.reshape(-1, shape[0] * shape[1]), (count, shape[0] * shape[1]))


def _known(what: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = _plain(what, value)
    if what == "lights" and array.shape == (3,) and shape[0] == 1:
        array = array[None]
    check_array(what, array, shape)
    return array


def stack(requests: Sequence[Request], size: tuple[int, int] | None = None) -> tuple[Observation, dict[str, Any]]:
    """Many objects in one batch (S, P, ...): objects with fewer images are filled up with images of weight 0.

    With a `size`, of at least so many objects and images: the batch is filled up to it in the same way.
    """
    objects, most = size or (0, 0)
    most = max(most, *(request.images.shape[0] for request in requests))
    spare = max(objects - len(requests), 0)

    def fill(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros((most - array.shape[0], *array.shape[1:]), np.float32)])

    def whole(arrays: list[np.ndarray]) -> Any:  # NumPy's: whatever JAX makes eagerly is compiled by itself
        return np.stack(arrays + [np.zeros_like(arrays[0])] * spare)

    blocks = {frozenset(request.known) for request in requests}
    if len(blocks) > 1:
        raise ValueError(
            "expected the same blocks (lights, albedo, normals) to be known for every object, "
            f"got {sorted(sorted(b) for b in blocks)}"
        )
    known = {}
    for block in next(iter(blocks)):
        values = [request.known[block] for request in requests]
        known[block] = whole([fill(v) if block == "lights" else v for v in values])
    images, weights = ([fill(getattr(request, what)) for request in requests] for what in ("images", "weights"))
    return Observation(whole(images), whole(weights)), known
