r"""Conditional 1: the hidden variables of the prior, given the surface.

$$p(\mathbf g, \mathbf h \mid \mathbf a, \mathbf N) \quad\text{e.g. of a Gaussian RBM}\quad
  p(h_j = 1 \mid \mathbf x) = \frac{1}{1 + \exp(-\sum_i W_{ij} x_i - c_j)} \qquad (1)$$

Which distribution it is, is the prior's own affair: images and lights say nothing that the surface does not.
"""

from dataclasses import replace

import jax

from deep_lambertian.energy import Observation, Params, State


def draw_hidden(key: jax.Array, params: Params, data: Observation, state: State) -> State:
    """Draw the hidden variables."""
    return replace(state, hidden=params.prior.sample_hidden(key, state.surface.pack()))


def mean_hidden(key: jax.Array, params: Params, data: Observation, state: State) -> State:
    """Their means in place of draws, for mean-field sweeps."""
    return replace(state, hidden=params.prior.mean_hidden(state.surface.pack()))
