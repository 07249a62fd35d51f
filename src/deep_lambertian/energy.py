r"""The parameters and unknowns of a DLN, and its joint energy (Sec. 3.1, Eq. 3 to 8).

$$E_{DLN} = \frac12 \sum_{pi} w_{ip}\frac{(v_{ip} - a_i\, \mathbf n_i^\top\boldsymbol\ell_p)^2}{\sigma_{v_i}^2}
  + \frac12 \sum_p (\boldsymbol\ell_p - \boldsymbol\mu_\ell)^\top \boldsymbol\Lambda
    (\boldsymbol\ell_p - \boldsymbol\mu_\ell)
  + \frac\eta2 \sum_i (\mathbf n_i^\top \mathbf n_i - 1)^2 + E_{\mathrm{prior}}(\mathbf x, \mathbf h) \qquad (6)$$

with x = [a, vec(N)]. In the paper the prior is the sum of two Gaussian RBMs' energies (Eq. 7 and 8), over a and N; here
it is any `Prior`, and every pixel of every image counts by a weight w in [0, 1], which is 1 in the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deep_lambertian.priors.contract import Prior, check_array
from deep_lambertian.surface import Leaf, Surface, data_energy, render

DARK_MEAN = 0.04  # what pixels in shadow have on average, where nothing has been learned of them


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """What a DLN of V pixels has learned. `prior` is ONE prior over the surface: a `Product` of two as in the paper, or
    one whose hidden layer is shared.
    """

    prior: Prior
    noise_var: Leaf  # σ_v² (V,)
    light_mean: Leaf  # μ_ℓ (3,)
    light_precision: Leaf  # Λ (3, 3)
    norm_stiffness: Leaf  # η ()
    dark_mean: Leaf = field(default_factory=lambda: np.float32(DARK_MEAN))  # τ ()

    @property
    def pixels(self) -> int:
        return self.noise_var.shape[-1]

    def validate(self) -> None:
        """Refuse parameters that are no distribution; a message says what was got and what was expected."""
        check_array("noise_var", self.noise_var, (self.pixels,), positive=True)
        check_array("light_mean", self.light_mean, (3,))
        check_array("light_precision", self.light_precision, (3, 3))
        check_array("norm_stiffness", self.norm_stiffness, ())
        check_array("dark_mean", self.dark_mean, (), positive=True)
        found = np.asarray(self.light_precision)
        if not np.allclose(found, found.T, rtol=1e-4) or np.linalg.eigvalsh(found)[0] <= 0:
            raise ValueError(f"light_precision: expected a symmetric, positive definite matrix, got {found.tolist()}")
        if float(self.norm_stiffness) < 0:
            raise ValueError(f"norm_stiffness: expected at least 0, got {float(self.norm_stiffness):g}")
        self.prior.validate("prior")
        if self.prior.size != 4 * self.pixels:
            raise ValueError(
                f"prior: expected {4 * self.pixels} elements, albedo and three of the normal for each of "
                f"{self.pixels} pixels, got {self.prior.size}"
            )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """P images of one object and how much each of their pixels counts. `near` is a Gaussian that resembles the
    posterior of its surface (see `inference.whole_surface`), for blocks that go by one.
    """

    images: Leaf  # (P, V)
    weights: Leaf  # (P, V)
    near: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Where a chain stands: the unknowns, and what blocks hand from one sweep to the next.

    `weights` say how far each pixel of each image is believed: those of the data, but 0 where the block of shadows has
    found that it is not lit. `proportions` are the shares of each image that are lit, dark and neither. `step_size` and
    `acceptance` are HMC's at each pixel.
    """

    surface: Surface
    lights: Leaf  # (P, 3)
    hidden: Any
    weights: Leaf  # (P, V)
    proportions: Leaf  # (P, 3)
    step_size: Leaf  # (V,)
    acceptance: Leaf  # (V,)


# A block of a sweep draws one group of unknowns given all others: (key, params, data, state) -> state, pure, knowing
# nothing of the blocks beside it. `inference.sampler` lists them; a new light model or likelihood is one more.
Block = Callable[[jax.Array, Params, Observation, State], State]


def norm_energy(normals: Float[Array, "3 V"], norm_stiffness: Float[Array, ""]) -> Float[Array, ""]:
    """η/2 Σ_i (n_iᵀn_i − 1)², the soft constraint of Eq. 6."""
    return 0.5 * norm_stiffness * jnp.sum((jnp.sum(normals**2, axis=0) - 1) ** 2)


def light_energy(params: Params, lights: Float[Array, "P 3"]) -> Float[Array, ""]:
    """½ Σ_p (ℓ_p − μ_ℓ)ᵀ Λ (ℓ_p − μ_ℓ)."""
    offset = lights - params.light_mean[None]
    return 0.5 * jnp.sum((offset @ params.light_precision) * offset)


def joint_energy(
    params: Params, data: Observation, surface: Surface, lights: Float[Array, "P 3"], hidden: Any
) -> Float[Array, ""]:
    """E_DLN(V, a, N, L, g, h) of Eq. 6."""
    return (
        data_energy(data.images, render(surface, lights), data.weights, params.noise_var)
        + light_energy(params, lights)
        + norm_energy(surface.normals, params.norm_stiffness)
        + params.prior.energy(surface.pack(), hidden)
    )
