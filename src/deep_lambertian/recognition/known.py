r"""What recognition knows of people, or of objects, by one of three rules; and whether a probe is of any of them.

- `plain`, the paper's (Sec. 4.3): the distance to the span of the scaled normals' three columns;
- `shadow`: to the cone, in which what turns away from the light is dark; pixels are weighed by the model's noise, and
  those that are far off for one reason or another count no more than they should;
- `detail`: that, and how alike the photos themselves are in detail under the probe's light (`detail`).

All distances are parts of the probe's own: a brighter photo of the same scene is no surer.

Somebody has to be the nearest, known or not. What tells a stranger: even the nearest is far, and hardly any nearer
than the rest. The log-odds that the probe is of somebody known are linear in the logarithms of the nearest
one's distances, and in how far these are below the mean over all. The coefficients are learned from objects that were
left out of the prior, as if every second probe were of nobody known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import expit, softmax

from deep_lambertian.inference.posterior import Misfit
from deep_lambertian.recognition.detail import detail_terms, unlit
from deep_lambertian.recognition.distances import cone_distances, nearest, subspace_distances
from deep_lambertian.surface import Shape

Rule = Literal["detail", "shadow", "plain"]
RULES: tuple[Rule, ...] = ("detail", "shadow", "plain")
INDEPENDENT = 32  # residuals of an image are smooth: they tell about as much as so many that know nothing of each other
LEAST = 1e-6  # of an image's energy: a camera of 8 bits tells no smaller distance from none
SPLITS = 10  # of left-out objects into known ones and strangers


@dataclass(frozen=True)
class Known:
    """G people: scaled normals (G, V, 3) at `shape`, the photos (k, V) of each that they come from, and the noise."""

    scaled_normals: np.ndarray
    photos: Sequence[np.ndarray]
    shape: Shape
    noise_var: np.ndarray

    @cached_property
    def _prepared(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """What every probe needs: surfaces, precisions (V,), and the photos without their shading."""
        surfaces, precision = np.asarray(self.scaled_normals, np.float64), self._precision
        photos = (np.asarray(mine, np.float64) for mine in self.photos)
        return surfaces, precision, [unlit(mine, each, precision) for mine, each in zip(photos, surfaces, strict=True)]

    @property
    def _precision(self) -> np.ndarray:
        return 1 / np.asarray(self.noise_var, np.float64).reshape(-1)

    def terms(self, probes: np.ndarray) -> np.ndarray:
        """The three distances (3, N, G) of the rule `detail`; where there is one size of detail, it counts for both."""
        if not len(probes):
            return np.empty((3, 0, len(self.photos)))
        surfaces, precision, bare = self._prepared
        found = detail_terms(surfaces, bare, np.asarray(probes, np.float64), precision, self.shape)
        return np.maximum(found[[0, 1, -1]], LEAST)

    def distances(self, probes: np.ndarray, rule: Rule = "detail") -> np.ndarray:
        """Distances (N, G) of probes (N, V); by `detail`, the product of the three."""
        probes = np.asarray(probes, np.float64)
        if rule == "detail":
            return np.prod(self.terms(probes), axis=0)
        if rule == "shadow":
            found = cone_distances(self.scaled_normals, probes, np.asarray(self.noise_var))
        elif rule == "plain":
            own = np.maximum(np.sum(probes**2, axis=1), 1e-12)  # a black image is at no distance from any
            found = subspace_distances(self.scaled_normals, probes) / own[:, None]
        else:
            raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r}")
        return np.maximum(found, LEAST)

    def judged(
        self, probes: np.ndarray, rule: Rule = "detail", odds: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances (N, G) of probes (N, V), and the probabilities of all people; with `odds` what they lack to 1 is a
        stranger's. Of each probe there may be several croppings (N, K, V): for each person the nearest one counts.
        """
        probes = probes[:, None] if probes.ndim == 2 else probes
        count, ways, pixels = probes.shape
        flat = probes.reshape(-1, pixels)
        terms = self.terms(flat) if rule == "detail" or odds is not None else None
        every = np.prod(terms, axis=0) if terms is not None and rule == "detail" else self.distances(flat, rule)
        best = every.reshape(count, ways, -1).argmin(axis=1)[:, None]
        chosen = lambda table: np.take_along_axis(table.reshape(count, ways, -1), best, axis=1)[:, 0]
        distances = chosen(every)
        sure = probabilities(distances)
        if odds is not None and terms is not None:
            sure *= chance_known(odds, np.stack([chosen(term) for term in terms]))[:, None]
        return distances, sure


def log_likelihoods(distances: np.ndarray) -> np.ndarray:
    """Logarithms of d^(−ν/2), up to what all share."""
    return -0.5 * INDEPENDENT * np.log(distances)


def probabilities(distances: np.ndarray) -> np.ndarray:
    """Of each person (N, G), if it is one of them."""
    return softmax(log_likelihoods(distances), axis=1)


# ---- Strangers


def signs(terms: np.ndarray) -> np.ndarray:
    """What tells a stranger (N, 2T), of terms (T, N, G): the nearest one's, and how far they are below the mean."""
    logs = np.log(terms)
    chosen = nearest(np.sum(logs, axis=0))
    best = np.take_along_axis(logs, chosen[None, :, None], axis=2)[:, :, 0]
    return np.concatenate([best, best - logs.mean(axis=2)]).T


def chance_known(odds: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """The probability (N,) that a probe is of somebody known, by the coefficients `odds` (2T + 1,)."""
    return expit(signs(terms) @ np.asarray(odds[:-1], np.float64) + float(odds[-1]))


def odds_of(misfit: Misfit | None) -> np.ndarray | None:
    """The coefficients that a model has learned, if it has."""
    return None if misfit is None or not np.any(misfit.strangers) else np.asarray(misfit.strangers)


def learn_odds(terms: np.ndarray, people: np.ndarray, seed: int) -> np.ndarray:
    """The coefficients from terms (T, N, G) of probes of people (N,): a random half of them is known at a time.

    All are 0 where there are no probes to learn from.
    """
    from sklearn.linear_model import LogisticRegression

    rng, count = np.random.default_rng(seed), terms.shape[2]
    rows, known = [], []
    for _ in range(SPLITS):
        half = rng.permutation(count)[: count // 2]
        rows.append(signs(terms[:, :, half]))
        known.append(np.isin(people, half))
    if len(np.unique(np.concatenate(known))) < 2:
        return np.zeros(2 * len(terms) + 1, np.float32)
    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(np.concatenate(rows), np.concatenate(known))
    return np.concatenate([fitted.coef_[0], fitted.intercept_]).astype(np.float32)
