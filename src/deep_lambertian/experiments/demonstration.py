"""The demonstration: learn from synthetic faces, and judge the result on people whom the model has never seen.

Everything is computed, nothing is downloaded: a small DLN is trained on faces that the program makes, without being
given their lights. Of other people it sees one image each; how well it then knows their normals, predicts their other
images and tells them apart is measured beside what needs no model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deep_lambertian.geometry import angles
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.train import train
from deep_lambertian.model import DLN, load_model
from deep_lambertian.photos.result import Result, infer_photos
from deep_lambertian.recognition.distances import nearest, relighting_rmse
from deep_lambertian.recognition.known import Known
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.portrait import Portrait, draw_portrait
from deep_lambertian.synthetic.scenes import Scenes, as_dataset
from deep_lambertian.tasks.baselines import mean_normals, mean_shape, nearest_neighbor

SIZE, NOISE = 24, 0.02
LEARNERS, STRANGERS, IMAGES = 100, 12, 12
BUNDLED = "yaleb24"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Demonstration:
    """What was found: of the strangers from one image each, and of the portrait by the bundled model.

    `figures` are means over the strangers, each beside its baseline: mean shape, mean shape, nearest neighbour.
    """

    figures: dict[str, float]
    strangers: Scenes
    posts: list[Posterior]
    portrait: Portrait
    result: Result


def demonstrate(out: Path, seed: int = 0, iterations: int | None = None, say: Say = print) -> Demonstration:
    """Train, infer, relight and recognize; the trained model is left in `out`."""
    people = draw_faces(LEARNERS + STRANGERS, IMAGES, SIZE, seed, noise=NOISE)
    learners, strangers = _part(people, slice(None, LEARNERS)), _part(people, slice(LEARNERS, None))
    say(f"learning from {LEARNERS} synthetic people, {IMAGES} images each, their lights unknown")
    model = train(as_dataset(learners, "faces", seed), Config.of_preset("best").override(seed=seed))
    model.save(out / "model.safetensors")
    say(f"one image of each of {STRANGERS} strangers: their surfaces, their other images, who is who")
    posts = model.infer_many(list(strangers.images[:, 0]), seed=seed, chains=2, iterations=iterations or 200)
    figures = judge(model, posts, strangers, mean_normals(learners.albedo[..., None] * learners.normals))
    say(f"a photo in colour: find the face, and infer it by the bundled model {BUNDLED}")
    portrait = draw_portrait(seed)
    bundled = load_model(BUNDLED)
    sampler = bundled.sampler.override(iterations=iterations, keep=5)
    result = infer_photos(bundled, [("portrait.png", portrait.photo)], sampler=sampler, seed=seed)
    return Demonstration(figures, strangers, posts, portrait, result)


def _part(scenes: Scenes, which: slice) -> Scenes:
    return Scenes(*(getattr(scenes, name)[which] for name in ("images", "albedo", "normals", "height", "lights")))


def judge(model: DLN, posts: list[Posterior], people: Scenes, average: np.ndarray) -> dict[str, float]:
    """How good surfaces from the first image of each person are, and those of the mean shape, by all other images."""
    count, images = people.images.shape[:2]
    flat = people.images.reshape(count, images, -1)
    truth = people.normals.reshape(count, -1, 3)
    found = np.stack([post.scaled_normals.reshape(-1, 3) for post in posts])
    normals = np.stack([post.normals.reshape(-1, 3) for post in posts])
    plain = np.stack([mean_shape(average.reshape(-1, 3), each[:1]) for each in flat])
    probes, whose = flat[:, 1:].reshape(-1, flat.shape[2]), np.repeat(np.arange(count), images - 1)
    noise = np.asarray(model.params.noise_var)

    def relit(surfaces: np.ndarray) -> float:
        return float(np.mean([relighting_rmse(m, rest[1:]) for m, rest in zip(surfaces, flat, strict=True)]))

    def wrong(distances: np.ndarray) -> float:
        return 100 * float(np.mean(nearest(distances) != whose))

    return {
        "normals_deg": float(angles(normals, truth, axis=-1).mean()),
        "normals_deg_mean_shape": float(angles(average.reshape(1, -1, 3), truth, axis=-1).mean()),
        "relighting_rmse": relit(found),
        "relighting_rmse_mean_shape": relit(plain),
        "one_shot_error": wrong(Known(found, list(flat[:, :1]), model.shape, noise).distances(probes)),
        "one_shot_error_nearest_neighbor": wrong(nearest_neighbor(flat[:, :1], probes)),
    }
