"""What the worker does for a job: photos become a surface that is watched as it comes; relighting; recognition.

What a job shows goes into its folder: `view/` holds what the page asks for, `files/` what `dln infer` writes.
"""

import base64
import math
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deep_lambertian.data.images import decode, linear_to_srgb, normal_colours, one_size, read_mask
from deep_lambertian.data.sources import open_source
from deep_lambertian.faces.find import NoFaceError, SeveralFacesError
from deep_lambertian.inference.chain import Sampled
from deep_lambertian.inference.observers import rhat
from deep_lambertian.inference.posterior import Posterior, summarise
from deep_lambertian.inference.sampler import Sampler
from deep_lambertian.model import DLN
from deep_lambertian.photos.placing import Photo, Placement, every_face, prepare_photos
from deep_lambertian.photos.result import Result, detail_size, infer_prepared, refine, refine_photos, refinement
from deep_lambertian.recognition.distances import fit_cone
from deep_lambertian.report.photo import (
    UNITS,
    bare_page,
    describe_lights,
    facts_of_light,
    save_files,
    spread_of,
    summary,
    to_bytes,
    views_of,
)
from deep_lambertian.support.progress import look_into
from deep_lambertian.surface import heights_of
from deep_lambertian.tasks.people import UNKNOWN, Gallery, crops_of, learn_people

ROWS, FIRST = 576, 192  # of the surface that the page relights; of the one that comes first, and in space
OFTEN = 0.3  # seconds from one look into the chains to the next
KEPT, SHOWN = 10, 12  # states that a chain keeps, as those of `dln infer` do; how many of them all are played
NO_FACE = "No face was found. Draw a box around it, or infer again without looking for a face."
LEAST = 8  # draws that R-hat is told from
RANKED = 5  # people that are shown for a probe
Say = Callable[..., None]  # what is to be known of a job from now on, by name; ends a job that was cancelled


class Cancelled(Exception):
    """Whoever asked for it no longer wants it."""


