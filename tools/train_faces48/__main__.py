"""Makes a model of drawn heads, faces48: `python -m tools.train_faces48 HEAD OUT`.

HEAD is the morphable head (ict_face.npz: ICT-FaceKit, MIT licence). It has no skin: the package draws that itself, so
that nobody's photograph is in the model.
"""

import argparse
from pathlib import Path

from deep_lambertian.data import load_morphable
from deep_lambertian.support.progress import show_progress
from tools.train_faces48.model import PEOPLE, learn

parser = argparse.ArgumentParser(
    prog="python -m tools.train_faces48", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("head", type=Path, metavar="HEAD")
parser.add_argument("out", type=Path, metavar="OUT", help="where the model goes, a .safetensors")
parser.add_argument("--size", type=int, default=48, help="pixels a side (default: %(default)s)")
parser.add_argument("--count", type=int, default=PEOPLE, help="heads to learn from (default: %(default)s)")
parser.add_argument("--seed", type=int, default=0, help="seed of every random number (default: %(default)s)")

if __name__ == "__main__":
    options = parser.parse_args()
    with show_progress():
        model = learn(load_morphable(options.head), options.size, options.seed, options.count)
    model.save(options.out, compact=True)
