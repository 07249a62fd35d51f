"""What a studio is sent that hurts: photos, masks, forms, lights and requests, changed as files are."""

import json
import random
import socket
from typing import Any

import httpx

from tools.attack.formats import FORMATS, PICTURES
from tools.attack.mutations import HOSTILE, mutate, mutate_tree
from tools.attack.originals import encoded
from tools.attack.served import NeverError, Served
from tools.attack.tally import CLEAN, HANG, TRACEBACK, UNHARMED, WRONG

QUICK = {"align": "false", "iterations": "5"}
OPTIONS = ("align", "linear", "face", "seed", "iterations", "box", "example")
RELIGHT = {"light": [0.1, 0.2, 0.9], "ambient": 0.2, "colour": [1, 1, 1], "photo": 0, "crop": False}
PATHS = ("..%2f..%2fetc%2fpasswd", "%00", "é", "a" * 5000, "%2e%2e", "relight/../..", "-1", "{}")
Asked = tuple[str, httpx.Response | None]


def attempt(served: Served, rng: random.Random) -> tuple[str, str]:
    """Send one of them: how it ended, and what shows it again."""
    name, said = "", len(served.said())
    try:
        name, answer = rng.choice(KINDS)(served, rng)
        outcome, told = judge(served, answer)
    except (NeverError, httpx.TimeoutException) as error:
        outcome, told = HANG, str(error)
    except httpx.TransportError as error:
        outcome, told = WRONG, f"no answer: {type(error).__name__}: {error}"
    if "Traceback" in served.said()[said:]:
        outcome, told = TRACEBACK, f"{told} {served.said()[said:][-500:]}"
    return outcome, f"{name}: {told}"


def judge(served: Served, answer: httpx.Response | None) -> tuple[str, str]:
    """Refused in a sentence, done, or failed in one."""
    if answer is None:  # a request that was cut short has no answer: others have theirs
        return (UNHARMED, "") if served.status()["worker"] else (WRONG, "no status")
    if answer.status_code >= 500:
        return TRACEBACK, f"{answer.status_code} {answer.text[:300]}"
    if answer.status_code == 202:
        job = served.ended(answer.json()["id"])
        if job["state"] == "done":
            return UNHARMED, ""
        return (CLEAN, job["text"]) if job["text"] else (WRONG, f"{job['state']} without a word")
    if answer.status_code >= 400:
        return CLEAN, answer.text[:100]
    return UNHARMED, ""


# ---- Each returns what it did, in a word, and the answer


def photo(served: Served, rng: random.Random) -> Asked:
    """A picture that is changed, as a photo."""
    kind = rng.choice(PICTURES)
    data = spoiled(kind, rng)
    return f"a photo, {kind}", served.post(data, f"a.{kind}", **QUICK)


def mask(served: Served, rng: random.Random) -> Asked:
    """The same as a mask."""
    files = [("photos", ("a.png", encoded("png", 1, 24))), ("mask", ("m.png", spoiled("png", rng)))]
    return "a mask", served.client.post("/infer", files=files, data=QUICK)


def people(served: Served, rng: random.Random) -> Asked:
    """The same among photos of people."""
    files = [("gallery", (f"{i}.png", encoded("png", i, 24))) for i in range(2)]
    files += [("gallery", (word(rng, 99), spoiled("png", rng))), ("probe", ("p.jpg", spoiled("jpg", rng)))]
    names = [word(rng, 999) for _ in range(rng.choice((2, 3, 3, 3)))]
    return "people", served.client.post("/recognize", files=files, data={"names": names, "align": "false"})


def options(served: Served, rng: random.Random) -> Asked:
    """Options that are none, and a name that is odd."""
    chosen = QUICK | {rng.choice(OPTIONS): word(rng, 200_000)}
    return f"options {chosen}"[:200], served.post(encoded("png", 1, 24), word(rng, 200), **chosen)


def light(served: Served, rng: random.Random) -> Asked:
    """A new light that is none, for a job that is done."""
    done = [job["id"] for job in served.client.get("/results").json() if job["state"] == "done"]
    asked = json.dumps(mutate_tree(RELIGHT, rng)).encode()
    name = rng.choice(done) if done else "none"
    return f"a light {asked[:200]!r}", served.client.post(f"/results/{name}/relight", content=asked)


def body(served: Served, rng: random.Random) -> Asked:
    """A form whose bytes are changed."""
    request = served.client.build_request("POST", "/infer", files={"photos": ("a.png", encoded("png"))}, data=QUICK)
    data, kind = mutate(request.read(), rng), request.headers["content-type"]
    kind = rng.choice((kind, kind, kind, "multipart/form-data", "text/plain", kind[:-4]))
    return "a form", served.client.post("/infer", content=data, headers={"content-type": kind})


def path(served: Served, rng: random.Random) -> Asked:
    """Something that is not there, or must not be shown."""
    below = ("", "/events", "/zip", "/photo", f"/files/{rng.choice(PATHS)}")
    where = f"/results/{rng.choice(PATHS)}{rng.choice(below)}"
    method = rng.choice(("GET", "GET", "POST", "DELETE", "PUT", "HEAD"))
    return f"{method} {where[:99]}", served.client.request(method, where)


def cut(served: Served, rng: random.Random) -> Asked:
    """A request that ends in its middle, or was none."""
    form = served.client.build_request("POST", "/infer", files={"photos": ("a.png", encoded("png"))}, data=QUICK)
    head = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
    whole = f"POST {form.url.raw_path.decode()} HTTP/1.1\r\n{head}\r\n".encode() + form.read()
    part = whole[: rng.randrange(len(whole))] if rng.random() < 0.5 else mutate(whole[:400], rng)
    with socket.create_connection((served.client.base_url.host, served.client.base_url.port or 80), timeout=10) as peer:
        peer.sendall(part)
    return "a request cut short", None


def word(rng: random.Random, most: int) -> str:
    """What a request can carry of a hostile word."""
    return rng.choice(HOSTILE)[:most].encode("utf-8", "replace").decode() or "x"


def spoiled(kind: str, rng: random.Random) -> bytes:
    form = FORMATS[f"picture {kind}"]
    data = encoded(kind, rng.randrange(5), 24)
    return form.structure(data, rng) if form.structure and rng.random() < 0.5 else mutate(data, rng)


KINDS: tuple[Any, ...] = (photo, photo, photo, mask, people, options, light, body, path, cut)
