"""Attack the program, and say how it stood: `python -m tools.attack --seed S --seconds N [--only KIND]`.

bytes: every format that is read, mutated; coverage: the same, led by atheris where it is installed; kills: runs that
are killed, starved of disk, robbed of their folder; processes: two and three processes that die, dawdle and disagree;
studio: it is killed, and sent what hurts; load: many objects, photos, sizes and calls; jobs: many of the studio.
The same seed attacks in the same way. The exit code is 1 where a traceback, a wrong result or a hang was seen.
"""

import argparse
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tools.attack.tally import SKIPPED, Tally

# What part of the time each kind has, its module, and how many attempts make it complete where there is time enough.
# What one does not need, as those that are skipped where time is short, the others have.
KINDS = {
    "studio": (0.1, "studio", 60),
    "jobs": (0.05, "jobs", 3000),
    "load": (0.1, "load", None),
    "coverage": (0.1, "coverage", None),
    "bytes": (0.25, "bad_bytes", 100_000),
    "processes": (0.15, "quarrels", 50),
    "kills": (0.25, "kills", 200),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120, help="for all that is attacked together (default: 120)")
    parser.add_argument(
        "--only", choices=KINDS, action="append", help="this kind of attack; may be given several times"
    )
    parser.add_argument("--most", type=int, help="end a kind after so many attempts (default: 100,000, 200, 50, ...)")
    parser.add_argument(
        "--work", type=Path, help="where files go, and what showed a defect is kept (default: a new folder)"
    )
    options = parser.parse_args()
    chosen = [name for name in KINDS if not options.only or name in options.only]
    work = options.work or Path(tempfile.mkdtemp(prefix="attack-"))
    shares = {name: KINDS[name][0] for name in chosen}
    tally, began = Tally(), time.monotonic()
    told: list[str] = []  # defects, as they are found: a campaign may be ended before its table

    def say(text: str) -> None:
        for line in (text, *tally.defects[len(told) :]):
            print(f"{time.monotonic() - began:6.0f} s  {line}", file=sys.stderr, flush=True)
        told[:] = tally.defects

    while shares:
        left = options.seconds - (time.monotonic() - began)
        name, seconds = next(iter(shares)), max(0.0, left) * next(iter(shares.values())) / sum(shares.values())
        del shares[name]
        most = options.most or KINDS[name][2]
        say(f"{name}, for {seconds:.0f} s, files in {work}")
        attack = import_module(f"tools.attack.{KINDS[name][1]}")
        try:
            attack.run(tally, options.seed, seconds, work, most=most, say=say)
        except ImportError as error:
            tally.add(name, SKIPPED, str(error))
        except KeyboardInterrupt:
            tally.add(name, SKIPPED, "the rest of it: interrupted")
    print(tally.table())
    for line in (*tally.notes, *tally.defects):
        print(line)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if tally.defects else 0


if __name__ == "__main__":
    sys.exit(main())
