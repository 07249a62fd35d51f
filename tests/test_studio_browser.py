"""The studio in a real browser, with the real process behind it: everything that a person does there.

Needs what tests/test_browser.py needs. With SHOTS=FOLDER a picture of each state is written there.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.synthetic.portrait import draw_portrait
from deep_lambertian.synthetic.solids import draw_solids
from test_browser import AXE, browser, centre, settled  # noqa: F401 (browser is a fixture)

pytestmark = pytest.mark.browser
SLOW = 120_000  # milliseconds, on a busy machine
FEW = "60"  # sweeps: what is tested is the page


class Server:
    """`dln studio`, warm, and a client that knows its token."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "deep_lambertian.cli", "studio", "--no-browser", "--json", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = ""
        while not said.rstrip().endswith("}"):
            said += self.process.stdout.readline()
        told = json.loads(said)
        self.address = told["address"]
        headers = {"Authorization": f"Bearer {told['token']}"}
        self.client = httpx.Client(base_url=told["api"], headers=headers, timeout=120, trust_env=False)
        while self.client.get("/status").json()["worker"] == "starting":
            pass
        assert self.client.get("/status").json()["worker"] == "ready"

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.client.close()
        self.process.send_signal(how)
        self.process.wait(20)
        self.process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos") / "me.png"
    return saved(path, draw_portrait(seed=0, size=(300, 400)).photo)


