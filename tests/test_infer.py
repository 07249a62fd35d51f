"""Inference as a user meets it: what is known is used, what is masked is not, and what is reported is right."""

import dataclasses
import json
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deep_lambertian as dl
from conftest import dome
from deep_lambertian.inference import chain, observers
from deep_lambertian.inference.sampler import PRESETS, Sampler
from deep_lambertian.support.archives import read_npz
from deep_lambertian.support.progress import show_progress

RING = np.array(
    [[0.5 * np.cos(t), 0.5 * np.sin(t), 0.8] for t in np.linspace(0, 2 * np.pi, 9)[:-1]] + [[0, 0, 1.0]], np.float32
)

WHOLE = {"surface": "whole", "step_size": 0.3, "leapfrogs": 5}


def painted(height: int = 8, width: int = 8) -> np.ndarray:
    """A chequered albedo."""
    rows, columns = np.indices((height, width))
    return np.where((rows // 2 + columns // 2) % 2, 0.8, 0.45).astype(np.float32)


def photograph(albedo: np.ndarray, normals: np.ndarray, lights: np.ndarray, noise: float = 0.01) -> np.ndarray:
    """Images (P, H, W) of a known surface with attached shadows and noise."""
    clean = albedo[None] * np.maximum(np.einsum("hwk,pk->phw", normals, lights), 0)
    return (clean + np.random.default_rng(0).normal(0, noise, clean.shape)).astype(np.float32)


def angle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    cosine = np.sum(a * b, axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def flat_model(height: int = 8, width: int = 8, **parameters) -> dl.DLN:
    """A DLN that expects a flat surface, and not strongly: the data have to speak."""
    pixels = height * width
    ahead = jnp.concatenate([jnp.zeros(2 * pixels), jnp.ones(pixels)])
    prior = dl.Product(
        dl.Gaussian.diagonal(jnp.full(pixels, 0.6), jnp.full(pixels, 0.2)),
        dl.Gaussian.diagonal(ahead, jnp.full(3 * pixels, 0.5)),
    )
    return dl.DLN.build(prior, (height, width), **{"noise_var": 1e-4, "preset": "quick", **parameters})


def test_known_lights_make_it_photometric_stereo():
    albedo, normals = painted(), dome(8, 8)
    images = photograph(albedo, normals, RING, noise=0.01)
    post = flat_model().infer(
        images, lights=RING, iterations=400, sampler=flat_model().sampler.override(target_acceptance=0.8)
    )
    assert angle(post.normals, normals).mean() < 2.5
    assert np.abs(post.albedo - albedo).mean() < 0.02
    np.testing.assert_array_equal(post.lights, RING)  # what is given is kept
    assert np.all(post.lights_std == 0)
    np.testing.assert_allclose(np.linalg.norm(post.normals, axis=-1), 1, rtol=1e-5)
    # Each new light predicts a photograph that was never taken.
    new = np.array([0.3, -0.4, 0.8])
    assert np.abs(post.relight(new) - photograph(albedo, normals, new[None], noise=0)[0]).mean() < 0.02


def test_a_known_surface_leaves_the_light_to_be_found():
    albedo, normals = painted(), dome(8, 8)
    lights = RING[:3]
    clean = albedo[None] * np.einsum("hwk,pk->phw", normals, lights)
    known = dl.Surface.from_pictures(albedo, normals)
    post = flat_model(light_precision=1e-3).infer_lights(clean, known, iterations=400)
    matrix = (albedo[..., None] * normals).reshape(-1, 3)
    spread = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix / 1e-4)))
    assert np.all(np.abs(post.lights - lights) < 4 * spread / np.sqrt(100))
    np.testing.assert_allclose(post.lights_std, np.broadcast_to(spread, (3, 3)), rtol=0.25)
    np.testing.assert_allclose(post.albedo, albedo, rtol=1e-6)


def test_spread_is_honest(small):
    """Over objects drawn from the model itself, the truth lies as far from the mean as the spread says."""
    drawn = small.sample(48, images=2, seed=1)
    posts = small.infer_many(
        list(drawn.images),
        iterations=300,
        sampler=small.sampler.override(target_acceptance=0.8, leapfrogs=10, epochs=2),
    )
    z = np.stack([(p.albedo - a) / p.albedo_std for p, a in zip(posts, drawn.albedo, strict=True)])
    assert np.sqrt(np.mean(z**2)) == pytest.approx(1, abs=0.2)
    z = np.stack([(p.lights - t) / p.lights_std for p, t in zip(posts, drawn.lights, strict=True)])
    assert np.sqrt(np.mean(z**2)) == pytest.approx(1, abs=0.25)
    off = np.mean([angle(p.normals, n).mean() for p, n in zip(posts, drawn.normals, strict=True)])
    assert off == pytest.approx(np.mean([p.normals_std.mean() for p in posts]), rel=0.2)


