"""The page of a result in a real browser: the canvas shows what Python says, and mouse, touch and keys move the light.

Needs the package `playwright` and a Chromium on the PATH; AXE_JS names the axe-core script that judges accessibility.
"""

import base64
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep_lambertian import DLN
from deep_lambertian.report.photo import Page, direction_words, displayed, save_result_report

pytestmark = pytest.mark.browser

# Without a graphics card, Chromium's own software renderer draws WebGL.
ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
AXE = Path(os.environ.get("AXE_JS", Path.home() / ".cache" / "axe" / "package" / "axe.min.js"))
MODES = ("webgl2", "canvas2d")
KINDS = ("grey", "fine", "colour")
SIZE = (96, 84)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs chromium on the PATH")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(small: DLN, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Page, str]]:
    """Pages with their addresses: at the model's size as it is, and finer, in grey and in colour, for linear light."""
    post = small.infer(small.sample(count=1, images=2, seed=3).images[0], chains=2, iterations=16)
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.linspace(1, -1, SIZE[0]), np.linspace(-1, 1, SIZE[1]), indexing="ij")
    normals = np.stack([x, y, np.ones_like(x)], axis=-1) + rng.normal(0, 0.1, (*SIZE, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    fine = (normals * rng.uniform(0, 1, (*SIZE, 1))).astype(np.float32)
    photo = rng.integers(0, 255, (20, 30), np.uint8)
    grey = Page("A dome", [("photo", photo)], [("again", photo)], post.scaled_normals, None, False, post, ["Made up."])
    fine = replace(grey, scaled_normals=fine, srgb=True, aspect=0.875)
    colour = replace(fine, colour=rng.uniform(0.4, 1.3, (*SIZE, 3)).astype(np.float32))
    made = dict(zip(KINDS, (grey, fine, colour), strict=True))
    folder = tmp_path_factory.mktemp("pages")
    for name, page in made.items():
        save_result_report(folder / f"{name}.html", page)
    return {name: (page, (folder / f"{name}.html").as_uri()) for name, page in made.items()}


@pytest.fixture
def visit(browser: Any, pages: dict[str, tuple[Page, str]]) -> Iterator[Callable[..., Any]]:
    """Open a page; in the end it must have complained of nothing, and fetched nothing."""
    contexts, complaints = [], []

    def opened(kind: str = "fine", mode: str = "webgl2", **options: Any) -> Any:
        contexts.append(browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | options)))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: request.url.startswith("http") and complaints.append(request.url))
        tab.goto(pages[kind][1] + ("#canvas2d" if mode == "canvas2d" else ""))
        if options.get("java_script_enabled", True):
            assert tab.evaluate("dln.mode") == mode
        return tab

    yield opened
    for context in contexts:
        context.close()
    # Reading pixels back stalls the renderer, of which Chromium's driver tells; only the tests do it.
    assert [words for words in complaints if "GPU stall due to ReadPixels" not in words] == []


def pixels(tab: Any) -> np.ndarray:
    """What the canvas shows, (h, w, 3)."""
    width, height = tab.evaluate(
        "[document.querySelector('#picture').width, document.querySelector('#picture').height]"
    )
    text = tab.evaluate("btoa(Array.from(dln.pixels(), (byte) => String.fromCharCode(byte)).join(''))")
    values = np.frombuffer(base64.b64decode(text), np.uint8).reshape(height, width, 4).astype(np.int16)
    assert (values[..., 3] == 255).all()
    return values[..., :3]


def settled(tab: Any) -> str:
    """The stated light, once the next frame has been drawn."""
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return tab.inner_text("#direction")


def centre(tab: Any, name: str) -> tuple[float, float]:
    tab.locator(name).scroll_into_view_if_needed()
    box = tab.locator(name).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_canvas_shows_what_python_says(visit, pages, kind, mode):
    page, tab = pages[kind][0], visit(kind, mode)
    cases = [(tuple(float(c) for c in page.posterior.lights[0]), 0.0, 1.0)]
    cases += [((0.6, 0.2, 0.7), 0.0, 1.0), ((-0.9, 0.3, 0.1), 0.25, 1.0), ((0.0, -1.4, 0.6), 0.1, 2.5)]
    cases += [((0.0, 0.0, 0.02), 0.0, 1.0), ((0.2, 0.1, -1.0), 0.0, 1.0), ((0.0, 0.0, 0.0), 1.0, 0.5)]
    for step, (light, ambient, intensity) in enumerate(cases):
        if step:  # the first is what the page opens with
            tab.evaluate(f"dln.setLight({light[0]}, {light[1]}, {light[2]})")
            tab.evaluate(f"dln.setAmbient({ambient}); dln.setIntensity({intensity})")
        expected = displayed(page, light, ambient, intensity).astype(np.int16)
        assert np.abs(pixels(tab) - expected).max() <= 1, (light, ambient, intensity)


def test_the_page_opens_with_the_estimated_light(visit, pages):
    light = pages["fine"][0].posterior.lights[0]
    assert settled(visit()) == f"{direction_words(light)}, strength {np.linalg.norm(light):.2f}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["#picture", "#ball"])
