"""The page of a result: one file with all its parts, which says what is wrong and shows what `displayed` says."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from deep_lambertian import DLN
from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.inference.posterior import Posterior
from deep_lambertian.report.photo import Page, direction_words, displayed, render_result, save_result_report

LIGHTS = ([0.1, 0.2, 0.9], [-0.8, 0.1, 0.5], [0.5, -0.9, 0.0])


@pytest.fixture(scope="module")
def post(small: DLN) -> Posterior:
    """A posterior of two images whose chain is too short to have converged."""
    return small.infer(small.sample(count=1, images=2, seed=3).images[0], chains=2, iterations=16)


def page_of(post: Posterior, **changes) -> Page:
    photo = np.linspace(0, 255, 60).reshape(6, 10).astype(np.uint8)
    page = Page(
        title="A dome",
        inputs=[("one photo", photo), ("another", np.stack([photo] * 3, axis=-1))],
        pictures=[("put back", photo)],
        scaled_normals=post.scaled_normals,
        colour=None,
        srgb=False,
        posterior=post,
        notes=["The numbers were taken as linear light."],
    )
    return replace(page, **changes)


def calm(post: Posterior) -> Posterior:
    """The same posterior, of chains that have mixed."""
    rng = np.random.default_rng(0)
    trace = {name: rng.normal(1, 0.1, (2, 400, *value.shape[2:])) for name, value in post.diagnostics.trace.items()}
    acceptance = np.full(post.shape, 0.8)
    return replace(post, diagnostics=replace(post.diagnostics, trace=trace, burn_in=0, acceptance=acceptance))


@pytest.mark.parametrize("light", LIGHTS)
def test_displayed_is_relight_in_8_bits(post, light):
    expected = np.round(255 * np.clip(post.relight(light), 0, 1))
    np.testing.assert_array_equal(displayed(page_of(post), light), np.repeat(expected[..., None], 3, axis=-1))


def test_displayed_has_colour_ambient_light_intensity_and_srgb(post):
    rng = np.random.default_rng(0)
    colour = rng.uniform(0.5, 1.5, (8, 8, 3)).astype(np.float32)
    found = displayed(page_of(post, colour=colour, srgb=True), LIGHTS[0], ambient=0.2, intensity=1.5)
    for y, x, c in [(0, 0, 0), (3, 4, 1), (7, 2, 2)]:
        m = post.scaled_normals[y, x].astype(float)
        value = colour[y, x, c] * 1.5 * (max(m @ LIGHTS[0], 0) + 0.2 * np.sqrt(m @ m))
        assert found[y, x, c] == pytest.approx(255 * linear_to_srgb(np.array(value)), abs=0.51)


def test_the_page_is_one_file_that_refers_to_nothing_else(post):
    html = render_result(page_of(post))
    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org)[\w.-]+\.\w+", html.split('id="surface"')[0])
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", html.split("<script")[0])
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "default-src 'none'" in html
    assert re.search(r"<script[^>]*\bsrc=", html) is None


def test_it_has_all_its_parts(post):
    html = render_result(page_of(post))
    for heading in (
        "Move the light",
        "What went in",
        "What was found",
        "Albedo",
        "Normals",
        "Uncertainty of the albedo",
        "Uncertainty of the normals",
        "The light",
        "Further pictures",
        "How the sampling went",
        "What you should know",
    ):
        assert f">{heading}</" in html, heading
    for words in ("one photo", "another", "put back", "taken as linear light", "<noscript>", "2 chains of 16 sweeps"):
        assert words in html
    for light in post.lights:
        assert f"{direction_words(light)}<br>strength {np.linalg.norm(light):.2f} ± " in html


def test_the_canvas_gets_the_surface_to_the_last_bit(post):
    import base64

    html = render_result(page_of(post))
    found = re.search(r'<script type="application/json" id="surface">(.*?)</script>', html)
    assert found is not None
    surface = json.loads(found[1])
    normals = np.frombuffer(base64.b64decode(surface["normals"]), "<f4").reshape(8, 8, 3)
    np.testing.assert_array_equal(normals, post.scaled_normals)
    np.testing.assert_allclose(surface["lights"], post.lights)


def test_text_is_escaped(post):
    html = render_result(
        page_of(
            post, title="<script>x</script> & co", notes=["</ul><b>"], inputs=[('"><i>', np.eye(2, dtype=np.uint8))]
        )
    )
    assert "<title>&lt;script&gt;x&lt;/script&gt; &amp; co</title>" in html
    for raw in ("<script>x", "</ul><b>", '"><i>'):
        assert raw not in html


def test_it_warns_where_the_diagnostics_do_and_only_there(post):
    assert post.diagnostics.warnings
    html = render_result(page_of(post))
    assert "Take this result with care" in html
    assert "No sign of trouble" not in html
    for warning in post.diagnostics.warnings:
        assert warning[1:] in html
    well = calm(post)
    assert not well.diagnostics.warnings
    html = render_result(page_of(well))
    assert "Take this result with care" not in html
    assert "No sign of trouble" in html


def test_known_lights_are_said_to_be_given(post):
    html = render_result(page_of(replace(post, lights_std=np.zeros_like(post.lights))))
    assert html.count("given, and held fixed") == 2


@pytest.mark.parametrize(
    ("light", "words"),
    [
        ((0, 0, 2), "azimuth 0°, elevation 0°"),
        ((1, 0, 1), "azimuth 45° right, elevation 0°"),
        ((-1, 0, 0), "azimuth 90° left, elevation 0°"),
        ((0, -1, 1), "azimuth 0°, elevation 45° down"),
        ((0, 3, 0), "azimuth 0°, elevation 90° up"),
    ],
)
def test_directions_in_words(light, words):
    assert direction_words(np.array(light)) == words


def test_finer_detail_and_large_photos_stay_in_bounds(post):
    rng = np.random.default_rng(0)
    fine = rng.uniform(0, 0.5, (160, 140, 3)).astype(np.float32)
    photo = np.repeat(np.arange(3000, dtype=np.uint16).astype(np.uint8)[None], 2000, axis=0)
    html = render_result(page_of(post, scaled_normals=fine, colour=np.ones_like(fine), inputs=[("large", photo)]))
    numbers = 2 * 160 * 140 * 3 * 4 * 4 / 3  # normals and colours in base64
    assert numbers < len(html) < numbers + 1_000_000
    assert len(render_result(page_of(post))) < 100_000


@pytest.mark.parametrize(
    "changes",
    [{"scaled_normals": np.zeros((8, 8))}, {"scaled_normals": np.full((8, 8, 3), np.nan)}, {"colour": np.ones(3)}],
)
def test_what_cannot_be_shown_is_refused(post, changes):
    with pytest.raises(ValueError, match="expected finite numbers of shape"):
        page_of(post, **changes)


def test_saving_writes_the_whole_page(post, tmp_path):
    page = page_of(post)
    save_result_report(tmp_path / "deep" / "result.html", page)
    assert (tmp_path / "deep" / "result.html").read_text("utf-8") == render_result(page)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["result.html"]
