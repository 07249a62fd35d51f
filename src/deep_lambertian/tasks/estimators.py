"""The DLN inside scikit-learn: features that the light hardly changes, and recognition from one image of each object.

A row of X is one image, flattened. Each image, or each class of images of one object, is an object to `infer_many`;
batches are filled up to few sizes, because every size is compiled anew, which takes seconds.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.model import DLN, Layout, load_model
from deep_lambertian.recognition.distances import nearest
from deep_lambertian.recognition.known import RULES, Known, Rule, log_likelihoods, odds_of
from deep_lambertian.support.resampling import average_areas

CHOICES = {"output": ("albedo", "scaled_normals"), "rule": RULES}
FLOATS = (np.float64, np.float32)
BRIGHT = 10.0  # light of about [0, 1] may be somewhat brighter, but numbers up to 255 are another unit
ROWS = 64  # images whose distances are found at a time


@dataclass(repr=False, eq=False)
class ImageEstimator(BaseEstimator):
    """What both estimators share: a row of X is an image, and inference by `model` has these settings.

    Dataclasses keep parameters as they are given, with the explicit signature that scikit-learn reads them from.
    """

    model: DLN | str | Path = "yaleb24"
    _: KW_ONLY
    shape: str | tuple[int, int] = "auto"
    iterations: int | None = None
    chains: int | None = None
    batch: int = 32
    seed: int = 0

    def _prepare(self, X: np.ndarray) -> DLN:
        """Find the model and the shape of the images, and refuse settings that inference would refuse later."""
        self._check_choices()
        model = find_model(self.model)
        self.shape_ = find_shape(self.shape, X.shape[1])
        model.sampler.override(iterations=_whole(self.iterations), chains=_whole(self.chains))
        if not isinstance(self.batch, Integral) or self.batch < 1:
            raise ValueError(f"batch: expected a whole number of at least 1, got {self.batch!r}")
        return model

    def _check_choices(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name, allowed[0])
            if value not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")

    def _validated(self, X: Any) -> np.ndarray:
        """Rows for a fitted estimator."""
        check_is_fitted(self)
        self._check_choices()
        X = validate_data(self, X, reset=False, dtype=FLOATS)
        _check_range(X)
        return X

    def _infer(
        self, model: DLN, objects: Iterator[np.ndarray], size: tuple[int, int], what: str
    ) -> Iterator[Posterior]:
        """The posteriors of objects (P, H, W), a batch of one `size` (objects, images) at a time.

        All have the number 0, and so the same draws: an object's result does not depend on its place.
        """
        settings = {name: _whole(getattr(self, name)) for name in ("iterations", "chains", "seed")}
        start = 0
        while batch := list(islice(objects, size[0])):
            layout = Layout([0] * len(batch), size, jax.local_devices())
            for i, post in enumerate(model.infer_many(batch, layout=layout, **settings), start):
                if not np.isfinite(post.scaled_normals).all():
                    raise ValueError(
                        f"{what} {i} of X: expected light of about [0, 1] that inference can explain, got up to "
                        f"{np.abs(batch[i - start]).max():g}, and a chain that ended in numbers that are not finite"
                    )
                yield post
            start += len(batch)


@dataclass(repr=False, eq=False)
class IlluminationInvariantFeatures(TransformerMixin, ImageEstimator):
    """Images to what is left of them when the light is taken away: one object is inferred from each row of X.

    `model` is a DLN, a file, or the name of a model that comes with the package. `output` is "albedo", V features for
    a model of V pixels, or "scaled_normals", 3V: the albedo times the normal, pixel by pixel. `shape` (H, W) is that
    of the images in the rows; "auto" takes the most nearly square one, upright where it is not square. Images of
    another size than the model's are resized. `iterations` and `chains` are the model's own unless given; `batch` rows
    are inferred at a time, and a last batch is filled up to as many.

    `fit` learns nothing: it reads the model and notes the width of X. Every row gets the same random draws, so that
    its features do not depend on the rows beside it.
    """

    output: str = "albedo"

    def fit(self, X: Any, y: Any = None) -> "IlluminationInvariantFeatures":
        """Read the model and check the settings."""
        X = validate_data(self, X, dtype=FLOATS)
        self.model_ = self._prepare(X)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features (rows, V) or (rows, 3V), float32."""
        X = self._validated(X)
        features = np.empty((len(X), len(self.get_feature_names_out())), np.float32)
        images = (as_images(row[None], self.shape_, self.model_.shape) for row in X)
        for i, post in enumerate(self._infer(self.model_, images, (self.batch, 1), "row")):
            features[i] = getattr(post, self.output).reshape(-1)
        return features

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`albedo_<row>_<column>`, or `scaled_normals_<row>_<column>_<x, y or z>`; the input's names play no part."""
        check_is_fitted(self)
        height, width = self.model_.shape
        ends = [""] if self.output == "albedo" else ["_x", "_y", "_z"]
        names = [f"{self.output}_{i}_{j}{end}" for i in range(height) for j in range(width) for end in ends]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # what inference computes in; float64 would only look exact
        return tags


