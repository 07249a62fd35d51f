"""(a) once more, led by coverage: `atheris`, where it is installed, keeps what reaches code that nothing has reached.

Each format has a process of its own, which libFuzzer drives; what is promised of a file is judged as in `formats.py`.
Without atheris (pip install atheris; it is no part of the package) only `bad_bytes.py` attacks the readers.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tools.attack.formats import FORMATS, attempt, digest
from tools.attack.originals import write_originals
from tools.attack.tally import DEFECTS, HANG, SKIPPED, TRACEBACK, Tally

LONGEST, ENDLESS, MOST_MEMORY = 10.0, 60, 2048  # processor's seconds, seconds and megabytes for a file
LEAST, START = 5.0, 180.0  # seconds for a format, and those beyond until its process has imported everything
LARGEST = 100_000  # bytes of a file, where the sound one is no larger
TIMED_OUT = 70  # libFuzzer's exit code for a file that takes too long
# Branches are counted in what is imported within: the package's readers, and those that they call. Not where checksums
# are compared: libFuzzer looks on, and writes what is asked for, but checksums are against damage, not against forgery.
BEGIN = """
import sys, atheris
readers = [f"deep_lambertian.{room}" for room in ("data", "support", "photos", "inference", "models", "learning")]
seals = ["deep_lambertian.support.files"]
with atheris.instrument_imports(include=[*readers, "PIL", "zipfile", "tarfile", "tomllib"], exclude=seals):
    from tools.attack.coverage import begin
    begin(*sys.argv[1:])
atheris.Fuzz()
"""
Say = Callable[[str], None]


def run(tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Say = print) -> None:
    """Each format for its part of the time."""
    if find_spec("atheris") is None:
        tally.add("coverage", SKIPPED, "atheris is not installed: pip install atheris")
        return
    if seconds < LEAST * len(FORMATS):
        tally.add("coverage", SKIPPED, "in so short a time")
        return
    write_originals(work / "originals")
    deadline = time.monotonic() + seconds
    for place, name in enumerate(FORMATS):
        _drive(tally, name, seed, max(LEAST, (deadline - time.monotonic()) / (len(FORMATS) - place)), work)
        say(f"{name}: {sum(tally.counts[f'coverage: {name}'].values()):,} files, {len(tally.defects)} defects")


def _drive(tally: Tally, name: str, seed: int, seconds: float, work: Path) -> None:
    """A process that attacks one reader, and what it has found."""
    target, out = f"coverage: {name}", work / "coverage" / name.replace(" ", "-")
    shutil.rmtree(out, ignore_errors=True)
    (out / "corpus").mkdir(parents=True)
    command = [sys.executable, "-c", BEGIN, name, str(seed), str(seconds), str(work), str(out)]
    with (out / "log").open("wb") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=seconds + START, check=False).returncode
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
    told = out / "told.json"
    found = json.loads(told.read_text()) if told.is_file() else {"counts": {}, "defects": []}
    tally.counts.setdefault(target, Counter()).update(found["counts"])
    tally.defects += [f"{target}: {each}" for each in found["defects"]]
    if code != 0:  # libFuzzer has put the file beside the log
        tally.add(target, HANG if code == TIMED_OUT else TRACEBACK, f"the process ended by {code}: {out / 'log'}")


# ---- In the process of one format


def begin(name: str, seed: str, seconds: str, work: str, out: str) -> None:
    """Read a sound file, and have libFuzzer change it until the time is up."""
    import atheris

    form, source = FORMATS[name], write_originals(Path(work) / "originals")[name]
    whole, sound = digest(form.read(source)), source.read_bytes()
    (Path(out) / "corpus" / "sound").write_bytes(sound)
    counts: Counter[str] = Counter()
    defects: dict[str, str] = {}  # the first of each sort
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="attack-"))
    deadline = time.monotonic() + float(seconds)

    def read(data: bytes) -> None:
        (place / source.name).write_bytes(data)
        began = time.process_time()
        outcome, told = attempt(form, place / source.name, whole)
        if time.process_time() - began > LONGEST:
            outcome, told = HANG, f"more than {LONGEST:g} s"
        counts[outcome] += 1
        if outcome in DEFECTS and told[:60] not in defects:
            kept = Path(out) / f"found-{len(defects)}{form.suffix}"
            kept.write_bytes(data)
            defects[told[:60]] = f"{outcome}: {kept}: {told}"
        if time.monotonic() > deadline:
            (Path(out) / "told.json").write_text(json.dumps({"counts": counts, "defects": list(defects.values())}))
            shutil.rmtree(place)
            os._exit(0)  # libFuzzer has no other way out

    def change(data: bytes, most: int, number: int) -> bytes:
        """Half of the time by structure, where the file has kept any; libFuzzer's own changes otherwise."""
        rng = random.Random(number)
        if form.structure is not None and rng.random() < 0.5:
            try:
                return form.structure(data, rng)[:most]
            except Exception:  # it is no such file any more
                pass
        return atheris.Mutate(data, most)

    limits = [f"-timeout={ENDLESS}", f"-rss_limit_mb={MOST_MEMORY}", f"-max_len={max(LARGEST, 2 * len(sound))}"]
    words = [*limits, f"-seed={int(seed) + 1}", "-verbosity=0", "-len_control=0", f"-artifact_prefix={out}/"]
    atheris.Setup(["coverage", *words, f"{out}/corpus"], read, custom_mutator=change)
