"""(a) Every format that is read, changed by bytes and by structure, and archives made by hand."""

import time
from collections.abc import Callable
from pathlib import Path

from tools.attack import by_hand
from tools.attack.formats import Format
from tools.attack.tally import Tally
from tools.attack.worker import EVERYTHING, Catalogue, Parcel, Worker, mutated

PARCEL, SLOW = 100, {"ALOI": 10, "result": 20, "Yale B": 25}  # mutations of a format at a time
SHORT, PART = 300.0, 5  # seconds, in less of which a fifth of them are done at a time: each format has its turn


def run(
    tally: Tally,
    seed: int,
    seconds: float,
    work: Path,
    *,
    most: int | None = None,
    catalogue: Catalogue = EVERYTHING,
    hand_made: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Go round the formats, once at least, until the time is up, or each has had its share of `most`."""
    formats = catalogue.formats()
    deadline, done, part = time.monotonic() + seconds, 0, PART if seconds < SHORT else 1
    worker = Worker(catalogue, work / "originals", seed)
    try:
        if hand_made:
            for name, suffix, data in by_hand.archives():
                target = f"objects {suffix[1:]}"
                for found in worker.do(Parcel(target, 0, 1, data)):
                    _add(tally, "archives made by hand", found, f"{name}{suffix}")
        rounds = 0
        while not rounds or (time.monotonic() < deadline and (most is None or done < most)):
            for name in formats:
                count = SLOW.get(name, PARCEL) // part
                for found in worker.do(Parcel(name, rounds * count, count)):
                    _add(tally, name, found, f"seed {seed}, number")
                    if isinstance(found, tuple):
                        _keep(work, formats[name], (work / "originals"), seed, found[0], catalogue)
                done += count
                if rounds and time.monotonic() > deadline:
                    break
            rounds += 1
            say(f"{done:,} mutated files, {len(tally.defects)} defects")
    finally:
        worker.close()


def _keep(work: Path, form: Format, originals: Path, seed: int, number: int, catalogue: Catalogue) -> None:
    """Put a file that showed a defect aside, to be looked at."""
    whole = catalogue.write(originals)[form.name].read_bytes()
    folder = work / "found"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{form.name.replace(' ', '-')}-{seed}-{number}{form.suffix}").write_bytes(
        mutated(form, whole, seed, number)
    )


def _add(tally: Tally, target: str, found: object, where: str) -> None:
    if isinstance(found, tuple):
        number, outcome, told = found
        tally.defects.append(f"{target}: {outcome}: {where} {number}: {told}")
    else:
        for outcome, count in found.items():  # type: ignore[attr-defined]
            tally.counts.setdefault(target, type(found)())[outcome] += count
