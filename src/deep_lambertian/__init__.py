"""Deep Lambertian Networks: albedo, surface normals and light, with their uncertainty, from one photo or many.

Importing this package computes nothing and leaves JAX's backend untouched; the names below are loaded when they are
first used.
"""

from typing import TYPE_CHECKING

from deep_lambertian import data
from deep_lambertian.support import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from deep_lambertian.data.images import read_photos
    from deep_lambertian.inference import Layout, Posterior, Sampler, ShadowLabels
    from deep_lambertian.learning.config import Config
    from deep_lambertian.learning.train import train
    from deep_lambertian.model import DLN, load_model
    from deep_lambertian.models import ModelFileError
    from deep_lambertian.photos.result import Result, infer_photos
    from deep_lambertian.priors import DBN, GRBM, BinaryRBM, Gaussian, GaussianBinary, Product
    from deep_lambertian.support.progress import show_progress
    from deep_lambertian.surface import Surface
    from deep_lambertian.tasks.estimators import IlluminationInvariantFeatures, LambertianSubspaceClassifier

__all__ = [
    "DBN",
    "DLN",
    "GRBM",
    "BinaryRBM",
    "Config",
    "Gaussian",
    "GaussianBinary",
    "IlluminationInvariantFeatures",
    "LambertianSubspaceClassifier",
    "Layout",
    "ModelFileError",
    "Posterior",
    "Product",
    "Result",
    "Sampler",
    "ShadowLabels",
    "Surface",
    "data",
    "infer_photos",
    "load_model",
    "read_photos",
    "show_progress",
    "train",
]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DLN": "model",
        "load_model": "model",
        "ModelFileError": "models",
        "Posterior": "inference",
        "Sampler": "inference",
        "ShadowLabels": "inference",
        "Surface": "surface",
        "Layout": "inference",
        "GRBM": "priors",
        "BinaryRBM": "priors",
        "DBN": "priors",
        "Gaussian": "priors",
        "GaussianBinary": "priors",
        "Product": "priors",
        "Config": "learning.config",
        "train": "learning.train",
        "IlluminationInvariantFeatures": "tasks.estimators",
        "LambertianSubspaceClassifier": "tasks.estimators",
        "Result": "photos.result",
        "infer_photos": "photos.result",
        "read_photos": "data.images",
        "show_progress": "support.progress",
    },
)