@dataclass
class Work:
    """A model, kept warm."""

    model: DLN
    pool: Executor
    last: tuple[str, Result] | None = None
    compiled: set[int] = field(default_factory=lambda: {1})  # numbers of photos that chains were compiled for

    def warm(self, folder: Path) -> None:
        """Do everything once, on the example, so that the first photo finds it compiled."""
        data = example()
        (folder / "uploads").mkdir(parents=True)
        (folder / "uploads" / "0").write_bytes(data)
        refinement(1)  # which the pool compiles meanwhile
        job = {"id": "", "folder": str(folder), "photos": ["example"], "iterations": 40}
        try:
            self.infer(job, lambda **_: None)
        except ValueError:  # a model of other things, or of few pixels
            self.infer(job | {"align": False}, lambda **_: None)

    # ---- Photos

    def infer(self, job: dict[str, Any], say: Say) -> None:
        """The surface of photos: a first one soon, what the chains show as they go, and the one they agree on."""
        folder, srgb = Path(job["folder"]), not job.get("linear", False)
        (folder / "view").mkdir(exist_ok=True)
        say(text="reading the photo" + "s" * (len(job["photos"]) > 1))
        pictures = [
            (name, decode((folder / "uploads" / str(i)).read_bytes(), name, srgb=srgb, colour=True))
            for i, name in enumerate(job["photos"])
        ]
        one_size([(name, picture.shape) for name, picture in pictures], "photos")
        shape = pictures[0][1].shape[:2]
        mask = read_mask(folder / "uploads" / "mask", shape) if job.get("mask") else None
        placement = self._placement(job, pictures, say)
        try:
            photos, how = prepare_photos(pictures, self.model, placement)
        except SeveralFacesError as error:
            raise ValueError("Some of these photos show several faces. Draw a box around the one you mean.") from error
        except NoFaceError as error:
            raise ValueError(NO_FACE) from error
        corners = photos[0].alignment.corners.round(1).tolist()
        known = "starting the chains"
        if len(photos) not in self.compiled:
            known = f"compiling for {len(photos)} photos, which is done once"
        say(text=known, size=[shape[1], shape[0]], frame=corners)
        sampler = self.model.sampler
        sampler = sampler.override(iterations=job.get("iterations"))
        sampler = sampler.override(keep=min(KEPT, sampler.iterations))
        watch = Watch(self, folder, photos, how, mask, srgb, sampler, say)
        with look_into(watch.look):
            post = infer_prepared(self.model, photos, mask=mask, sampler=sampler, seed=job.get("seed", 0))
        self.compiled.add(len(photos))
        say(text="bringing the surface to the photo's size", live=None)
        result = refine_photos(post, photos, how, mask=mask, srgb=srgb)
        say(surface=show_surface(folder, result, self.pool), **described(result))
        say(text="drawing what else it could be")
        say(more=show_more(folder, result, mask))
        say(text="writing the files")
        save_files(folder / "files", result, ", ".join(job["photos"]), self.pool.submit)
        say(files=sorted(path.name for path in (folder / "files").iterdir()))

    def _placement(self, job: dict[str, Any], pictures: list[tuple[str, np.ndarray]], say: Say) -> Placement:
        """How to find the thing; where one photo holds several faces, all are told, and one is taken."""
        align, box = job.get("align", True), job.get("box")
        if not align or box or len(pictures) > 1 or pictures[0][1].shape[:2] == self.model.shape:
            if align:
                say(text="finding the face")
            return Placement(align=align, box=box)
        say(text="finding the face")
        try:
            faces = every_face(pictures[0][1], self.model)
        except NoFaceError as error:
            raise ValueError(NO_FACE) from error
        chosen = job.get("face") or 0
        if not 0 <= chosen < len(faces):
            raise ValueError(f"face: expected 0 to {len(faces) - 1}, as many as were found, got {chosen}")
        say(faces=[face.corners.round(1).tolist() for face in faces], face=chosen)
        return Placement(frame=faces[chosen])

    # ---- A new light

    def relight(self, job: dict[str, Any], say: Say) -> None:
        """The photo, or the object alone, under another light, as view/NAME: of its files, so that all see the same."""
        folder = Path(job["folder"])
        result = self.last[1] if self.last and self.last[0] == job["of"] else Result.load(folder / "files")
        self.last = job["of"], result
        number, colour = job.get("photo", 0), np.asarray(job.get("colour", (1, 1, 1)), np.float32)
        if not 0 <= number < len(result.photos):
            raise ValueError(f"photo: expected 0 to {len(result.photos) - 1}, got {number}")
        light, ambient = job["light"], job.get("ambient", 0.0)
        if job.get("crop"):
            picture = result.relight(light, ambient) * colour
        else:
            picture = np.clip(result.photos[number].colour, 0, 1)
            where, part = result.relight_part(light, number, ambient)
            picture[where] = part * colour
        save_view(folder / "view" / job["name"], to_bytes(picture, result.srgb))
        say()

    # ---- Whose photo is it?

    def recognize(self, job: dict[str, Any], say: Say) -> None:
        """Who of the gallery, uploads/gallery/<number>/<photo>, is on each of uploads/probe."""
        folder, align = Path(job["folder"]), job.get("align", True)
        (folder / "view").mkdir(exist_ok=True)
        say(text=f"learning what {len(job['people'])} people look like")

        def look(done: int, most: int, _: Any) -> None:
            say(text=f"learning what {len(job['people'])} people look like: sweep {done} of {most}")

        with look_into(look):
            gallery = learned(self.model, folder / "uploads" / "gallery", job)
        names = [job["people"][int(number)] for number in gallery.names]
        left_out = [named(each, job["people"]) for each in gallery.problems]
        answers: list[dict[str, Any]] = []
        with open_source(folder / "uploads" / "probe") as source:
            for i, name in enumerate(job["probes"]):
                say(text=f"comparing photo {i + 1} of {len(job['probes'])}")
                found = {"probe": name, "picture": f"probe-{i}.png"}
                crops = crops_of(self.model, source, f"{i}.png", align, True)
                if isinstance(crops, str):
                    answers.append(found | {"problem": without_options(crops).removeprefix(f"{i}.png: ")})
                    continue
                answers.append(found | self._ranked(gallery, names, crops, folder / "view", i))
                say(answers=answers, left_out=left_out)
        say(answers=answers, left_out=left_out)

    def _ranked(self, gallery: Gallery, names: list[str], crops: np.ndarray, view: Path, number: int) -> dict[str, Any]:
        """The people whom a probe is most like; as each would look under its light, and what that leaves of it."""
        flat = crops.reshape(len(crops), -1).astype(np.float64)
        (distances,), (sure,) = gallery.answers(flat[None])
        order = np.argsort(distances, kind="stable")[:RANKED]
        show = lambda name, values: save_view(view / name, _enlarged(values.reshape(self.model.shape)))
        bright = max(float(np.quantile(flat[0], 0.99)), 1e-6)
        show(f"probe-{number}.png", linear_to_srgb(flat[0] / bright))
        ranked = []
        for rank, g in enumerate(order):
            surface = np.asarray(gallery.known.scaled_normals[g], np.float64)
            lit = np.maximum(fit_cone(surface, flat) @ surface.T, 0)
            way = int(np.argmin(np.sum((flat - lit) ** 2, axis=1)))
            names_of = {"lit": f"probe-{number}-{rank}-lit.png", "rest": f"probe-{number}-{rank}-rest.png"}
            show(names_of["lit"], linear_to_srgb(lit[way] / bright))
            show(names_of["rest"], np.clip(0.5 + (flat[way] - lit[way]) / bright, 0, 1))
            facts = {"name": names[g], "distance": float(distances[g]), "probability": float(sure[g])}
            ranked.append(facts | names_of)
        best = float(sure[order[0]])
        return {"label": names[order[0]] if best >= 0.5 else UNKNOWN, "confidence": best, "ranked": ranked}


