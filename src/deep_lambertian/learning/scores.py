"""What an RBM has learned, in numbers: of samples, and of the model's own chains."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deep_lambertian.priors.rbm import RBM

Monitors = dict[str, Any]

DEAD, SATURATED = 0.01, 0.99  # mean activation below or above which a hidden unit says nothing
PROBES = 16  # elements of a binary vector that its pseudo-likelihood looks at


def all_scores(
    rbm: RBM, train: Float[Array, "N V"], held_out: Float[Array, "M V"] | None, chains: Float[Array, "C H"]
) -> Monitors:
    """Scores on samples of the training data and held-out ones, and of the model's own chains of hidden states.

    `reconstruction` is in units of the spread; `sample_mean_error` the distance of the mean of the model's own samples
    from the data's, which shows what reconstructions do not; `dead` and `saturated` the shares of hidden units that are
    nearly always off or on. `free_energy_gap`, F(held-out) − F(train), grows when learning by heart sets in.
    """
    activation = jnp.mean(jax.vmap(rbm.mean_hidden)(train), axis=0)
    samples = jnp.mean(jax.vmap(rbm.mean_visible)(chains), axis=0)
    scores = {
        "reconstruction": reconstruction(rbm, train),
        "sample_mean_error": jnp.sqrt(jnp.mean((samples - jnp.mean(train, axis=0)) ** 2)),
        "dead": jnp.mean(activation < DEAD),
        "saturated": jnp.mean(activation > SATURATED),
        "score": held_out_score(rbm, train),
        **rbm.figures(),
    }
    if held_out is None:
        return scores
    gap = jnp.mean(jax.vmap(rbm.free_energy)(held_out)) - jnp.mean(jax.vmap(rbm.free_energy)(train))
    return scores | {
        "held_out_reconstruction": reconstruction(rbm, held_out),
        "held_out_score": held_out_score(rbm, held_out),
        "free_energy_gap": gap,
    }


def reconstruction(rbm: RBM, visible: Float[Array, "N V"]) -> Float[Array, ""]:
    """The mean squared error of one mean-field pass up and down."""
    return jnp.mean((visible - jax.vmap(lambda v: rbm.mean_visible(rbm.mean_hidden(v)))(visible)) ** 2)


def held_out_score(rbm: RBM, visible: Float[Array, "N V"]) -> Float[Array, ""]:
    """How badly the RBM's density fits samples, per element: less is better, and nothing beats the true density.

    Hyvärinen's score for Gaussian visibles, minus the pseudo-log-likelihood for binary ones: both need neither the
    normaliser nor samples. Neither the free energy, known up to a constant that moves while learning, nor the
    reconstruction error, of which a model of quite wrong density may be proud, can do that.
    """
    return jnp.mean(jax.vmap(rbm.scores)(visible, jnp.asarray(probes(*visible.shape))))


def probes(count: int, size: int) -> np.ndarray:
    """Which elements of each sample to look at, (N, K): every one has its turn, and the same ones in every epoch."""
    golden = np.arange(count * PROBES) * ((np.sqrt(5) - 1) / 2) % 1
    return (golden * size).astype(np.int32).reshape(count, PROBES)
