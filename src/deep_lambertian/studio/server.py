"""The studio's pages and its API, for one person on one machine.

It answers to 127.0.0.1 alone, to requests that name it as their host (a name that somebody else lets point here is
refused) and come from its own pages or from no page, and that know the token of the address it prints.
"""

import asyncio
import contextlib
import fcntl
import io
import json
import os
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from deep_lambertian.data.images import FORMATS
from deep_lambertian.studio.door import Guard, mask_of, options_of, pictures_of, read_form, said
from deep_lambertian.studio.jobs import Job, Limits, QueueFull, Studio

STATIC = ("studio.js", "space.js", "studio.css", "example.jpg", "openapi.json")  # and the report's relight.js
TYPES = {".js": "text/javascript", ".css": "text/css", ".jpg": "image/jpeg", ".json": "application/json"}
API = "/api/v1"
PREFIX = "dln-studio-"  # of the temporary folders of studios


def make_app(
    worker: Sequence[str],
    token: str,
    port: int,
    *,
    model: str = "",
    limits: Limits | None = None,
    keep: Path | None = None,
    seed: int = 0,
) -> ASGIApp:
    """The application; `worker` is the command of the process that infers, and `keep` where results stay."""
    limits = limits or Limits()
    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/favicon.ico", lambda _: Response(status_code=204)),
        Route(f"{API}/status", status),
        Route(f"{API}/openapi.json", lambda _: _static("openapi.json")),
        Route(f"{API}/infer", infer, methods=["POST"]),
        Route(f"{API}/recognize", recognize, methods=["POST"]),
        Route(f"{API}/results", results),
        Route(f"{API}/results/{{id}}", result, methods=["GET", "DELETE"]),
        Route(f"{API}/results/{{id}}/events", events),
        Route(f"{API}/results/{{id}}/cancel", cancel, methods=["POST"]),
        Route(f"{API}/results/{{id}}/again", again, methods=["POST"]),
        Route(f"{API}/results/{{id}}/relight", relight, methods=["POST"]),
        Route(f"{API}/results/{{id}}/photo", photo),
        Route(f"{API}/results/{{id}}/zip", zipped),
        Route(f"{API}/results/{{id}}/{{kind}}/{{name}}", file),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweep()
        folder = keep or Path(tempfile.mkdtemp(prefix=PREFIX))  # of mode 0700
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = None if keep else hold(folder)
        app.state.studio = Studio(folder, worker, limits, keep=keep is not None)
        app.state.studio.start()
        try:
            yield
        finally:
            await app.state.studio.stop()
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)

    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]]
    handlers = {HTTPException: _failed, QueueFull: _failed, ClientDisconnect: _gone}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    guard = Guard(app, token, port, limits)
    app.state.model, app.state.seed, app.state.guard = model, seed, guard
    return guard


async def _failed(_: Request, error: Any) -> Response:
    return said(429, str(error)) if isinstance(error, QueueFull) else said(error.status_code, error.detail)


async def _gone(*_: Any) -> Response:
    return Response(status_code=400)  # to nobody: who asked has gone before all was said


# ---- Folders


def hold(folder: Path) -> int:
    """A lock on a folder, for as long as this process lives; an OSError where another one has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def sweep() -> None:
    """Delete the folders, with their photos, of studios of ours that were killed: nobody holds them any more."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                held = hold(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)


# ---- Pages


async def page(request: Request) -> Response:
    """The page itself; who brings the token is remembered by a cookie that no script and no other site can use."""
    answer = _static("index.html", "text/html")
    guard = request.app.state.guard
    if "token" in request.query_params:
        answer.set_cookie(guard.cookie, guard.token, httponly=True, samesite="strict", path="/")
    return answer


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in (*STATIC, "relight.js"):
        raise HTTPException(404, f"no such file: {name[:80]}")
    return _static(name)


def _static(name: str, kind: str | None = None) -> Response:
    room = "report/templates" if name == "relight.js" else "studio/static"
    data = resources.files("deep_lambertian").joinpath(room, name).read_bytes()
    return Response(data, media_type=kind or TYPES[Path(name).suffix])


