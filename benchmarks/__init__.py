"""Measurements of the package on the machine at hand. Timings are noisy: compare them as ratios within one run."""
