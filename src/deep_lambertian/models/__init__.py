"""Models that come with the package: a file of weights and a card that says what it was taught, and its limits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Bundled:
    """A model that is here: its file, the first line of its card, and what the file says of itself."""

    name: str
    path: Path
    summary: str
    shape: tuple[int, int]
    info: dict[str, Any]

    @property
    def card(self) -> Path:
        return self.path.with_suffix(".md")


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str | Path) -> Path:
    """The file of a bundled model by its name, or a path as it is; a file of that name in the way goes first."""
    path = Path(name)
    if isinstance(name, Path) or path.exists() or path.suffix or path.name != str(name):
        return path
    if name in names():
        return FOLDER / f"{name}{SUFFIX}"
    known = ", ".join(names()) or "none"
    raise FileNotFoundError(f"{name}: expected a model file or the name of a bundled model ({known}), found neither")


def bundled() -> list[Bundled]:
    """All of them."""
    import json

    from safetensors import safe_open

    from deep_lambertian.models.file import KEY

    found = []
    for name in names():
        path = FOLDER / f"{name}{SUFFIX}"
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()[KEY])
        lines = path.with_suffix(".md").read_text().splitlines()
        summary = next(line for line in lines if line and not line.startswith("#"))
        height, width = header["shape"]
        found.append(Bundled(name, path, summary, (height, width), header["info"]))
    return found
