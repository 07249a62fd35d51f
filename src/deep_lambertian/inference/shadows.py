r"""Conditional 5: which pixels are lit, given all else, a label for each pixel of each image.

With the max of the physical model dropped (Eq. 5), a pixel in shadow bends the normals to explain it. So a pixel is lit
(1), dark (2), or neither (3), such as a highlight, and only lit ones speak of the surface:

$$p(v_{ip} \mid z_{ip}) = \begin{cases}
  \mathcal N(v_{ip} \mid a_i\, \mathbf n_i^\top \boldsymbol\ell_p, \sigma_{v_i}^2) & z_{ip} = 1 \\
  \tau^{-1} \exp(-v_{ip} / \tau) & z_{ip} = 2 \\ 1 \ (0 \le v_{ip} \le 1) & z_{ip} = 3 \end{cases}
\qquad p(z_{ip} = k) = \pi_{pk}, \quad \boldsymbol\pi_p \sim \mathrm{Dirichlet}(17, 2, 1)$$

The labels of an image are drawn with the albedo integrated out, given those of the other images: as long as a pixel is
not lit its albedo wanders, and seldom comes back to where the pixel could be lit again. With $\hat a_i$ and $\tau_i^2$
the mean and the variance of conditional 2 without this image, what is lit is

$$p(v_{ip} \mid z_{ip} = 1) = \mathcal N(v_{ip} \mid s_{ip}\,\hat a_i,\ \sigma_{v_i}^2 + s_{ip}^2\, \tau_i^2)$$

The albedo has to be drawn next, before anything that depends on it.

Each image has proportions π of its own: light from the side leaves half a face dark. They are drawn given the labels,
$\boldsymbol\pi_p \mid z \sim \mathrm{Dirichlet}(17 + n_1, 2 + n_2, 1 + n_3)$.

A pixel of less than `unlit` is never lit. There the noise is as large as the signal: normals that turn away from the
light explain it as well as a shadow does, and would be bent to.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.support import draws
from deep_lambertian.surface import Surface, render, shading

LABELS = ("lit", "dark", "neither")


@dataclass(frozen=True)
class ShadowLabels:
    """The block: new labels, and new proportions. `prior` has the Dirichlet's whole numbers."""

    unlit: float = 0.05
    prior: tuple[int, int, int] = (17, 2, 1)

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        mean, variance = (Surface.unpack(x).albedo for x in params.prior.top_down(state.hidden))
        s = shading(state.surface.normals, state.lights)
        lit = state.weights / params.noise_var[None]
        believed = 1 / variance + jnp.sum(lit * s * s, axis=0), mean / variance + jnp.sum(lit * s * data.images, axis=0)

        def one(known: tuple[jax.Array, jax.Array], each: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
            """The labels of an image, and the precision of the albedo, and that times its mean, with them."""
            image, weights, lit, s, shares, noise = each
            precision, linear = known[0] - lit * s * s, known[1] - lit * s * image
            alone, predicted = Observation(image[None], weights[None]), (s * linear / precision)[None]
            logits = self.logits(params, alone, predicted, shares[None], spread=(s * s / precision)[None])
            label = jnp.argmax(logits[:, 0] + noise, axis=0)
            now = jnp.where(label == 0, weights, 0.0) / params.noise_var
            return (precision + now * s * s, linear + now * s * image), label

        noise = jnp.swapaxes(_gumbel(key, (len(LABELS), *s.shape)), 0, 1)
        images = data.images, data.weights, lit, s, state.proportions, noise
        return self._labelled(key, data, state, lax.scan(one, believed, images)[1])

    def given_albedo(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        """The block where the albedo is known."""
        logits = self.logits(params, data, render(state.surface, state.lights), state.proportions)
        return self._labelled(key, data, state, jnp.argmax(logits + _gumbel(key, logits.shape), axis=0))

    def _labelled(self, key: jax.Array, data: Observation, state: State, label: Int[Array, "P V"]) -> State:
        chosen = [(label == k).astype(data.images.dtype) for k in range(len(LABELS))]
        proportions = self.draw_proportions(key, data, chosen)
        return replace(state, weights=data.weights * chosen[0], proportions=proportions)

    def logits(
        self,
        params: Params,
        data: Observation,
        predicted: Float[Array, "P V"],
        proportions: Float[Array, "P 3"],
        *,
        spread: Float[Array, "P V"] | float = 0.0,
        temperature: Float[Array, ""] | float = 1.0,
    ) -> Float[Array, "3 P V"]:
        """Unnormalised log probabilities of the labels, what is lit being `predicted` with the variance `spread`;
        `temperature` multiplies its noise.
        """
        noise_var = params.noise_var[None] * temperature
        more = data.weights * spread / noise_var
        off = data.weights * (data.images - predicted) ** 2 / (noise_var * (1 + more))
        lit = -0.5 * (off + jnp.log1p(more) + data.weights * jnp.log(2 * jnp.pi * noise_var))
        dark = -data.weights * (data.images / params.dark_mean + jnp.log(params.dark_mean))
        unlit, below, above = data.images < self.unlit, data.images < 0, data.images > 1
        # What noise has taken below 0 is dark where it cannot be lit: something it has to be.
        impossible = jnp.stack([unlit, below & ~unlit, below | above]) & (data.weights > 0)[None]
        likelihood = jnp.stack([lit, dark, jnp.zeros_like(dark)])
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


def _gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The largest of logits, each with such noise, is a draw from them."""
    return -jnp.log(draws.exponential(draws.bits(key, shape)))
