"""How long someone with a photo waits: `dln infer` on colour photos of a megapixel, the first time and from then on.

Chains of one photo go on for longer than those of another, so that there are several. Each run is a process of its own,
as a user's is, with a folder for what is compiled that is empty the first time. How long the machine takes to import
JAX at that moment tells how busy it is.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from deep_lambertian.report.photo import to_bytes
from deep_lambertian.synthetic.portrait import draw_portrait

SIZE = (866, 1155)  # a megapixel
PHOTOS = 5


def run(quick: bool = False, seed: int = 0) -> Iterator[tuple[str, dict[str, float]]]:
    """Groups of figures as they are measured."""
    with tempfile.TemporaryDirectory() as folder:
        photos = [Path(folder) / f"photo-{i}.jpg" for i in range(1 if quick else PHOTOS)]
        for i, photo in enumerate(photos):
            Image.fromarray(to_bytes(draw_portrait(seed + i, size=SIZE).photo, srgb=True)).save(photo, quality=92)
        infer = [
            ["-m", "deep_lambertian.cli", "infer", "yaleb24", str(photo), "--quiet", "--out", f"{folder}/out"]
            for photo in photos
        ]
        firsts, rests, imports, memory = [], [], [], 0.0
        for attempt in range(1 if quick else 3):
            environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache-{attempt}"}
            environment.pop("JAX_COMPILATION_CACHE_DIR", None)
            first, used = _timed(infer[0], environment)
            firsts.append(first)
            rests += [_timed(command, environment)[0] for command in infer]
            imports.append(_timed(["-c", "import jax"], environment)[0])
            memory = max(memory, used)
        yield (
            "photo",
            {
                "photo.first_s": statistics.median(firsts),
                "photo.again_s": statistics.median(rests),
                "photo.again_least_s": min(rests),
                "photo.again_most_s": max(rests),
                "photo.memory_mb": memory,
                "photo.import_jax_s": statistics.median(imports),
            },
        )


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds and megabytes that a run of Python takes."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise ValueError(f"python {' '.join(command)}: expected it to end well, got exit code {child.returncode}")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return time.perf_counter() - start, kilobytes / 1024