def test_more_images_tell_more(small):
    drawn = small.sample(16, images=6, seed=2)
    errors, spreads = [], []
    for count in (1, 2, 6):
        posts = small.infer_many(
            list(drawn.images[:, :count]), iterations=200, sampler=small.sampler.override(target_acceptance=0.8)
        )
        errors.append(np.mean([angle(p.normals, n).mean() for p, n in zip(posts, drawn.normals, strict=True)]))
        spreads.append(np.mean([p.normals_std.mean() for p in posts]))
    assert errors == sorted(errors, reverse=True)
    assert spreads == sorted(spreads, reverse=True)


def test_what_is_masked_has_no_say(small):
    images = small.sample(1, images=3, seed=3).images[0]
    mask = np.ones((3, 8, 8), bool)
    mask[0, 2:5, 3:6] = False
    mask[2] = False
    garbage = np.where(mask, images, 17.0)
    a, b = small.infer(images, mask=mask), small.infer(garbage, mask=mask)
    np.testing.assert_array_equal(a.albedo, b.albedo)
    np.testing.assert_array_equal(a.normals, b.normals)
    broken = np.where(mask, images, np.nan)  # a broken pixel may be masked out
    np.testing.assert_array_equal(small.infer(broken, mask=mask).albedo, a.albedo)
    # An image that is masked out altogether is as good as not there.
    alone = small.infer(images[:2], mask=mask[:2], iterations=4)
    np.testing.assert_allclose(small.infer(images, mask=mask, iterations=4).albedo, alone.albedo, rtol=1e-4)


def test_weights_are_between_there_and_not(small):
    images = small.sample(1, images=2, seed=4).images[0]
    spread = lambda w: small.infer(images, mask=np.full((8, 8), w), iterations=300).albedo_std.mean()
    assert spread(1.0) < spread(0.2) < spread(0.01)


def test_a_ragged_batch_is_its_objects_one_by_one(small):
    drawn = small.sample(3, images=5, seed=5)
    ragged = [drawn.images[0, :5], drawn.images[1, :1], drawn.images[2, :3]]
    together = small.infer_many(ragged, iterations=4)
    assert [p.lights.shape for p in together] == [(5, 3), (1, 3), (3, 3)]
    swapped = small.infer_many([ragged[0]], iterations=4)[0]
    np.testing.assert_allclose(together[0].albedo, swapped.albedo, rtol=1e-4)
    np.testing.assert_allclose(together[0].lights, small.infer(ragged[0], iterations=4).lights, rtol=1e-3, atol=1e-4)


def test_the_same_seed_gives_the_same_bytes(small):
    images = small.sample(1, seed=6).images[0]
    first, again = (small.infer(images, seed=7) for _ in range(2))
    with show_progress():
        cut = small.infer(images, seed=7)
    for name in ("albedo", "normals", "lights", "albedo_std", "scaled_normals"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(first, name), getattr(cut, name))  # nor does the progress bar matter
    assert not np.array_equal(first.albedo, small.infer(images, seed=8).albedo)


