"""Inference over a large folder of objects, by one process or many: results are written as they come.

out/batch.json   out/summary.csv   out/<object>/{posterior.npz, albedo.png, normals.png, lights.json}

A batch is read, inferred, written and forgotten. An object's draws come from its own number in the sorted listing, and
the sizes of batches from the listing too, not from what is still to be done: a run that was stopped, or is shared by
many processes, finds what one process finds in one go. Processes share nothing but the folder; they meet before the
start, to agree on what is missing, and at the end.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jax
import numpy as np

from deep_lambertian.data.dataset import Skipped
from deep_lambertian.data.folder import Entry, ObjectFolder
from deep_lambertian.inference.inputs import check_request
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.model import DLN
from deep_lambertian.support import distributed
from deep_lambertian.support.files import atomic_write
from deep_lambertian.support.png import save_png16
from deep_lambertian.support.progress import track

FORMAT, VERSION = "deep_lambertian batch", 1
DESCRIPTION, SUMMARY = "batch.json", "summary.csv"
MARK = "posterior.npz"  # written last: an object that has it is done
FILES = (MARK, "albedo.png", "normals.png", "lights.json")
COLUMNS = ("object", "images", "light_x", "light_y", "light_z", "normals_std", "residual", "acceptance", "ok", "reason")
KEPT = "the results written so far are intact"


@dataclass(frozen=True)
class Outcome:
    """What has become of one object: `reason` says why it failed, and is empty where it did not."""

    name: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class BatchResult:
    """A finished run: how many objects `done` now and `before`, and those that `failed`, with the reasons."""

    out: Path
    summary: Path
    done: int
    before: int
    failed: dict[str, str]


@dataclass(frozen=True)
class Photos:
    """One object as it was read: images (P, H, W), their names, the mask and lights if given, what was left out."""

    name: str
    images: np.ndarray
    image_names: list[str]
    mask: np.ndarray
    lights: np.ndarray | None
    skipped: list[str]


@dataclass(frozen=True)
class Batch:
    """Objects to be inferred at once, in arrays of `size` (objects, images)."""

    names: list[str]
    size: tuple[int, int]


def infer_folder(
    model: DLN,
    path: str | Path,
    out: str | Path,
    *,
    batch: int = 32,
    chains: int | None = None,
    seed: int = 0,
    iterations: int | None = None,
    srgb: bool = True,
    keep: int = 0,
    restart: bool = False,
    on_object: Callable[[Outcome], None] | None = None,
    **settings: Any,
) -> BatchResult:
    """Infer every object of `path`, `root/<object>/<image>` in a folder or archive, into a folder of its own in `out`.

    Masks and lights that lie beside the images are used (see `load_folder`). At most `batch` objects are worked on at
    once by each process. Started again with the same model, listing and settings, only what is missing is done;
    others are refused unless `restart` discards what there is. The listing is that of names: photos that were replaced
    under their old names go unnoticed where a result is there already. An object that cannot be used is reported, and
    tried again the next time. `albedo.png` is linear, with white for 1; `normals.png` is (n+1)/2; both have 16 bits.
    """
    if batch < 1:
        raise ValueError(f"batch: expected at least 1, got {batch}")
    chains = CHAINS[model.preset] if chains is None else chains
    if chains < 1:
        raise ValueError(f"chains: expected at least 1, got {chains}")
    out = Path(out)
    sampler = preset(model.preset).override(iterations=iterations, **settings)
    with distributed.peers(KEPT), distributed.together(lambda: _open(path, out)) as source:
        told = {"chains": chains, "seed": seed, "srgb": srgb, "keep": keep, **asdict(sampler)}
        description = describe(model, source, told)
        missing = _agree(out, description, list(source.entries), restart)
        mine = plan(source.entries, missing, batch)

        def work() -> dict[str, str]:
            common = {"chains": chains, "seed": seed, "keep": keep, "iterations": iterations, **settings}
            return _work(model, source, out, mine, srgb, common, on_object)

        failed = {name: reason for part in distributed.collect(_unreadable(source)) for name, reason in part.items()}
        tried = distributed.collect(distributed.together(work))
        failed |= {name: reason for part in tried for name, reason in part.items()}

        def write() -> None:
            if distributed.is_first():
                write_summary(out, list(source.entries), failed)

        distributed.together(write)
        wrong = sum(name in failed for name in missing)
        return BatchResult(out, out / SUMMARY, len(missing) - wrong, len(source.entries) - len(missing), failed)


def _open(path: str | Path, out: Path) -> ObjectFolder:
    if Path(path).is_dir() and out.resolve().is_relative_to(Path(path).resolve()):
        raise ValueError(
            f"{out}: expected a folder outside {path}, whose pictures would be taken for objects next time"
        )
    source = ObjectFolder(path)
    if not source.entries:
        source.close()
        raise source.nothing()
    return source


def _unreadable(source: ObjectFolder) -> dict[str, str]:
    names = (Path(folder).relative_to(source.source.path).as_posix() for folder in source.unreadable)
    return {name: "folder cannot be read" for name in names}


# ---- What the folder of results holds, and whose they are


def describe(model: DLN, source: ObjectFolder, settings: dict[str, Any]) -> dict[str, Any]:
    """What results depend on, but for rounding: the model, the objects and their files by name, the settings."""
    listing = json.dumps([[name, entry.files] for name, entry in source.entries.items()])
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model.checksum,
        "objects": len(source.entries),
        "listing": hashlib.sha256(listing.encode()).hexdigest()[:16],
        "settings": json.loads(json.dumps(settings)),
    }


def _agree(out: Path, description: dict[str, Any], names: list[str], restart: bool) -> list[str]:
    """The objects that are to be done, as the first process has found them before any process has begun."""
    described = distributed.collect(description)
    for process, other in enumerate(described):
        differ = _differences(other, described[0])
        if differ:
            raise ValueError(
                f"expected all processes to have the same model, objects and settings, got process {process} with "
                f"{differ}, unlike process 0"
            )

    def first() -> list[str]:
        return _prepare(out, description, names, restart) if distributed.is_first() else []

    return distributed.collect(distributed.together(first))[0]


def _prepare(out: Path, description: dict[str, Any], names: list[str], restart: bool) -> list[str]:
    """Make the folder of results ready, or refuse one that holds other results; say which objects it lacks."""
    out.mkdir(parents=True, exist_ok=True)
    place = out / DESCRIPTION
    if restart:
        _discard(out, names)
    if place.is_file():
        try:
            found = json.loads(place.read_text())
            differ = _differences(found, description)
        except (ValueError, AttributeError):
            differ = "a description that cannot be read"
        if differ:
            raise ValueError(
                f"{out}: holds results of another run, with {differ}; infer with the same model, objects and settings "
                "to go on, choose another folder, or discard its results with --restart"
            )
    elif any(_is_done(out / name) for name in names):
        raise ValueError(
            f"{out}: holds results, but no {DESCRIPTION} that says how they came about; choose another folder, or "
            "discard its results with --restart"
        )
    else:
        with atomic_write(place) as file:
            file.write(json.dumps(description, indent=2).encode())
    return [name for name in names if not _is_done(out / name)]


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Where two descriptions differ, in a few words; empty where they agree."""
    words = {"format": "another format", "version": "another version", "model": "another model"}
    words |= {"listing": "other objects or images", "objects": "other objects or images"}
    differ = [words[name] for name in words if found.get(name) != wanted[name]]
    old, new = found.get("settings", {}), wanted["settings"]
    differ += [f"{name} {old.get(name)!r} (not {new[name]!r})" for name in new if old.get(name) != new[name]]
    return ", ".join(dict.fromkeys(differ))


