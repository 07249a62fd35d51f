"""The Deep Lambertian Network as its users meet it: build, draw, infer, save and load."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian import models
from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference import chain
from deep_lambertian.inference.inputs import Request, check_request, stack
from deep_lambertian.inference.posterior import Posterior, summarise
from deep_lambertian.inference.sampler import CHAINS, Block, preset
from deep_lambertian.models import file as model_file
from deep_lambertian.priors import DBN, Prior, Product
from deep_lambertian.support import draws
from deep_lambertian.surface import render

SHORT = 1000  # sweeps: those of a longer chain take so much time that compiling them well is worth it


@dataclass(frozen=True)
class Drawn:
    """Objects drawn from a DLN: `images` (S, P, H, W), and the `albedo`, `normals` and `lights` that made them."""

    images: np.ndarray
    albedo: np.ndarray
    normals: np.ndarray
    lights: np.ndarray


@dataclass(frozen=True)
class DLN:
    r"""A Deep Lambertian Network for images of `shape` (H, W).

    $$p(V, a, N, L) = p(a, N) \prod_p p(\ell_p)
      \prod_{ip} \mathcal N(v_{ip} \mid a_i\, n_i^\top \ell_p, \sigma_{v_i}^2)$$

    `preset` names the sampler settings that `infer` takes unless told otherwise; `info` is free for what a person may
    want to know of the model, such as what it was trained on, and is saved with it.
    """

    params: Params
    shape: tuple[int, int]
    preset: str = "paper"
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        preset(self.preset)
        height, width = self.shape
        self.params.validate()
        if height * width != self.params.pixels:
            raise ValueError(
                f"shape: expected {self.params.pixels} pixels, as the parameters have, got {height}×{width}"
            )

    @classmethod
    def build(
        cls,
        prior: Prior,
        shape: tuple[int, int],
        *,
        noise_var: Any = 0.01,
        light_mean: Any = (0.0, 0.0, 1.0),
        light_precision: Any = 4.0,
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
        prior = Product(
            DBN.random(albedo_key, pixels, albedo_hidden), DBN.random(normals_key, 3 * pixels, normals_hidden)
        )
        return cls.build(prior, shape, **{"noise_var": 1.0, **parameters})

    def infer(
        self,
        images: Any,
        lights: Any = None,
        mask: Any = None,
        iterations: int | None = None,
        chains: int | None = None,
        seed: int = 0,
        *,
        weights: Any = None,
        albedo: Any = None,
        normals: Any = None,
        keep: int | Literal["all"] = 0,
        quick: bool = False,
        **settings: Any,
    ) -> Posterior:
        """Albedo, normals and lights, with their uncertainty, from one image or several of the same object.

        `images` is (H, W) or (P, H, W): linear intensities of about [0, 1], or integers whose full range means that.
        `lights` (P, 3), `albedo` (H, W) and `normals` (H, W, 3) are held fixed where they are given: known lights make
        it photometric stereo, a known surface leaves the light to be found. `mask` and `weights`, (H, W) or
        (P, H, W), say how much a pixel counts. `keep` states are kept, evenly spread after the burn-in, or "all" from
        the first sweep on. `iterations`, `chains` and any further `settings` of `Sampler` override the model's preset.
        `quick` takes a third off the time that compiling takes and adds half to that of each sweep: for a short chain.
        """
        request = check_request(self.shape, images, lights, mask, weights, albedo, normals)
        return self._run([request], chains, seed, keep, quick=quick, iterations=iterations, **settings)[0]

    def compile_ahead(self, images: int = 1, *, lights: bool = False, **settings: Any) -> Callable[[], None]:
        """Begin, in the background, to compile what `infer` needs for so many images, of known lights or not.

        The answer waits until it is done. It takes a core some seconds for each new number of images, in which there
        may be something else to do. What `settings` are wrong is left for `infer` to say.
        """
        nothing = np.full((images, *self.shape), 0.5, np.float32)
        known = np.ones((images, 3), np.float32) if lights else None
        short = {**settings, "iterations": 2}  # one compilation serves any number of sweeps

        def run() -> None:
            with suppress(Exception):
                self.infer(nothing, lights=known, **short)

        # A program that ends waits for a pool, and does not tear XLA from under it; an interrupted `Thread.join` would.
        pool = ThreadPoolExecutor(1)
        done = pool.submit(run)
        pool.shutdown(wait=False)
        return done.result

    def infer_many(
        self,
        images: Sequence[Any],
        lights: Sequence[Any] | None = None,
        mask: Sequence[Any] | None = None,
        iterations: int | None = None,
        chains: int | None = None,
        seed: int = 0,
        *,
        weights: Sequence[Any] | None = None,
        keep: int | Literal["all"] = 0,
        numbers: Sequence[int] | None = None,
        size: tuple[int, int] | None = None,
        devices: Sequence[Any] | None = None,
        **settings: Any,
    ) -> list[Posterior]:
        """`infer` for many objects at once, each with its own number of images, shared out over the devices at hand.

        An object's draws come from the seed and its number, 0, 1, … unless `numbers` are given: with the same number it
        gets the same result in another batch, to rounding. Batches filled up to one `size` (objects, images) share one
        compilation, and rounding too. `devices` are all there are, of all processes, unless told.
        """
        if len(images) == 0:
            raise ValueError("images: expected at least one object, got none")
        if numbers is not None and len(numbers) != len(images):
            raise ValueError(f"numbers: expected one for each of {len(images)} objects, got {len(numbers)}")
        columns = {"lights": lights, "mask": mask, "weights": weights}
        for what, values in columns.items():
            if values is not None and len(values) != len(images):
                raise ValueError(f"{what}: expected one for each of {len(images)} objects, got {len(values)}")
        requests = [
            check_request(
                self.shape,
                each,
                **{what: None if values is None else values[i] for what, values in columns.items()},
                name=f"images[{i}]",
            )
            for i, each in enumerate(images)
        ]
        return self._run(requests, chains, seed, keep, numbers, size, devices, iterations=iterations, **settings)

    def _run(
        self,
        requests: list[Request],
        chains: int | None,
        seed: int,
        keep: int | Literal["all"],
        numbers: Sequence[int] | None = None,
        size: tuple[int, int] | None = None,
        devices: Sequence[Any] | None = None,
        quick: bool = False,
        **settings: Any,
    ) -> list[Posterior]:
        chains = CHAINS[self.preset] if chains is None else chains
        if chains < 1:
            raise ValueError(f"chains: expected at least 1, got {chains}")
        sampler = preset(self.preset).override(**settings)
        data, known = stack(requests, size)
        if numbers is not None:
            numbers = [*numbers, *[0] * (data.images.shape[0] - len(requests))]
        blocks: frozenset[Block] = frozenset(known)  # type: ignore[arg-type]
        carry = chain.run(
            self.params,
            data,
            sampler,
            seed=seed,
            chains=chains,
            clamped=blocks,
            given=known,
            keep=sampler.iterations if keep == "all" else keep,
            keep_from=0 if keep == "all" else None,
            numbers=numbers,
            devices=devices,
            quick=quick,
        )
        carry = jax.tree.map(np.asarray, carry)
        info = {
            "seed": seed,
            "chains": chains,
            "iterations": sampler.iterations,
            "burn_in": sampler.burn_in,
            "known": sorted(known),
        }
        return [
            summarise(carry, i, self.shape, len(r.images), sampler.iterations, sampler.burn_in, info)
            for i, r in enumerate(requests)
        ]

    def sample(
        self,
        count: int = 1,
        images: int = 1,
        lights: Any = None,
        seed: int = 0,
        iterations: int = 200,
        **settings: Any,
    ) -> Drawn:
        """Draw whole objects: a surface from the prior, lights from theirs unless given, images by Eq. 5 with noise.

        The surface comes from a Gibbs chain that sees no image, so that the soft norm constraint is in force.
        """
        if count < 1 or images < 1:
            raise ValueError(f"expected at least one object and one image, got {count} and {images}")
        sampler = preset(self.preset).override(iterations=iterations, **settings)
        nothing = jnp.zeros((count, 1, self.params.pixels))
        data = Observation(nothing, nothing)
        last = chain.run(self.params, data, sampler, seed=seed).state
        albedo, normals = last.albedo[:, 0], last.normals[:, 0]
        light_key, noise_key = draws.split(draws.make_key(seed), 2)
        if lights is None:
            lights = self._lights(light_key, (count, images, 3))
        else:
            lights = jnp.broadcast_to(jnp.atleast_2d(jnp.asarray(lights, jnp.float32)), (count, images, 3))
        clean = jax.vmap(render)(albedo, normals, lights)
        noise = jnp.sqrt(self.params.noise_var)[None, None] * draws.normal(noise_key, clean.shape)
        return Drawn(
            np.asarray(clean + noise).reshape(count, images, *self.shape),
            np.asarray(albedo).reshape(count, *self.shape),
            np.moveaxis(np.asarray(normals).reshape(count, 3, *self.shape), 1, -1),
            np.asarray(lights),
        )

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
        model_file.write(path, self.params, header, compact=compact)


def is_short(iterations: int | None) -> bool:
    """Whether a chain, of as many sweeps as the model has it if None, had better be compiled quickly."""
    return (iterations or 0) <= SHORT


def load_model(path: str | Path) -> DLN:
    """Load a model from a file that `DLN.save` wrote, or one that comes with the package, by its name."""
    path = models.find(path)
    params, header = model_file.read(path)
    try:
        height, width = header["shape"]
        return DLN(params, (height, width), header["preset"], dict(header["info"]))
    except (ValueError, KeyError, TypeError) as error:
        raise model_file.ModelFileError(f"{path}: expected a consistent model, got {error}") from error
