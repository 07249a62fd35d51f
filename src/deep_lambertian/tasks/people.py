"""Whose photo is this? People are known by a photo or more each, under any light; others are aligned and named."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from deep_lambertian.data.folder import natural
from deep_lambertian.data.images import decode, is_image_name
from deep_lambertian.data.sources import Source, open_source
from deep_lambertian.faces.find import TURN, move
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.model import DLN
from deep_lambertian.photos.placing import Placement, prepare_photos
from deep_lambertian.recognition.known import Known, Rule, odds_of
from deep_lambertian.support.files import write_csv
from deep_lambertian.support.progress import track

COLUMNS = ("probe", "truth", "label", "confidence", "nearest", "distance", "second", "second_distance", "problem")
UNKNOWN = "unknown"
THRESHOLD = 0.5  # of confidence, below which nobody is named
# A face is found to within a pixel or two, and in strong light it is the size that is wrong: probes are compared at
# some sizes about the one found, as logarithms, and in some places above and below, in parts of the height.
SIZES, PLACES = (0.0, -0.08, -0.04, 0.04, 0.08), (0.0, -1 / 24, 1 / 24)


@dataclass(frozen=True)
class Answer:
    """Who is on a probe. `truth` is known where the probe lies in a person's folder; `problem` says why there is none.

    `nearest` is the person whom it is most like, `second` the next, with their distances (see `recognition.known`).
    `confidence` is the probability that it is the nearest one: of all people of the gallery and, by the rule `detail`
    and a model that has learned how strangers differ, of anybody else. Below the threshold, `label` is "unknown".
    """

    probe: str
    truth: str = ""
    label: str = ""
    confidence: float = float("nan")
    nearest: str = ""
    distance: float = float("nan")
    second: str = ""
    second_distance: float = float("nan")
    problem: str = ""


@dataclass(frozen=True)
class Gallery:
    """What the people of a gallery look like: their `names`, and what is `known` of them, by `model`.

    Faces were looked for, or not (`align`), in photos taken to be sRGB or not; probes are read in the same way.
    """

    model: DLN
    names: list[str]
    known: Known
    problems: list[str]
    align: bool
    srgb: bool

    def answers(self, crops: np.ndarray, rule: Rule = "detail") -> tuple[np.ndarray, np.ndarray]:
        """Distances (N, G) of crops (N, V), or of K of each photo (N, K, V), and the probabilities of all people."""
        return self.known.judged(crops, rule, odds_of(self.model.misfit) if rule == "detail" else None)


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
            found = [crops_of(model, source, file, align, srgb) for file in files]
            problems += [each for each in found if isinstance(each, str)]
            usable = [each for each in found if not isinstance(each, str)]
            if usable:
                names.append(name)
                crops.append(np.concatenate([each[:1] for each in usable]))
    if len(names) < 2:
        raise ValueError(
            f"{path}: expected at least two people with a usable photo, got {len(names)}"
            + (f" ({'; '.join(problems[:3])})" if problems else "")
        )
    posts = model.infer_many(crops, seed=seed, sampler=sampler)
    scaled_normals = np.stack([post.scaled_normals.reshape(-1, 3) for post in posts])
    photos = [each.reshape(len(each), -1) for each in crops]
    known = Known(scaled_normals, photos, model.shape, np.asarray(model.params.noise_var))
    return Gallery(model, names, known, problems, align, srgb)


def recognize_photos(
    gallery: Gallery, path: str | Path, *, rule: Rule = "detail", threshold: float = THRESHOLD
) -> list[Answer]:
    """Who is on each photo of a folder or archive; "unknown" where that is less likely than the threshold."""
    found: list[Answer] = []
    with open_source(path) as source:
        files = sorted((file for files in _people(source).values() for file in files), key=natural)
        for name in track(files, "recognizing"):
            truth, crops = name.rpartition("/")[0], crops_of(gallery.model, source, name, gallery.align, gallery.srgb)
            if isinstance(crops, str):
                found.append(Answer(name, truth, problem=crops))
                continue
            (distances,), (sure,) = gallery.answers(crops.reshape(1, len(crops), -1), rule)
            first, second = np.argsort(distances, kind="stable")[:2]
            near, next_ = gallery.names[first], gallery.names[second]
            label, chance = (near if sure[first] >= threshold else UNKNOWN), float(sure[first])
            found.append(
                Answer(name, truth, label, chance, near, float(distances[first]), next_, float(distances[second]))
            )
    return found


def count_errors(answers: Sequence[Answer], names: Sequence[str]) -> dict[str, Any]:
    """How many photos were read and, where the truth is known, how many named rightly; "unknown" is wrong of those whom
    the gallery has, and right of all others.
    """
    read = [each for each in answers if each.truth and not each.problem]
    judged = [each for each in read if each.truth in names]
    strangers = [each for each in read if each.truth not in names]
    wrong = sum(each.label != each.truth for each in judged)
    figures: dict[str, Any] = {"probes": len(answers), "problems": sum(bool(each.problem) for each in answers)}
    figures["unknown"] = sum(each.label == UNKNOWN for each in answers)
    if judged:
        figures |= {"judged": len(judged), "wrong": wrong, "error": 100 * wrong / len(judged)}
    if judged and strangers:
        figures |= {"strangers": len(strangers), "named": sum(each.label != UNKNOWN for each in strangers)}
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


def crops_of(model: DLN, source: Source, file: str, align: bool, srgb: bool) -> np.ndarray | str:
    """The face of a photo at the model's size and brightness, with croppings nearby if it was found (K, h, w); or what
    is wrong with the photo.
    """
    try:
        picture = decode(source.read(file), file, srgb=srgb, colour=True)
        photo = prepare_photos([(file, picture)], model, Placement(align=align))[0][0]
    except ValueError as error:  # no image, no face, several faces, black
        return str(error) if file in str(error) else f"{file}: {error}"
    frames = [photo.alignment]
    if np.isfinite(photo.alignment.score):
        ways = [np.array([0, down, TURN * growth, 0]) for growth in SIZES for down in PLACES]
        frames += [move(photo.alignment, way) for way in ways[1:]]
    return np.stack([photo.exposure * frame.crop(photo.grey, model.shape) for frame in frames]).astype(np.float32)
