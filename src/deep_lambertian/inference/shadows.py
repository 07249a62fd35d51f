r"""Weights against shadows: how far each pixel of each image is believed.

With the max of the physical model dropped (Eq. 5), a pixel in shadow bends the normals to explain it. Before every
sweep pixels that are dark, in attached shadow or badly explained lose their weight:

$$w_{ip} \leftarrow w_{ip}\left(f + (1 - f)\, \frac{[v_{ip} > \text{dark}]\,[\hat v_{ip} > \text{unlit}]}{
  1 + ((v_{ip} - \hat v_{ip})/\text{scale})^2}\right), \qquad \hat v_{ip} = a_i\, \mathbf n_i^\top \boldsymbol\ell_p$$

This is no draw: weights follow the state, so that the chain has no one posterior that it samples.
"""

from dataclasses import dataclass, replace

import jax
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.surface import render


@dataclass(frozen=True)
class ShadowWeights:
    """The constants of the weights: `floor` is f."""

    dark: float = 0.05
    unlit: float = 0.01
    scale: float = 0.1
    floor: float = 0.01

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        """The block: new weights, from the state as it is."""
        return replace(state, weights=shadow_weights(self, data, render(state.surface, state.lights)))


def shadow_weights(options: ShadowWeights, data: Observation, predicted: Float[Array, "P V"]) -> Float[Array, "P V"]:
    """How far each pixel of each image is to be believed, times the weight it was given."""
    lit = (data.images > options.dark) & (predicted > options.unlit)
    trust = lit.astype(data.images.dtype) / (1 + ((data.images - predicted) / options.scale) ** 2)
    return data.weights * (options.floor + (1 - options.floor) * trust)