def test_every_iteration_can_be_kept(small):
    images = small.sample(1, images=2, seed=6).images[0]
    post = small.infer(images, chains=2, sampler=small.sampler.override(iterations=20, burn_in=8, keep=20))
    assert post.samples["albedo"].shape == (2, 20, 8, 8)
    assert post.samples["normals"].shape == (2, 20, 8, 8, 3)
    assert post.samples["lights"].shape == (2, 20, 2, 3)
    counted = post.samples["albedo"][:, 8:]
    np.testing.assert_allclose(post.albedo, counted.mean(axis=(0, 1)), rtol=1e-4)
    np.testing.assert_allclose(post.albedo_std, counted.reshape(24, 8, 8).std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(post.lights_std, post.samples["lights"][:, 8:].reshape(24, 2, 3).std(axis=0), rtol=1e-3)
    few = small.infer(images, chains=2, sampler=small.sampler.override(iterations=20, burn_in=8, keep=3)).samples[
        "albedo"
    ]
    np.testing.assert_array_equal(few, post.samples["albedo"][:, [11, 15, 19]])


def test_a_long_chain_needs_no_more_memory(small, monkeypatch):
    images = small.sample(1).images
    data = chain.Observation(jnp.asarray(images.reshape(1, 1, 64)), jnp.ones((1, 1, 64)))
    seen: list[int] = []

    def weigh(*arguments):
        *others, finish = arguments

        def weighed(carry, done):
            seen.append(sum(leaf.nbytes for leaf in jax.tree.leaves(carry)))
            return finish(carry, done)

        return advance(*others, weighed)

    advance = chain._advance
    monkeypatch.setattr(chain, "_advance", weigh)
    for n in (10, 1000):
        chain.run(small.params, data, Sampler(iterations=n, burn_in=2, epochs=1))
    assert seen[0] == seen[1]


def test_a_long_chains_trace_is_thinned_but_whole(small):
    images = small.sample(1).images[0]
    post = small.infer(images, iterations=1500, sampler=small.sampler.override(epochs=1, leapfrogs=3))
    energy = post.diagnostics.energy
    assert energy.shape == (1, observers.TRACE_LENGTH)
    assert np.all(energy != 0)


def test_step_sizes_adapt_to_the_target():
    """Nine images of little noise make conditional 4 stiff: the fixed step fails, the adapted one does not."""
    images = photograph(painted(), dome(8, 8), RING)
    model = flat_model(noise_var=1e-5)
    # Too long a step is simply rejected: nothing moves.
    fixed = model.infer(images, lights=RING, iterations=60, sampler=model.sampler.override(step_size=0.1)).diagnostics
    assert fixed.acceptance.mean() < 0.05
    assert any("hardly move" in warning for warning in fixed.warnings)
    adapted = model.infer(
        images,
        lights=RING,
        sampler=model.sampler.override(iterations=300, burn_in=200, step_size=0.1, target_acceptance=0.7),
    ).diagnostics
    assert adapted.acceptance.mean() == pytest.approx(0.7, abs=0.1)
    assert adapted.stuck < 0.05


@pytest.mark.parametrize("surface", [{}, WHOLE], ids=["conditionals", "whole"])
def test_labels_keep_shadows_from_bending_the_normals(surface):
    """Noise takes some of what is black below 0. Annealing is needed: else pixels are labelled before much is known."""
    albedo, normals = painted(), dome(8, 8)
    lights = np.array([[1.0, 0, 0.15], [-1, 0, 0.15], [0, 1, 0.15], [0, -1, 0.15], [0.5, 0.4, 0.7], [0, 0, 1]])
    images = photograph(albedo, normals, lights, noise=0.005)
    model = flat_model()
    off = []
    for shadow in (False, dl.ShadowLabels()):
        sampler = model.sampler.override(iterations=300, target_acceptance=0.8, anneal=100.0, shadow=shadow, **surface)
        post = model.infer(images, lights, sampler=sampler)
        off.append(angle(post.normals, normals).mean())
        assert post.shadows.shape == images.shape
        assert shadow or np.all(post.shadows == 0)
    plain, aware = off
    assert aware < 0.2 * plain
    clean = np.einsum("hw,hwk,pk->phw", albedo, normals, lights)
    assert post.shadows[clean < 0].mean() > 0.9
    assert post.shadows[clean > 0.15].mean() < 0.1


@pytest.mark.parametrize("option", [{"anneal": 100.0}, {"hidden": "mean"}, {"start": "sphere"}, WHOLE])
def test_options_reach_the_same_posterior(small, option):
    """Annealing and the start change how a chain begins, mean-field hidden units nothing where there are none; drawing
    the surface as a whole only how it moves.
    """
    images = small.sample(1, images=3, seed=8).images[0]
    sampler = small.sampler.override(iterations=600, target_acceptance=0.8)
    plain, other = (small.infer(images, sampler=each) for each in (sampler, sampler.override(**option)))
    assert np.abs(plain.albedo - other.albedo).mean() < 0.35 * plain.albedo_std.mean()
    np.testing.assert_allclose(plain.albedo_std.mean(), other.albedo_std.mean(), rtol=0.15)


def test_mean_field_and_sampled_hidden_units_differ_as_they_should(tiny):
    images = tiny.sample(1, images=2).images[0]
    kept = {
        kind: tiny.infer(images, iterations=50, sampler=tiny.sampler.override(hidden=kind))
        for kind in ("sample", "mean")
    }
    assert not np.array_equal(kept["sample"].albedo, kept["mean"].albedo)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_black_and_constant_images_are_legal(small, value):
    post = small.infer(np.full((8, 8), value), chains=2)
    for name in ("albedo", "albedo_std", "normals", "normals_std", "lights", "lights_std", "scaled_normals"):
        assert np.isfinite(getattr(post, name)).all()
    if value == 0:  # black says: no light. The surface is the prior's.
        assert np.linalg.norm(post.lights) < 0.1
        assert np.abs(post.albedo - 0.6).mean() < 0.2
        assert angle(post.normals, dome(8, 8)).mean() < 15


def test_integers_mean_their_full_range(small):
    images = np.clip(small.sample(1, seed=9).images[0], 0, 1)
    eight = np.round(images * 255).astype(np.uint8)
    np.testing.assert_array_equal(small.infer(eight).albedo, small.infer(eight / 255).albedo)


def test_joint_prior_and_the_papers_sizes_run():
    """The paper's nets at 24×24, one image, its own settings; and one hidden layer over the whole surface."""
    model = dl.DLN.random(noise_var=0.01)
    assert model.params.prior.albedo.base.weights.shape == (576, 800)
    assert model.params.prior.normals.layers[0].weights.shape == (1000, 100)
    assert PRESETS[model.preset] == Sampler(
        iterations=50, step_size=0.01, leapfrogs=20, epochs=10, mass=2.0, start="bias"
    )
    post = model.infer(np.full((24, 24), 0.4))
    assert post.albedo.shape == (24, 24)
    assert np.isfinite(post.normals).all()
    joint = dl.DLN.build(dl.DBN.random(chain.jax.random.key(0), 4 * 64, (100, 20)), (8, 8), noise_var=0.1)
    assert np.isfinite(
        joint.infer(np.full((2, 8, 8), 0.4), sampler=joint.sampler.override(shadow=dl.ShadowLabels())).normals
    ).all()


def test_a_damaged_posterior_is_one_error(small, tmp_path):
    """However it is damaged; and one of before, without a checksum, is read."""
    path, rng = tmp_path / "post.npz", np.random.default_rng(0)
    small.infer(small.sample(1, seed=1).images[0], iterations=4, chains=1).save(path)
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.integers(1, 4)):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(damaged[: rng.integers(1, len(whole)) if rng.random() < 0.2 else None])
        with suppress(ValueError):
            dl.Posterior.load(path)
    path.write_bytes(whole)
    arrays = read_npz(path)
    header = json.loads(str(arrays.pop("header")))
    wrong = arrays | {"albedo": arrays["albedo"] + 1}
    np.savez(path, header=np.array(json.dumps(header)), **wrong)
    with pytest.raises(ValueError, match=r"post.npz: .*its checksum is not that of its contents"):
        dl.Posterior.load(path)
    del header["checksum"]
    np.savez(path, header=np.array(json.dumps(header)), **wrong)
    with pytest.raises(ValueError, match=r"post.npz: .*expected a checksum, got none"):
        dl.Posterior.load(path)
    header["version"] = 1
    np.savez(path, header=np.array(json.dumps(header)), **wrong)
    np.testing.assert_array_equal(dl.Posterior.load(path).albedo, wrong["albedo"])
    np.savez(path, header=np.array(json.dumps(header)), **wrong | {"lights": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match=r"post.npz: expected a whole posterior, got one without"):
        dl.Posterior.load(path)
    np.savez_compressed(path, zeros=np.zeros(300 * 2**20, np.uint8))
    with pytest.raises(ValueError, match="expected at most 268435456"):
        dl.Posterior.load(path)


def test_posterior_is_saved_and_loaded(small, tmp_path):
    post = small.infer(small.sample(1, images=2).images[0], chains=2, sampler=small.sampler.override(keep=2))
    post.save(tmp_path / "result.npz")
    again = dl.Posterior.load(tmp_path / "result.npz")
    for name in ("albedo", "normals", "lights", "albedo_std", "normals_std", "lights_std", "scaled_normals", "shadows"):
        np.testing.assert_array_equal(getattr(post, name), getattr(again, name))
    assert again.info == post.info
    assert again.diagnostics.rhat == post.diagnostics.rhat
    assert again.diagnostics.warnings == post.diagnostics.warnings
    np.testing.assert_array_equal(again.samples["normals"], post.samples["normals"])
    np.testing.assert_array_equal(again.relight([0, 0, 1]), post.relight([0, 0, 1]))
    whole = (tmp_path / "result.npz").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"text"):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match="expected a file of version 2 of 'deep_lambertian posterior'"):
            dl.Posterior.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="expected a file of version 2 of 'deep_lambertian posterior'"):
        dl.Posterior.load(tmp_path / "other.npz")


