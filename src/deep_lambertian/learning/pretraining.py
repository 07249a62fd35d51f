"""Steps 1 and 2 of Algorithm 1: greedy learning of deep belief nets, layer by layer (Hinton, Osindero & Teh, 2006).

Each layer is learned by contrastive divergence from what the layer below makes of the data: the probabilities of its
hidden units. The albedo prior learns so from unlabelled faces before anything else; every M-step does it too.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deep_lambertian.learning import contrastive_divergence as cd
from deep_lambertian.learning.config import seed_of
from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.priors import GRBM, BinaryRBM
from deep_lambertian.priors.rbm import RBM
from deep_lambertian.support import draws


def learn_net(
    rows: np.ndarray,
    config: CD,
    seed: int,
    layers: Sequence[RBM | int],
    *,
    held_out: np.ndarray | None = None,
    resume: tuple[Sequence[RBM], Sequence[np.ndarray]] | None = None,
    after_epoch: Callable[[Sequence[RBM], cd.State, dict[str, float]], None] | None = None,
    what: str = "",
) -> tuple[tuple[Any, ...], list[dict[str, float]]]:
    """Learn a net, lowest layer first, from rows (N, V): each of the `layers` is an RBM to go on from, or a new size.

    `after_epoch` is given the layers that are done, the state of the one under way, and its monitors. With these layers
    and the arrays of that state as `resume`, learning goes on, and ends with the same bytes. `what` is shown beside the
    layer's number as it is learned.
    """
    done, arrays = (list(resume[0]), resume[1]) if resume else ([], None)
    seen, unseen = jax.tree.map(jnp.asarray, (rows, held_out))  # of None, where nothing is held out, JAX makes None
    history = []
    for depth, layer in enumerate(layers):
        if depth == len(done):
            state = start_layer(seen, config, seed, depth, layer)
            if arrays is not None:
                state, arrays = jax.tree.unflatten(jax.tree.structure(state), map(jnp.asarray, arrays)), None
            for after, monitors in cd.epochs(state, seen, config, held_out=unseen, what=f"{what}layer {depth + 1}"):
                state = after
                history.append({"layer": depth + 1.0, **monitors})
                if after_epoch is not None:
                    after_epoch(done, state, history[-1])
            done.append(cd.parameters(state, best=config.patience is not None and unseen is not None))
        seen, unseen = jax.tree.map(partial(go_up, done[depth]), (seen, unseen))
    return tuple(done), history


def start_layer(rows: Float[Array, "N V"], config: CD, seed: int, depth: int, layer: RBM | int) -> cd.State:
    """The state before a layer's first epoch: that of a given RBM, or of one of small random weights and this size.

    The lowest layer is Gaussian.
    """
    if isinstance(layer, int):
        key = draws.make_key(seed_of(seed, depth, "weights"))
        layer = (BinaryRBM if depth else GRBM).of_data(key, rows, layer)
    return cd.start(layer, rows, config, draws.make_key(seed_of(seed, depth)))


@jax.jit
def go_up(layer: RBM, rows: Float[Array, "N V"]) -> Float[Array, "N H"]:
    """What the layer above learns from."""
    return jax.vmap(layer.mean_hidden)(rows)