@dataclass
class Watch:
    """Looks into the chains of one job: the first time it shows a surface to relight, then what they have by now."""

    work: Work
    folder: Path
    photos: list[Photo]
    how: str
    mask: np.ndarray | None
    srgb: bool
    sampler: Sampler
    say: Say
    last: float = -math.inf
    first: bool = True

    def look(self, done: int, most: int, found: Callable[[], Any]) -> None:
        self.say()
        if time.monotonic() - self.last < OFTEN:
            return
        sampled, asked = found(), self.sampler.iterations
        words = f"sweep {done} of {asked}" if done <= asked else f"sweep {done}: going on until the chains agree"
        facts: dict[str, Any] = {"text": words, "sweep": done, "sweeps": asked, "most": most}
        if not np.any(sampled.mean["directions"]):  # no sweep counts yet: where the chains stand
            sampled = replace(sampled, mean=standing(sampled))
        shape, count = self.work.model.shape, len(self.photos)
        post = summarise(sampled, 0, shape, count, self.sampler, None, {"known": []})
        if self.first:
            result = refine_photos(post, self.photos, self.how, mask=self.mask, srgb=self.srgb, most=FIRST)
            facts["surface"] = show_surface(self.folder, result, self.work.pool, final=False)
            self.first = False
        self.say(**facts, rhat=rhat_so_far(post), live=live(post))
        self.last = time.monotonic()


def standing(sampled: Sampled) -> dict[str, np.ndarray]:
    """What the chains would have found if they had only been where they are."""
    state, surface = sampled.state, sampled.state.surface
    length = np.maximum(np.linalg.norm(surface.normals, axis=-2, keepdims=True), 1e-9)
    now = {"albedo": surface.albedo, "directions": surface.normals / length, "lights": state.lights}
    return sampled.mean | now | {"scaled_normals": surface.scaled_normals}


def rhat_so_far(post: Posterior) -> float | None:
    """The largest R-hat of the energy and the lights: of all that is traced it would take as long as the chains do."""
    traces, burn_in = post.diagnostics.trace, post.diagnostics.burn_in
    rows = [
        traces[name][:, burn_in:].reshape(len(traces[name]), -1, int(np.prod(traces[name].shape[2:])))
        for name in ("energy", "lights")
    ]
    values = np.concatenate(rows, axis=-1).astype(np.float64) if rows[0].shape[1] >= LEAST else np.empty((1, 0, 0))
    values = values[..., np.ptp(values, axis=(0, 1)) > 0] if values.size else values
    return round(float(np.max(rhat(values))), 3) if values.size else None


# ---- What the page is shown


def example() -> bytes:
    """The photo that comes with the studio: Eileen Collins, by NASA, in the public domain."""
    return resources.files("deep_lambertian.studio").joinpath("static", "example.jpg").read_bytes()


def live(post: Posterior) -> dict[str, Any]:
    """The surface as it stands, at the model's size: bytes of a grey picture, and of the normals' colours."""
    rows, columns = post.shape
    albedo = linear_to_srgb(post.albedo / max(float(np.quantile(post.albedo, 0.99)), 1e-6))
    packed = [
        base64.b64encode(each.tobytes()).decode()
        for each in (np.round(255 * albedo).astype(np.uint8), normal_colours(post.normals))
    ]
    return {"rows": rows, "columns": columns, "albedo": packed[0], "normals": packed[1]}


