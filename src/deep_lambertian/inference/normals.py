r"""Conditional 4: the normals, given all else, each pixel by itself.

$$p(\mathbf n_i \mid \mathbf L, \mathbf a, \mathbf g, \mathbf V) \propto \exp(-E(\mathbf n_i)), \qquad
  E(\mathbf n_i) = \tfrac12 \mathbf n_i^\top A_i \mathbf n_i - \mathbf b_i^\top \mathbf n_i
  + \tfrac\eta2 (\mathbf n_i^\top \mathbf n_i - 1)^2,$$

$$A_i = \frac{a_i^2}{\sigma_{v_i}^2} \sum_p w_{ip}\, \boldsymbol\ell_p \boldsymbol\ell_p^\top + \mathbf D_i, \qquad
  \mathbf b_i = \frac{a_i}{\sigma_{v_i}^2} \sum_p w_{ip} v_{ip} \boldsymbol\ell_p + \mathbf D_i \boldsymbol\phi_i$$

with D the inverse variances, and φ the mean, that the prior's hidden variables predict. (The paper's text lacks the n_i
of the linear term.) The soft constraint on the length leaves no closed form: it is sampled by Hamiltonian Monte Carlo,
in which every pixel is a three-dimensional chain of its own.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.geometry import TRIANGLE, outer_triangle
from deep_lambertian.support.draws import exponential, gaussian, key_words, threefry
from deep_lambertian.surface import Surface

Vector = tuple[jax.Array, jax.Array, jax.Array]  # the three components, each (V,)


class NormalsQuadratic(NamedTuple):
    """The six distinct elements of A and the three of b, of every pixel.

    Components lie apart, in rows, so that the loop over pixels runs through contiguous memory.
    """

    quadratic: Float[Array, "6 V"]
    linear: Float[Array, "3 V"]


def normals_conditional(
    data: Observation,
    albedo: Float[Array, " V"],
    lights: Float[Array, "P 3"],
    noise_var: Float[Array, " V"],
    mean: Float[Array, "3 V"],
    variance: Float[Array, "3 V"],
) -> NormalsQuadratic:
    """E(n_i), all but its norm term, given the prior's top-down `mean` and `variance`."""
    per_noise = albedo / noise_var
    quadratic = (outer_triangle(lights.T) @ data.weights) * (albedo * per_noise)[None]
    linear = (lights.T @ (data.weights * data.images)) * per_noise[None] + mean / variance
    diagonal = jnp.array([k for k, (i, j) in enumerate(TRIANGLE) if i == j])
    return NormalsQuadratic(quadratic.at[diagonal].add(1 / variance), linear)


@dataclass(frozen=True)
class DrawNormals:
    """The block: in every sweep `epochs` trajectories of `leapfrogs` steps, with momenta of mass `mass`."""

    leapfrogs: int
    epochs: int
    mass: float

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        mean, variance = (Surface.unpack(x).normals for x in params.prior.top_down(state.hidden))
        believed, old = Observation(data.images, state.weights), state.surface
        target = normals_conditional(believed, old.albedo, state.lights, params.noise_var, mean, variance)
        normals, acceptance = hmc(key, target, params.norm_stiffness, state.step_size, old.normals, **vars(self))
        return replace(state, surface=replace(old, normals=normals), acceptance=acceptance)


# ---- HMC: the package's inner loop, written for the way XLA fuses on a CPU. A whole trajectory is one pass over the
# pixels whose values never leave the registers; `docs/performance.md` says what was measured, and what remains.


class Scaled(NamedTuple):
    """The target in units in which a drift is n += r and a kick r −= ∇E: r is velocity times step size.

    Energies are multiplied by step²/mass. The −1 of (nᵀn − 1)² goes into the diagonal of A. No division is left for
    the loop: XLA holds one for too dear to repeat, and would store every step of a trajectory in memory.
    """

    quadratic: tuple[jax.Array, ...]
    linear: Vector
    quartic: jax.Array


def rescale(target: NormalsQuadratic, norm_stiffness: jax.Array, unit: jax.Array) -> Scaled:
    """The target with its energies multiplied by `unit` (V,)."""
    quartic = 2 * norm_stiffness * unit
    a00, a01, a02, a11, a12, a22 = target.quadratic * unit[None]
    b0, b1, b2 = target.linear * unit[None]
    return Scaled((a00 - quartic, a01, a02, a11 - quartic, a12, a22 - quartic), (b0, b1, b2), quartic)


@jax.jit
def kick(target: Scaled, n: Vector, r: Vector) -> Vector:
    """r − ∇E(n). In this order each term is one fused multiply-add, and only the last of a row waits for s."""
    (a00, a01, a02, a11, a12, a22), (b0, b1, b2), quartic = target
    (x, y, z), (u, v, w) = n, r
    s = quartic * (x * x + y * y + z * z)
    u = u + b0 - a00 * x - a01 * y - a02 * z - s * x
    v = v + b1 - a01 * x - a11 * y - a12 * z - s * y
    w = w + b2 - a02 * x - a12 * y - a22 * z - s * z
    return u, v, w