def saved(path: Path, picture: np.ndarray) -> Path:
    Image.fromarray(np.round(255 * linear_to_srgb(picture)).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Open the studio; in the end the page must have complained of nothing, and fetched nothing from elsewhere."""
    contexts, complaints = [], []

    def opened(to: Server = server, expected: str = "", **options: Any) -> Any:
        contexts.append(browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | options)))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(SLOW)

        def complain(words: str) -> None:
            if not (expected and expected in words):
                complaints.append(words)

        tab.on("console", lambda message: message.type in ("error", "warning") and complain(message.text))
        tab.on("pageerror", lambda error: complain(str(error)))
        tab.on(
            "request",
            lambda request: request.url.startswith(("http://127.0.0.1", "blob:", "data:")) or complain(request.url),
        )
        tab.goto(to.address)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert [words for words in complaints if "GPU stall due to ReadPixels" not in words] == []


def shot(tab: Any, name: str) -> None:
    if "SHOTS" in os.environ:
        tab.screenshot(path=Path(os.environ["SHOTS"]) / f"{name}.png", full_page=True)


def few(tab: Any) -> None:
    """Have the page ask for a few sweeps: the form that it sends has them added."""
    tab.evaluate(f"""() => {{
        const plain = window.fetch;
        window.fetch = (path, options) => {{
            const infers = options?.body instanceof FormData && /infer|again/.test(path);
            if (infers && !options.body.has("iterations")) options.body.append("iterations", "{FEW}");
            if (infers) window.sent = [...options.body.keys()];
            return plain(path, options);
        }};
    }}""")


def drop(tab: Any, *paths: Path) -> None:
    """Files, dropped on the page."""
    data = [[path.name, list(path.read_bytes())] for path in paths]
    carried = tab.evaluate_handle(
        """(files) => {
            const carried = new DataTransfer();
            for (const [name, bytes] of files) carried.items.add(new File([new Uint8Array(bytes)], name));
            return carried;
        }""",
        data,
    )
    tab.dispatch_event("#drop", "dragover", {"dataTransfer": carried})
    tab.dispatch_event("#drop", "drop", {"dataTransfer": carried})


def until(tab: Any, true: str) -> None:
    """Wait until an expression is true, asking for it from outside: the page's policy lets nothing be evaluated."""
    end = time.monotonic() + SLOW / 1000
    while not tab.evaluate(true):
        assert time.monotonic() < end, true
        tab.wait_for_timeout(50)


def done(tab: Any) -> None:
    tab.wait_for_selector("#files:not([hidden])")
    until(tab, "document.querySelector('#said').textContent === 'Done.'")


def pixels(tab: Any, name: str = "#picture") -> np.ndarray:
    data = tab.evaluate(
        f"(() => {{ const c = document.querySelector('{name}'); return c.toDataURL('image/png').split(',')[1]; }})()"
    )
    import base64

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def test_a_dropped_photo_is_inferred_relit_turned_and_downloaded(visit, photo):
    tab = visit()
    shot(tab, "1-empty")
    assert "token" not in tab.url
    few(tab)
    drop(tab, photo)
    tab.wait_for_selector("#job:not([hidden])")
    tab.wait_for_selector("#live:not([hidden])")
    shot(tab, "2-first")
    done(tab)
    assert tab.locator("#maps figure").count() == 6
    until(tab, "[...document.images].every((each) => each.complete && each.naturalWidth)")
    shot(tab, "3-done")

    before, book, space = pixels(tab), pixels(tab, "#book"), pixels(tab, "#space")
    for target in ("#picture", "#ball"):
        x, y = centre(tab, target)
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(x + 30, y - 15, steps=4)
        assert "right" in settled(tab)
        tab.mouse.up()
    assert np.abs(pixels(tab) - before).mean() > 2
    assert np.abs(pixels(tab, "#book") - book).mean() > 1  # the other views are lit by the same light
    assert np.abs(pixels(tab, "#space") - space).mean() > 0.3

    lit = pixels(tab)
    tab.locator("#kelvin").fill("3000")
    settled(tab)
    warm = pixels(tab) - lit
    assert warm[..., 0].mean() > 1
    assert warm[..., 2].mean() < -1
    tab.locator("#ambient").fill("0.5")
    settled(tab)
    shot(tab, "4-warm")
    tab.click("#reset")
    settled(tab)
    np.testing.assert_allclose(pixels(tab), before, atol=1)
    tab.locator("#slide").fill("50")
    assert "50%" in tab.evaluate("document.querySelector('#before').style.clipPath")
    shot(tab, "5-before")

    turned = pixels(tab, "#space")
    x, y = centre(tab, "#space")
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x - 90, y + 20, steps=4)
    tab.mouse.up()
    settled(tab)
    assert np.abs(pixels(tab, "#space") - turned).mean() > 2
    tab.locator("#space").press("Home")
    settled(tab)
    np.testing.assert_allclose(pixels(tab, "#space"), turned, atol=2)

    first = pixels(tab, "#book")
    tab.click("#play")
    until(tab, "document.querySelector('#sample').valueAsNumber > 1")
    tab.click("#play")
    assert np.abs(pixels(tab, "#book") - first).max() > 3

    with tab.expect_download() as one:
        tab.click("#list >> text=albedo.png")
    assert one.value.suggested_filename == "albedo.png"
    with tab.expect_download() as every:
        tab.click("#zip")
    names = zipfile.ZipFile(io.BytesIO(Path(every.value.path()).read_bytes())).namelist()
    assert {"report.html", "normals.npy", "lights.json", "result.npz"} <= set(names)
    assert tab.locator("#list li").count() == len(names)
    with tab.expect_download() as picture:
        tab.click("#relit")
    assert Image.open(io.BytesIO(Path(picture.value.path()).read_bytes())).size == (400, 300)


def test_a_photo_chosen_by_dialogue_and_a_reload_and_two_tabs(visit, photo, server):
    tab = visit()
    with tab.expect_file_chooser() as chooser:
        tab.click("label[for=file]")
    chooser.value.set_files([photo])
    tab.wait_for_selector("#chains:not([hidden])")
    until(tab, "document.querySelector('#rhat').textContent.includes('R-hat is')")
    shot(tab, "6-chains")
    other = visit()  # another window of the same person
    other.wait_for_selector("#job:not([hidden])")
    assert other.inner_text("#job-title") == "me.png"
    tab.reload()
    tab.wait_for_selector("#live:not([hidden])")
    assert tab.inner_text("#job-title") == "me.png"
    done(tab)
    done(other)
    server.client.get("/status").raise_for_status()


def test_a_job_is_cancelled(visit, photo):
    tab = visit()
    drop(tab, photo)
    tab.wait_for_selector("#live:not([hidden])")
    tab.click("#cancel")
    until(tab, "document.querySelector('#said').textContent === 'Cancelled.'")
    assert not tab.locator("#cancel").is_visible()
    assert tab.inner_text("#provisional") == "a first guess"
    shot(tab, "7-cancelled")


