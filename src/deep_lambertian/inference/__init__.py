"""From images to albedo, normals and light: the blocks of a sweep (Sec. 3.2), the chains, and what they return."""

from deep_lambertian.inference.chain import Layout
from deep_lambertian.inference.posterior import Diagnostics, Posterior
from deep_lambertian.inference.sampler import PRESETS, Sampler
from deep_lambertian.inference.shadows import ShadowWeights

__all__ = ["PRESETS", "Diagnostics", "Layout", "Posterior", "Sampler", "ShadowWeights"]