def test_relighting_is_linear_but_for_shadows(small):
    post = small.infer(small.sample(1).images[0])
    lights = np.array([[0.0, 0.3, 0.9], [1.0, 0.0, 0.1]])
    several = post.relight(lights)
    assert several.shape == (2, 8, 8)
    np.testing.assert_allclose(several[1], post.relight(lights[1]), rtol=1e-5, atol=1e-6)
    assert several.min() == 0
    plain = post.relight(lights, shadows=False)
    np.testing.assert_allclose(post.relight(lights.sum(axis=0), shadows=False), plain.sum(axis=0), atol=1e-5)
    with pytest.raises(ValueError, match=r"light: expected three finite numbers.*got shape \(2,\)"):
        post.relight([1, 2])


def test_diagnostics_tell_a_converged_chain_from_one_that_is_not(small):
    images = small.sample(1, images=3).images[0]
    long = small.infer(images, iterations=1500, chains=4, sampler=small.sampler.override(**WHOLE)).diagnostics
    assert long.converged, long.warnings
    short = small.infer(
        images, chains=2, sampler=small.sampler.override(iterations=20, burn_in=0, step_size=1e-4)
    ).diagnostics
    assert not short.converged
    assert any("more iterations" in warning for warning in short.warnings)
    assert not small.infer(images, iterations=3).diagnostics.converged  # too short to tell is not converged


