"""The studio's server: who is let in, what is refused, the queue, and a process that infers and is replaced.

Most tests have a process that only acts as if it inferred; in the last ones a real one does.
"""

import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.photos.result import Result
from deep_lambertian.report.photo import to_bytes
from deep_lambertian.studio.jobs import Limits
from deep_lambertian.studio.server import API, STATIC, make_app
from deep_lambertian.surface import heights_of
from deep_lambertian.synthetic.portrait import draw_portrait

TOKEN = "a-token-that-only-tests-know"
# What a job does is told by the name of its first photo.
ACTOR = """
import json, os, sys, time
from pathlib import Path
tell = lambda **facts: print(json.dumps(facts), flush=True)
tell(ready=True)
for line in sys.stdin:
    job = json.loads(line)
    if "cancel" in job:
        continue
    tell(id=job["id"], facts={"text": "at work", "pid": os.getpid(), "asked": job})
    name = job.get("photos", ["plain"])[0]
    if name == "die.png":
        os._exit(3)
    if name == "fat.png":
        held = b"x" * 400_000_000
    if name in ("fat.png", "slow.png"):
        time.sleep(60)
    if name == "brief.png":
        time.sleep(0.05)
    if name == "bad.png":
        tell(id=job["id"], end="failed", why="it shows nothing")
        continue
    for kind in ("files", "view"):
        (Path(job["folder"]) / kind).mkdir(exist_ok=True)
    (Path(job["folder"]) / "files" / "albedo.png").write_bytes(b"albedo")
    if job["kind"] == "relight":
        (Path(job["folder"]) / "view" / job["name"]).write_bytes(b"relit")
    tell(id=job["id"], end="done")
"""


def png(size: tuple[int, int] = (8, 6)) -> bytes:
    file = io.BytesIO()
    Image.new("L", size, 99).save(file, "PNG")
    return file.getvalue()


class Running:
    """A studio on a port of its own, and someone who knows its token."""

    def __init__(self, app: Callable[[int], Any]) -> None:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.app = app(self.port)
        settings = {"log_level": "error", "ws": "none", "lifespan": "on", "timeout_graceful_shutdown": 1}
        self.server = uvicorn.Server(uvicorn.Config(self.app, **settings))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        self.base = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(
            base_url=self.base + API, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, trust_env=False
        )
        within(20, lambda: self.server.started)

    def post(self, *names: str, **data: Any) -> httpx.Response:
        return self.client.post("/infer", files=[("photos", (name, png())) for name in names], data=data)

    def job(self, *names: str) -> str:
        return self.post(*names).json()["id"]

    def state(self, name: str) -> dict[str, Any]:
        return self.client.get(f"/results/{name}").json()

    def ended(self, name: str, seconds: float = 15) -> dict[str, Any]:
        within(seconds, lambda: self.state(name)["state"] in ("done", "failed", "cancelled"))
        return self.state(name)

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(20)


def within(seconds: float, true: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not so within {seconds} seconds"
        time.sleep(0.03)


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Running]]:
    actor, made = tmp_path / "actor.py", []
    actor.write_text(ACTOR)

    def started(**options: Any) -> Running:
        worker = [sys.executable, "-S", str(actor)]
        made.append(Running(lambda port: make_app(worker, TOKEN, port, model="acted", **options)))
        return made[-1]

    yield started
    for each in made:
        each.stop()


# ---- Who is let in


