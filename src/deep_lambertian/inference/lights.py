r"""Conditional 3: the lights, given the surface, a Gaussian for each image.

$$p(\boldsymbol\ell_p \mid \mathbf N, \mathbf a, \mathbf V) = \mathcal N\Bigl(\boldsymbol\ell_p \,\Big|\,
  \tilde{\boldsymbol\Lambda}_p^{-1}\bigl(\boldsymbol\Lambda\boldsymbol\mu_\ell
  + \textstyle\sum_i w_{ip} \mathbf m_i v_{ip} / \sigma_{v_i}^2\bigr),\ \tilde{\boldsymbol\Lambda}_p^{-1}\Bigr),
  \qquad \tilde{\boldsymbol\Lambda}_p = \boldsymbol\Lambda
  + \sum_i \frac{w_{ip}\,\mathbf m_i \mathbf m_i^\top}{\sigma_{v_i}^2}, \quad \mathbf m_i = a_i \mathbf n_i$$

The paper's text has μ_ℓᵀΛ for Λμ_ℓ; the joint energy decides.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.geometry import TRIANGLE, cholesky3, outer_triangle, solve_lower, solve_lower_t
from deep_lambertian.support import draws


def light_conditional(
    params: Params, data: Observation, scaled_normals: Float[Array, "3 V"]
) -> tuple[Float[Array, "P 3"], Float[Array, "P 3 3"]]:
    """Mean of each ℓ_p, and the lower Cholesky factor of its precision."""
    prior = jnp.stack([params.light_precision[i, j] for i, j in TRIANGLE])
    per_noise = data.weights / params.noise_var[None]
    precision = prior[None] + per_noise @ outer_triangle(scaled_normals).T
    linear = (params.light_precision @ params.light_mean)[None] + (per_noise * data.images) @ scaled_normals.T
    factor = cholesky3(precision)
    return solve_lower_t(factor, solve_lower(factor, linear)), factor


def draw_lights(key: jax.Array, params: Params, data: Observation, state: State) -> State:
    """Draw the light of every image."""
    believed = Observation(data.images, state.weights)
    centre, factor = light_conditional(params, believed, state.surface.scaled_normals)
    return replace(state, lights=centre + solve_lower_t(factor, draws.normal(key, centre.shape)))
