"""The demonstration: learn from synthetic faces, and judge the result on people whom the model has never seen.

Everything is computed, nothing is downloaded: a small DLN is trained on faces that the program makes, without being
told their lights. Of other people it sees one image each; how well it then knows their normals, predicts their other
images and tells them apart is measured beside what needs no model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from deep_lambertian.geometry import angles
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.learning.config import Config
from deep_lambertian.learning.train import train
from deep_lambertian.model import DLN, load_model
from deep_lambertian.photos.result import Result, infer_photos
from deep_lambertian.report.photo_page import Page
from deep_lambertian.support.pictures import grey, normal_colours, sheet
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.portrait import Portrait, draw_portrait
from deep_lambertian.synthetic.scenes import Scenes, as_dataset
from deep_lambertian.tasks.baselines import nearest_neighbor
from deep_lambertian.tasks.mean_shape import mean_normals, mean_shape
from deep_lambertian.tasks.recognition import cone_distances, nearest
from deep_lambertian.tasks.relighting import relighting_rmse

SIZE, NOISE = 24, 0.02
LEARNERS, STRANGERS, IMAGES = 100, 12, 12
BUNDLED = "yaleb24"


@dataclass(frozen=True)
class Figures:
    """Means over the strangers, each beside its baseline: mean shape, mean shape, nearest neighbour."""

    normals_deg: float
    normals_deg_mean_shape: float
    relighting_rmse: float
    relighting_rmse_mean_shape: float
    one_shot_error: float
    one_shot_error_nearest_neighbor: float


@dataclass(frozen=True)
class Demonstration:
    """What was found: of the strangers from one image each, and of the portrait by the bundled model."""

    figures: Figures
    strangers: Scenes
    posts: list[Posterior]
    portrait: Portrait
    result: Result


def demonstrate(
    out: Path, seed: int = 0, iterations: int | None = None, say: Callable[[str], None] = print
) -> Demonstration:
    """Train, infer, relight and recognise; the trained model is left in `out`."""
    people = draw_faces(LEARNERS + STRANGERS, IMAGES, SIZE, seed, noise=NOISE)
    learners, strangers = _part(people, slice(None, LEARNERS)), _part(people, slice(LEARNERS, None))
    say(f"learning from {LEARNERS} synthetic people, {IMAGES} images each, their lights unknown")
    model = train(as_dataset(learners, "faces", seed), Config.of_preset("best").override(seed=seed))
    model.save(out / "model.safetensors")
    say(f"one image of each of {STRANGERS} strangers: their surfaces, their other images, who is who")
    posts = model.infer_many(list(strangers.images[:, 0]), seed=seed, chains=2, iterations=iterations or 200)
    average = mean_normals(learners.albedo[..., None] * learners.normals)
    figures = judge(model, posts, strangers, average)
    say(f"a photo in colour: find the face, and infer it by the bundled model {BUNDLED}")
    portrait = draw_portrait(seed)
    result = infer_photos(
        load_model(BUNDLED), [("portrait.png", portrait.photo)], seed=seed, iterations=iterations, keep=5
    )
    return Demonstration(figures, strangers, posts, portrait, result)


def _part(scenes: Scenes, which: slice) -> Scenes:
    return Scenes(*(getattr(scenes, name)[which] for name in ("images", "albedo", "normals", "height", "lights")))


def judge(model: DLN, posts: list[Posterior], people: Scenes, average: np.ndarray) -> Figures:
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

    return Figures(
        float(angles(normals, truth, axis=-1).mean()),
        float(angles(np.broadcast_to(average.reshape(1, -1, 3), truth.shape), truth, axis=-1).mean()),
        relit(found),
        relit(plain),
        wrong(cone_distances(found, probes, noise)),
        wrong(nearest_neighbor(flat[:, :1], probes)),
    )


def page(found: Demonstration, number: int = 0) -> Page:
    """The report about one stranger."""
    people, post, figures = found.strangers, found.posts[number], found.figures
    notes = [
        "The face was made by the program, and the model has never seen it: it was trained on other such faces.",
        f"Over {len(found.posts)} strangers, from one image each: normals are off by {figures.normals_deg:.1f}° "
        f"(mean shape {figures.normals_deg_mean_shape:.1f}°), other images are predicted to "
        f"{figures.relighting_rmse:.3f} (mean shape {figures.relighting_rmse_mean_shape:.3f}), and "
        f"{figures.one_shot_error:.1f} % of them are given to the wrong person "
        f"(nearest neighbour {figures.one_shot_error_nearest_neighbor:.1f} %).",
    ]
    lights = people.lights[number, 1:4]
    pictures = [
        ("true albedo", grey(people.albedo[number])),
        ("true normals", normal_colours(people.normals[number])),
    ]
    for i, (light, real) in enumerate(zip(lights, people.images[number, 1:4], strict=True)):
        pictures += [(f"relit, light {i + 1}", grey(post.relight(light))), (f"true, light {i + 1}", grey(real))]
    return Page(
        title="A face from one image",
        inputs=[("the one image", grey(people.images[number, 0]))],
        pictures=pictures,
        scaled_normals=post.scaled_normals,
        colour=None,
        srgb=True,
        posterior=post,
        notes=notes,
    )


def picture(found: Demonstration, count: int = 3) -> Image.Image:
    """A sheet: what one image of each of some strangers gives, beside the truth."""
    rows = []
    for number in range(count):
        people, post = found.strangers, found.posts[number]
        most = float(post.normals_std.max())
        row = [("the one image", grey(people.images[number, 0]))]
        row += [("albedo", grey(post.albedo)), ("true albedo", grey(people.albedo[number]))]
        row += [("normals", normal_colours(post.normals)), ("true normals", normal_colours(people.normals[number]))]
        row += [(f"spread 0-{most:.0f}°", grey(post.normals_std, most))]
        for light, real in zip(people.lights[number, 1:3], people.images[number, 1:3], strict=True):
            row += [("relit", grey(post.relight(light))), ("true", grey(real))]
        rows.append(row)
    return sheet(rows, tile=112)
