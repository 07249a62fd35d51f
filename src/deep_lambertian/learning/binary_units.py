r"""Binary units beyond a Gaussian: learned by contrastive divergence in the space that the Gaussian has whitened.

In its main directions u, in units of the noise, a Gaussian of surfaces x has the coordinates
$t = \lambda^{-1/2} u^\top \sigma^{-1} (x - \mu)$, which it holds to be N(0, I), and to be independent of all the rest.
What is not Gaussian about surfaces shows there. A Gaussian RBM of t, whose variances are $s^2$ and whose visible biases
are b, makes of the Gaussian one whose eigenvalues are $s^2\lambda$ and whose mean is moved by b, with binary units of
weights $\sigma^{-1} u \lambda^{-1/2} W$: a `GaussianBinary`. What t leaves out stays as it was.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.learning.contrastive_divergence import CD, fit
from deep_lambertian.priors import DBN, GRBM, BinaryRBM, Gaussian, GaussianBinary
from deep_lambertian.support import draws
from deep_lambertian.support.settings import Count, Positive, Whole, check

LEAST = 1.05  # of an eigenvalue in units of the noise: the Gaussian keeps a little of its own in every direction
WHITENED = CD(150, 1000, 2, True, learning_rate=3e-3, weight_decay=0.0, variance_bounds=(0.2, 1.0))


@dataclass(frozen=True)
class BinaryUnits:
    """How many binary units there are, in how many main directions they see, how they are learned, and how large a
    layer of a deep belief net is above them, if there is one.

    Units start rarely on, with log-odds `bias` and weights N(0, `scale`²): a unit that is on for half of all surfaces
    says little but how wide they scatter, which the Gaussian knows; one that is rarely on is about tails. From much
    smaller weights they never begin. `variance` is where the directions' own variances start, the Gaussian's being 1.
    """

    units: Whole = 0
    above: Whole = 0
    directions: Count = 40
    bias: float = -3.0
    scale: Positive = 0.15
    variance: Positive = 0.7
    cd: CD = field(default_factory=lambda: WHITENED)

    def __post_init__(self) -> None:
        check(self, "binary.")


def main_directions(gaussian: Gaussian, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of most variance: their numbers among the factors, u (V, m) and λ (m,)."""
    scaled = np.asarray(gaussian.factors, np.float64) / np.sqrt(np.asarray(gaussian.variance, np.float64))[:, None]
    lengths = np.sum(scaled**2, axis=0)
    order = np.argsort(-lengths)[:count]
    return order, scaled[:, order] / np.sqrt(lengths[order]), 1 + lengths[order]


def learn_units(
    gaussian: Gaussian, rows: np.ndarray, options: BinaryUnits, seed: int, held_out: np.ndarray | None = None
) -> tuple[GaussianBinary | DBN, list[dict[str, float]]]:
    """Units that tell surfaces `rows` (N, V) from what the Gaussian draws, and the monitors of their learning."""
    order, directions, values = main_directions(gaussian, options.directions)
    mean, sigma = np.asarray(gaussian.mean, np.float64), np.sqrt(np.asarray(gaussian.variance, np.float64))[:, None]
    into = directions / sigma / np.sqrt(values)
    seen, unseen = (None if each is None else np.float32((each - mean) @ into) for each in (rows, held_out))
    key = draws.make_key(seed)
    start = GRBM(
        bias=jnp.zeros(len(values)),
        hidden_bias=jnp.full(options.units, options.bias),
        weights=options.scale * draws.normal(key, (len(values), options.units)),
        variance=jnp.full(len(values), options.variance),
    )
    assert seen is not None
    found, history = fit(start, seen, options.cd, draws.fold_in(key, 1), held_out=unseen)
    bias, weights = (np.asarray(x, np.float64) for x in (found.bias, found.weights))
    factors = np.array(gaussian.factors, np.float64)
    factors[:, order] *= np.sqrt((np.maximum(np.asarray(found.variance) * values, LEAST) - 1) / (values - 1))
    mean = mean + (directions * sigma * np.sqrt(values)) @ bias
    base = Gaussian(*(jnp.asarray(x, jnp.float32) for x in (mean, gaussian.variance, factors)))
    hidden_bias = np.asarray(found.hidden_bias, np.float64) + bias @ weights
    prior = GaussianBinary(base, *(jnp.asarray(x, jnp.float32) for x in (hidden_bias, into @ weights)))
    if not options.above:
        return prior, history
    on = jax.nn.sigmoid(jax.vmap(prior.hidden_logits)(jnp.asarray(rows, jnp.float32)))
    layer = BinaryRBM.of_data(draws.fold_in(key, 2), on, options.above)
    top, more = fit(layer, on, options.cd, draws.fold_in(key, 3))
    return DBN(prior, (top,)), history + more
