"""Whose photo is this? People are known by a photo or more each, under any light; others are aligned and named."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from deep_lambertian.data.folder import natural
from deep_lambertian.data.images import decode, is_image_name
from deep_lambertian.data.sources import Source, open_source
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.model import DLN
from deep_lambertian.photos.placing import Placement, prepare_photos
from deep_lambertian.support.files import write_csv
from deep_lambertian.support.progress import track
from deep_lambertian.tasks.distances import Rule, distances_by

COLUMNS = ("probe", "truth", "label", "distance", "second", "second_distance", "confidence", "problem")


@dataclass(frozen=True)
class Answer:
    """The person whom a probe is most like, and the next. `truth` is known where the probe lies in a person's folder.

    Distances are root mean squares of what no light explains, in units of the noise that the model has learned (rule
    `shadow`) or of the image's own strength (`plain`). `confidence` is 1 − distance/second_distance: 0 where two people
    are as near, towards 1 where nobody else is. `problem` says why there is no answer.
    """

    probe: str
    truth: str = ""
    label: str = ""
    distance: float = float("nan")
    second: str = ""
    second_distance: float = float("nan")
    confidence: float = float("nan")
    problem: str = ""


@dataclass(frozen=True)
class Gallery:
    """What the people of a gallery look like: `names` and scaled normals (G, V, 3) by `model`.

    Faces were looked for, or not (`align`), in photos taken to be sRGB or not; probes are read in the same way.
    """

    model: DLN
    names: list[str]
    scaled_normals: np.ndarray
    problems: list[str]
    align: bool
    srgb: bool

    def distances(self, crops: np.ndarray, rule: Rule = "shadow") -> np.ndarray:
        """Distances (N, G) of crops (N, V); see `Answer`."""
        found, black = distances_by(rule, self.scaled_normals, crops, np.asarray(self.model.params.noise_var))
        return np.sqrt(found / (crops.shape[1] if rule == "shadow" else np.maximum(black, 1e-12)))


def list_people(path: str | Path) -> dict[str, list[str]]:
    """The photos of each person: PATH/<person>/<photo>, or PATH/<person>.jpg for those with one photo."""
    with open_source(path) as source:
        return _people(source)


def learn_people(
    model: DLN,
    path: str | Path,
    *,
    align: bool = True,
    srgb: bool = True,
    seed: int = 0,
    sampler: Sampler | None = None,
) -> Gallery:
    """Infer the surface of every person of a folder or archive."""
    names, crops, problems = [], [], []
    with open_source(path) as source:
        for name, files in track(list(_people(source).items()), "reading the gallery"):
            found = [_crop(model, source, file, align, srgb) for file in files]
            problems += [each for each in found if isinstance(each, str)]
            usable = [each for each in found if not isinstance(each, str)]
            if usable:
                names.append(name)
                crops.append(np.stack(usable))
    if len(names) < 2:
        raise ValueError(
            f"{path}: expected at least two people with a usable photo, got {len(names)}"
            + (f" ({'; '.join(problems[:3])})" if problems else "")
        )
    posts = model.infer_many(crops, seed=seed, sampler=sampler)
    scaled_normals = np.stack([post.scaled_normals.reshape(-1, 3) for post in posts])
    return Gallery(model, names, scaled_normals, problems, align, srgb)


def recognize_photos(gallery: Gallery, path: str | Path, *, rule: Rule = "shadow") -> list[Answer]:
    """Who is on each photo of a folder or archive."""
    found = []
    with open_source(path) as source:
        files = sorted((file for files in _people(source).values() for file in files), key=natural)
        for name in track(files, "recognizing"):
            truth = name.rpartition("/")[0]
            crop = _crop(gallery.model, source, name, gallery.align, gallery.srgb)
            if isinstance(crop, str):
                found.append(Answer(name, truth, problem=crop))
                continue
            distances = gallery.distances(crop.reshape(1, -1), rule)[0]
            first, second = np.argsort(distances, kind="stable")[:2]
            near, next_ = float(distances[first]), float(distances[second])
            sure = 1 - near / max(next_, 1e-12)
            found.append(Answer(name, truth, gallery.names[first], near, gallery.names[second], next_, sure))
    return found


def count_errors(answers: Sequence[Answer], names: Sequence[str]) -> dict[str, Any]:
    """How many photos were read and, where the truth is known, how many named rightly."""
    judged = [each for each in answers if each.truth in names and not each.problem]
    wrong = sum(each.label != each.truth for each in judged)
    figures: dict[str, Any] = {"probes": len(answers), "problems": sum(bool(each.problem) for each in answers)}
    if judged:
        figures |= {"judged": len(judged), "wrong": wrong, "error": 100 * wrong / len(judged)}
    return figures


def write_answers(path: str | Path, answers: Sequence[Answer]) -> None:
    """The answers as CSV."""
    rows = ([getattr(each, column) for column in COLUMNS] for each in answers)
    shown = (["" if v != v else f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
    write_csv(path, [COLUMNS, *shown])


def _people(source: Source) -> dict[str, list[str]]:
    people: dict[str, list[str]] = {}
    for name in filter(is_image_name, source.names):
        folder, _, file = name.rpartition("/")
        people.setdefault(folder or PurePosixPath(file).stem, []).append(name)
    if not people:
        raise ValueError(f"{source.path}: expected photos, PATH/<person>/<photo> or PATH/<person>.jpg, found none")
    return {name: sorted(people[name], key=natural) for name in sorted(people, key=natural)}


def _crop(model: DLN, source: Source, file: str, align: bool, srgb: bool) -> np.ndarray | str:
    """The face of a photo at the model's size and brightness, or what is wrong with it."""
    try:
        picture = decode(source.read(file), file, srgb=srgb, colour=True)
        photo = prepare_photos([(file, picture)], model, Placement(align=align))[0][0]
    except ValueError as error:  # no image, no face, several faces, black
        return str(error) if file in str(error) else f"{file}: {error}"
    return (photo.exposure * photo.alignment.crop(photo.grey, model.shape)).astype(np.float32)