# ---- The API


async def status(request: Request) -> Response:
    studio, limits = _studio(request), _studio(request).limits
    told = {name: getattr(limits, name) for name in ("upload_bytes", "photo_pixels", "photos", "gallery", "waiting")}
    waiting = sum(job.state == "waiting" for job in studio.jobs.values())
    model = request.app.state.model
    return JSONResponse(
        {"model": model, "worker": studio.state, "restarts": studio.restarts, "waiting": waiting, "limits": told}
    )


async def infer(request: Request) -> Response:
    """Photos of one thing, with or without a mask; or, if `example` is asked for, the one that comes with it."""
    studio, limits = _studio(request), _studio(request).limits
    studio.check_room()
    async with read_form(request, limits.photos + 1) as form:
        asked = {"seed": request.app.state.seed} | options_of(form)
        if form.get("example"):
            read = [("example.jpg", bytes(_static("example.jpg").body))]
        else:
            read = await pictures_of(form, "photos", limits.photos, limits)
        mask = await mask_of(form, limits)
    asked |= {"photos": [name for name, _ in read], "mask": bool(mask)}
    uploads = {str(i): data for i, (_, data) in enumerate(read)} | mask
    job = studio.submit("infer", ", ".join(asked["photos"]), asked, uploads=uploads)
    return JSONResponse(studio.status(job), 202)


async def again(request: Request) -> Response:
    """The same photos, with other options or another mask; what is not given stays as it was."""
    studio, old = _studio(request), _job(request)
    studio.check_room()
    if old.kind != "infer":
        raise HTTPException(422, "expected the result of photos, got another kind of job")
    async with read_form(request, 1) as form:
        given, mask = options_of(form), await mask_of(form, studio.limits)
        gone = {name for name in ("box", "mask") if form.get(name) == ""} | ({"box"} if "face" in given else set())
    kept = {path.name: path.read_bytes() for path in (old.folder / "uploads").iterdir() if path.name not in gone}
    uploads = kept | mask
    asked = {name: value for name, value in old.asked.items() if name not in gone} | given | {"mask": "mask" in uploads}
    job = studio.submit("infer", old.title, asked, uploads=uploads)
    return JSONResponse(studio.status(job), 202)


async def recognize(request: Request) -> Response:
    """Photos of people, with their names, and photos to be named."""
    studio, limits = _studio(request), _studio(request).limits
    studio.check_room()
    async with read_form(request, 2 * limits.gallery) as form:
        gallery = await pictures_of(form, "gallery", limits.gallery, limits, total=False)
        probe = await pictures_of(form, "probe", limits.gallery, limits, total=False)
        names = [str(each).strip() for each in form.getlist("names")] or [Path(name).stem for name, _ in gallery]
        align = options_of(form).get("align", True)
    if len(names) != len(gallery) or not all(names):
        raise HTTPException(422, f"names: expected one for each of {len(gallery)} photos of the gallery")
    people, probes = list(dict.fromkeys(names)), [name for name, _ in probe]
    uploads = {f"probe/{i}.png": data for i, (_, data) in enumerate(probe)}
    for i, (name, (_, data)) in enumerate(zip(names, gallery, strict=True)):
        uploads[f"gallery/{people.index(name)}/{i}.png"] = data
    asked = {"people": people, "probes": probes, "align": align}
    job = studio.submit("recognize", f"who is on {', '.join(probes[:3])}", asked, uploads=uploads)
    return JSONResponse(studio.status(job), 202)


async def results(request: Request) -> Response:
    studio = _studio(request)
    listed = [studio.status(job, full=False) for job in studio.jobs.values() if job.kind != "relight"]
    return JSONResponse(listed[::-1])


async def result(request: Request) -> Response:
    studio, job = _studio(request), _job(request)
    if request.method == "DELETE":
        studio.forget(job)
        return Response(status_code=204)
    return JSONResponse(studio.status(job))


async def events(request: Request) -> Response:
    """The job's status whenever it changes, as server-sent events."""
    studio, job = _studio(request), _job(request)

    async def lines() -> AsyncIterator[str]:
        async for now in studio.follow(job):
            yield f"data: {json.dumps(now)}\n\n"
            if await request.is_disconnected():
                return

    return StreamingResponse(lines(), media_type="text/event-stream")


