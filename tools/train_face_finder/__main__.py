"""Trains the bundled face finder and writes its weights: `python -m tools.train_face_finder DATA_DIR OUT`.

DATA_DIR holds CroppedYale.zip, faces48.npz, aloi_red4_ill.tar and psmImages.zip. `benchmarks/face_finder.py` measures
how well it does.
"""

import argparse
from pathlib import Path

import numpy as np

from deep_lambertian.support.progress import show_progress
from tools.train_face_finder.training import to_arrays, train_detector

parser = argparse.ArgumentParser(
    prog="python -m tools.train_face_finder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("data", type=Path, metavar="DATA_DIR")
parser.add_argument("out", type=Path, metavar="OUT", help="where the weights go, as an .npz")
parser.add_argument("--seed", type=int, default=0, help="seed of the training (default: %(default)s)")
parser.add_argument("--step", type=int, default=1, help="take so many times fewer inputs, for a try")
parser.add_argument("--workers", type=int, default=2, help="processes that make inputs (default: %(default)s)")

if __name__ == "__main__":  # the processes that make inputs import this file too
    options = parser.parse_args()
    with show_progress():
        detector = train_detector(options.data, options.seed, options.step, options.workers)
    with options.out.open("wb") as file:
        np.savez_compressed(file, **to_arrays(detector))  # pyright: ignore[reportArgumentType]
