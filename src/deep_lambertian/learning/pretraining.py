"""Greedy learning of deep belief nets, layer by layer (Hinton, Osindero & Teh, 2006).

Each layer is learned by contrastive divergence from what the layer below makes of the data: the probabilities of its
hidden units. The albedo prior learns so from unlabelled faces before anything else (step 1 of Algorithm 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.learning import cd
from deep_lambertian.learning.cd_settings import CD
from deep_lambertian.learning.gradient import hidden_mean
from deep_lambertian.learning.seeds import seed_of
from deep_lambertian.learning.units import initial
from deep_lambertian.priors import DBN, GRBM, BinaryRBM
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
    *,
    layers: Sequence[Any] = (),
    sizes: Sequence[int] = (),
    below: int = 0,
    held_out: np.ndarray | None = None,
    resume: Stage | None = None,
    after_epoch: Callable[[Stage, dict[str, float]], None] | None = None,
    what: str = "",
) -> tuple[tuple[Any, ...], list[dict[str, float]]]:
    """Learn a net, lowest layer first, from rows (N, V): on from these `layers`, or anew with these `sizes`.

    The lowest layer is Gaussian, unless there are others `below` it. `after_epoch` is told how far it is after each
    epoch; with that as `resume`, learning goes on, and ends with the same bytes.
    """
    count = len(layers) or len(sizes)
    done, history = list(resume.done if resume else ()), []
    seen, unseen = jnp.asarray(rows), None if held_out is None else jnp.asarray(held_out)
    for layer in done:
        seen, unseen = _up(layer, seen, unseen)
    for depth in range(len(done), count):
        if resume is not None and depth == len(resume.done):
            state = resume.state
        else:
            state = start_layer(seen, config, seed, depth, below, layers[depth] if layers else sizes[depth])
        number = below + depth + 1
        label = f"{what}layer {number}"
        for _ in track(range(int(state.epoch), config.epochs), label):
            if cd.finished(state, config):
                break
            state, monitors = cd.epoch(state, seen, config, held_out=unseen)
            history.append({"layer": float(number), **cd.read(monitors)})
            if after_epoch is not None:
                after_epoch(Stage(tuple(done), state), history[-1])
        done.append(cd.parameters(state, best=config.patience is not None and unseen is not None))
        seen, unseen = _up(done[-1], seen, unseen)
    return tuple(done), history


def start_layer(rows: jax.Array, config: CD, seed: int, depth: int, below: int, layer: Any) -> cd.State:
    """The state before a layer's first epoch: that of a given RBM, or of one of small random weights and this size."""
    if isinstance(layer, int):
        key = draws.make_key(seed_of(seed, depth, "weights"))
        layer = initial(key, rows, layer, binary=below + depth > 0)
    return cd.start(layer, rows, config, draws.make_key(seed_of(seed, depth)))


def layers_of(net: DBN | GRBM) -> tuple[GRBM | BinaryRBM, ...]:
    return (net.base, *net.layers) if isinstance(net, DBN) else (net,)


@jax.jit
def go_up(layer: Any, rows: jax.Array) -> jax.Array:
    """What the layer above learns from."""
    return hidden_mean(layer, rows)


def _up(layer: Any, seen: jax.Array, unseen: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    return go_up(layer, seen), None if unseen is None else go_up(layer, unseen)