@dataclass(repr=False, eq=False)
class LambertianSubspaceClassifier(ClassifierMixin, ImageEstimator):
    r"""Recognition from one image of each object, or a few, under whatever light (Sec. 4.3 of the paper).

    All images of a class show one object. Its surface is inferred from them together; a new image is of the class
    whose surface, under the light that suits best, comes nearest to it.

    `rule` "detail" compares surfaces, and the images themselves, in their detail, under the light of the new one.
    "shadow" compares with images in which what turns away from the light is dark, each pixel weighed by the model's
    noise: $d_g = \min_\ell \sum_i (v_i - \max(m_{gi}^\top \ell, 0))^2 / \sigma_{v_i}^2$. "plain" is the rule of the
    paper, the squared distance to the span of the three columns of the scaled normals. See `recognition.known`. The
    other parameters are those of `IlluminationInvariantFeatures`; `batch` is a number of classes here.

    With `strangers`, `predict_proba` has a last column for objects that are of no class, and `predict` is still the
    most likely class. It wants a model that has learned how strangers differ, as those trained on faces have.

    After `fit`, `scaled_normals_` (classes, V, 3) are the surfaces and `classes_` their labels.
    """

    model: DLN | str | Path = "yaleb48"
    _: KW_ONLY
    rule: Rule = "detail"
    strangers: bool = False

    def fit(self, X: Any, y: Any) -> "LambertianSubspaceClassifier":
        """Infer one surface for each class."""
        X, y = validate_data(self, X, y, dtype=FLOATS)
        with warnings.catch_warnings():  # as many classes as images is what one image of each means
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            check_classification_targets(y)
        model = self._prepare(X)
        if self.strangers:
            _needed(odds_of(model.misfit))
        self.model_shape_ = model.shape
        _check_range(X)
        self.classes_, members = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        size = min(self.batch, fill_up(count)), fill_up(int(np.bincount(members).max()))
        images = (as_images(X[members == g], self.shape_, model.shape) for g in range(count))
        found = self._infer(model, images, size, "class")
        self.scaled_normals_ = np.stack([post.scaled_normals.reshape(-1, 3) for post in found])
        # All that prediction needs of the model, and of X.
        self.noise_var_, self.odds_ = np.asarray(model.params.noise_var), odds_of(model.misfit)
        self.photos_ = [
            as_images(X[members == g], self.shape_, model.shape).reshape(-1, model.params.pixels) for g in range(count)
        ]
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Minus the distances d to the classes (rows, classes); of two classes, the log-odds of the second (rows,)."""
        distances = self._distances(X)
        if len(self.classes_) != 2:
            return -distances
        first, second = log_likelihoods(distances).T
        return second - first

    def predict(self, X: Any) -> np.ndarray:
        """The label of the nearest class for each row."""
        distances = self._distances(X)  # first: it refuses an estimator that is not fitted
        return self.classes_[nearest(distances)]

    def predict_proba(self, X: Any) -> np.ndarray:
        r"""$p_g \propto d_g^{-\nu/2}$ with ν = 32, (rows, classes), and with `strangers` one column more.

        The model's own likelihood, exp(−d/2), takes hundreds of pixels for independent and the noise for all that can
        be wrong; its answers are 0 or 1. Here the size of the noise is unknown and integrated out, which leaves
        $d^{-\nu/2}$ for ν independent residuals, and ν is far below the number of pixels because neighbours err alike.
        Only ratios of distances matter. ν = 32 was chosen where the rule "shadow" is about as sure as it is right, on
        real and synthetic faces known from one image each, and has stayed for the others; of other objects it is a
        guess, and probabilities to rely on want calibrating.
        """
        odds = _needed(self.odds_) if self.strangers else None
        known = np.concatenate(list(self._each(X, lambda known, probes: known.judged(probes, self.rule, odds)[1])))
        rest = np.maximum(1 - known.sum(axis=1, keepdims=True), 0)
        return np.concatenate([known, rest], axis=1) if self.strangers else known

    def _distances(self, X: Any) -> np.ndarray:
        """Distances (rows, classes)."""
        return np.concatenate(list(self._each(X, lambda known, probes: known.distances(probes, self.rule))))

    def _each(self, X: Any, measure: Callable[[Known, np.ndarray], np.ndarray]) -> Iterator[np.ndarray]:
        """What is measured of some rows at a time."""
        X = self._validated(X)
        known = Known(self.scaled_normals_, self.photos_, self.model_shape_, self.noise_var_)
        for rows in np.split(X, range(ROWS, len(X), ROWS)):
            yield measure(known, as_images(rows, self.shape_, self.model_shape_).reshape(len(rows), -1))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on numbers that are no images; a cloud of points has no light
        return tags


def find_model(model: Any) -> DLN:
    """The DLN itself, or the one of a file or of the package."""
    if isinstance(model, DLN):
        return model
    if not isinstance(model, str | Path):
        raise ValueError(f"model: expected a DLN, a path or the name of a bundled model, got {type(model).__name__}")
    try:
        return load_model(model)
    except FileNotFoundError as error:  # scikit-learn's users expect a ValueError of a wrong parameter
        raise ValueError(f"model: {error}") from error


def _needed(odds: np.ndarray | None) -> np.ndarray:
    if odds is None:
        raise ValueError(
            "strangers: expected a model that has learned how strangers differ from those it knows, got one that has "
            "not: train it with `misfit` on eight objects or more"
        )
    return odds


def find_shape(shape: Any, features: int) -> tuple[int, int]:
    """Height and width of images of so many pixels: as given, or the most nearly square, upright where not square."""
    if isinstance(shape, str) and shape == "auto":
        width = next(w for w in range(math.isqrt(features), 0, -1) if features % w == 0)
        return features // width, width
    try:
        height, width = (int(side) for side in shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f'shape: expected "auto" or (height, width), got {shape!r}') from error
    if height < 1 or width < 1 or height * width != features:
        raise ValueError(
            f"shape: expected a height and a width that multiply to the {features} features of X, got {height}×{width}"
        )
    return height, width


def as_images(rows: np.ndarray, shape: tuple[int, int], wanted: tuple[int, int]) -> np.ndarray:
    """Flat images (N, H·W) as pictures (N, h, w) of the wanted size; there is no light below 0."""
    return np.stack([average_areas(np.maximum(row.reshape(shape), 0), wanted) for row in rows])


def fill_up(count: int) -> int:
    """The next power of four: few sizes are compiled, and images of weight 0 cost little beside the rest of a sweep."""
    return 4 ** -(-(count - 1).bit_length() // 2)


def _whole(value: Any) -> Any:
    """NumPy's whole numbers, which grids of parameters are made of, as Python's."""
    return int(value) if isinstance(value, Integral) else value


def _check_range(X: np.ndarray) -> None:
    """Warn of numbers that are hardly light of about [0, 1]; rescaling them silently might be wrong."""
    most = float(np.abs(X).max())
    if most > BRIGHT:
        warnings.warn(f"X: expected light of about [0, 1], got up to {most:g}; divide by the full range", stacklevel=3)
