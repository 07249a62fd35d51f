r"""The Lambertian reflectance model and its likelihood (Sec. 3, Eq. 5).

$$v_{ip} \sim \mathcal N\bigl(a_i\, \mathbf n_i^\top \boldsymbol\ell_p,\ \sigma_{v_i}^2\bigr)$$

Shapes: `albedo` (V,), `normals` (3, V), `lights` (P, 3), `images` (P, V). Inside the package normals lie by components,
the transpose of the paper's N: x, y and z of all pixels stay together in memory, as in vec(N), and a surface packs and
unpacks for nothing. What a user sees is (H, W, 3).
"""

import jax
import jax.numpy as jnp


def pack(albedo: jax.Array, normals: jax.Array) -> jax.Array:
    """The surface x = [a, vec(N)] (4V,)."""
    return jnp.concatenate([albedo, normals.reshape(-1)])


def unpack(surface: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The albedo (V,) and normals (3, V) of a surface."""
    rows = surface.reshape(4, -1)
    return rows[0], rows[1:]


def shading(normals: jax.Array, lights: jax.Array) -> jax.Array:
    """s_ip = n_i·ℓ_p (P, V), negative where a surface turns away from the light."""
    return lights @ normals


def scale_normals(albedo: jax.Array, normals: jax.Array) -> jax.Array:
    """m_i = a_i n_i (3, V)."""
    return albedo[None] * normals


def render(albedo: jax.Array, normals: jax.Array, lights: jax.Array, *, shadows: bool = False) -> jax.Array:
    """Noise-free images (P, V). `shadows` keeps the max of the physical model, which Eq. 5 drops."""
    s = shading(normals, lights)
    return albedo[None] * (jnp.maximum(s, 0.0) if shadows else s)


def data_energy(images: jax.Array, predicted: jax.Array, weights: jax.Array, noise_var: jax.Array) -> jax.Array:
    """½ Σ_pi w_ip (v_ip − a_i n_i·ℓ_p)² / σ_vi², the first line of Eq. 6."""
    return 0.5 * jnp.sum(weights * (images - predicted) ** 2 / noise_var[None])


def log_likelihood(images: jax.Array, predicted: jax.Array, weights: jax.Array, noise_var: jax.Array) -> jax.Array:
    """log p(V | a, N, L) (Eq. 5), each pixel of each image counting by its weight."""
    log_norm = 0.5 * jnp.sum(weights * jnp.log(2 * jnp.pi * noise_var)[None])
    return -data_energy(images, predicted, weights, noise_var) - log_norm
