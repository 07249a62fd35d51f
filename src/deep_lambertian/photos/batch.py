"""Inference over a large folder of objects, by one process or many: results are written as they come.

out/batch.json   out/summary.csv   out/<object>/{posterior.npz, albedo.png, normals.png, lights.json}

A batch is read, inferred, written and forgotten. An object's draws come from its own number in the sorted listing, and
the sizes of batches from the listing too, not from what is still to be done: a run that was stopped, or is shared by
many processes, finds what one process finds in one go. Processes share nothing but the folder; they agree on what is
missing before the start, and exchange what has failed at the end.
"""

import errno
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from deep_lambertian.data.dataset import Skipped
from deep_lambertian.data.folder import Entry, ObjectFolder
from deep_lambertian.data.images import save_png16
from deep_lambertian.inference.posterior import InferenceError, Posterior
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.model import DLN, Layout, check_request
from deep_lambertian.support import distributed
from deep_lambertian.support.archives import DAMAGE
from deep_lambertian.support.files import parse_header, with_checksum, without_checksum, write_csv, write_json
from deep_lambertian.support.progress import track
from deep_lambertian.support.run_folder import LOCK, RunFolder

FORMAT, VERSION = "deep_lambertian batch", 1
DESCRIPTION, SUMMARY = "batch.json", "summary.csv"
MARK = "posterior.npz"  # written last: an object that has it is done
LIGHTS = "lights.json"
FILES = (MARK, "albedo.png", "normals.png", LIGHTS)
COLUMNS = ("object", "images", "light_x", "light_y", "light_z", "normals_std", "residual", "acceptance", "ok", "reason")
# A name that no folder can have, or that a file, another object's result, has already: it is that object's own failure.
NO_PLACE = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ)
KEPT = "the results written so far are intact"
Batch = tuple[list[str], tuple[int, int]]  # names of objects to infer at once, and their arrays' (objects, images)


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
    """One object as it was read: images (P, H, W), their names, the mask and lights if given, what was left out.

    `number` is its own in the listing.
    """

    name: str
    number: int
    images: np.ndarray
    image_names: list[str]
    mask: np.ndarray
    lights: np.ndarray | None
    skipped: list[str]


Infer = Callable[[list[Photos], tuple[int, int]], list[Posterior]]  # photos, in arrays of such a size


@dataclass(frozen=True)
class BatchOptions:
    """How a folder is worked through: at most `batch` objects at once by each process, files in sRGB or not.

    `restart` discards what the folder of results holds. `on_object` is called with the name of each object that is
    done, and the reason why it failed, which is empty where it did not.
    """

    batch: int = 32
    srgb: bool = True
    restart: bool = False
    on_object: Callable[[str, str], None] | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch: expected at least 1, got {self.batch}")


def infer_folder(
    model: DLN,
    path: str | Path,
    out: str | Path,
    sampler: Sampler | None = None,
    *,
    seed: int = 0,
    options: BatchOptions | None = None,
) -> BatchResult:
    """Infer every object of `path`, `root/<object>/<image>` in a folder or archive, into a folder of its own in `out`.

    `sampler` is the model's own unless given. Masks and lights that lie beside the images are used (see
    `load_folder`). Started again with the same model, listing and settings, only what is missing is done; others are
    refused unless `options.restart` is set. The listing is that of names: photos that were replaced under their old
    names go unnoticed where a result is there already. An object that cannot be used is reported, and tried again the
    next time. `albedo.png` is linear, with white for 1; `normals.png` is (n+1)/2; both have 16 bits.
    """
    options, sampler, out = options or BatchOptions(), sampler or model.sampler, Path(out)
    with distributed.peers(KEPT), distributed.together(lambda: _open(path, out)) as source:
        names = list(source.entries)
        listing = json.dumps([[name, entry.files] for name, entry in source.entries.items()])
        description = {  # what results depend on, but for rounding
            "format": FORMAT,
            "version": VERSION,
            "model": model.checksum,
            "objects": len(names),
            "listing": hashlib.sha256(listing.encode()).hexdigest()[:16],
            "settings": {"seed": seed, "srgb": options.srgb, **asdict(sampler)},
        }
        folder = RunFolder(out, "batch", description, restart=options.restart, results=_results(out, names))
        missing = distributed.collect([name for name in names if not _is_done(out / name)])[0]
        mine = plan(source.entries, missing, options.batch)

        infer = lambda photos, size: _infer(model, photos, size, sampler, seed)
        work = distributed.together(lambda: _work(model, source, out, mine, infer, options))
        failed = {name: reason for part in distributed.collect(work) for name, reason in part.items()}
        distributed.together(lambda: write_summary(out, names, failed) if distributed.is_first() else None)
        wrong = sum(name in failed for name in missing)
        del folder  # whose lock has been held until now
        return BatchResult(out, out / SUMMARY, len(missing) - wrong, len(names) - len(missing), failed)


