"""Jobs of the studio, `dln studio`, where it is installed: they are killed and repeated as other runs are."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tools.attack.tally import SKIPPED, Tally


def run(
    tally: Tally, seed: int, seconds: float, work: Path, *, most: int | None = None, say: Callable[[str], None] = print
) -> None:
    if find_spec("deep_lambertian.studio") is None:
        tally.add("studio", SKIPPED, "this version has no deep_lambertian.studio")
        return
    tally.add("studio", SKIPPED, "its attack is still to be written")
