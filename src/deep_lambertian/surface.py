r"""A surface, the layouts it is seen in, and how it looks under a light (Sec. 3, Eq. 5).

$$v_{ip} \sim \mathcal N\bigl(a_i\, \mathbf n_i^\top \boldsymbol\ell_p,\ \sigma_{v_i}^2\bigr)$$

Inside the package normals lie by components, (3, V), the transpose of the paper's N: x, y and z of all pixels stay
together in memory, as in vec(N), and a surface packs and unpacks for nothing. Users see pictures, (H, W) and (H, W, 3).
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

Leaf: TypeAlias = Any  # of a tree: an array of JAX or NumPy, or whatever JAX puts in its place: tracers, shapes, axes
Shape = tuple[int, int]
STEEP = 0.2  # of a normal's length towards the viewer: what is steeper counts as this steep
Images = Float[Array, "P V"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Surface:
    """Albedo a and normals N of every pixel. Axes before the last ones are batches, in every view."""

    albedo: Leaf  # (..., V)
    normals: Leaf  # (..., 3, V)

    @classmethod
    def unpack(cls, packed: Any) -> "Surface":
        """The surface of a packed vector x = [a, vec(N)] (..., 4V)."""
        rows = packed.reshape(*packed.shape[:-1], 4, -1)
        return cls(rows[..., 0, :], rows[..., 1:, :])

    def pack(self) -> Any:
        """x = [a, vec(N)] (..., 4V), which priors speak of."""
        joined = self.albedo.__array_namespace__().concatenate([self.albedo[..., None, :], self.normals], axis=-2)
        return joined.reshape(*joined.shape[:-2], -1)

    @classmethod
    def from_pictures(cls, albedo: ArrayLike, normals: ArrayLike) -> "Surface":
        """From albedo (..., H, W) and normals (..., H, W, 3), as NumPy arrays of single precision."""
        albedo, normals = np.asarray(albedo, np.float32), np.asarray(normals, np.float32)
        if albedo.ndim < 2 or normals.shape != (*albedo.shape, 3):
            got = f"shapes {albedo.shape} and {normals.shape}"
            raise ValueError(f"surface: expected albedo (H, W) and normals (H, W, 3), got {got}")
        batch = albedo.shape[:-2]
        return cls(albedo.reshape(*batch, -1), np.moveaxis(normals, -1, -3).reshape(*batch, 3, -1))

    def pictures(self, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        """Albedo (..., H, W) and normals (..., H, W, 3): what users see."""
        return as_picture(self.albedo, shape), as_field(self.normals, shape)

    @property
    def scaled_normals(self) -> Any:
        """m_i = a_i n_i (..., 3, V)."""
        return self.albedo[..., None, :] * self.normals


def as_picture(values: Any, shape: Shape) -> np.ndarray:
    """(..., V) to (..., H, W)."""
    return np.ascontiguousarray(np.asarray(values).reshape(*values.shape[:-1], *shape), np.float32)


def as_field(values: Any, shape: Shape) -> np.ndarray:
    """(..., 3, V) to (..., H, W, 3)."""
    return np.ascontiguousarray(np.moveaxis(as_picture(values, shape), -3, -1))


def on_sphere(normals: Float[Array, "3 V"]) -> Float[Array, "3 V"]:
    """Normals of unit length; one of no length faces the viewer."""
    length = jnp.sqrt(jnp.sum(normals * normals, axis=0, keepdims=True))
    ahead = jnp.broadcast_to(jnp.array([[0.0], [0.0], [1.0]]), normals.shape)
    return jnp.where(length > 1e-6, normals / jnp.maximum(length, 1e-6), ahead)


# ---- Under lights


def shading(normals: Float[Array, "3 V"], lights: Float[Array, "P 3"]) -> Images:
    """s_ip = n_i·ℓ_p, negative where a surface turns away from the light."""
    return lights @ normals


def render(surface: Surface, lights: Float[Array, "P 3"]) -> Images:
    """The mean of Eq. 5, noise-free images without the max of the physical model, which the paper drops."""
    return surface.albedo[None] * shading(surface.normals, lights)


def illuminate(scaled_normals: np.ndarray, light: ArrayLike, *, shadows: bool = True) -> np.ndarray:
    """The image max(m_i·ℓ, 0) (...) of scaled normals (..., 3) under a light (3,), or images (P, ...) under (P, 3).

    This is the physical model, with its attached shadows: what is shown to people and compared with photos. Without
    `shadows` it is Eq. 5's.
    """
    light = np.asarray(light)
    image = scaled_normals @ light.T
    image = np.moveaxis(image, -1, 0) if light.ndim == 2 else image
    return np.maximum(image, 0) if shadows else image


def data_energy(images: Images, predicted: Images, weights: Images, noise_var: Float[Array, " V"]) -> Float[Array, ""]:
    """½ Σ_pi w_ip (v_ip − a_i n_i·ℓ_p)² / σ_vi², the first line of Eq. 6."""
    return 0.5 * jnp.sum(weights * (images - predicted) ** 2 / noise_var[None])


# ---- In space


def heights_of(normals: np.ndarray) -> np.ndarray:
    r"""Heights (H, W), in pixels, whose slopes come nearest to those of normals (H, W, 3) in least squares.

    $\nabla^2 z = \nabla\cdot(-n_x/n_z, -n_y/n_z)$ with free edges, which cosines solve (Frankot & Chellappa, 1988).
    """
    from scipy.fft import dctn, idctn

    towards = np.maximum(normals[..., 2], STEEP)
    right, down = -normals[..., 0] / towards, normals[..., 1] / towards  # rows go down, y goes up
    across, along = (right[:, 1:] + right[:, :-1]) / 2, (down[1:] + down[:-1]) / 2
    target = np.zeros(normals.shape[:2])
    target[:, 1:] += across
    target[:, :-1] -= across
    target[1:] += along
    target[:-1] -= along
    rows, columns = (2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in target.shape)
    waves = rows[:, None] + columns
    waves[0, 0] = 1.0  # the mean, which is 0
    return np.asarray(idctn(np.asarray(dctn(target, norm="ortho")) / waves, norm="ortho"), np.float32)
