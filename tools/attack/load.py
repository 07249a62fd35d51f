"""(d) Load: many objects, many photos of one face, photos of many sizes, a huge one, and calls of many shapes.

Each is done in a process of its own, whose memory is sampled: once all shapes have been met, it must not grow any more.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tools.attack.runs import FAST
from tools.attack.tally import SKIPPED, TRACEBACK, UNHARMED, WRONG, Tally

MOST_GROWTH = 0.05
# What a job does, and how much of it in full; a short run does a part of it.
JOBS = {"objects": 500, "photos of one face": 200, "sizes": 50, "megapixels": 90, "calls": 1000}
SHAPES = 20
Say = Callable[[str], None]


def memory() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def portrait(height: int, width: int) -> np.ndarray:
    """A photo with one face in it, (H, W, 3)."""
    from PIL import Image

    from deep_lambertian.synthetic.portrait import draw_portrait

    photo = np.round(255 * np.clip(draw_portrait(0).photo, 0, 1)).astype(np.uint8)
    return np.asarray(Image.fromarray(photo).resize((width, height)), np.float32) / 255


# ---- Jobs: they yield after each piece of work


def objects(much: int, work: Path) -> Iterator[None]:
    """Inference over a folder of so many objects, some of two images and some of one."""
    from deep_lambertian import load_model
    from deep_lambertian.photos.batch import BatchOptions, infer_folder
    from tools.attack.originals import encoded

    folder = work / "many"
    for i in range(much):
        (folder / f"{i:04}").mkdir(parents=True)
        for p in range(1 + i % 2):
            (folder / f"{i:04}" / f"{p}.png").write_bytes(encoded("png", 31 * i + p, 16))
    model = load_model("yaleb24")
    samples: list[int] = []
    options = BatchOptions(batch=16, restart=True, on_object=lambda *_: samples.append(memory()))
    result = infer_folder(
        model, folder, work / "many-out", model.sampler.override(iterations=8, burn_in=4), options=options
    )
    assert result.done == much, result.failed
    HELD.extend(samples)
    yield


def one_face(much: int, work: Path) -> Iterator[None]:
    """So many photos of one face as one object."""
    from deep_lambertian import load_model
    from deep_lambertian.photos.placing import Placement
    from deep_lambertian.photos.result import infer_photos

    model = load_model("yaleb24")
    rng = np.random.default_rng(0)
    face = portrait(240, 320)
    pictures = [(f"{i}.png", np.clip(face * rng.uniform(0.6, 1.1), 0, 1).astype(np.float32)) for i in range(much)]
    sampler = model.sampler.override(iterations=10, burn_in=5, until=0)
    for _ in range(4):
        result = infer_photos(model, pictures, placement=Placement(align=False), sampler=sampler)
        assert result.posterior.is_finite
        assert len(result.posterior.lights) == much
        yield


def sizes(much: int, work: Path) -> Iterator[None]:
    """Photos of so many sizes, one after the other, twice."""
    from deep_lambertian import load_model
    from deep_lambertian.photos.placing import Placement
    from deep_lambertian.photos.result import infer_photos

    model, rng = load_model("yaleb24"), random.Random(0)
    sampler = model.sampler.override(iterations=10, burn_in=5, until=0)
    all_sizes = [(rng.randint(60, 700), rng.randint(60, 700)) for _ in range(much)]
    for height, width in all_sizes * 3:
        result = infer_photos(
            model, [("a", portrait(height, width))], placement=Placement(align=False), sampler=sampler
        )
        assert result.posterior.is_finite
        yield


def megapixels(much: int, work: Path) -> Iterator[None]:
    """A photo of so many megapixels, in which the face is found."""
    from deep_lambertian import load_model
    from deep_lambertian.photos.result import infer_photos

    model = load_model("yaleb24")
    side = int((much * 1e6) ** 0.5)
    for _ in range(3):
        result = infer_photos(
            model, [("a", portrait(side, side))], sampler=model.sampler.override(iterations=10, burn_in=5, until=0)
        )
        assert result.posterior.is_finite
        yield


def calls(much: int, work: Path) -> Iterator[None]:
    """So many calls of `infer`, of models of many shapes in turn."""
    from deep_lambertian import DLN

    rng = np.random.default_rng(0)
    models = [DLN.random((4 + i, 5 + i % 3), (4,), (4,)) for i in range(SHAPES)]
    for i in range(much):
        model = models[i % SHAPES]
        post = model.infer(rng.uniform(0.1, 0.9, model.shape), iterations=3, chains=1, seed=i)
        assert post.is_finite
        yield


WORK = dict(zip(JOBS, (objects, one_face, sizes, megapixels, calls), strict=True))
HELD: list[int] = []  # bytes, after each piece of work


def measure(name: str, much: int, work: str) -> None:
    """Do a job, and print what memory it held: in the middle, by when all shapes have been met, and in the end."""
    for _ in WORK[name](much, Path(work)):
        HELD.append(memory())
    half = HELD[len(HELD) // 3 : 2 * len(HELD) // 3] or HELD
    last = HELD[2 * len(HELD) // 3 :] or HELD
    print(json.dumps({"before": float(np.median(half)), "after": float(np.median(last)), "peak": max(HELD)}))


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    """All jobs, in full where there is time (a quarter of an hour on two cores), or a part."""
    part = min(1.0, seconds / 900)
    environment = os.environ | FAST | {"JAX_COMPILATION_CACHE_DIR": str(work / "load-cache")}
    for name, full in JOBS.items():
        if seconds < 60:
            tally.add(f"load: {name}", SKIPPED, "in so short a time")
            continue
        much = max(6 * SHAPES if name == "calls" else 4, round(full * part))
        words = f"from tools.attack.load import measure; measure({name!r}, {much}, {str(work)!r})"
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=False
        )
        target = f"load: {name}"
        if done.returncode:
            tally.add(target, TRACEBACK, done.stderr[-500:])
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        growth = found["after"] / found["before"] - 1
        before, after, peak = (f"{found[each] / 1e6:.0f} MB" for each in ("before", "after", "peak"))
        took = time.monotonic() - began
        told = f"{much} {name}: memory {before}, then {after} ({growth:+.1%}), at most {peak}, in {took:.0f} s"
        tally.add(target, UNHARMED if growth <= MOST_GROWTH else WRONG, told)
        tally.notes.append(told)
        say(told)
