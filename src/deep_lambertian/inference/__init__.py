"""From images to albedo, normals and light: the blocks of a sweep (Sec. 3.2), the chains, and what they return."""

from deep_lambertian.inference.chain import Layout
from deep_lambertian.inference.observers import Diagnostics
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.inference.sampler import PRESETS, Sampler
from deep_lambertian.inference.shadows import ShadowLabels

__all__ = ["PRESETS", "Diagnostics", "Layout", "Posterior", "Sampler", "ShadowLabels"]