def _open(path: str | Path, out: Path) -> ObjectFolder:
    if Path(path).is_dir() and out.resolve().is_relative_to(Path(path).resolve()):
        raise ValueError(
            f"{out}: expected a folder outside {path}, whose pictures would be taken for objects next time"
        )
    source = ObjectFolder(path)
    if not source.entries:
        source.source.close()
        raise source.nothing()
    return source


def _is_done(folder: Path) -> bool:
    try:
        return all((folder / file).is_file() for file in FILES) and bool(_figures(folder))
    except DAMAGE:  # no folder can have such a name, or what it holds has been damaged
        return False


def _figures(folder: Path) -> dict[str, Any]:
    """What the summary says of an object that is done."""
    return without_checksum(parse_header((folder / LIGHTS).read_text()), {})


def _is_name(folder: Path) -> bool:
    """Whether there may be such a folder."""
    try:
        return folder.exists() or True
    except OSError:
        return False


def _results(out: Path, names: list[str]) -> Iterator[Path]:
    """The files of these objects' results and, in a folder that is known to be one of results, of all others."""
    folders = {out / name for name in names if _is_name(out / name)}
    if (out / DESCRIPTION).is_file():
        folders |= {found.parent for found in out.rglob(MARK)}
    yield out / SUMMARY
    yield from (folder / file for folder in folders for file in FILES)


# ---- Who does what, and in which sizes


