"""Seeds of the parts of a run, from the seed of the run and the numbers of the part: no part knows of another."""

import zlib

import numpy as np


def seed_of(seed: int, *part: int | str) -> int:
    """A 31-bit seed for a part, named by numbers and words."""
    numbers = [zlib.crc32(p.encode()) if isinstance(p, str) else p for p in part]
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1)[0] >> 1)