def _is_done(folder: Path) -> bool:
    return all((folder / file).is_file() for file in FILES)


def _discard(out: Path, names: list[str]) -> None:
    """Remove the results of these objects, and, in a folder that is known to be one of results, of all others."""
    folders = {out / name for name in names}
    if (out / DESCRIPTION).is_file():
        folders |= {found.parent for found in out.rglob(MARK)}
    for folder in folders:
        for file in FILES:
            (folder / file).unlink(missing_ok=True)
    for file in (SUMMARY, DESCRIPTION):
        (out / file).unlink(missing_ok=True)


# ---- Who does what, and in which sizes


def plan(entries: dict[str, Entry], missing: list[str], batch: int) -> list[Batch]:
    """This process's batches: every N-th of the objects still to be done, those of like sizes together.

    Each size is compiled anew, which takes seconds. So numbers of images are taken together up to powers of two, and
    the objects of such a group come in batches of one size, as even as the whole listing allows.
    """

    def group(name: str) -> tuple[int, bool]:
        entry = entries[name]
        return max(entry.images - 1, 0).bit_length(), entry.lights

    sizes = {}
    for key, names in _grouped(list(entries), group):
        most = max(max(entries[name].images for name in names), 1)
        sizes[key] = -(-len(names) // -(-len(names) // batch)), most
    ordered = [name for _, names in _grouped(missing, group) for name in names]
    mine = ordered[jax.process_index() :: jax.process_count()]
    return [
        Batch(names[start : start + sizes[key][0]], sizes[key])
        for key, names in _grouped(mine, group)
        for start in range(0, len(names), sizes[key][0])
    ]


def _grouped(names: list[str], group: Callable[[str], Any]) -> Iterator[tuple[Any, list[str]]]:
    for key, found in groupby(sorted(names, key=group), group):  # sorting is stable: names stay in order
        yield key, list(found)


# ---- The work of one process


def _work(
    model: DLN,
    source: ObjectFolder,
    out: Path,
    batches: list[Batch],
    srgb: bool,
    settings: dict[str, Any],
    on_object: Callable[[Outcome], None] | None,
) -> dict[str, str]:
    """Read, infer, write and forget one batch after the other; the reasons of the objects that failed."""
    numbers = {name: number for number, name in enumerate(source.entries)}
    failed: dict[str, str] = {}

    def tell(name: str, reason: str = "") -> None:
        if reason:
            failed[name] = reason
        if on_object is not None:
            on_object(Outcome(name, reason))

    for each in track(batches, "inferring, in batches"):
        photos = []
        for name in each.names:
            try:
                photos.append(_read(source, name, model.shape, srgb))
            except ValueError as error:
                tell(name, str(error))
        if not photos:
            continue
        found = _infer(model, photos, [numbers[each.name] for each in photos], each.size, settings)
        for one, posterior in zip(photos, found, strict=True):
            if np.isfinite(posterior.scaled_normals).all() and np.isfinite(posterior.lights).all():
                _save(out / one.name, one, posterior, numbers[one.name])
                tell(one.name)
            else:
                tell(one.name, "the chain ended in numbers that are not finite; take a smaller step_size")
    return failed


def _read(source: ObjectFolder, name: str, shape: tuple[int, int], srgb: bool) -> Photos:
    """One object at the model's size, or a ValueError that says why it cannot be used."""
    if Path(name).parts[0] in (DESCRIPTION, SUMMARY):
        raise ValueError(f"{name}: expected another name for an object, got that of a file of the results")
    skipped: list[Skipped] = []
    found = source.read(name, shape, srgb, skipped)
    lost = [f"{each.name}: {each.reason}" for each in skipped if each.reason.startswith("unreadable")]
    if not found:
        raise ValueError(f"{name}: no image can be used ({'; '.join(lost[:3]) or 'there is none'})")
    images = np.stack([view.image for view in found])
    known = [view.light for view in found if view.light is not None]
    lights = np.stack(known) if known else None
    mask = np.ones(shape, bool) if found[0].mask is None else found[0].mask
    check_request(shape, images, lights, mask, name=name)  # one that is not fit is found out before it joins others
    return Photos(name, images, [view.name for view in found], mask, lights, lost)


def _infer(
    model: DLN, photos: list[Photos], numbers: list[int], size: tuple[int, int], settings: dict[str, Any]
) -> list[Posterior]:
    lights = [each.lights for each in photos]
    try:
        return model.infer_many(
            [each.images for each in photos],
            None if lights[0] is None else lights,
            [each.mask for each in photos],
            numbers=numbers,
            size=size,
            devices=jax.local_devices(),
            **settings,
        )
    except jax.errors.JaxRuntimeError as error:  # not to be taken for a peer's death: no other process is involved
        raise OSError(f"inference of {len(photos)} objects has failed; try a smaller batch ({error})") from error


def _save(folder: Path, photos: Photos, posterior: Posterior, number: int) -> None:
    """Write one object's results, and last of all the one that marks it as done."""
    about = {"object": photos.name, "number": number, "images": photos.image_names, "skipped": photos.skipped}
    save_png16(folder / "albedo.png", posterior.albedo)
    save_png16(folder / "normals.png", (posterior.normals + 1) / 2)
    rows = zip(photos.image_names, posterior.lights.tolist(), posterior.lights_std.tolist(), strict=True)
    lights = {
        "axes": "x right, y up, z to the viewer; from the surface to the light",
        "known": photos.lights is not None,
        "lights": [{"image": image, "light": light, "std": spread} for image, light, spread in rows],
        "figures": {
            "normals_std": float(posterior.normals_std[photos.mask].mean()),
            "residual": posterior.diagnostics.residual,
            "acceptance": float(posterior.diagnostics.acceptance[photos.mask].mean()),
        },
        "skipped": photos.skipped,
    }
    with atomic_write(folder / "lights.json") as file:
        file.write(json.dumps(lights, indent=1).encode())
    replace(posterior, info=posterior.info | about).save(folder / MARK)


def write_summary(out: Path, names: list[str], failed: dict[str, str]) -> None:
    """One row for every object: those of earlier runs, those of this one, and those that failed."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for name in sorted({*names, *failed}):
        if name in failed:
            table.writerow([name, *[""] * 7, "no", failed[name]])
            continue
        found = json.loads((out / name / "lights.json").read_text())
        numbers = [*found["lights"][0]["light"], *(found["figures"][what] for what in COLUMNS[5:8])]
        left_out = f"left out: {'; '.join(found['skipped'])}" if found["skipped"] else ""
        table.writerow([name, len(found["lights"]), *(f"{value:.5g}" for value in numbers), "yes", left_out])
    with atomic_write(out / SUMMARY) as file:
        file.write(text.getvalue().encode())
