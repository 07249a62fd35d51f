r"""Conditional 5: which pixels are lit, given all else, a label for each pixel of each image.

With the max of the physical model dropped (Eq. 5), a pixel in shadow bends the normals to explain it. So a pixel is lit
(1), dark (2), or neither (3), such as a highlight, and only lit ones speak of the surface:

$$p(v_{ip} \mid z_{ip}) = \begin{cases}
  \mathcal N(v_{ip} \mid a_i\, \mathbf n_i^\top \boldsymbol\ell_p, \sigma_{v_i}^2) & z_{ip} = 1 \\
  \tau^{-1} \exp(-v_{ip} / \tau) & z_{ip} = 2 \\ 1 \ (0 \le v_{ip} \le 1) & z_{ip} = 3 \end{cases}
\qquad p(z_{ip} = k) = \pi_{pk}, \quad \boldsymbol\pi_p \sim \mathrm{Dirichlet}(17, 2, 1)$$

Each image has proportions π of its own: light from the side leaves half a face dark. They are drawn given the labels,
$\boldsymbol\pi_p \mid z \sim \mathrm{Dirichlet}(17 + n_1, 2 + n_2, 1 + n_3)$.

A pixel of less than `unlit` is never lit. There the noise is as large as the signal: normals that turn away from the
light explain it as well as a shadow does, and would be bent to.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.support import draws
from deep_lambertian.surface import render

LABELS = ("lit", "dark", "neither")


@dataclass(frozen=True)
class ShadowLabels:
    """The block: new labels, and new proportions. `prior` has the Dirichlet's whole numbers."""

    unlit: float = 0.05
    prior: tuple[int, int, int] = (17, 2, 1)

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        logits = self.logits(params, data, render(state.surface, state.lights), state.proportions)
        # The largest of the logits, each with Gumbel noise, is a draw from them.
        noise = -jnp.log(draws.exponential(draws.bits(key, logits.shape)))
        label = jnp.argmax(logits + noise, axis=0)
        chosen = [(label == k).astype(data.images.dtype) for k in range(len(LABELS))]
        proportions = self.draw_proportions(key, data, chosen)
        return replace(state, weights=data.weights * chosen[0], proportions=proportions)

    def logits(
        self,
        params: Params,
        data: Observation,
        predicted: Float[Array, "P V"],
        proportions: Float[Array, "P 3"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> Float[Array, "3 P V"]:
        """Unnormalised log probabilities of the labels; `temperature` multiplies the noise of what is lit."""
        noise_var = params.noise_var[None] * temperature
        lit = -0.5 * ((data.images - predicted) ** 2 / noise_var + jnp.log(2 * jnp.pi * noise_var))
        dark = -data.images / params.dark_mean - jnp.log(params.dark_mean)
        likelihood = data.weights[None] * jnp.stack([lit, dark, jnp.zeros_like(dark)])
        unlit, below, above = data.images < self.unlit, data.images < 0, data.images > 1
        # What noise has taken below 0 is dark where it cannot be lit: something it has to be.
        impossible = jnp.stack([unlit, below & ~unlit, below | above]) & (data.weights > 0)[None]
        return jnp.where(impossible, -jnp.inf, likelihood + jnp.log(proportions).T[:, :, None])

    def draw_proportions(
        self, key: jax.Array, data: Observation, chosen: list[Float[Array, "P V"]]
    ) -> Float[Array, "P 3"]:
        """A gamma number of whole shape n is the sum of n exponential ones: of the pixels, and of the prior."""
        images, pixels = data.images.shape
        count = sum(self.prior)
        rows = draws.exponential(draws.bits(key, (images, pixels + count), stream=1))
        counted = jnp.where(data.weights > 0, rows[:, :pixels], 0.0)
        ends = np.cumsum([pixels, *self.prior])
        gammas = [
            jnp.sum(counted * mine, axis=1) + jnp.sum(rows[:, ends[k] : ends[k + 1]], axis=1)
            for k, mine in enumerate(chosen)
        ]
        total = jnp.stack(gammas, axis=1)
        return jnp.maximum(total / jnp.sum(total, axis=1, keepdims=True), 1e-12)

    def expected(self, images: int) -> Float[Array, "P 3"]:
        """The proportions that are expected before anything is seen."""
        share = jnp.asarray(self.prior, jnp.float32) / sum(self.prior)
        return jnp.broadcast_to(share[None], (images, len(LABELS)))
