"""What priors believe of surfaces that they have not seen, and how their samples look: the same surfaces teach all.

Densities are by annealed importance sampling (`priors.density`), in nats a pixel. Samples, without the noise of single
pixels as the paper shows them, are judged by a classifier that is to tell them from surfaces of people left out: the
area under its curve is 0.5 where it cannot.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from deep_lambertian.data import Dataset
from deep_lambertian.learning.augmentation import augment
from deep_lambertian.learning.binary_units import learn_units
from deep_lambertian.learning.config import Config, seed_of
from deep_lambertian.learning.covariance import covariance_gaussian
from deep_lambertian.learning.pretraining import learn_net
from deep_lambertian.model import DLN
from deep_lambertian.priors import DBN, Prior, Product, generate
from deep_lambertian.priors.density import log_density
from deep_lambertian.support.files import part
from deep_lambertian.surface import Surface

SWEEPS = 100  # of the chains that find a person's surface from all images
STEPS, CHAINS = 2000, 64  # of annealed importance sampling
DRAWN = 100  # samples of each prior
GIBBS = 2000  # iterations before each of them
COMPONENTS, FOLDS = 20, 5  # principal ones that the classifier sees, and parts of its cross-validation
UNITS = 100  # binary units beyond the Gaussian
Say = Callable[[str], None]
Figures = dict[str, dict[str, float]]


def surfaces_of(model: DLN, data: Dataset, seed: int) -> np.ndarray:
    """Of each person (S, 4V), from all images together."""
    images, masks = zip(*((images, mask) for _, images, mask, _ in data.each()), strict=True)
    posts = model.infer_many(images, mask=masks, seed=seed, iterations=SWEEPS, chains=1)
    return np.stack([Surface.from_pictures(post.albedo, post.normals).pack() for post in posts])


def priors_of(rows: np.ndarray, shape: tuple[int, int], config: Config, paper: Config) -> dict[str, Prior]:
    """Those that surfaces `rows` (N, 4V) teach: a Gaussian, the same with binary units, and the paper's two nets, with
    and without their upper layers.
    """
    seen = augment(rows, shape, config.copies, config.shift, config.mirror, seed_of(config.seed, "density"))
    gaussian = covariance_gaussian(seen, shape, config.covariance)
    binary = config.override(**{"binary.units": config.binary.units or UNITS}).binary
    pixels, nets = shape[0] * shape[1], []
    for which, sizes in ((slice(pixels), paper.albedo_hidden), (slice(pixels, None), paper.normals_hidden)):
        layers, _ = learn_net(seen[:, which], paper.cd, seed_of(paper.seed, "density", len(nets)), sizes)
        nets.append(layers)
    return {
        "gaussian": gaussian,
        "gaussian_binary": learn_units(gaussian, seen, binary, seed_of(config.seed, "density units"))[0],
        "grbm": Product(*(DBN(base, ()) for base, *_ in nets)),
        "dbn": Product(*(DBN(base, tuple(above)) for base, *above in nets)),
    }


def ask_priors(
    priors: dict[str, Prior], unseen: np.ndarray, seed: int, say: Say, steps: int = STEPS
) -> dict[str, np.ndarray]:
    """Of each prior `nats.NAME` (N,), log p of surfaces `unseen` (N, 4V), their `error.NAME`, and `samples.NAME`."""
    found = {}
    for name, prior in priors.items():
        say(f"density: {name}")
        nats, error = log_density(prior, unseen, seed=seed, steps=steps, chains=CHAINS)
        samples = smooth_samples(prior, seed, min(steps, GIBBS))
        found |= {f"nats.{name}": nats, f"error.{name}": np.array(error), f"samples.{name}": samples}
    return found


def judge_answers(answers: dict[str, np.ndarray], unseen: np.ndarray, shape: tuple[int, int], seed: int) -> Figures:
    """`density` in nats a pixel, its standard error by annealing, and the classifier's area, by prior."""
    pixels = shape[0] * shape[1]
    return {
        "density": {name: float(nats.mean() / pixels) for name, nats in part(answers, "nats.").items()},
        "density_error": {name: float(error / pixels) for name, error in part(answers, "error.").items()},
        "samples_auc": {
            name: tell_apart(samples, unseen, shape, seed) for name, samples in part(answers, "samples.").items()
        },
    }


def smooth_samples(prior: Prior, seed: int, steps: int) -> np.ndarray:
    """Samples (n, 4V), each as its hidden units see it."""
    drawn = jnp.asarray(generate(prior, seed=seed, steps=steps, chains=DRAWN).samples)
    return np.asarray(jax.jit(jax.vmap(lambda x: prior.top_down(prior.mean_hidden(x))[0]))(drawn))


def tell_apart(samples: np.ndarray, people: np.ndarray, shape: tuple[int, int], seed: int) -> float:
    """The area under the curve of a classifier between samples and people (each (n, 4V)), cross-validated by person.

    It sees main components and their squares. People are moved and mirrored, as in training, to be as many.
    """
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    copies = max(1, len(samples) // (2 * len(people)))
    more = augment(people, shape, copies, 1, True, seed)
    rows = np.concatenate([samples, more])
    labels = np.repeat([0, 1], [len(samples), len(more)])
    groups = np.concatenate([len(people) + np.arange(len(samples)), np.tile(np.arange(len(people)), 2 * copies)])
    components = min(COMPONENTS, len(rows) // 5)
    seen = PCA(components, whiten=True, random_state=0), PolynomialFeatures(2, include_bias=False), StandardScaler()
    judge, folds = make_pipeline(*seen, LogisticRegression(C=0.01, max_iter=1000)), GroupKFold(min(FOLDS, len(people)))
    chances = cross_val_predict(judge, rows, labels, groups=groups, cv=folds, method="predict_proba")
    return float(roc_auc_score(labels, np.asarray(chances)[:, 1]))
