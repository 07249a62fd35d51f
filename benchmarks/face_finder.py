"""How well faces are found and aligned: `python -m benchmarks.face_finder DATA_DIR --json`.

DATA_DIR holds CroppedYale.zip, faces48.npz and aloi_red4_ill.tar. Crops of Extended Yale
B (subjects 11 to 39, subsets 1 and 2) are pasted at known size, rotation and place into larger scenes, half of them
with a hard edge and half with a soft one. All that knows Yale B, the mean face and the last steps of the alignment, is
fitted without the subjects of a fold before they are looked for; the nets themselves have never seen Yale B. A face
counts where one of those found lies, on average over the frame, within a pixel of 24×24 of the pasted crop or, by the
other measure, of the frame in which its irises and mouth lie as they do on average over the other people. Beyond that:
faces of faces48 that were kept from training, scenes without a face, and the processor's time for a photo of 640×480.

Each part's figures go to stderr as they come. `tools/train_face_finder` trains the bundled weights.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from deep_lambertian.faces import find as face_detector
from deep_lambertian.faces.alignment import FRAME, Alignment
from deep_lambertian.faces.find import Detector, find_faces
from tools.train_face_finder import marks as face_marks
from tools.train_face_finder import samples as face_samples
from tools.train_face_finder.samples import TEXTURES, texture

SIZE = (480, 640)
FOLDS = 4
NEAR_ENOUGH = 3.0  # pixels of 24×24 within which a face counts as found, if not as aligned
STEP = 2  # every so many images, unless asked otherwise
Figures = dict[str, Any]
Report = Callable[[str, Figures], None]


@dataclass(frozen=True)
class Trial:
    """A scene with one face: by how much the nearest find misses its crop and its marks, and how long that took."""

    subject: str
    hard: bool  # whether the crop's edge is
    crop: float
    marks: float
    faces: int
    seconds: float


def scene(rng: np.random.Generator, face: np.ndarray, kind: str, hard: bool) -> tuple[np.ndarray, Alignment]:
    """A crop, 80 to 300 pixels high and turned by up to 15°, in a texture, and where its frame lies."""
    height, turn = math.exp(rng.uniform(math.log(80), math.log(300))), math.radians(rng.uniform(-15, 15))
    across, down = (
        height / 2 * (a * math.cos(turn) + b * abs(math.sin(turn))) + 2 for a, b in ((0.875, 1.0), (1.0, 0.875))
    )
    frame = Alignment.from_pose(
        (rng.uniform(across, SIZE[1] - across), rng.uniform(down, SIZE[0] - down)), height, turn
    )
    ground = texture(rng, SIZE, kind)
    points = frame.to_crop(np.stack(np.meshgrid(np.arange(SIZE[1]), np.arange(SIZE[0])), -1))
    u, v = np.moveaxis((points + 0.5) / FRAME[0], -1, 0)
    sharp = ndimage.gaussian_filter(face, max(0.0, 0.5 * (len(face) / height - 1)), mode="nearest")
    rows, columns = face.shape
    seen = ndimage.map_coordinates(sharp, [v * rows - 0.5, u * columns - 0.5], order=1, mode="nearest")
    outside = np.maximum(np.abs(u - 0.5) * 0.875 - 0.4375, np.abs(v - 0.5) - 0.5) * height  # in photo pixels
    if hard:
        alpha = np.clip(0.5 - outside, 0, 1)
    else:  # the crop's edge goes on for a tenth of its height, and fades
        alpha = np.where(outside > 0, 1 / (1 + np.exp(np.clip((outside / height - 0.1) / 0.03, -50, 50))), 1)
    photo = ground + alpha * (seen - ground)
    return np.clip(photo + 0.005 * rng.normal(size=SIZE), 0, 1), frame


def displacement(found: Alignment, true: Alignment) -> float:
    """Mean displacement of the frame's points, in pixels of 24×24."""
    points = np.stack(np.meshgrid(np.arange(FRAME[1]), np.arange(FRAME[0])), -1).reshape(-1, 2)
    return float(np.hypot(*(true.to_crop(found.to_photo(points)) - points).T).mean())


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a proportion."""
    part, spread = hits / total, z * z / total
    middle = (part + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(part * (1 - part) / total + spread / total / 4)
    return middle - half, middle + half


def folds_of(subjects: Sequence[str], count: int = FOLDS) -> list[list[str]]:
    """Every fourth subject is a fold."""
    return [list(subjects[k::count]) for k in range(count)]


def attempt(photo: np.ndarray, detector: Detector) -> tuple[list[Alignment], float]:
    """The faces found, and the processor's seconds."""
    start = time.process_time()
    return find_faces(photo, detector=detector), time.process_time() - start


def nearest(faces: Sequence[Alignment], goal: Alignment) -> float:
    return min((displacement(face, goal) for face in faces), default=math.inf)


def share(hits: Sequence[bool]) -> Figures:
    return {"share": float(np.mean(hits)), "interval": wilson(sum(hits), len(hits))}


def summary(trials: Sequence[Trial], marks: bool = True) -> Figures:
    """In how many scenes the face was found, and aligned; how many finds were something else; and the time."""
    found = [trial for trial in trials if trial.crop < NEAR_ENOUGH]
    figures = {
        "scenes": len(trials),
        "found": share([trial.crop < NEAR_ENOUGH for trial in trials]),
        "within_1_px_of_marks": share([trial.marks <= 1 for trial in trials]) if marks else None,
        "within_1_px_of_crop": share([trial.crop <= 1 for trial in trials]),
        "mean_px_from_crop": float(np.mean([trial.crop for trial in found])) if found else None,
        "found_elsewhere": sum(trial.faces for trial in trials) - len(found),
        "median_cpu_seconds": float(np.median([trial.seconds for trial in trials])),
    }
    return {key: value for key, value in figures.items() if value is not None}