def plan(entries: dict[str, Entry], missing: list[str], batch: int) -> list[Batch]:
    """This process's batches: every N-th of the objects still to be done, those of like sizes together.

    Each size is compiled anew, which takes seconds. So numbers of images are taken together up to powers of two, and
    the objects of such a group come in batches of one size, as even as the whole listing allows.
    """
    groups: dict[tuple[int, bool], list[str]] = {}
    for name, entry in entries.items():
        groups.setdefault((max(entry.images - 1, 0).bit_length(), entry.lights), []).append(name)
    asked = set(missing)
    ordered = [name for _, names in sorted(groups.items()) for name in names if name in asked]
    mine, batches = set(ordered[jax.process_index() :: jax.process_count()]), []
    for _, names in sorted(groups.items()):
        size = -(-len(names) // -(-len(names) // batch)), max(1, *(entries[name].images for name in names))
        left = [name for name in names if name in mine]
        batches += [(left[start : start + size[0]], size) for start in range(0, len(left), size[0])]
    return batches


# ---- The work of one process


def _work(
    model: DLN, source: ObjectFolder, out: Path, batches: list[Batch], infer: Infer, options: BatchOptions
) -> dict[str, str]:
    """Read, infer, write and forget one batch after the other; the reasons of the objects that failed."""
    folders = (Path(folder).relative_to(source.source.path).as_posix() for folder in source.source.unreadable)
    failed = dict.fromkeys(folders, "folder cannot be read")
    numbers = {name: number for number, name in enumerate(source.entries)}

    def report(name: str, reason: str = "") -> None:
        if reason:
            failed[name] = reason
        if options.on_object is not None:
            options.on_object(name, reason)

    for names, size in track(batches, "inferring, in batches"):
        photos = []
        for name in names:
            try:
                photos.append(_read(source, name, numbers[name], model.shape, options.srgb))
            except Exception as error:  # objects are not to be trusted: whatever one causes is its own failure
                report(name, str(error) or type(error).__name__)
        for one, posterior in _inferred(photos, size, infer, report):
            try:
                _save(out / one.name, one, posterior)
                report(one.name)
            except OSError as error:
                if error.errno not in NO_PLACE:
                    raise
                report(one.name, f"{one.name}: its results cannot be written ({error.strerror}); give it another name")
    return failed


def _inferred(
    photos: list[Photos], size: tuple[int, int], infer: Infer, report: Callable[[str, str], None]
) -> list[tuple[Photos, Posterior]]:
    """Objects with their posteriors; those that end in no numbers are reported, and the others done without them."""
    while photos:
        try:
            return list(zip(photos, infer(photos, size), strict=True))
        except InferenceError as error:
            for number in error.objects:
                report(photos[number].name, f"{photos[number].name}: {str(error).partition(': ')[2]}")
            photos = [one for number, one in enumerate(photos) if number not in error.objects]
    return []


def _read(source: ObjectFolder, name: str, number: int, shape: tuple[int, int], srgb: bool) -> Photos:
    """One object at the model's size, or a ValueError that says why it cannot be used."""
    if Path(name).parts[0] in (DESCRIPTION, SUMMARY, LOCK):
        raise ValueError(f"{name}: expected another name for an object, got that of a file of the results")
    skipped: list[Skipped] = []
    found = source.read(name, shape, srgb, skipped)
    lost = [f"{each.name}: {each.reason}" for each in skipped if each.reason.startswith("unreadable")]
    if not found:
        raise ValueError(f"{name}: no image can be used ({'; '.join(lost[:3]) or 'there is none'})")
    images = np.stack([view.image for view in found])
    lights = None if found[0].light is None else np.stack([view.light for view in found if view.light is not None])
    mask = np.ones(shape, bool) if found[0].mask is None else found[0].mask
    check_request(shape, images, lights, mask, name=name)  # one that is not fit is found out before it joins others
    return Photos(name, number, images, [view.name for view in found], mask, lights, lost)


def _infer(model: DLN, photos: list[Photos], size: tuple[int, int], sampler: Sampler, seed: int) -> list[Posterior]:
    layout = Layout([each.number for each in photos], size, jax.local_devices())
    images, masks = [each.images for each in photos], [each.mask for each in photos]
    lights = [each.lights for each in photos if each.lights is not None] or None  # all of a batch have them, or none
    try:
        return model.infer_many(images, lights, masks, seed=seed, sampler=sampler, layout=layout)
    except jax.errors.JaxRuntimeError as error:  # not to be taken for a peer's death: no other process is involved
        raise OSError(f"inference of {len(photos)} objects has failed; try a smaller batch ({error})") from error


def _save(folder: Path, photos: Photos, posterior: Posterior) -> None:
    """Write one object's results, and last of all the one that marks it as done."""
    about = {"object": photos.name, "number": photos.number, "images": photos.image_names, "skipped": photos.skipped}
    save_png16(folder / "albedo.png", posterior.albedo)
    save_png16(folder / "normals.png", (posterior.normals + 1) / 2)
    rows = zip(photos.image_names, posterior.lights.tolist(), posterior.lights_std.tolist(), strict=True)
    spread, acceptance = posterior.normals_std[photos.mask], posterior.diagnostics.acceptance[photos.mask]
    figures = float(spread.mean()), posterior.diagnostics.residual, float(acceptance.mean())
    lights = {
        "axes": "x right, y up, z to the viewer; from the surface to the light",
        "known": photos.lights is not None,
        "lights": [{"image": image, "light": light, "std": std} for image, light, std in rows],
        "figures": dict(zip(COLUMNS[5:8], figures, strict=True)),
        "skipped": photos.skipped,
    }
    write_json(folder / LIGHTS, with_checksum(lights, {}))
    replace(posterior, info=posterior.info | about).save(folder / MARK)


def write_summary(out: Path, names: list[str], failed: dict[str, str]) -> None:
    """One row for every object: those of earlier runs, those of this one, and those that failed."""
    rows: list[list[Any]] = [[*COLUMNS]]
    for name in sorted({*names, *failed}):
        if name in failed:
            rows.append([name, *[""] * 7, "no", failed[name]])
            continue
        found = _figures(out / name)
        numbers = [*found["lights"][0]["light"], *(found["figures"][what] for what in COLUMNS[5:8])]
        left_out = f"left out: {'; '.join(found['skipped'])}" if found["skipped"] else ""
        rows.append([name, len(found["lights"]), *(f"{value:.5g}" for value in numbers), "yes", left_out])
    write_csv(out / SUMMARY, rows)