def test_strangers_are_refused(start):
    studio = start()
    without = httpx.Client(base_url=studio.base, trust_env=False)
    for path in ("/", f"{API}/results", f"{API}/status", f"{API}/openapi.json"):
        assert without.get(path).status_code == 401, path
        assert without.get(path, headers={"Authorization": "Bearer guess"}).status_code == 401
        assert without.get(path, params={"token": "guess"}).status_code == 401
    assert (
        without.get(f"{API}/results", params={"token": TOKEN}).status_code == 401
    )  # no address that could be linked to
    assert "dln studio" in without.get("/").json()["error"]
    for host in ("evil.example", f"evil.example:{studio.port}", "127.0.0.1", f"127.0.0.1:{studio.port + 1}"):
        assert studio.client.get("/results", headers={"Host": host}).status_code == 421, host
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{studio.port + 1}",
        f"https://localhost:{studio.port}",
    ):
        assert studio.client.get("/results", headers={"Origin": origin}).status_code == 403, origin
    assert studio.client.get("/results", headers={"Origin": studio.base}).status_code == 200
    without.close()


def test_the_address_with_its_token_opens_the_page_and_leaves_a_cookie(start):
    studio = start()
    with httpx.Client(base_url=studio.base, trust_env=False) as browser:
        page = browser.get("/", params={"token": TOKEN})
        assert page.status_code == 200
        assert "text/html" in page.headers["content-type"]
        cookie = page.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get(f"{API}/results").status_code == 200
        assert browser.get("/").status_code == 200


def test_every_answer_has_the_headers_and_the_page_fits_them(start):
    studio = start()
    for path in ("/", "/static/studio.js", f"{API}/status", "/nowhere", f"{API}/results/none"):
        headers = studio.client.get(studio.base + path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';"), path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    page = studio.client.get(studio.base + "/").text
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?! src)", page)  # the policy allows no such thing
    assert not re.search(r"(src|href)=\"(https?:)?//", page)


def test_the_page_is_small(start):
    studio = start()
    names = [name for name in STATIC if name not in ("openapi.json", "example.jpg")]
    sizes = [len(studio.client.get(f"{studio.base}/static/{name}").content) for name in [*names, "relight.js"]]
    assert sum(sizes) + len(studio.client.get(studio.base + "/").content) < 500_000


def test_files_of_others_cannot_be_had(start):
    studio = start()
    name = studio.job("plain.png")
    studio.ended(name)
    assert studio.client.get(f"/results/{name}/files/albedo.png").content == b"albedo"
    for path in (
        "files/..%2Fuploads%2F0",
        "uploads/0",
        "view/nothing.png",
        "files/%2Fetc%2Fpasswd",
        "..%2Ffiles/albedo.png",
    ):
        assert studio.client.get(f"/results/{name}/{path}").status_code == 404, path
    assert studio.client.get(f"{studio.base}/static/..%2Fserver.py").status_code == 404
    assert "attachment" in studio.client.get(f"/results/{name}/files/albedo.png").headers["content-disposition"]


def test_the_description_has_every_route(start):
    studio = start()
    described = studio.client.get("/openapi.json").json()
    routes = {}
    for route in studio.app.app.routes:
        if route.path.startswith(API):
            routes[route.path] = {method.lower() for method in route.methods} - {"head"}
    assert {path: set(each) - {"parameters"} for path, each in described["paths"].items()} == routes


# ---- What is refused