def test_chains_go_on_until_they_have_converged(small):
    images = small.sample(1, images=3).images[0]
    sampler = small.sampler.override(**WHOLE).override(iterations=100, burn_in=20, chains=4, until=1000)
    post = small.infer(images, sampler=sampler)
    assert post.diagnostics.converged, post.diagnostics.warnings
    made = post.info["iterations"]
    assert made in range(200, 1000, 100)  # by hundreds, and no more than it takes
    assert post.diagnostics.energy.shape == (4, made)
    before = small.infer(images, sampler=sampler.override(iterations=made - 100, burn_in=20))
    assert not before.diagnostics.converged
    straight = small.infer(images, sampler=sampler.override(iterations=made, burn_in=20))
    np.testing.assert_array_equal(post.albedo, straight.albedo)  # nor does the way there matter
    np.testing.assert_array_equal(post.lights_std, straight.lights_std)


def test_chains_that_do_not_converge_end_all_the_same(small):
    images = small.sample(1, images=3).images[0]
    stuck = small.sampler.override(step_size=1e-5)
    post = small.infer(images, sampler=stuck.override(iterations=20, until=150))
    assert post.info["iterations"] == 150
    assert not post.diagnostics.converged
    assert post.diagnostics.energy.shape == (1, 150)
    assert small.infer(images, sampler=stuck.override(iterations=20)).info["iterations"] == 20
    assert small.infer(images, iterations=20, until=50, sampler=stuck).info["iterations"] == 50


def test_who_goes_on_by_default(small, monkeypatch):
    """One object does, as the preset says, unless it is told how many iterations to make; of many none does, or what
    becomes of one would depend on the others.
    """
    asked: list[Sampler] = []

    def run(params, data, sampler, **options):
        asked.append(sampler)
        raise InterruptedError

    monkeypatch.setattr(chain, "run", run)
    images, best = np.full((8, 8), 0.5), Sampler.of_preset("best")
    model = dl.DLN(small.params, small.shape, "best")
    for call in (
        lambda: model.infer(images),
        lambda: model.infer(images, iterations=30),
        lambda: model.infer(images, until=600),
        lambda: model.infer_many([images]),
        lambda: model.infer_many([images], sampler="best"),
        lambda: model.infer_many([images], sampler=best),
    ):
        with pytest.raises(InterruptedError):
            call()
    assert best.until == 2000
    assert [each.most for each in asked] == [2000, 30, 600, *[best.iterations] * 3]


