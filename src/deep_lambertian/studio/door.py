"""The studio's door: who may come in, and what they may bring."""

import io
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deep_lambertian.data.images import FORMATS
from deep_lambertian.studio.jobs import Limits

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OPEN = ("/static/", "/favicon.ico")  # which hold nothing of anybody's
OPTIONS = {
    "align": bool,
    "linear": bool,
    "face": int,
    "seed": int,
    "iterations": int,
    "box": list,
}  # of a form, and their kinds


class Guard:
    """Lets in who may come in, counts what they bring, and puts the headers on everything that goes out."""

    def __init__(self, app: ASGIApp, token: str, port: int, limits: Limits) -> None:
        self.app, self.token, self.limits, self.cookie = app, token, limits, f"dln-studio-{port}"
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        refused = self._refuse(scope)
        count, most = 0, self.limits.upload_bytes

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > most:
                raise HTTPException(413, self._too_large())
            return message

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in extra if each[0] not in named)]
            await send(message)

        await (refused or self.app)(scope, counted, dressed)

    def _refuse(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        if headers.get("host", "").lower() not in self.hosts:
            return said(421, f"expected this studio's own address as the host, got {headers.get('host', '')[:80]!r}")
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://").lower() not in self.hosts:
            return said(403, f"expected a request from the studio's own page, got one from {origin[:80]!r}")
        if int(headers.get("content-length") or 0) > self.limits.upload_bytes:
            return said(413, self._too_large())
        if path.startswith(OPEN) or self._knows(scope, headers):
            return None
        return said(
            401, "open the address that dln studio has printed, with its token, or send the token as a bearer's"
        )

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        given = [headers.get("authorization", "").removeprefix("Bearer "), Request(scope).cookies.get(self.cookie, "")]
        if scope["path"] == "/":
            given.append(Request(scope).query_params.get("token", ""))
        return any(secrets.compare_digest(each.encode(), self.token.encode()) for each in given)

    def _too_large(self) -> str:
        return f"expected at most {self.limits.upload_bytes / 1e6:.0f} MB at a time, got more"


def said(code: int, words: str) -> Response:
    headers = {"Retry-After": "5"} if code == 429 else None
    return JSONResponse({"error": words}, code, headers=headers)


# ---- Forms


def read_form(request: Request, files: int) -> Any:
    return request.form(max_files=files, max_fields=400)


def options_of(form: FormData) -> dict[str, Any]:
    """The options of a form, each of its kind."""
    found: dict[str, Any] = {}
    for name, kind in OPTIONS.items():
        text = form.get(name)
        if not isinstance(text, str) or text == "":
            continue
        try:
            value: Any = [float(each) for each in text.split(",")] if kind is list else json.loads(text)
            if type(value) is not kind or (kind is list and len(value) != 4):
                raise ValueError(text)
            if kind is int and not 0 <= value < (2**32 if name == "seed" else 100_000):
                raise ValueError(text)
        except (ValueError, RecursionError) as error:
            wanted = {bool: "true or false", int: "a whole number", list: "left,top,width,height"}[kind]
            raise HTTPException(422, f"{name}: expected {wanted}, got {text[:40]!r}") from error
        found[name] = value
    return found


def check_pictures(read: Sequence[tuple[str, bytes]], limits: Limits, total: bool = True) -> None:
    """Refuse, by what their headers say, files that are no pictures, and pictures that are too large."""
    pixels = 0
    for name, data in read:
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
        except Exception as error:  # decoders raise many kinds of errors
            raise HTTPException(
                415, f"{name}: expected a picture ({', '.join(FORMATS)}), got something else"
            ) from error
        pixels += width * height
        if width * height > limits.photo_pixels:
            most = f"expected at most {limits.photo_pixels / 1e6:.0f} megapixels"
            raise HTTPException(413, f"{name}: {most}, got {width}×{height}; make it smaller")
    if total and pixels > limits.job_pixels:
        most = f"expected at most {limits.job_pixels / 1e6:.0f} megapixels in all"
        raise HTTPException(413, f"{most}, got {pixels / 1e6:.0f}; send fewer or smaller photos")


async def pictures_of(
    form: FormData, name: str, most: int, limits: Limits, total: bool = True
) -> list[tuple[str, bytes]]:
    """Names and bytes of the pictures that a form has under this name, of which there may be so many."""
    files = [each for each in form.getlist(name) if isinstance(each, UploadFile)]
    if not 1 <= len(files) <= most:
        raise HTTPException(422, f"{name}: expected 1 to {most} pictures, got {len(files)}")
    read = [(Path(each.filename or name).name, await each.read()) for each in files]
    check_pictures(read, limits, total)
    return read


async def mask_of(form: FormData, limits: Limits) -> dict[str, bytes]:
    """The mask, if there is one, as a file to be."""
    if not isinstance(form.get("mask"), UploadFile):
        return {}
    return {"mask": (await pictures_of(form, "mask", 1, limits))[0][1]}