def test_what_is_no_picture_is_told(visit, tmp_path):
    tab = visit(expected="415 (Unsupported Media Type)")
    (tmp_path / "notes.png").write_text("no picture")
    drop(tab, tmp_path / "notes.png")
    tab.wait_for_selector("#error:not([hidden])")
    assert "notes.png: expected a picture" in tab.inner_text("#error")
    shot(tab, "8-no-picture")
    saved(tmp_path / "wall.png", np.full((120, 160, 3), 0.4, np.float32))
    drop(tab, tmp_path / "wall.png")
    until(tab, "document.querySelector('#said').textContent.includes('No face was found')")
    assert tab.locator("#mark").get_attribute("open") is not None  # where a box can be drawn
    until(tab, "document.querySelector('#marks').width > 100")
    few(tab)
    x, y = centre(tab, "#marks")
    tab.mouse.move(x - 30, y - 30)
    tab.mouse.down()
    tab.mouse.move(x + 30, y + 40, steps=3)
    tab.mouse.up()
    shot(tab, "9-no-face")
    tab.click("#again")
    until(tab, "document.querySelector('#said').textContent.includes('even where the object should be')")
    assert "box" in tab.evaluate("window.sent")


def test_one_of_several_faces_is_chosen_and_parts_are_left_out(visit, tmp_path):
    tab = visit()
    few(tab)
    two = [draw_portrait(seed=seed, size=(240, 320)).photo for seed in (0, 3)]
    drop(tab, saved(tmp_path / "two.png", np.concatenate(two, axis=1)))
    tab.wait_for_selector("#choose:not([hidden])")
    assert tab.locator("#faces button").count() == 2
    shot(tab, "10-faces")
    tab.click("#faces button[aria-pressed=false]")
    until(tab, "document.querySelectorAll('#faces button')[1]?.getAttribute('aria-pressed') === 'true'")
    done(tab)
    tab.click("#mark summary")
    until(tab, "document.querySelector('#marks').width > 100")
    x, y = centre(tab, "#marks")
    tab.mouse.move(x + 60, y - 40)
    tab.mouse.down()
    tab.mouse.move(x + 140, y - 40, steps=5)
    tab.mouse.up()
    tab.locator("#marks").press("Space")
    shot(tab, "11-mask")
    tab.click("#again")
    until(tab, "document.querySelector('#said').textContent !== 'Done.'")
    assert "mask" in tab.evaluate("window.sent")
    done(tab)
    assert tab.locator("#faces button").nth(1).get_attribute("aria-pressed") == "true"
    tab.click("#mark summary")
    until(tab, "document.querySelector('#marks').width > 100")
    assert (np.ptp(pixels(tab, "#marks"), axis=-1) > 90).sum() > 1000  # what was painted is there still
    tab.click("#clear")
    tab.click("#longer")
    until(tab, "document.querySelector('#said').textContent !== 'Done.'")
    done(tab)
    assert tab.evaluate("shown.sweep") == 120


def test_several_photos_of_an_object_are_taken_as_they_are(visit, tmp_path):
    scenes = draw_solids(1, images=3, size=96, seed=5)
    paths = [saved(tmp_path / f"vase{i}.png", scenes.images[0, i].reshape(96, 96)) for i in range(3)]
    tab = visit()
    few(tab)
    drop(tab, *paths)
    until(tab, "document.querySelector('#said').textContent.includes('No face was found')")
    tab.click("#as-it-is")
    done(tab)
    assert tab.locator("#maps figure").count() == 10  # with three lights and three shadows
    shot(tab, "16-object")
    tab.locator("#kelvin").fill("3000")
    tab.check("#whole")
    tab.set_input_files("#file", paths[:1])
    until(tab, "document.querySelector('#said').textContent !== 'Done.'")
    done(tab)
    assert tab.input_value("#kelvin") == "6500"  # another photo is first seen as it was lit