async def cancel(request: Request) -> Response:
    studio, job = _studio(request), _job(request)
    studio.cancel(job)
    return JSONResponse(studio.status(job))


async def relight(request: Request) -> Response:
    """A PNG of the photo, or of the object alone (`crop`), under a light: it waits for its turn."""
    studio, of = _studio(request), _done(request)
    try:
        given = json.loads(await request.body())
        light = [float(each) for each in given["light"]]
        asked = {"light": light, "ambient": float(given.get("ambient", 0)), "photo": int(given.get("photo", 0))}
        asked |= {"crop": bool(given.get("crop", False)), "of": of.id, "name": f"relit-{secrets.token_hex(4)}.png"}
        asked["colour"] = [float(each) for each in given.get("colour", (1, 1, 1))]
        numbers = (*light, *asked["colour"], asked["ambient"])
        if not (len(light) == len(asked["colour"]) == 3 and all(abs(x) < 1e6 for x in numbers)):
            raise ValueError(light)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        form = '{"light": [x, y, z], "ambient": 0.3, "colour": [1, 1, 1], "photo": 0, "crop": false}'
        raise HTTPException(422, f"expected JSON such as {form}") from error
    job = studio.submit("relight", of.title, asked, of=of)
    try:
        async for _ in studio.follow(job):
            pass
    finally:
        studio.forget(job)
    path = of.folder / "view" / asked["name"]
    if job.state != "done":
        raise HTTPException(422, job.facts.get("text") or job.state)
    return FileResponse(path, media_type="image/png", background=BackgroundTask(path.unlink, missing_ok=True))


async def photo(request: Request) -> Response:
    """The first photo as a browser can show it, of at most 1,600 pixels, upright."""
    job = _job(request)

    def small() -> bytes:
        from PIL import ImageOps

        with Image.open(job.folder / "uploads" / "0", formats=FORMATS) as image:
            image.draft("RGB", (1600, 1600))
            upright = ImageOps.exif_transpose(image)
            upright.thumbnail((1600, 1600))
            saved = io.BytesIO()
            upright.convert("RGB").save(saved, "JPEG", quality=88)
            return saved.getvalue()

    try:
        return Response(await asyncio.to_thread(small), media_type="image/jpeg")
    except (OSError, ValueError) as error:
        raise HTTPException(404, "there is no photo to show") from error


async def file(request: Request) -> Response:
    """One of the files: what the page shows (view), or what `dln infer` writes (files), which is downloaded."""
    job, kind, name = _job(request), request.path_params["kind"], request.path_params["name"]
    path = job.folder / kind / name
    if kind not in ("view", "files") or name != Path(name).name or not path.is_file() or path.is_symlink():
        raise HTTPException(404, f"no such file of this result: {kind}/{name[:80]}")
    return FileResponse(path, filename=name if kind == "files" else None)


async def zipped(request: Request) -> Response:
    """All files in one."""
    job = _done(request)
    handle, name = tempfile.mkstemp(dir=job.folder, suffix=".zip")

    def pack() -> None:
        with os.fdopen(handle, "wb") as opened, zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted((job.folder / "files").iterdir()):
                archive.write(path, path.name)

    await asyncio.to_thread(pack)
    done = BackgroundTask(Path(name).unlink, missing_ok=True)
    return FileResponse(name, filename="deep-lambertian.zip", media_type="application/zip", background=done)


# ---- What requests bring


def _studio(request: Request) -> Studio:
    return request.app.state.studio


def _job(request: Request) -> Job:
    name = request.path_params["id"]
    if (job := _studio(request).jobs.get(name)) is None:
        raise HTTPException(404, f"no such result: {name[:80]}; it may have been forgotten")
    return job


def _done(request: Request) -> Job:
    job = _job(request)
    if job.state != "done" or job.kind != "infer":
        raise HTTPException(409, f"expected the finished result of photos, got one that is {job.state}")
    return job