def show_surface(folder: Path, result: Result, pool: Executor, final: bool = True) -> dict[str, Any]:
    """Write what relighting needs and, of the final one, pictures of what was found; what the page must know of it."""
    page, view, number = bare_page(result, rows=ROWS), folder / "view", int(final)
    height, width = page.scaled_normals.shape[:2]
    pictures = {"before": to_bytes(result.photos[0].crop((height, width)), result.srgb)}
    pictures |= views_of(page) if final else {}
    names = {name: f"{name}-{number}.png" for name in pictures}
    saved = pool.map(save_view, [view / name for name in names.values()], pictures.values())
    numbers = np.concatenate([page.scaled_normals.ravel(), page.factors.ravel()])
    (view / f"surface-{number}.f32").write_bytes(numbers.astype("<f4").tobytes())
    list(saved)
    return {
        **{"file": f"surface-{number}.f32", "before": names.pop("before"), "final": final},
        **{"width": width, "height": height, "aspect": page.aspect, "srgb": page.srgb, "pictures": names},
        "lights": page.posterior.lights.astype(float).tolist(),
    }


def save_view(path: Path, picture: np.ndarray) -> None:
    """Write a picture for the page alone, which waits for it: quickly, and need not survive a failing machine."""
    Image.fromarray(picture).save(path, "PNG", compress_level=1)


def described(result: Result) -> dict[str, Any]:
    """A result in words and figures."""
    post = result.posterior
    pairs = zip(describe_lights(result), post.lights, post.lights_std, strict=True)
    lights = [
        facts | {name: value for name, value in facts_of_light(light, std).items() if name in ("direction", "across")}
        for facts, light, std in pairs
    ]
    values = [each for each in post.diagnostics.rhat.values() if math.isfinite(each)]
    return {
        **{"lights": lights, "figures": summary(post), "notes": list(result.notes)},
        **{"warnings": post.diagnostics.warnings, "rhat": round(max(values), 3) if values else None},
        **{"sweep": post.info["iterations"], "spreads": [spread_of(post, name) for name in UNITS]},
        "unlit": [round(float(np.mean(shadow)), 3) for shadow in post.shadows],
    }


def show_more(folder: Path, result: Result, mask: np.ndarray | None) -> dict[str, Any]:
    """The surface in space, and other surfaces that the posterior holds, each brought to the photo's detail."""
    post, photos = result.posterior, result.photos
    size = detail_size(photos[0].alignment, FIRST)
    small = bare_page(result, rows=size[0])
    rows, columns = small.scaled_normals.shape[:2]
    normals = small.scaled_normals / np.maximum(np.linalg.norm(small.scaled_normals, axis=-1, keepdims=True), 1e-9)
    colour = np.broadcast_to(small.factors, (rows, columns, 3))
    parts = [heights_of(normals), small.scaled_normals, colour]
    fine = np.stack([p.exposure * p.alignment.crop(p.grey, (rows, columns)) for p in photos]).astype(np.float32)
    seen = np.stack([photo.seen((rows, columns), mask) for photo in photos])
    every = [post.samples[name].reshape(-1, *post.samples[name].shape[2:]) for name in ("albedo", "normals", "lights")]
    chosen = np.unique(np.linspace(0, len(every[0]) - 1, SHOWN).astype(int))
    for k in chosen:
        albedo, normals, lights = (each[k] for each in every)
        length = np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-9)
        sample = replace(post, albedo=albedo, normals=normals / length, lights=lights)
        found, towards = refine(sample, fine, seen)
        parts.append(found[..., None] * towards / photos[0].exposure)
    numbers = np.concatenate([np.asarray(each, "<f4").ravel() for each in parts])
    (folder / "view" / "more.f32").write_bytes(numbers.tobytes())
    return {"file": "more.f32", "rows": rows, "columns": columns, "samples": len(chosen)}


def _enlarged(values: np.ndarray, most: int = 144) -> np.ndarray:
    """Numbers in [0, 1] as an 8-bit picture, each as a square."""
    times = max(1, most // values.shape[0])
    return np.round(255 * values).astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1)


# ---- In words


def without_options(words: str) -> str:
    """A message without its parts that advise options of the command, which the page does not have."""
    return "; ".join(part for part in words.split("; ") if "--" not in part)


def named(problem: str, people: Sequence[str]) -> str:
    """What is wrong with a photo of the gallery, <number of the person>/<photo>, with the person's name instead."""
    return re.sub(r"\b(\d+)/\d+\.png\b", lambda found: people[int(found[1])], without_options(problem))


def learned(model: DLN, path: Path, job: dict[str, Any]) -> Gallery:
    """The people of a gallery; where too few have a usable photo, why, without the names of the studio's own files."""
    try:
        return learn_people(model, path, align=job.get("align", True), seed=job.get("seed", 0))
    except ValueError as error:
        words, bracket, problems = str(error).removeprefix(f"{path}: ").partition(" (")
        why = ". " * bool(bracket) + named(problems.removesuffix(")"), job["people"])
        raise ValueError(words + why) from error