@jax.jit
def half_kick(target: Scaled, n: Vector, r: Vector) -> Vector:
    (u, v, w), (p, q, t) = r, kick(target, n, r)
    return 0.5 * (u + p), 0.5 * (v + q), 0.5 * (w + t)


def trajectory(target: Scaled, n: Vector, r: Vector, leapfrogs: int) -> tuple[Vector, Vector]:
    """`leapfrogs` steps, written out so that XLA makes one loop over pixels of them all."""
    r = half_kick(target, n, r)
    for i in range(leapfrogs):
        n = n[0] + r[0], n[1] + r[1], n[2] + r[2]
        r = kick(target, n, r) if i < leapfrogs - 1 else half_kick(target, n, r)
    return n, r


@jax.jit
def hamiltonian(target: Scaled, n: Vector, r: Vector) -> jax.Array:
    """Potential (but for the constant η/2) and kinetic energy, in the target's units (V,)."""
    (a00, a01, a02, a11, a12, a22), (b0, b1, b2), quartic = target
    (x, y, z), (u, v, w) = n, r
    s = x * x + y * y + z * z
    return (
        x * (0.5 * a00 * x + a01 * y + a02 * z - b0)
        + y * (0.5 * a11 * y + a12 * z - b1)
        + z * (0.5 * a22 * z - b2)
        + 0.25 * quartic * s * s
        + 0.5 * (u * u + v * v + w * w)
    )


def potential(
    target: NormalsQuadratic, norm_stiffness: Float[Array, ""], normals: Float[Array, "3 V"]
) -> Float[Array, " V"]:
    """E(n_i) (V,) of normals (3, V), but for a constant."""
    x, y, z = normals
    scaled = rescale(target, norm_stiffness, jnp.ones_like(x))
    rest = jnp.zeros_like(x)
    return hamiltonian(scaled, (x, y, z), (rest, rest, rest))


# XLA on a CPU makes one loop over pixels for each OUTPUT array, and repeats in it all that the output needs: four
# outputs would run the leapfrogs four times. A complex number is the one element that holds two floats: hence two.


def _pack(x: jax.Array, y: jax.Array, z: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    return lax.complex(x, y), lax.complex(z, t)


def _unpack(packed: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    xy, zt = packed
    return xy.real, xy.imag, zt.real, zt.imag


def hmc(
    key: jax.Array,
    target: NormalsQuadratic,
    norm_stiffness: Float[Array, ""],
    step_size: Float[Array, " V"],
    normals: Float[Array, "3 V"],
    *,
    leapfrogs: int,
    epochs: int,
    mass: float,
) -> tuple[Float[Array, "3 V"], Float[Array, " V"]]:
    """`epochs` trajectories at every pixel, each accepted or not: normals (3, V) and the share accepted (V,).

    Momenta are drawn from N(0, mass·I); `step_size` is each pixel's own (V,). Within a transition the draws come from
    a counter, pixel by pixel and epoch by epoch.
    """
    unit = step_size * step_size / mass
    scaled = rescale(target, norm_stiffness, unit)
    spread = step_size / math.sqrt(mass)  # the standard deviation of r
    words = key_words(key)
    pixel = lax.iota(jnp.uint32, normals.shape[1])

    def draw(epoch: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Momenta, as r, and −log of the Metropolis uniform, of one epoch."""
        count = jnp.full_like(pixel, 2 * epoch.astype(jnp.uint32))
        w0, w1 = threefry(*words, pixel, count)
        w2, w3 = threefry(*words, pixel, count + jnp.uint32(1))
        return _pack(spread * gaussian(w0), spread * gaussian(w1), spread * gaussian(w2), unit * exponential(w3))

    def epoch(e: jax.Array, carry: tuple) -> tuple:
        state, drawn = carry
        x0, y0, z0, accepted = _unpack(state)
        u, v, w, slack = _unpack(drawn)
        before = hamiltonian(scaled, (x0, y0, z0), (u, v, w))
        (x, y, z), r = trajectory(scaled, (x0, y0, z0), (u, v, w), leapfrogs)
        accept = hamiltonian(scaled, (x, y, z), r) - before <= slack  # a NaN is a rejection
        x, y, z = jnp.where(accept, x, x0), jnp.where(accept, y, y0), jnp.where(accept, z, z0)
        state = _pack(x, y, z, accepted + accept.astype(accepted.dtype))
        # The NEXT epoch's draws travel in the carry, so that they are stored: drawn at the top they would be fused
        # into both loops over pixels, and repeated.
        return state, draw(e + 1)

    x, y, z = normals
    start = _pack(x, y, z, jnp.zeros_like(x)), draw(jnp.int32(0))
    state, _ = lax.fori_loop(jnp.int32(0), jnp.int32(epochs), epoch, start)
    x, y, z, accepted = _unpack(state)
    return jnp.stack([x, y, z]), accepted / epochs
