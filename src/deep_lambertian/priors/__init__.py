"""What the model believes of albedo and normals before it has seen an image."""

from deep_lambertian.priors.contract import Generated, Prior, generate
from deep_lambertian.priors.dbn import DBN
from deep_lambertian.priors.gaussian import Gaussian
from deep_lambertian.priors.gaussian_binary import GaussianBinary
from deep_lambertian.priors.product import Product
from deep_lambertian.priors.rbm import GRBM, BinaryRBM

# Every prior under the name it has in model files.
PRIORS: dict[str, type] = {
    "gaussian": Gaussian,
    "gaussian_binary": GaussianBinary,
    "grbm": GRBM,
    "rbm": BinaryRBM,
    "dbn": DBN,
    "product": Product,
}

__all__ = [
    "DBN",
    "GRBM",
    "PRIORS",
    "BinaryRBM",
    "Gaussian",
    "GaussianBinary",
    "Generated",
    "Prior",
    "Product",
    "generate",
]
