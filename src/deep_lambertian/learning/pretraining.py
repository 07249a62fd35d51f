"""Steps 1 and 2 of Algorithm 1: greedy learning of deep belief nets, layer by layer (Hinton, Osindero & Teh, 2006).

Each layer is learned by contrastive divergence from what the layer below makes of the data: the probabilities of its
hidden units. The albedo prior learns so from unlabelled faces before anything else; every M-step does it too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from deep_lambertian.support.progress import track


@dataclass(frozen=True)
class Stage:
    """Where the learning of a net stands: the layers that are done, and the state of the one under way."""

    done: tuple[Any, ...]
    state: cd.State


def learn_net(
    rows: np.ndarray,
    config: CD,
    seed: int,
    layers: Sequence[RBM | int],
    *,
    held_out: np.ndarray | None = None,
    resume: Stage | None = None,
    after_epoch: Callable[[Stage, dict[str, float]], None] | None = None,
    what: str = "",
) -> tuple[tuple[Any, ...], list[dict[str, float]]]:
    """Learn a net, lowest layer first, from rows (N, V): each of the `layers` is an RBM to go on from, or a new size.

    `after_epoch` is told how far it is after each epoch; with that as `resume`, learning goes on, and ends with the
    same bytes. `what` is shown beside the layer's number as it is learned.
    """
    done, history = list(resume.done if resume else ()), []
    seen, unseen = jnp.asarray(rows), None if held_out is None else jnp.asarray(held_out)
    for layer in done:
        seen, unseen = _up(layer, seen, unseen)
    for depth in range(len(done), len(layers)):
        if resume is not None and depth == len(resume.done):
            state = resume.state
        else:
            state = start_layer(seen, config, seed, depth, layers[depth])
        for _ in track(range(int(state.epoch), config.epochs), f"{what}layer {depth + 1}"):
            if cd.finished(state, config):
                break
            state, monitors = cd.epoch(state, seen, config, held_out=unseen)
            history.append({"layer": depth + 1.0, **cd.read(monitors)})
            if after_epoch is not None:
                after_epoch(Stage(tuple(done), state), history[-1])
        done.append(cd.parameters(state, best=config.patience is not None and unseen is not None))
        seen, unseen = _up(done[-1], seen, unseen)
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


def _up(layer: RBM, seen: jax.Array, unseen: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    return go_up(layer, seen), None if unseen is None else go_up(layer, unseen)