def test_the_mouse_drags_the_light(visit, mode, target):
    tab = visit(mode=mode)
    x, y = centre(tab, target)
    tab.mouse.move(x, y)
    tab.mouse.down()
    before, words = pixels(tab), settled(tab)
    assert "azimuth 0°" in words  # over the centre: straight in front
    tab.mouse.move(x + 30, y - 20, steps=5)
    during, stated = pixels(tab), settled(tab)
    tab.mouse.up()
    assert re.match(r"azimuth \d+° right, elevation \d+° up", stated)
    assert np.abs(during - before).max() > 10
    tab.mouse.move(x - 30, y)  # the button is up: nothing follows
    assert settled(tab) == stated


@pytest.mark.parametrize("mode", MODES)
def test_a_finger_drags_the_light(visit, mode):
    tab = visit(mode=mode, has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    x, y = centre(tab, "#picture")
    before, scrolled = pixels(tab), tab.evaluate("scrollY")
    touch = tab.context.new_cdp_session(tab)
    for kind, points in [
        ("touchStart", [{"x": x, "y": y}]),
        *[("touchMove", [{"x": x - 10 * i, "y": y + 10 * i}]) for i in range(1, 8)],
        ("touchEnd", []),
    ]:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert re.match(r"azimuth \d+° left, elevation \d+° down", settled(tab))
    assert np.abs(pixels(tab) - before).max() > 10
    assert tab.evaluate("scrollY") == scrolled


def test_keys_move_the_light_and_home_brings_it_back(visit):
    tab = visit()
    first, words = pixels(tab), settled(tab)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "picture"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.evaluate("dln.setLight(0, 0, 1)")
    for key, stated in [
        ("ArrowRight", "azimuth 5° right, elevation 0°"),
        ("ArrowUp", "azimuth 5° right, elevation 5° up"),
        ("Shift+ArrowLeft", "azimuth 4° right, elevation 5° up"),
        ("ArrowDown", "azimuth 4° right, elevation 0°"),
    ]:
        tab.keyboard.press(key)
        assert settled(tab) == f"{stated}, strength 1.00"
    assert np.abs(pixels(tab) - first).max() > 2
    tab.keyboard.press("Home")
    assert settled(tab) == words
    np.testing.assert_array_equal(pixels(tab), first)


def test_sliders_and_buttons(visit, pages):
    page, tab = pages["fine"][0], visit()
    light, other = page.posterior.lights
    first = pixels(tab)
    tab.locator("#ambient").fill("0.4")
    tab.locator("#intensity").focus()
    tab.keyboard.press("PageUp")
    intensity = float(tab.input_value("#intensity"))
    assert intensity > 1
    assert np.abs(pixels(tab) - displayed(page, light, 0.4, intensity).astype(np.int16)).max() <= 1
    settled(tab)
    assert tab.inner_text("#ambient-value") == "0.40"
    tab.select_option("#which", "1")
    assert np.abs(pixels(tab) - displayed(page, other, 0.4, intensity).astype(np.int16)).max() <= 1
    tab.select_option("#which", "0")
    tab.click("#reset")
    np.testing.assert_array_equal(pixels(tab), first)


def test_the_picture_can_be_downloaded(visit):
    import io

    from PIL import Image

    tab = visit()
    with tab.expect_download() as download:
        tab.click("#download")
    assert download.value.suggested_filename == "relit.png"
    picture = Image.open(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert picture.height >= 512
    assert picture.width / picture.height == pytest.approx(0.875, abs=0.01)


def test_nothing_is_drawn_while_nothing_changes(visit):
    tab = visit()
    settled(tab)
    asked = """() => new Promise((done) => {
        const plain = window.requestAnimationFrame;
        let count = 0;
        window.requestAnimationFrame = (call) => { count += 1; return plain(call); };
        const again = () => { for (let i = 0; i < 5; i++) dln.setAmbient(i / 10); };
        setTimeout(() => { const idle = count; again(); setTimeout(() => done([idle, count]), 200); }, 200);
    })"""
    assert tab.evaluate(asked) == [0, 1]


def test_without_javascript_there_are_still_pictures(visit):
    tab = visit(java_script_enabled=False)
    assert tab.locator("noscript img").count() == 4
    assert tab.locator("noscript img").first.is_visible()
    assert not tab.locator("#picture").is_visible()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_narrow_screens(visit, width):
    tab = visit(viewport={"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_axe_finds_nothing_that_shuts_people_out(visit, scheme, width):
    if not AXE.is_file():
        pytest.skip(f"needs axe-core (npm pack axe-core): no file {AXE}; AXE_JS may name another")
    tab = visit(color_scheme=scheme, viewport={"width": width, "height": 900})
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
    tab.add_script_tag(content=AXE.read_text("utf-8"))
    found = tab.evaluate("axe.run().then((result) => result.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))")
    assert found == []


@pytest.mark.parametrize("mode", MODES)
def test_a_moving_light_is_drawn_within_the_frame(visit, mode, record_property):
    """Every frame is read back too, which no viewer does: an upper bound. The limit is loose, for busy machines."""
    tab = visit("colour", mode)
    mean = tab.evaluate("""() => {
        const start = performance.now();
        for (let i = 0; i < 100; i++) { dln.setLight(Math.sin(i / 9), Math.cos(i / 9) / 2, 0.6); dln.pixels(); }
        return (performance.now() - start) / 100;
    }""")
    record_property("milliseconds_a_frame", mean)
    print(f"{mode}: {mean:.2f} ms a frame of {SIZE[1]}×{SIZE[0]} pixels, read back too")
    assert mean < 100
