"""Recognition in photos in which faces have to be found: `python -m benchmarks.recognition_photos DATA_DIR MODEL`.

DATA_DIR holds CroppedYale.zip and what `benchmarks.face_finder` needs of it. Crops of the test subjects of a protocol
are pasted at random size, rotation and place into larger scenes, as there: one of subset 1 of each into a gallery, and
some of the other subsets as probes. `dln recognize` then finds, aligns and names them, once as photos and once as the
crops themselves. All that knows Yale B in the face finder is fitted without these subjects; MODEL should not know them
either, as that of `dln reproduce yaleb --protocol dev`.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.face_finder import scene
from deep_lambertian import load_model
from deep_lambertian.data.yaleb import PROTOCOLS
from deep_lambertian.faces import find as face_detector
from deep_lambertian.model import DLN
from deep_lambertian.recognition.known import RULES
from deep_lambertian.tasks.people import count_errors, learn_people, recognize_photos
from tools.train_face_finder import marks as face_marks
from tools.train_face_finder.samples import TEXTURES

SUBSETS = (2, 3, 4)  # of the probes
EACH = 5  # probes of each subset of each person
Figures = dict[str, Any]


def write_photos(crops: Sequence[face_marks.Crop], names: Sequence[str], folder: Path, seed: int) -> None:
    """photos/ and crops/, in each gallery/<person>/ and subset-<s>/<person>/."""
    rng = np.random.default_rng(seed)
    for name in names:
        for subset in (1, *SUBSETS):
            mine = [image for who, image, s in crops if who == name and s == subset]
            for i in rng.permutation(len(mine))[: 1 if subset == 1 else EACH]:
                kind = str(rng.choice(TEXTURES))
                photo, _ = scene(rng, mine[i], kind, hard=False)
                for what, picture in (("photos", photo), ("crops", mine[i])):
                    place = folder / what / ("gallery" if subset == 1 else f"subset-{subset}") / name
                    place.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(np.uint8(np.clip(255 * picture + 0.5, 0, 255))).save(place / f"{i}.png")


def named(model: DLN, folder: Path, align: bool, seed: int) -> Iterator[tuple[str, Figures]]:
    """Errors by rule and subset of what lies in a folder, and the seconds a photo takes."""
    gallery = learn_people(model, folder / "gallery", align=align, srgb=False, seed=seed)
    for rule in RULES:
        found: Figures = {"gallery": len(gallery.names)}
        for subset in SUBSETS:
            start = time.perf_counter()
            answers = recognize_photos(gallery, folder / f"subset-{subset}", rule=rule, threshold=0)
            taken = (time.perf_counter() - start) / len(answers)
            figures = count_errors(answers, gallery.names)
            kept = {name: figures.get(name) for name in ("probes", "problems", "judged", "wrong", "error")}
            found[f"subset_{subset}"] = kept | {"seconds_a_photo": taken}
        judged = [found[f"subset_{s}"] for s in SUBSETS]
        found["error"] = 100 * sum(each["wrong"] for each in judged) / sum(each["judged"] for each in judged)
        found["not_found"] = sum(each["problems"] for each in judged) / sum(each["probes"] for each in judged)
        yield rule, found


def without(data: Path, names: Sequence[str]) -> face_detector.Detector:
    """The bundled face finder, with all that knows Yale B fitted without these subjects."""
    nets = face_detector.bundled()
    crops = [crop for crop in face_marks.yale_crops(data, (1, 2, 3)) if crop[0] not in names]
    steps = face_marks.fit_steps(nets.judge, face_marks.judged_crops(nets.judge, crops))
    return replace(nets, steps=steps, mean=face_marks.mean_face(crops))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="recognition_photos"
    )
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--protocol", choices=["dev", "confirm"], default="dev", help="whose test subjects")
    parser.add_argument("--seed", type=int, default=0, help="of the scenes and of inference (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    names, model = PROTOCOLS[options.protocol][1], load_model(options.model)
    finder = without(options.data, names)
    face_detector.bundled = lambda: finder
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        write_photos(face_marks.yale_crops(options.data, (1, *SUBSETS)), names, Path(folder), options.seed)
        for what in ("photos", "crops"):
            for rule, found in named(model, Path(folder) / what, what == "photos", options.seed):
                figures.setdefault(what, {})[rule] = found
                print(
                    f"{what}, {rule}: {found['error']:.2f} % wrong, {found['not_found']:.1%} not found", file=sys.stderr
                )
    if options.json:
        print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