def test_fifty_photos_wait_for_their_turn(visit, photo, server, tmp_path):
    tab = visit()
    few(tab)
    small = [tmp_path / f"{i:02}.png" for i in range(50)]
    for path in small:
        path.write_bytes(photo.read_bytes())
    tab.check("#apart")
    tab.set_input_files("#file", small)
    until(tab, "document.querySelectorAll('#results li').length >= 50")
    until(tab, "/waiting: \\d+ jobs before this one/.test(document.querySelector('#said').textContent)")
    shot(tab, "12-queue")
    for job in server.client.get("/results").json():
        if job["state"] in ("waiting", "running"):
            server.client.post(f"/results/{job['id']}/cancel")
    until(tab, "document.querySelector('#said').textContent === 'Cancelled.'")


def test_people_are_compared(visit, tmp_path):
    tab, paths = visit(), {"gallery": [], "probe": []}
    for seed, name in ((0, "ada"), (1, "bo")):
        for what, side in (("gallery", -0.5), ("probe", 0.5)):
            one = draw_portrait(seed=seed, light=(side, 0.2, 0.8), size=(240, 320))
            path = tmp_path / what / f"{name}1.png"
            path.parent.mkdir(exist_ok=True)
            paths[what].append(saved(path, one.alignment.crop(one.photo, (96, 84))))
    tab.click("#tab-people")
    for what, files in paths.items():
        tab.set_input_files(f"#{what}", files)
    assert tab.locator("#gallery-list input").first.input_value() == "ada"
    tab.check("#cropped")
    tab.click("#recognize")
    until(tab, "document.querySelector('#people-said').textContent === 'Done.'")
    nearest = [tab.locator(".answer").nth(i).locator("figure b").nth(1).inner_text() for i in range(2)]
    assert nearest == ["1. ada", "1. bo"]
    assert tab.locator(".pair img").count() == 8  # each person under each photo's light, and what is left of it
    until(tab, "[...document.images].every((each) => each.complete && (each.naturalWidth || !each.src))")
    shot(tab, "13-people")


def test_the_server_is_killed_during_a_job(visit, photo):
    own = Server()
    tab = visit(own, expected="ERR_")
    drop(tab, photo)
    tab.wait_for_selector("#chains:not([hidden])")
    own.stop(signal.SIGKILL)
    tab.wait_for_selector("#gone:not([hidden])")
    assert "dln studio" in tab.inner_text("#gone")
    assert not tab.locator("#cancel").is_visible()
    shot(tab, "14-gone")


def test_keys_do_everything(visit):
    tab = visit()
    few(tab)
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.id") == "example":
            break
    tab.keyboard.press("Enter")
    done(tab)
    tab.locator("#picture").focus()
    words = settled(tab)
    tab.keyboard.press("ArrowRight")
    assert settled(tab) != words
    tab.keyboard.press("Home")
    assert settled(tab) == words
    tab.locator("#tab-photos").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.id") == "tab-people"
    assert tab.locator("#people").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100])
def test_it_fits_and_axe_finds_nothing_that_shuts_people_out(visit, server, scheme, width):
    if not AXE.is_file():
        pytest.skip(f"needs axe-core (npm pack axe-core): no file {AXE}; AXE_JS may name another")
    found = [job for job in server.client.get("/results").json() if job["state"] == "done" and job["kind"] == "infer"]
    tab = visit(color_scheme=scheme, viewport={"width": width, "height": 800}, has_touch=width < 500)
    look = "axe.run().then((result) => result.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))"
    if found:
        tab.locator(f"#results li:has-text('{found[0]['title']}'):has-text('done') button").first.click()
    else:
        tab.click("#example")
    done(tab)
    shot(tab, f"15-{scheme}-{width}")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.evaluate(AXE.read_text("utf-8"))  # not as a script of the page, which its policy would refuse
    assert tab.evaluate(look) == []
    tab.click("#tab-people")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(look) == []


def test_a_finger_turns_the_surface(visit, server):
    tab = visit(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    few(tab)
    tab.click("#example")
    done(tab)
    x, y = centre(tab, "#space")
    before, touch = pixels(tab, "#space"), tab.context.new_cdp_session(tab)
    for kind, points in [
        ("touchStart", [{"x": x, "y": y}]),
        *[("touchMove", [{"x": x - 10 * i, "y": y}]) for i in range(1, 8)],
        ("touchEnd", []),
    ]:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    settled(tab)
    assert np.abs(pixels(tab, "#space") - before).mean() > 2