BAD = {
    "no images": (dict(images=np.zeros((0, 8, 8))), r"at least one image of 8×8 pixels, got none"),
    "wrong size": (dict(images=np.zeros((9, 8))), r"built for 8×8 pixels, got 9×8; resize"),
    "wrong rank": (dict(images=np.zeros(64)), r"got shape \(64,\)"),
    "colour": (dict(images=np.zeros((2, 8, 8, 3))), r"got shape \(2, 8, 8, 3\)"),
    "ragged": (dict(images=[np.zeros((8, 8)), np.zeros((7, 8))]), r"images of one size"),
    "text": (dict(images=np.full((8, 8), "a")), r"expected real numbers"),
    "nan": (dict(images=np.full((8, 8), np.nan)), r"got 64 that are NaN or infinite"),
    "infinite": (dict(images=np.full((8, 8), np.inf)), r"got 64 that are NaN or infinite"),
    "huge": (dict(images=np.full((8, 8), 1e20)), r"got 64 that are NaN or infinite, or beyond 1e\+15"),
    "negative": (dict(images=np.full((8, 8), -0.5)), r"expected intensities, .* nearly all negative, down to -0.5"),
    "all masked": (dict(images=np.ma.masked_all((8, 8))), r"got all of them masked"),
    "masked light": (dict(images=np.zeros((8, 8)), lights=np.ma.masked_less([1, 2, 3], 2)), r"lights: .* masked array"),
    "huge light": (dict(images=np.zeros((8, 8)), lights=[0, 0, 1e38]), r"lights: expected numbers of at most 1e\+15"),
    "huge albedo": (
        dict(images=np.zeros((8, 8)), surface=dl.Surface(np.full(64, 5e29), np.ones((3, 64)))),
        r"surface.albedo: expected numbers of at most",
    ),
    "empty mask": (dict(images=np.zeros((8, 8)), mask=np.zeros((8, 8))), r"0 everywhere"),
    "mask shape": (
        dict(images=np.zeros((8, 8)), mask=np.ones((4, 4))),
        r"mask: expected shape \(8, 8\) or \(1, 8, 8\)",
    ),
    "mask values": (dict(images=np.zeros((8, 8)), mask=np.full((8, 8), 2.0)), r"between 0 and 1, got 2 to 2"),
    "lights": (dict(images=np.zeros((2, 8, 8)), lights=np.ones((3, 3))), r"lights: expected shape \(2, 3\)"),
    "nan light": (dict(images=np.zeros((8, 8)), lights=[0, 0, np.nan]), r"lights: expected finite"),
    "albedo": (
        dict(images=np.zeros((8, 8)), surface=dl.Surface(np.ones(63), np.ones((3, 63)))),
        r"surface.albedo: expected shape \(64,\)",
    ),
    "normals": (
        dict(images=np.zeros((8, 8)), surface=dl.Surface(np.ones(64), np.ones((64, 3)))),
        r"surface.normals: expected shape \(3, 64\)",
    ),
    "chains": (dict(images=np.zeros((8, 8)), chains=0), r"chains: expected a whole number of at least 1"),
    "iterations": (dict(images=np.zeros((8, 8)), iterations=0), r"iterations: expected a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(small, case):
    arguments, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        (small.infer_lights if "surface" in arguments else small.infer)(**arguments)


def test_a_posterior_that_is_not_finite_is_never_returned(small):
    images, lights = np.full((1, 8, 8), 1e14), np.full((1, 3), 1e14)
    noisy = dataclasses.replace(small, params=dataclasses.replace(small.params, noise_var=jnp.full(64, 1e-29)))
    with pytest.raises(ValueError, match=r"images: inference ended in numbers .* images of up to 1e\+14"):
        noisy.infer(images, lights)
    with pytest.raises(ValueError, match=r"images\[1\]: inference ended in numbers") as caught:
        noisy.infer_many([np.full((1, 8, 8), 1e-14), images], [lights * 1e-28, lights])
    assert caught.value.objects == [1]  # type: ignore[attr-defined]


def test_what_a_masked_array_hides_does_not_count(small):
    images = small.sample(1, images=2, seed=3, iterations=6).images[0]
    hidden = np.zeros(images.shape, bool)
    hidden[:, :3] = True
    expected = small.infer(images, mask=~hidden, iterations=6)
    spoilt = np.ma.MaskedArray(np.where(hidden, np.nan, images), hidden)
    for given in (spoilt, list(spoilt)):
        np.testing.assert_array_equal(small.infer(given, iterations=6).normals, expected.normals)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_var": 1e-40}, "noise_var: expected numbers of at least 1e-30"),
        ({"light_mean": (0, 0, 1e30)}, r"light_mean: expected numbers of at most 1e\+15"),
        ({"norm_stiffness": 1e38}, r"norm_stiffness: expected numbers of at most 1e\+15"),
    ],
)
def test_parameters_that_single_precision_cannot_compute_with_are_refused(small, changes, message):
    with pytest.raises(ValueError, match=message):
        dl.DLN.build(small.params.prior, (8, 8), **changes)


