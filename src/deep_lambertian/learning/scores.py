"""What an RBM has learned, in numbers: of samples, and of the model's own chains."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.learning.gradient import hidden_logits, hidden_mean, visible_mean
from deep_lambertian.priors.grbm import GRBM
from deep_lambertian.priors.rbm import BinaryRBM

Monitors = dict[str, Any]

DEAD, SATURATED = 0.01, 0.99  # mean activation below or above which a hidden unit says nothing
PROBES = 16  # elements of a binary vector that its pseudo-likelihood looks at


def seen_scores(rbm: GRBM | BinaryRBM, train: jax.Array, chains: jax.Array) -> Monitors:
    """Scores on samples (N, V) of the training data, and of the model's own chains (C, H) of hidden states.

    `reconstruction` is in units of the spread; `sample_mean_error` the distance of the mean of the model's own samples
    from the data's, which shows what reconstructions do not; `dead` and `saturated` the shares of hidden units that are
    nearly always off or on.
    """
    activation = jnp.mean(hidden_mean(rbm, train), axis=0)
    samples = jnp.mean(visible_mean(rbm, chains), axis=0)
    scores: Monitors = {
        "reconstruction": reconstruction(rbm, train),
        "sample_mean_error": jnp.sqrt(jnp.mean((samples - jnp.mean(train, axis=0)) ** 2)),
        "weight_size": jnp.mean(jnp.abs(rbm.weights)),
        "dead": jnp.mean(activation < DEAD),
        "saturated": jnp.mean(activation > SATURATED),
        "score": held_out_score(rbm, train),
    }
    if isinstance(rbm, GRBM):
        scores |= {"variance_low": jnp.min(rbm.variance), "variance_high": jnp.max(rbm.variance)}
    return scores


def unseen_scores(rbm: GRBM | BinaryRBM, train: jax.Array, held_out: jax.Array) -> Monitors:
    """Scores on held-out samples; `free_energy_gap`, F(held-out) − F(train), grows when learning by heart sets in."""
    gap = jnp.mean(free_energy(rbm, held_out)) - jnp.mean(free_energy(rbm, train))
    return {
        "held_out_reconstruction": reconstruction(rbm, held_out),
        "held_out_score": held_out_score(rbm, held_out),
        "free_energy_gap": gap,
    }


def free_energy(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    return jax.vmap(rbm.free_energy)(visible)


def reconstruction(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    """The mean squared error of one mean-field pass up and down."""
    return jnp.mean((visible - visible_mean(rbm, hidden_mean(rbm, visible))) ** 2)


def held_out_score(rbm: GRBM | BinaryRBM, visible: jax.Array) -> jax.Array:
    r"""How badly the RBM's density fits samples, per element: less is better, and nothing beats the true density.

    Both scores need neither the normaliser nor samples. Neither the free energy, known up to a constant that moves
    while learning, nor the reconstruction error, of which a model of quite wrong density may be proud, can do that.
    For Gaussian visibles it is Hyvärinen's (2005), $\frac12 g_i^2 + \partial g_i/\partial v_i$ with
    $g = \nabla_v \log p(v) = -(v - b)/\sigma^2 + W q$; for binary ones minus the pseudo-log-likelihood
    $\log p(v_i \mid v_{-i})$, of `PROBES` elements spread over each sample.
    """
    logits = hidden_logits(rbm, visible)
    if isinstance(rbm, GRBM):
        q = jax.nn.sigmoid(logits)
        slope = q @ rbm.weights.T - (visible - rbm.bias[None]) / rbm.variance[None]
        curvature = (q * (1 - q)) @ (rbm.weights.T) ** 2 - 1 / rbm.variance[None]
        return jnp.mean(0.5 * slope**2 + curvature)
    i = jnp.asarray(probes(*visible.shape))
    own = jnp.take_along_axis(visible, i, axis=1)  # (N, K)
    weights = rbm.weights[i]  # (N, K, H)
    off = logits[:, None] - own[..., None] * weights
    odds = rbm.bias[i] + jnp.sum(jax.nn.softplus(off + weights) - jax.nn.softplus(off), axis=2)
    return jnp.mean(jax.nn.softplus(odds) - own * odds)


def probes(count: int, size: int) -> np.ndarray:
    """Which elements of each sample to look at, (N, K): every one has its turn, and the same ones in every epoch."""
    golden = np.arange(count * PROBES) * ((np.sqrt(5) - 1) / 2) % 1
    return (golden * size).astype(np.int32).reshape(count, PROBES)
