"""Attack the program, and say how it stood: `python -m tools.attack --seed S --seconds N [--only KIND]`.

bytes: every format that is read, mutated; kills: runs that are killed, starved of disk, robbed of their folder;
processes: two and three processes that die, dawdle and disagree; load: many objects, photos, sizes and calls.
The same seed attacks in the same way. The exit code is 1 where a traceback, a wrong result or a hang was seen.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tools.attack.tally import SKIPPED, Tally

# What part of the time each kind has, and how many attempts make it complete where there is time enough.
KINDS = {"bytes": (0.35, "bad_bytes", 100_000), "kills": (0.3, "kills", 200), "processes": (0.25, "quarrels", 50)}
KINDS |= {"load": (0.1, "load", 1), "studio": (0.0, "studio", 1)}


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
    chosen = options.only or list(KINDS)
    work = options.work or Path(tempfile.mkdtemp(prefix="attack-"))
    shares = {name: KINDS[name][0] for name in chosen}
    tally, began = Tally(), time.monotonic()
    say: Callable[[str], None] = lambda text: print(
        f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True
    )
    for name in chosen:
        share = shares[name] / (sum(shares.values()) or 1)
        most = options.most or KINDS[name][2]
        say(f"{name}, for {share * options.seconds:.0f} s, files in {work}")
        attack = import_module(f"tools.attack.{KINDS[name][1]}")
        try:
            attack.run(tally, options.seed, share * options.seconds, work, most=most, say=say)
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