def test_uploads_have_limits_that_are_told(start):
    limits = Limits(upload_bytes=20_000, photo_pixels=1000, job_pixels=1500, photos=3)
    studio = start(limits=limits)
    large = studio.client.post("/infer", files={"photos": ("a.png", b"x" * 30_000)})
    assert large.status_code == 413
    assert "0 MB" in large.json()["error"]
    unsized = studio.client.post(
        "/infer", content=(b"x" * 5000 for _ in range(6)), headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert unsized.status_code in (400, 413)
    wide = studio.client.post("/infer", files={"photos": ("a.png", png((100, 20)))})
    assert (wide.status_code, "100×20" in wide.json()["error"]) == (413, True)
    both = studio.client.post("/infer", files=[("photos", (f"{i}.png", png((30, 30)))) for i in range(2)])
    assert (both.status_code, "in all" in both.json()["error"]) == (413, True)
    assert studio.post("1.png", "2.png", "3.png", "4.png").status_code == 422
    assert studio.client.post("/infer", data={"seed": "1"}).status_code == 422
    assert studio.client.get("/results").json() == []


def test_what_is_no_picture_is_refused(start):
    studio = start()
    for data in (b"", b"no picture", png()[:20], b"<svg/>", b"%PDF-1.4"):
        answer = studio.client.post("/infer", files={"photos": ("me.png", data)})
        assert answer.status_code == 415
        assert answer.json()["error"].startswith("me.png: expected a picture")
    for data in ({"seed": "-1"}, {"align": "perhaps"}, {"box": "1,2,3"}, {"face": "1.5"}, {"iterations": "true"}):
        assert studio.post("a.png", **data).status_code == 422, data
    for data in ({"seed": "[]"}, {"iterations": '""'}, {"face": "{}"}, {"seed": "null"}, {"align": "[" * 5000}):
        assert studio.post("a.png", **data).status_code == 422, data
    for asked in ({}, {"light": [1, 2]}, {"light": "up"}, {"light": [1, 2, float("1e9")]}):
        name = studio.job("plain.png")
        studio.ended(name)
        assert studio.client.post(f"/results/{name}/relight", json=asked).status_code == 422
    for words in ('"photo": 1e400', '"ambient": NaN', '"ambient": 1' + "0" * 400, '"colour": ' + "[" * 5000):
        asked = f'{{"light": [0, 0, 1], {words}}}'
        assert studio.client.post(f"/results/{name}/relight", content=asked).status_code == 422, words[:40]


# ---- The queue


def test_jobs_wait_for_their_turn_and_say_how_long_the_queue_is(start):
    studio = start(limits=Limits(waiting=3))
    first = studio.job("slow.png")
    within(10, lambda: studio.state(first)["state"] == "running")
    rest = [studio.job("plain.png") for _ in range(3)]
    assert [studio.state(name)["position"] for name in rest] == [1, 2, 3]
    assert "2 jobs before" in studio.state(rest[1])["text"]
    full = studio.post("plain.png")
    assert (full.status_code, full.headers["retry-after"]) == (429, "5")
    assert "3 jobs are waiting" in full.json()["error"]
    studio.client.post(f"/results/{rest[0]}/cancel")
    assert [studio.state(name)["position"] for name in rest] == [0, 1, 2]
    studio.client.post(f"/results/{first}/cancel")
    assert studio.ended(first)["state"] == "cancelled"
    assert [studio.ended(name)["state"] for name in rest] == ["cancelled", "done", "done"]


def test_fifty_jobs_are_done_in_their_order_and_old_ones_are_forgotten(start):
    studio = start(limits=Limits(jobs=20))
    names = [studio.job("brief.png") for _ in range(50)]
    within(60, lambda: all(each["state"] == "done" for each in studio.client.get("/results").json()))
    assert studio.post("plain.png").status_code == 202
    left = [each["id"] for each in studio.client.get("/results").json()]
    assert left[1:] == names[::-1][:20]
    assert studio.client.get(f"/results/{names[0]}").status_code == 404


def test_events_tell_all_to_the_end_to_everybody(start):
    studio = start()
    name = studio.job("brief.png")
    for _ in range(2):  # the second comes when all is over
        with studio.client.stream("GET", f"/results/{name}/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            said = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
        assert said[-1]["state"] == "done"


def test_a_result_is_relit_zipped_done_again_and_removed(start):
    studio = start()
    name = studio.job("plain.png")
    assert studio.client.get(f"/results/{name}/zip").status_code in (200, 409)
    studio.ended(name)
    assert studio.client.post(f"/results/{name}/relight", json={"light": [0, 0, 1]}).content == b"relit"
    packed = zipfile.ZipFile(io.BytesIO(studio.client.get(f"/results/{name}/zip").content))
    assert packed.read("albedo.png") == b"albedo"
    again = studio.client.post(f"/results/{name}/again", data={"face": "1"}, files={"mask": ("m.png", png())}).json()
    asked = studio.ended(again["id"])["asked"]
    assert (asked["face"], asked["mask"], asked["photos"]) == (1, True, ["plain.png"])
    assert studio.client.get(f"/results/{again['id']}/photo").headers["content-type"] == "image/jpeg"
    folder = Path(asked["folder"])
    assert folder.is_dir()
    assert studio.client.delete(f"/results/{again['id']}").status_code == 204
    assert not folder.exists()
    assert [each["id"] for each in studio.client.get("/results").json()] == [name]


def test_downloads_leave_no_open_files(start):
    studio, opened = start(), Path("/proc/self/fd")
    name = studio.job("plain.png")
    studio.ended(name)
    if not opened.is_dir():
        pytest.skip("open files are listed on Linux alone")

    def held() -> int:
        return sum(os.path.realpath(each).startswith(os.path.realpath(folder)) for each in opened.iterdir())

    folder = Path(studio.state(name)["asked"]["folder"])
    before = held()
    for _ in range(5):
        for path in (f"/results/{name}/zip", f"/results/{name}/files/albedo.png", f"/results/{name}/photo"):
            assert studio.client.get(path).status_code == 200
        assert studio.client.post(f"/results/{name}/relight", json={"light": [0, 0, 1]}).status_code == 200
    within(5, lambda: held() == before and len(list(folder.glob("*.zip"))) == 0)


def test_what_is_not_given_again_stays_as_it_was(start):
    studio = start()
    job = studio.post("plain.png", align="false", box="1,1,4,4").json()
    for given, files, expected in [
        ({"iterations": "9"}, {"mask": ("m.png", png())}, {"align": False, "box": [1, 1, 4, 4], "mask": True}),
        ({}, {}, {"align": False, "box": [1, 1, 4, 4], "mask": True, "iterations": 9}),
        ({"box": "", "align": "true"}, {}, {"align": True, "mask": True, "iterations": 9}),
        ({"box": "2,2,3,3", "mask": ""}, {}, {"align": True, "box": [2, 2, 3, 3], "mask": False, "iterations": 9}),
        ({"face": "1"}, {}, {"align": True, "face": 1, "mask": False, "iterations": 9}),
    ]:
        studio.ended(job["id"])
        job = studio.client.post(f"/results/{job['id']}/again", data=given, files=files).json()
        asked = studio.ended(job["id"])["asked"]
        assert {name: asked[name] for name in expected} == expected
        assert ("box" in asked) == ("box" in expected)
        assert (Path(asked["folder"]) / "uploads" / "mask").exists() == expected["mask"]


def test_recognition_keeps_people_by_their_names(start):
    studio = start()
    files = [("gallery", (f"{i}.png", png())) for i in range(3)] + [("probe", ("who.png", png()))]
    answer = studio.client.post("/recognize", files=files, data={"names": ["Ada", "Bo", "Ada"]})
    asked = studio.ended(answer.json()["id"])["asked"]
    assert (asked["people"], asked["probes"]) == (["Ada", "Bo"], ["who.png"])
    uploads = Path(asked["folder"]) / "uploads"
    assert sorted(str(path.relative_to(uploads)) for path in uploads.rglob("*.png")) == [
        *("gallery/0/0.png", "gallery/0/2.png", "gallery/1/1.png", "probe/0.png")
    ]
    assert studio.client.post("/recognize", files=files, data={"names": ["Ada"]}).status_code == 422


# ---- A process that goes wrong


@pytest.mark.parametrize(
    ("name", "limits", "words"),
    [
        ("die.png", Limits(), "ended unexpectedly"),
        ("fat.png", Limits(memory_bytes=200_000_000), "GB of memory"),
        ("slow.png", Limits(seconds=0.5), "longer than"),
    ],
)
def test_a_worker_beyond_its_limits_is_replaced(start, name, limits, words):
    studio = start(limits=limits)
    bad, good = studio.job(name), studio.job("plain.png")
    found = studio.ended(bad)
    assert found["state"] == "failed"
    assert words in found["text"]
    after = studio.ended(good)
    assert after["state"] == "done"
    assert after["pid"] != found["pid"]
    assert studio.client.get("/status").json()["restarts"] == 1


def test_a_worker_that_does_not_listen_is_replaced_when_its_job_is_cancelled(start):
    studio = start()
    name = studio.job("slow.png")
    within(10, lambda: "pid" in studio.state(name))
    studio.client.post(f"/results/{name}/cancel")
    assert studio.ended(name, 6)["state"] == "cancelled"
    assert studio.ended(studio.job("plain.png"))["state"] == "done"


def test_a_job_that_fails_says_why_and_the_worker_stays(start):
    studio = start()
    first = studio.ended(studio.job("plain.png"))
    assert studio.ended(studio.job("bad.png"))["text"] == "it shows nothing"
    assert studio.ended(studio.job("plain.png"))["pid"] == first["pid"]


def test_a_worker_that_dies_while_idle_is_replaced(start):
    studio = start()
    first = studio.ended(studio.job("plain.png"))
    os.kill(first["pid"], signal.SIGKILL)
    within(15, lambda: not Path(f"/proc/{first['pid']}").exists())
    second = studio.ended(studio.job("plain.png"))
    assert second["state"] == "done"  # it was not this job that ended the worker
    assert second["pid"] != first["pid"]


def test_a_worker_that_cannot_start_says_so(tmp_path):
    code = 'print(\'{"broken": "no such model"}\')'
    studio = Running(lambda port: make_app([sys.executable, "-S", "-c", code], TOKEN, port))
    try:
        found = studio.ended(studio.job("plain.png"))
        assert "no such model" in found["text"]
        assert studio.client.get("/status").json()["worker"] in ("broken", "starting")
    finally:
        studio.stop()


def test_uploads_are_private_and_deleted_at_the_end_unless_kept(start, tmp_path):
    studio, keeps = start(), start(keep=tmp_path / "kept")
    folders = [Path(each.ended(each.job("plain.png"))["asked"]["folder"]) for each in (studio, keeps)]
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert (folders[0] / "uploads" / "0").is_file()
    studio.stop()
    keeps.stop()
    assert not folders[0].parent.exists()
    assert (tmp_path / "kept" / folders[1].name / "files" / "albedo.png").is_file()


def test_folders_of_studios_that_were_killed_are_deleted_by_the_next(start, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, other = tmp_path / "dln-studio-killed", tmp_path / "another's"
    for folder in (left, other):
        (folder / "uploads").mkdir(parents=True)
        (folder / "uploads" / "0").write_bytes(png())
    alive = start()
    mine = Path(alive.ended(alive.job("plain.png"))["asked"]["folder"])
    start()
    assert not left.exists()
    assert other.exists()
    assert mine.exists()


def test_a_worker_whose_studio_has_gone_ends_without_a_word():
    code = "import os; from deep_lambertian.studio.worker import teller; r, w = os.pipe(); os.close(r)"
    code += "; teller(os.fdopen(w, 'w', buffering=1))(id='a'); print('still there')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_goes_in_the_middle_of_an_upload_leaves_no_word(start, capfd):
    studio = start()
    request = studio.client.build_request("POST", "/infer", files={"photos": ("a.png", png())})
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    whole = f"POST {API}/infer HTTP/1.1\r\n{head}\r\n".encode() + request.read()
    with socket.create_connection(("127.0.0.1", studio.port)) as peer:
        peer.sendall(whole[:-30])
    assert studio.ended(studio.job("plain.png"))["state"] == "done"
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_wrong_is_told_by_people_and_without_options_of_the_command():
    from deep_lambertian.studio.work import named, without_options

    several = "1/0.png: expected a photo with one face, found 2; choose one (--box 1,2,3,4; --box 5,6,7,8), or none"
    assert without_options(several) == "1/0.png: expected a photo with one face, found 2"
    assert named(f"{several}; 0/2.png: it is black", ["Ada", "Bo"]) == (
        "Bo: expected a photo with one face, found 2; Ada: it is black"
    )


# ---- The command


def test_a_terminal_that_is_closed_leaves_no_photos(tmp_path):
    as_in_a_terminal = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    code = f"{as_in_a_terminal}; from deep_lambertian.cli import main; main(['studio', '--no-browser', '--port', '0'])"
    env = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    within(60, lambda: any(tmp_path.glob("dln-studio-*")))
    running.send_signal(signal.SIGHUP)
    running.wait(20)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['starlette'] = None; from deep_lambertian.cli import main; sys.exit(main(['studio']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install 'deep-lambertian[studio]'")


def test_help_and_import_load_nothing_of_the_studio():
    code = (
        "import sys; import deep_lambertian; from deep_lambertian.cli import build_parser; build_parser(); "
        "assert not {'starlette', 'uvicorn', 'anyio', 'python_multipart', 'asyncio', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_wrong_model_or_port_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for arguments, words in [
            (["--model", "nonsense"], "nonsense"),
            (["--port", str(taken.getsockname()[1])], "expected one that is free"),
        ]:
            command = [sys.executable, "-m", "deep_lambertian.cli", "studio", "--no-browser", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 1
            assert words in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_heights_have_the_slopes_of_the_normals():
    y, x = np.mgrid[-1:1:40j, -1:1:50j]
    z = 8 * np.exp(-2 * x**2 - y**2) + 3 * x
    down, right = np.gradient(z)
    normals = np.stack([-right, down, np.ones_like(z)], axis=-1)
    found = heights_of(normals / np.linalg.norm(normals, axis=-1, keepdims=True))
    assert np.abs(found - (z - z.mean())).max() < 0.15


# ---- With the real process


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Iterator[tuple[httpx.Client, dict[str, str], Any]]:
    """`dln studio` itself, once it is warm."""
    import jax

    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    command = [sys.executable, "-m", "deep_lambertian.cli", "studio", "--no-browser", "--json", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | cache)
    assert running.stdout is not None
    said = ""
    while not said.rstrip().endswith("}"):
        said += running.stdout.readline()
    told = json.loads(said)
    headers = {"Authorization": f"Bearer {told['token']}"}
    with httpx.Client(base_url=told["api"], headers=headers, timeout=120, trust_env=False) as client:
        within(200, lambda: client.get("/status").json()["worker"] == "ready")
        yield client, told, running
    running.terminate()
    assert running.wait(20) in (0, -signal.SIGTERM)
    running.stdout.close()


def portrait(path: Path, *seeds: int) -> Path:
    photos = [draw_portrait(seed=seed, size=(240, 320)).photo for seed in seeds]
    Image.fromarray(np.round(255 * linear_to_srgb(np.concatenate(photos, axis=1))).astype(np.uint8)).save(path)
    return path


def ended(client: httpx.Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    with client.stream("GET", f"/results/{job['id']}/events") as answer:
        return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]


def test_the_program_of_the_docs_runs(real, tmp_path, monkeypatch, capsys):
    told = real[1]
    page = (Path(__file__).parents[1] / "docs" / "studio.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[0]
    assert len(program.splitlines()) <= 24
    monkeypatch.chdir(tmp_path)
    values = {"STUDIO": told["api"], "TOKEN": told["token"], "PHOTO": str(portrait(tmp_path / "me.png", 0))}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "studio.md", "exec"), names)
    names["api"].close()
    assert "the light comes from azimuth" in capsys.readouterr().out
    assert Image.open(io.BytesIO(Path("relit.png").read_bytes())).size == (320, 240)
    packed = zipfile.ZipFile(io.BytesIO(Path("everything.zip").read_bytes()))
    assert {"report.html", "albedo.png", "result.npz"} <= set(packed.namelist())
    result = Result.load(packed.extract("result.npz"))  # whoever has the files draws the same
    drawn = to_bytes(result.relight_photo((0.6, 0.2, 0.7), ambient=0.2), result.srgb)
    assert np.array_equal(np.asarray(Image.open("relit.png")), drawn)


def test_a_surface_comes_before_the_chains_agree_and_they_can_be_stopped(real, tmp_path):
    client = real[0]
    photo = portrait(tmp_path / "two.png", 0, 3).read_bytes()
    job = client.post("/infer", files={"photos": ("two.png", photo)}, data={"iterations": "20000"}).json()
    within(60, lambda: client.get(f"/results/{job['id']}").json().get("sweep", 0) > 0)  # all is compiled
    seen = client.get(f"/results/{job['id']}").json()
    assert len(seen["faces"]) == 2
    assert not seen["surface"]["final"]
    assert len(seen["live"]["normals"]) == 24 * 24 * 3 * 4 / 3
    numbers = client.get(f"/results/{job['id']}/view/{seen['surface']['file']}").content
    assert len(numbers) == 2 * 3 * 4 * seen["surface"]["width"] * seen["surface"]["height"]
    client.post(f"/results/{job['id']}/cancel")
    assert ended(client, job)[-1]["state"] == "cancelled"
    again = client.post(f"/results/{job['id']}/again", data={"face": "1", "iterations": "60"}).json()
    last = ended(client, again)[-1]
    assert (last["state"], last["face"], last["sweep"]) == ("done", 1, 60)
    assert client.get("/status").json()["restarts"] == 0  # it stopped by itself
    more = client.get(f"/results/{again['id']}/view/more.f32").content
    count = last["more"]["rows"] * last["more"]["columns"]
    values = np.frombuffer(more, "<f4")
    assert len(values) == count * (1 + 3 + 3 + 3 * last["more"]["samples"])
    assert np.isfinite(values).all()


def test_what_cannot_be_inferred_says_so_in_words(real, tmp_path):
    client = real[0]
    for size, words in [((200, 200), "No face was found")]:
        job = client.post("/infer", files={"photos": ("grey.png", png(size))}).json()
        last = ended(client, job)[-1]
        assert last["state"] == "failed"
        assert words in last["text"]
    files = [("photos", (f"{i}.png", png((100 + i, 100)))) for i in range(2)]
    assert "one size" in ended(client, client.post("/infer", files=files).json())[-1]["text"]


@pytest.mark.slow
def test_people_are_told_apart(real, tmp_path):
    client, files, names = real[0], [], []
    for seed in (0, 1):
        for light in ((-0.5, 0.2, 0.8), (0.5, 0.2, 0.8)):
            one = draw_portrait(seed=seed, light=light, size=(240, 320))
            crop = one.alignment.crop(one.photo, (96, 84))
            data = io.BytesIO()
            Image.fromarray(np.round(255 * linear_to_srgb(crop)).astype(np.uint8)).save(data, "PNG")
            files.append(("gallery" if light[0] < 0 else "probe", (f"{seed}.png", data.getvalue())))
        names.append(f"person {seed}")
    job = client.post("/recognize", files=files, data={"names": names, "align": "false"}).json()
    last = ended(client, job)[-1]
    assert last["state"] == "done", last["text"]
    assert [answer["ranked"][0]["name"] for answer in last["answers"]] == names
    for answer in last["answers"]:
        for name in (answer["picture"], answer["ranked"][0]["lit"], answer["ranked"][1]["rest"]):
            assert Image.open(io.BytesIO(client.get(f"/results/{job['id']}/view/{name}").content)).size == (144, 144)