BAD_SETTINGS = {
    "burn-in": (dict(burn_in=60), r"burn_in: expected .* fewer than the 60"),
    "step": (dict(step_size=-1.0), r"step_size: expected a positive"),
    "setting": (dict(stepsize=1.0), r"unknown sampler setting \['stepsize'\]"),
    "hidden": (dict(hidden="no"), r"hidden: expected one of"),
    "target": (dict(target_acceptance=1.5), r"target_acceptance: expected between"),
    "anneal": (dict(anneal=0.5), r"anneal: expected a temperature"),
    "keep": (dict(keep=61), r"keep: expected 0 to 60, the number of iterations, got 61"),
    "until": (dict(until=-1), r"until: expected a whole number of at least 0"),
    "surface": (dict(surface="half"), r"surface: expected one of"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_refused_in_words(small, case):
    changes, message = BAD_SETTINGS[case]
    with pytest.raises(ValueError, match=message):
        small.sampler.override(**changes)


def test_a_sampler_is_an_object_or_a_name(small):
    images = small.sample(1).images[0]
    by_name = small.infer(images, sampler="paper", iterations=10)
    by_object = small.infer(images, sampler=Sampler.of_preset("paper").override(iterations=10))
    np.testing.assert_array_equal(by_name.albedo, by_object.albedo)
    assert by_name.info["iterations"] == 10
    with pytest.raises(ValueError, match="unknown preset 'fast'"):
        small.infer(images, sampler="fast")


def test_bad_batches_and_models_are_refused(small, tiny):
    with pytest.raises(ValueError, match="at least one object"):
        small.infer_many([])
    with pytest.raises(ValueError, match="lights: expected one for each of 2 objects, got 1"):
        small.infer_many([np.zeros((8, 8))] * 2, lights=[np.zeros((1, 3))])
    with pytest.raises(ValueError, match=r"images\[1\]: the model was built for 8×8"):
        small.infer_many([np.zeros((8, 8)), np.zeros((3, 3))])
    with pytest.raises(ValueError, match="same blocks"):
        small.infer_many([np.zeros((8, 8))] * 2, lights=[np.zeros((1, 3)), None])
    with pytest.raises(ValueError, match="noise_var: expected positive numbers, got a smallest of 0"):
        dl.DLN.build(tiny.params.prior, (1, 2), noise_var=0.0)
    with pytest.raises(ValueError, match="noise_var: expected finite"):
        dl.DLN.build(tiny.params.prior, (1, 2), noise_var=np.nan)
    with pytest.raises(ValueError, match="positive definite"):
        dl.DLN.build(tiny.params.prior, (1, 2), light_precision=-1.0)
    with pytest.raises(ValueError, match=r"prior: expected 36 elements.*got 8"):
        dl.DLN.build(tiny.params.prior, (3, 3))
    with pytest.raises(ValueError, match="unknown preset 'fast'"):
        dl.DLN.build(tiny.params.prior, (1, 2), preset="fast")
    with pytest.raises(ValueError, match="norm_stiffness: expected at least 0"):
        dl.DLN.build(tiny.params.prior, (1, 2), norm_stiffness=-3.0)
    with pytest.raises(ValueError, match="at least one object and one image"):
        tiny.sample(0)


def test_labels_can_be_turned_off():
    best = Sampler.of_preset("best")
    assert best.shadow is not None
    assert best.override(shadow=None).shadow == best.shadow  # None says nothing
    assert best.override(shadow=False).shadow is None


@pytest.mark.parametrize("light", [(np.nan, 0.0, 1.0), (1e38, 0.0, 1.0)])
def test_nothing_is_drawn_under_lights_that_are_none(small, light):
    with pytest.raises(ValueError, match="lights: expected"):
        small.sample(1, lights=light)