def yale_figures(data: Path, step: int, report: Report) -> Figures:
    """Cross-validation over the subjects; `step` takes every so many images."""
    crops = face_marks.yale_crops(data, (1, 2, 3))
    subjects = sorted({subject for subject, _, _ in crops})
    nets = face_detector.bundled()
    judged = face_marks.judged_crops(nets.judge, crops)
    trials: list[Trial] = []
    folds = []
    for k, fold in enumerate(folds_of(subjects)):
        training = [crop for crop in crops if crop[0] not in fold]
        steps = face_marks.fit_steps(nets.judge, [each for each in judged if each.subject not in fold])
        detector = replace(nets, steps=steps, mean=face_marks.mean_face(training))
        marks = face_marks.mean_marks([crop[0] for crop in training])
        tried = []
        for i, (subject, image, _) in enumerate([crop for crop in crops if crop[0] in fold and crop[2] < 3][::step]):
            hard = (i // 4) % 2 == 0
            photo, frame = scene(np.random.default_rng([k, i]), image, TEXTURES[i % 4], hard)
            faces, seconds = attempt(photo, detector)
            marked = face_marks.marked_frame(subject, frame, marks)
            errors = nearest(faces, frame), nearest(faces, marked)
            tried.append(Trial(subject, hard, *errors, len(faces), seconds))
        folds.append({"subjects": fold} | summary(tried))
        report(f"Yale B, fold {k + 1} of {FOLDS}", folds[-1])
        trials += tried
    of_subject = {subject: [trial for trial in trials if trial.subject == subject] for subject in subjects}
    return {
        "all": summary(trials),
        "exact_marks_within_1_px_of_crop": share(marks_alone()),
        "hard_edged": summary([trial for trial in trials if trial.hard]),
        "soft_edged": summary([trial for trial in trials if not trial.hard]),
        "subjects_within_1_px_of_crop": {s: float(np.mean([t.crop <= 1 for t in of_subject[s]])) for s in subjects},
        "folds": folds,
    }


def marks_alone() -> list[bool]:
    """Whether each subject's crop lies within a pixel of where irises and mouth put it, if those were known exactly.

    The mean place of the marks is that of the other subjects.
    """
    crop, subjects = Alignment.from_box((0, 0, 168, 192)), list(face_marks.MARKS)
    means = [face_marks.mean_marks([other for other in subjects if other != subject]) for subject in subjects]
    frames = [face_marks.marked_frame(subject, crop, mean) for subject, mean in zip(subjects, means, strict=True)]
    return [displacement(frame, crop) <= 1 for frame in frames]


def other_figures(data: Path, step: int) -> Figures:
    """Faces of faces48 that were kept from training, whose own frames are only roughly aligned."""
    trials = []
    for i, face in enumerate(face_samples.faces48(data, held_out=True)[:240:step]):
        image, hard = face.astype(np.float32) / 255, (i // 4) % 2 == 0
        photo, frame = scene(np.random.default_rng([9, i]), image, TEXTURES[i % 4], hard)
        faces, seconds = attempt(photo, face_detector.bundled())
        trials.append(Trial(f"face {i}", hard, nearest(faces, frame), math.nan, len(faces), seconds))
    return summary(trials, marks=False)


def empty_figures(data: Path, step: int) -> Figures:
    """Scenes without a face: objects of ALOI that were kept from training, and textures; and the time for each."""
    objects = face_samples.aloi_images(data, range(41, 61), lights=range(1, 9))
    photos = [np.asarray(ndimage.zoom(image, SIZE[1] / image.shape[1], order=1)) for image in objects[::step]]
    photos += [texture(np.random.default_rng([7, i]), SIZE, TEXTURES[i % 4]) for i in range(120 // step)]
    tried = [attempt(photo, face_detector.bundled()) for photo in photos]
    return {
        "scenes": len(photos),
        "with_a_false_face": share([bool(faces) for faces, _ in tried]),
        "median_cpu_seconds": float(np.median([seconds for _, seconds in tried])),
    }


def run(data: Path, step: int, report: Report) -> Figures:
    """All figures."""
    figures: Figures = {"step": step, "yale": yale_figures(data, step, report)}
    report("Yale B", figures["yale"]["all"])
    for name, measure in (("faces48", other_figures), ("empty", empty_figures)):
        figures[name] = measure(data, step)
        report(name, figures[name])
    return figures


def as_line(name: str, figures: Figures) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, dict):
            low, high = value["interval"]
            return f"{value['share']:.1%} ({low:.1%} to {high:.1%})"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    parts = (f"{key.replace('_', ' ')} {shown(value)}" for key, value in figures.items() if key != "subjects")
    return f"{name}: {', '.join(parts)}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="face_finder"
    )
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--step", type=int, default=STEP, help="use every so many images only (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    options = parser.parse_args(arguments)

    def report(name: str, part: Figures) -> None:
        if not options.quiet:
            print(as_line(name, part), file=sys.stderr, flush=True)

    figures = run(options.data, options.step, report)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"step {figures['step']}")
        for name, part in (("Yale B", figures["yale"]["all"]), *((key, figures[key]) for key in ("faces48", "empty"))):
            print(as_line(name, part))
    return 0


if __name__ == "__main__":
    sys.exit(main())
