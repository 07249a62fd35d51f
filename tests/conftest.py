"""Strict flags for every test, and the small models that several of them share."""

import os
import tempfile
from pathlib import Path

# Most of the tests' time is XLA's: here it compiles everything as it does the short chains of a photo, quickly rather
# than well (see `deep_lambertian.support.compiled`). JAX reads it when it first computes, and so do programs that tests
# start.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Shapes and types of what the mathematics is made of are checked at every call.
CHECKED = [f"deep_lambertian.{name}" for name in ("geometry", "surface", "priors", "energy", "inference", "learning")]
install_import_hook(CHECKED, "typecheck.check_functions")

from deep_lambertian import DLN, GRBM, Gaussian, Product  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Workers, and later runs, share what has been compiled.
jax.config.update("jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / f"dln-tests-{os.getuid()}"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def tiny_grbm(seed: int, visible: int, hidden: int, scale: float = 0.7) -> GRBM:
    """A GRBM small enough to enumerate, with nothing about it zero or alike."""
    rng = np.random.default_rng(seed)
    return GRBM(
        bias=jnp.asarray(rng.normal(0, 0.5, visible), jnp.float32),
        hidden_bias=jnp.asarray(rng.normal(0, 0.5, hidden), jnp.float32),
        weights=jnp.asarray(rng.normal(0, scale, (visible, hidden)), jnp.float32),
        variance=jnp.asarray(rng.uniform(0.3, 1.2, visible), jnp.float32),
    )


def dome(height: int, width: int) -> np.ndarray:
    """Unit normals of a convex dome, (H, W, 3)."""
    y, x = np.meshgrid(np.linspace(0.9, -0.9, height), np.linspace(-0.9, 0.9, width), indexing="ij")
    normals = np.stack([x, 0.8 * y, np.ones_like(x)], axis=-1)
    return (normals / np.linalg.norm(normals, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def tiny() -> DLN:
    """A DLN of two pixels with separate GRBM priors: every one of its hidden states can be listed."""
    prior = Product(tiny_grbm(1, 2, 3), tiny_grbm(2, 6, 2))
    return DLN.build(
        prior,
        (1, 2),
        noise_var=jnp.array([0.3, 0.5]),
        light_mean=(0.2, -0.1, 0.8),
        light_precision=jnp.array([[3.0, 0.5, 0.1], [0.5, 2.0, -0.3], [0.1, -0.3, 4.0]]),
        norm_stiffness=3.0,
    )


@pytest.fixture(scope="session")
def small() -> DLN:
    """A DLN of 8×8 pixels that believes in a dome of varied albedo."""
    normals = dome(8, 8).reshape(-1, 3).T.reshape(-1)
    albedo = Gaussian.diagonal(jnp.full(64, 0.6), jnp.full(64, 0.04))
    prior = Product(albedo, Gaussian.diagonal(jnp.asarray(normals), jnp.full(192, 0.02)))
    return DLN.build(prior, (8, 8), noise_var=0.01, light_precision=4.0, preset="quick")
