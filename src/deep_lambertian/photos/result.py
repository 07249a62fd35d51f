"""What inference makes of photos: the posterior at the model's size, and the surface in colour at the photo's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from deep_lambertian.data.images import LUMINANCE, luminance
from deep_lambertian.energy import Observation
from deep_lambertian.faces.alignment import Alignment
from deep_lambertian.geometry import cholesky3, solve_lower, solve_lower_t
from deep_lambertian.inference.albedo import albedo_conditional
from deep_lambertian.inference.normals import NormalsQuadratic, normals_conditional
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.model import DLN
from deep_lambertian.photos.placing import Photo, Placement, prepare_photos
from deep_lambertian.support import compiled
from deep_lambertian.support.archives import DAMAGE
from deep_lambertian.support.files import load_arrays, part, save_arrays
from deep_lambertian.support.resampling import enlarge_cubic
from deep_lambertian.surface import Surface, as_field, as_picture, illuminate, render, shading

HEIGHTS = (96, 192, 288, 384, 576, 768)  # of the refined surface
LEAST_SHADING = 0.15  # of the light: what was darker is not brightened further, being mostly noise
FORMAT = "deep_lambertian photo result"
ALBEDO_STD = 0.15  # how far the albedo of a photo's pixel may be from that of the model's pixel around it
NORMALS_STD = 0.1  # the same for each component of its normal: six degrees
NOISE_VAR = 1e-3
UNLIT, UNEXPLAINED = 0.01, 0.1  # predictions below which a pixel is in shadow, and residuals that halve its weight
STIFFNESS = 100.0
ROUNDS = 12
AT_ONCE = 4096  # pixels that are refined together
MUCH = 0.05  # of the object that is white: worth a word


@dataclass(frozen=True)
class Result:
    """`posterior` at the model's size; `scaled_normals` a·n and `colour`, both (h, w, 3), at the photo's own size, and
    in the exposure of the first: under the light that was found the surface is as bright as it is there.

    `colour` is what each channel has of the luminance. `notes` say in sentences what was assumed.
    """

    posterior: Posterior
    photos: tuple[Photo, ...]
    scaled_normals: np.ndarray
    colour: np.ndarray
    srgb: bool
    notes: tuple[str, ...]

    @cached_property
    def _length(self) -> np.ndarray:
        """|a·n| (h, w): the albedo of the luminance."""
        return np.linalg.norm(self.scaled_normals, axis=-1)

    @cached_property
    def normals(self) -> np.ndarray:
        """Unit normals (h, w, 3)."""
        return self.scaled_normals / np.maximum(self._length, 1e-9)[..., None]

    @property
    def albedo(self) -> np.ndarray:
        """Colour albedo (h, w, 3)."""
        return self.colour * self._length[..., None]

    def relight(self, light: ArrayLike, ambient: float = 0.0) -> np.ndarray:
        """The object alone in linear colour (h, w, 3) under another light (3,), with some light from all around."""
        light = np.asarray(light, np.float32)
        if light.shape != (3,) or not np.all(np.isfinite(light)):
            raise ValueError(f"light: expected three finite numbers, got {light.tolist()}")
        shading = illuminate(self.scaled_normals, light)
        if ambient:
            shading = shading + ambient * self._length
        return self.colour * shading[..., None]

    def relight_photo(self, light: ArrayLike, number: int = 0, ambient: float = 0.0) -> np.ndarray:
        """The whole photo (H, W, 3) with the object in it under another light.

        Each pixel is multiplied by the new shading over the old: the photo's own colours and detail stay.
        """
        where, part = self.relight_part(light, number, ambient)
        picture = np.clip(self.photos[number].colour, 0, 1)
        picture[where] = part
        return picture

    def relight_part(
        self, light: ArrayLike, number: int = 0, ambient: float = 0.0
    ) -> tuple[tuple[slice, slice], np.ndarray]:
        """The same, for the part of the photo alone that is not left as it is: rows and columns, and their colours.

        What is brighter than its shading explains stays: under the light that was found, the photo is as it was.
        """
        photo = self.photos[number]
        shading = illuminate(self.normals, self.posterior.lights[number])
        least = LEAST_SHADING * float(np.linalg.norm(self.posterior.lights[number]))
        new = self.relight(light, ambient) @ LUMINANCE / np.maximum(self._length, 1e-6)
        gain = 1 + (new - shading) / np.maximum(shading, least)
        reach = photo.reach
        return reach.where, np.clip(photo.colour[reach.where] * reach.spread(gain)[..., None], 0, 1)

    def as_bright(self, toward: ArrayLike, number: int = 0, ambient: float = 0.0) -> float:
        """How strong a light from a direction, with `ambient` as a part of it, leaves the object as bright as it is."""
        light = self.posterior.lights[number]
        return float(np.mean(self.relight(light) @ LUMINANCE) / np.mean(self.relight(toward, ambient) @ LUMINANCE))

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs to one `.npz` file; photos are kept in 16 bits."""
        inner_header, inner = self.posterior.header_and_arrays()
        arrays = {f"posterior/{name}": value for name, value in inner.items()}
        arrays |= {"scaled_normals": self.scaled_normals.astype(np.float16), "colour": self.colour.astype(np.float16)}
        for number, photo in enumerate(self.photos):
            arrays[f"photo/{number}"] = np.round(np.clip(photo.colour, 0, 1) * 65535).astype(np.uint16)
            arrays[f"matrix/{number}"] = photo.alignment.matrix
        header = {
            "photos": [{"name": p.name, "exposure": p.exposure, "score": p.alignment.score} for p in self.photos],
            "srgb": self.srgb,
            "notes": list(self.notes),
            "posterior": inner_header,
        }
        save_arrays(path, FORMAT, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read what `save` wrote: the file, or the folder that holds it as `result.npz`. Nothing in it is executed."""
        path = Path(path)
        file = path / "result.npz" if path.is_dir() else path
        if not file.is_file():
            raise ValueError(f"{path}: expected the result of dln infer, a folder with result.npz, found nothing there")
        header, arrays = load_arrays(file, FORMAT)
        try:
            photos = []
            for i, each in enumerate(header["photos"]):
                colour, frame = arrays[f"photo/{i}"], Alignment(arrays[f"matrix/{i}"], float(each["score"]))
                photos.append(Photo(each["name"], colour.astype(np.float32) / 65535, frame, float(each["exposure"])))
            posterior = Posterior.restore(header["posterior"], part(arrays, "posterior/"))
            scaled, colour = (arrays[name].astype(np.float32) for name in ("scaled_normals", "colour"))
            shapes = [each.shape[2:] for each in (scaled, colour, *(photo.colour for photo in photos))]
            if len(photos) != len(posterior.lights) or set(shapes) != {(3,)} or scaled.shape != colour.shape:
                raise ValueError(f"{len(photos)} photos and surfaces of shape {scaled.shape} and {colour.shape}")
            return cls(posterior, tuple(photos), scaled, colour, header["srgb"], tuple(header["notes"]))
        except DAMAGE as error:
            raise ValueError(f"{file}: expected a result that dln infer wrote, got something else ({error})") from error


def infer_photos(
    model: DLN,
    pictures: Sequence[tuple[str, np.ndarray]],
    *,
    lights: ArrayLike | None = None,
    mask: np.ndarray | None = None,
    placement: Placement | None = None,
    srgb: bool = True,
    sampler: Sampler | str | None = None,
    seed: int = 0,
) -> Result:
    """Albedo, normals and light of the thing that one photo shows, or several of one size, in colour (H, W, 3).

    `mask` (H, W) says which pixels of the photos count, `placement` how the thing is found in them, `sampler` how to
    sample, as a `Sampler` or the name of a preset.
    """
    photos, how = prepare_photos(pictures, model, placement, alike=lights is not None)
    post = infer_prepared(model, photos, lights=lights, mask=mask, sampler=sampler, seed=seed)
    return refine_photos(post, photos, how, mask=mask, srgb=srgb)


def infer_prepared(
    model: DLN,
    photos: Sequence[Photo],
    *,
    lights: ArrayLike | None = None,
    mask: np.ndarray | None = None,
    sampler: Sampler | str | None = None,
    seed: int = 0,
) -> Posterior:
    """The posterior, at the model's size, of what photos show whose frames have been found."""
    crops = np.stack([p.exposure * p.alignment.crop(p.grey, model.shape) for p in photos]).astype(np.float32)
    seen = np.stack([photo.seen(model.shape, mask) for photo in photos])
    if mask is not None and not seen.max() > 0.5:
        raise ValueError("mask: expected some of the object to be white, got a mask that hides all of it")
    return model.infer(crops, lights, seen, seed=seed, sampler=sampler)


def refine_photos(
    post: Posterior,
    photos: Sequence[Photo],
    how: str,
    *,
    mask: np.ndarray | None = None,
    srgb: bool = True,
    most: int = HEIGHTS[-1],
) -> Result:
    """The surface in colour at the photos' own size, of at most so many rows; `how` says how the thing was found."""
    size = detail_size(photos[0].alignment, most)
    crops = [photo.crop(size) for photo in photos]
    fine = np.stack([p.exposure * luminance(crop) for p, crop in zip(photos, crops, strict=True)])
    seen = np.stack([photo.seen(size, mask) for photo in photos])
    albedo, normals = refine(post, fine.astype(np.float32), seen)
    whole = seen if mask is None else [photo.seen(size) for photo in photos]
    white = {photo.name: 1 - float(np.mean(each)) for photo, each in zip(photos, whole, strict=True)}
    notes = (
        *post.notes,
        *(
            f"{name}: {part:.0%} of the object is white, and was left out."
            for name, part in white.items()
            if part > MUCH
        ),
        f"The numbers of the photos were taken to be {'sRGB, and made linear' if srgb else 'linear light'}.",
        how,
        "Brightness was matched to the model's: " + ", ".join(f"{p.name} × {p.exposure:.2f}" for p in photos) + ".",
    )
    scaled = (albedo[..., None] * normals / photos[0].exposure).astype(np.float32)
    return Result(post, tuple(photos), scaled, chroma(crops), srgb, notes)


def detail_size(alignment: Alignment, most: int = HEIGHTS[-1]) -> tuple[int, int]:
    """Rows and columns of the refined surface: those of the frame in the photo, or a little more; at most so many."""
    height = min(next((h for h in HEIGHTS if h >= alignment.height), HEIGHTS[-1]), most)
    return height, max(8, round(height * alignment.aspect / 4) * 4)


def chroma(crops: Sequence[np.ndarray]) -> np.ndarray:
    """What each channel has of the luminance, (h, w, 3); dark pixels, whose colour is noise, tend to the mean."""
    total = np.sum(crops, axis=0, dtype=np.float64)
    grey = total @ LUMINANCE
    mean = total.mean(axis=(0, 1))
    mean = mean / max(float(mean @ LUMINANCE), 1e-9)
    little = 0.05 * max(float(grey.mean()), 1e-6)
    return ((total + little * mean) / (grey + little)[..., None]).astype(np.float32)


# ---- From the surface at the model's size to one at the photo's: the same conditionals, with that surface as the
# prior. A pixel of the model covers many of the photo. Each of those starts from what the model found there and may
# depart from it, its albedo by much and its normal by little, as far as the photo asks for it: the modes of
# conditionals 2 and 4 in turn, with the lights as they were found. What lies in shadow in every photo stays as it is.


def refine(
    post: Posterior, images: np.ndarray, weights: np.ndarray | None = None, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    """Albedo (h, w) and normals (h, w, 3) that explain images (P, h, w), of the brightness that the model saw."""
    shape, count = images.shape[1:], len(images)
    albedo, normals = np.maximum(enlarge_cubic(post.albedo, shape), 1e-3), enlarge_cubic(post.normals, shape)
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-6)
    seen = np.ones_like(images) if weights is None else np.broadcast_to(weights, images.shape)
    start = Surface.from_pictures(albedo, normals)
    flat = [each.reshape(count, -1) for each in (images, seen)]
    rows = np.concatenate([*flat, start.albedo[None], start.normals]).astype(np.float32)
    pixels = rows.shape[1]
    rows = np.pad(rows, ((0, 0), (0, -pixels % AT_ONCE)), mode="edge")
    modes, lights = refinement(count), np.asarray(post.lights, np.float32)
    parts = [
        modes(Observation(part[:count], part[count:-4]), lights, Surface(part[-4], part[-3:]), rounds)
        for part in np.split(rows, rows.shape[1] // AT_ONCE, axis=1)
    ]
    found = (np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("albedo", "normals"))
    albedo, normals = (each[..., :pixels] for each in found)
    return as_picture(albedo, shape), as_field(normals, shape)


def refinement(images: int) -> compiled.Program:
    """The program of `refine` for so many images. Each pixel is by itself: so many at once stay in a core's cache,
    which takes a third of the time, and one program is for photos of all sizes.
    """
    sizes = (images, AT_ONCE), (images, AT_ONCE), (images, 3), (AT_ONCE,), (3, AT_ONCE)
    pictures, weights, lights, albedo, normals = (jax.ShapeDtypeStruct(size, np.float32) for size in sizes)
    return compiled.program(_modes, Observation(pictures, weights), lights, Surface(albedo, normals), 0, quick=True)


def _modes(data: Observation, lights: jax.Array, centre: Surface, rounds: jax.Array) -> Surface:
    """The most likely albedo and unit normals about their prior means, one after the other."""
    noise_var = jnp.full_like(centre.albedo, NOISE_VAR)
    albedo_var = jnp.full_like(centre.albedo, ALBEDO_STD**2)
    normals_var = jnp.full_like(centre.normals, NORMALS_STD**2)

    def turn(_: jax.Array, surface: Surface) -> Surface:
        predicted = render(surface, lights)  # what is dark though lit is mostly a pupil or a brow here: paint
        trust = jnp.where(predicted > UNLIT, data.weights, 0.0)
        trust = trust / (1 + ((data.images - predicted) / UNEXPLAINED) ** 2)
        s = shading(surface.normals, lights)
        albedo, _ = albedo_conditional(data.images, trust, s, noise_var, centre.albedo, albedo_var)
        albedo = jnp.maximum(albedo, 1e-3)
        believed = Observation(data.images, trust)
        target = normals_conditional(believed, albedo, lights, noise_var, centre.normals, normals_var)
        return Surface(albedo, _newton(target, surface.normals))

    found = jax.lax.fori_loop(0, rounds, turn, centre)
    return Surface(found.albedo, found.normals / jnp.sqrt(jnp.sum(found.normals**2, axis=0, keepdims=True)))


def _newton(target: NormalsQuadratic, normals: jax.Array) -> jax.Array:
    """A step towards the mode of E(n) = ½ nᵀAn − bᵀn + η/2 (nᵀn − 1)² (conditional 4), for all pixels.

    Of the norm term's curvature only the part along n is taken, which is never negative.
    """
    x, y, z = normals
    a = target.quadratic
    product = jnp.stack([a[i] * x + a[j] * y + a[k] * z for i, j, k in ((0, 1, 2), (1, 3, 4), (2, 4, 5))])
    excess = x * x + y * y + z * z - 1
    gradient = product - target.linear + 2 * STIFFNESS * excess[None] * normals
    along = 4 * STIFFNESS * jnp.stack([x * x, x * y, x * z, y * y, y * z, z * z])
    factor = cholesky3((a + along).T)
    return normals - solve_lower_t(factor, solve_lower(factor, gradient.T)).T
