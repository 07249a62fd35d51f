"""One photo of each person: a model against the mean shape of the sources that it was learned from, on Yale B; and
with --calibration the shares of people that its intervals cover.

python -m tools.train_faces48.evaluate CroppedYale.zip faces48 --protocol dev --protocol confirm
"""

import argparse
import json
from pathlib import Path

import numpy as np

from deep_lambertian.data import load_yaleb
from deep_lambertian.data.yaleb import PROTOCOLS
from deep_lambertian.experiments import calibration, few_images
from deep_lambertian.experiments.few_images import RecognitionTest, Surfaces
from deep_lambertian.geometry import unit
from deep_lambertian.learning.stereo import reference_surfaces
from deep_lambertian.model import DLN, load_model
from deep_lambertian.surface import Surface

parser = argparse.ArgumentParser(
    prog="python -m tools.train_faces48.evaluate",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
)
parser.add_argument("path", type=Path, metavar="YALEB")
parser.add_argument("model", metavar="MODEL")
parser.add_argument("--protocol", action="append", choices=["dev", "confirm"], help="default: dev")
parser.add_argument("--seed", type=int, default=0, help="seed of the chains (default: %(default)s)")
parser.add_argument("--chains", type=int, help="of each photo (default: as the model has it)")
parser.add_argument("--calibration", action="store_true", help="shares covered, in place of errors")


def evaluate(model: DLN, path: Path, protocol: str, seed: int, chains: int | None) -> dict[str, dict[str, float]]:
    """Errors of recognition in per cent, by the plain and the shadow-aware rule, and of normals in degrees."""
    data = load_yaleb(path, model.shape).objects(list(PROTOCOLS[protocol][1]))
    test = RecognitionTest.of(data)
    choices = [choice for choice in test.choices(most=1) if choice.k == 1]
    sets, references = test.shown(choices), reference_surfaces(data)
    images = [test.images[person][list(shown)].reshape(-1, *test.shape) for person, shown in sets]
    posts = model.infer_many(images, iterations=few_images.SWEEPS, chains=chains, seed=seed)
    found: Surfaces = {
        key: {
            "scaled": post.scaled_normals.reshape(-1, 3),
            "normals": post.normals.reshape(-1, 3),
            "albedo": post.albedo.reshape(-1),
        }
        for key, post in zip(sets, posts, strict=True)
    }
    mean = unit(Surface.unpack(np.asarray(model.params.prior.centre)).pictures(model.shape)[1])
    alone = few_images.mean_shape_sets(mean, test, sets)
    noise = np.asarray(model.params.noise_var)
    return {
        name: _judged(few_images.surface_methods(name, test, surfaces, weights), name, test, choices)
        | {"normals_deg": few_images.judge(surfaces, test, references)["normals_deg"]["1"]["mean"]}
        for name, surfaces, weights in (("model", found, noise), ("mean_shape", alone, None))
    }


def covered(model: DLN, path: Path, protocol: str, seed: int) -> dict[str, dict]:
    """The shares, by subset, of what intervals of 50 and 90 % cover, and what is reported on average."""
    data = load_yaleb(path, model.shape).objects(list(PROTOCOLS[protocol][1]))
    found = calibration.judge(model, data, reference_surfaces(data), seed)
    shares = found["calibration_subsets"]
    return {
        quantity: {subset: [each["0.5"], each["0.9"]] for subset, each in by_subset.items()}
        for quantity, by_subset in shares.items()
    } | {"reported": found["sharpness"]}


def _judged(methods: dict, name: str, test: RecognitionTest, choices: list) -> dict[str, float]:
    rules = {"plain": name, "shadow": f"{name}_shadow", "detail": f"{name}_detail"}
    errors = {rule: few_images.recognition_errors(methods[each], test, choices) for rule, each in rules.items()}
    return {rule: each["1"]["error"] for rule, each in errors.items()}


if __name__ == "__main__":
    options = parser.parse_args()
    model = load_model(options.model)
    for protocol in options.protocol or ["dev"]:
        if options.calibration:
            judged = covered(model, options.path, protocol, options.seed)
        else:
            judged = evaluate(model, options.path, protocol, options.seed, options.chains)
        print(json.dumps({"protocol": protocol, "seed": options.seed, **judged}), flush=True)
