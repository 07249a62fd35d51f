"""The paper's deep baseline: a two-layer DBN learned from images as they are, and a linear SVM on what it says."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.learning.pretraining import go_up, learn_net

HIDDEN = (1000, 1000)  # wide: of 500-200 units little is left of who it is (86 % error with seven images, not 48)


def learn_features(images: np.ndarray, hidden: tuple[int, ...] = HIDDEN, epochs: int = 30, seed: int = 0) -> Any:
    """A DBN's layers, learned greedily by contrastive divergence from training images (N, V) under all lights."""
    settings = CD(epochs=epochs, learning_rate=1e-2, variance_bounds=(0.05, 1.0))
    layers, _ = learn_net(np.asarray(images, np.float32), settings, seed, hidden)
    return layers


def features(layers: Any, images: np.ndarray) -> np.ndarray:
    """The top layer's activations (..., H) of images (..., V)."""
    rows = jnp.asarray(images.reshape(-1, images.shape[-1]), jnp.float32)
    for layer in layers:
        rows = go_up(layer, rows)
    return np.asarray(rows, np.float64).reshape(*images.shape[:-1], -1)


def svm_distances(gallery: np.ndarray, probes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Minus a linear SVM's one-against-all decision values (N, G), learned from features (G, k, H) of each person."""
    from sklearn.svm import LinearSVC

    people, count, size = gallery.shape
    machine = LinearSVC(C=1.0, max_iter=20_000, random_state=seed)
    machine.fit(gallery.reshape(-1, size), np.repeat(np.arange(people), count))
    decided = machine.decision_function(probes)
    if people == 2:  # one value for two classes
        decided = np.stack([-decided, decided], axis=1)
    return -decided
