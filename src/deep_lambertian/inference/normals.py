r"""Conditional 4: the normals, given all else, each pixel by itself.

$$p(\mathbf n_i \mid \mathbf L, \mathbf a, \mathbf g, \mathbf V) \propto \exp(-E(\mathbf n_i)), \qquad
  E(\mathbf n_i) = \tfrac12 \mathbf n_i^\top A_i \mathbf n_i - \mathbf b_i^\top \mathbf n_i
  + \tfrac\eta2 (\mathbf n_i^\top \mathbf n_i - 1)^2,$$

$$A_i = \frac{a_i^2}{\sigma_{v_i}^2} \sum_p w_{ip}\, \boldsymbol\ell_p \boldsymbol\ell_p^\top + \mathbf D_i, \qquad
  \mathbf b_i = \frac{a_i}{\sigma_{v_i}^2} \sum_p w_{ip} v_{ip} \boldsymbol\ell_p + \mathbf D_i \boldsymbol\phi_i$$

with D the inverse variances, and φ the mean, that the prior's hidden variables predict. (The paper's text lacks the n_i
of the linear term.) The soft constraint on the length leaves no closed form: it is sampled by `hmc`.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params
from deep_lambertian.inference.hmc import NormalsQuadratic, hmc
from deep_lambertian.inference.small_matrices import TRIANGLE, outer_triangle
from deep_lambertian.inference.state import State
from deep_lambertian.surface import Surface


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
