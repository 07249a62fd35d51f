"""From images to albedo, normals and light: the conditionals of Sec. 3.2, the Gibbs chain, and what it returns."""

from deep_lambertian.inference.diagnostics import Diagnostics
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.sampler import PRESETS, Sampler, ShadowWeights

__all__ = ["PRESETS", "Diagnostics", "Posterior", "Sampler", "ShadowWeights"]
