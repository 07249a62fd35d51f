"""Deep Lambertian Networks: albedo, surface normals and light, with their uncertainty, from one photo or many.

Importing this package computes nothing and leaves JAX's backend untouched; the names below are loaded when they are
first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from deep_lambertian.inference import Posterior, Sampler, ShadowWeights
    from deep_lambertian.model import DLN, load_model
    from deep_lambertian.model_file import ModelFileError
    from deep_lambertian.priors import DBN, GRBM, BinaryRBM, Gaussian, Product

_HOMES = {
    "DLN": "model",
    "load_model": "model",
    "ModelFileError": "model_file",
    "Posterior": "inference",
    "Sampler": "inference",
    "ShadowWeights": "inference",
    "GRBM": "priors",
    "BinaryRBM": "priors",
    "DBN": "priors",
    "Gaussian": "priors",
    "Product": "priors",
}

__all__ = [
    "DBN",
    "DLN",
    "GRBM",
    "BinaryRBM",
    "Gaussian",
    "ModelFileError",
    "Posterior",
    "Product",
    "Sampler",
    "ShadowWeights",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deep_lambertian' has no attribute {name!r}")
    return getattr(import_module(f"deep_lambertian.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
