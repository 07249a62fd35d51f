"""Each conditional of Sec. 3.2 against the joint energy, Eq. 6, from which it has to follow."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from deep_lambertian.energy import Observation, State, joint_energy
from deep_lambertian.geometry import TRIANGLE, cholesky, cholesky3, invert_lower, multiply, solve_lower, solve_lower_t
from deep_lambertian.inference.albedo import albedo_conditional
from deep_lambertian.inference.lights import light_conditional
from deep_lambertian.inference.normals import normals_conditional, potential
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.priors import Gaussian
from deep_lambertian.support import draws
from deep_lambertian.surface import Surface, illuminate, render, shading

PIXELS, IMAGES = 2, 3


@pytest.fixture(scope="module")
def world(tiny):
    """Parameters and one configuration of every variable, with images of different weight, one of them missing."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(0.3, 0.6, shape), jnp.float32)
    weights = jnp.array([[1.0, 0.4], [0.7, 1.0], [0.0, 0.0]])
    hidden = (jnp.array([1.0, 0.0, 1.0]), jnp.array([0.0, 1.0]))
    return (
        tiny.params,
        Observation(draw(IMAGES, PIXELS), weights),
        draw(PIXELS),
        draw(3, PIXELS),
        draw(IMAGES, 3),
        hidden,
    )


def grid_law(energies: np.ndarray) -> np.ndarray:
    """Probabilities on a grid from energies there."""
    law = np.exp(-(np.asarray(energies, np.float64) - np.min(energies)))
    return law / law.sum()


def test_conditional_1_hidden(world):
    params, data, albedo, normals, lights, (h, g) = world
    h_mean, g_mean = params.prior.mean_hidden(Surface(albedo, normals).pack())
    for block, (state, mean) in enumerate(((h, h_mean), (g, g_mean))):
        for j in range(state.shape[0]):
            energies = []
            for value in (0.0, 1.0):
                changed = [h, g]
                changed[block] = state.at[j].set(value)
                energies.append(float(joint_energy(params, data, Surface(albedo, normals), lights, tuple(changed))))
            assert grid_law(np.array(energies))[1] == pytest.approx(float(mean[j]), abs=1e-4)


def test_conditional_2_albedo(world):
    params, data, albedo, normals, lights, hidden = world
    mean, variance = (x.reshape(4, -1) for x in params.prior.top_down(hidden))
    centre, spread = albedo_conditional(
        data.images, data.weights, shading(normals, lights), params.noise_var, mean[0], variance[0]
    )
    grid = jnp.linspace(-3, 3, 401)
    for i in range(PIXELS):
        along = jax.vmap(
            lambda x, i=i: joint_energy(params, data, Surface(albedo.at[i].set(x), normals), lights, hidden)
        )
        np.testing.assert_allclose(
            grid_law(along(grid)), grid_law((grid - centre[i]) ** 2 / (2 * spread[i])), rtol=2e-3, atol=1e-7
        )


def test_conditional_2_without_light_is_the_prior(world):
    """The paper's remark: with light of zero strength the albedo is purely the top-down activation."""
    params, data, _, normals, lights, hidden = world
    mean, variance = (x.reshape(4, -1) for x in params.prior.top_down(hidden))
    dark = shading(normals, 0 * lights)
    centre, spread = albedo_conditional(data.images, data.weights, dark, params.noise_var, mean[0], variance[0])
    np.testing.assert_allclose(centre, mean[0], rtol=1e-6)
    np.testing.assert_allclose(spread, variance[0], rtol=1e-6)


def test_conditional_2_is_the_formula_of_the_paper(world):
    params, data, _, normals, lights, hidden = world
    mean, variance = (x.reshape(4, -1) for x in params.prior.top_down(hidden))
    s, v, noise, var = shading(normals, lights), data.images, params.noise_var, variance[0]
    below = var * jnp.sum(s**2, axis=0) + noise
    got = albedo_conditional(v, jnp.ones_like(v), s, noise, mean[0], var)
    np.testing.assert_allclose(got[0], (var * jnp.sum(s * v, axis=0) + mean[0] * noise) / below, rtol=1e-5)
    np.testing.assert_allclose(got[1], var * noise / below, rtol=1e-5)


def test_conditional_3_lights(world):
    params, data, albedo, normals, lights, hidden = world
    centre, factor = light_conditional(params, data, Surface(albedo, normals).scaled_normals)
    points = jnp.asarray(np.random.default_rng(1).normal(0, 1, (200, 3)), jnp.float32)
    for p in range(IMAGES):
        along = jax.vmap(
            lambda x, p=p: joint_energy(params, data, Surface(albedo, normals), lights.at[p].set(x), hidden)
        )
        white = (points - centre[p][None]) @ factor[p]
        np.testing.assert_allclose(
            grid_law(along(points)), grid_law(0.5 * jnp.sum(white**2, axis=1)), rtol=2e-3, atol=1e-7
        )
    # The image that is missing says nothing: its light is the prior's.
    np.testing.assert_allclose(centre[2], params.light_mean, rtol=1e-5)
    np.testing.assert_allclose(factor[2] @ factor[2].T, params.light_precision, rtol=1e-5, atol=1e-6)


def test_conditional_4_normals(world):
    params, data, albedo, normals, lights, hidden = world
    mean, variance = (x.reshape(4, -1) for x in params.prior.top_down(hidden))
    target = normals_conditional(data, albedo, lights, params.noise_var, mean[1:], variance[1:])
    points = jnp.asarray(np.random.default_rng(2).normal(0, 0.8, (200, 3)), jnp.float32)
    for i in range(PIXELS):
        along = jax.vmap(
            lambda x, i=i: joint_energy(params, data, Surface(albedo, normals.at[:, i].set(x)), lights, hidden)
        )
        everywhere = jax.vmap(lambda x: potential(target, params.norm_stiffness, jnp.tile(x[:, None], PIXELS)))
        np.testing.assert_allclose(grid_law(along(points)), grid_law(everywhere(points)[:, i]), rtol=5e-3, atol=1e-7)


# Conditional 5. A pixel that is lit, dark, too dark to be lit, too bright for anything but lit or dark, and one masked.
SEEN = jnp.array([[0.4, 0.06, 0.01, 1.2, 0.3], [0.9, 0.1, 0.3, 0.5, 0.2]])
COUNTED = jnp.array([[1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
PREDICTED = jnp.array([[0.5, 0.2, 0.0, 1.0, 0.3], [0.2, 0.5, 0.3, 0.4, -0.3]])
SHARES = jnp.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]])


def label_law(prediction: np.ndarray, noise_var: np.ndarray, dark_mean: float) -> np.ndarray:
    """p(z | v, …) (3, P, V) by Bayes's rule, from the densities of SciPy."""
    seen = np.asarray(SEEN, np.float64)
    lit = stats.norm.pdf(seen, prediction, np.sqrt(noise_var)) * (seen >= 0.05)
    density = np.stack([lit, stats.expon.pdf(seen, scale=dark_mean), stats.uniform.pdf(seen)])
    law = np.asarray(SHARES, np.float64).T[:, :, None] * np.where(np.asarray(COUNTED) > 0, density, 1.0)
    return law / law.sum(axis=0)


def test_conditional_5_labels(tiny):
    params = replace(tiny.params, noise_var=jnp.full(5, 0.02), dark_mean=jnp.float32(0.07))
    logits = ShadowLabels().logits(params, Observation(SEEN, COUNTED), PREDICTED, SHARES)
    expected = label_law(np.asarray(PREDICTED), np.full(5, 0.02), 0.07)
    np.testing.assert_allclose(jax.nn.softmax(logits, axis=0), expected, rtol=1e-4, atol=1e-7)
    hot = ShadowLabels().logits(params, Observation(SEEN, COUNTED), PREDICTED, SHARES, temperature=9.0)
    expected = label_law(np.asarray(PREDICTED), np.full(5, 0.18), 0.07)
    np.testing.assert_allclose(jax.nn.softmax(hot, axis=0), expected, rtol=1e-4, atol=1e-7)


def test_conditional_5_draws_labels_and_proportions(tiny):
    """As often lit as the law says; and proportions whose means are those of a Dirichlet with the labels counted."""
    params = replace(tiny.params, noise_var=jnp.full(5, 0.02), dark_mean=jnp.float32(0.07))
    rng, count = np.random.default_rng(3), 20_000
    draw = lambda *shape: jnp.asarray(rng.normal(0.3, 0.5, shape), jnp.float32)
    surface, lights = Surface(draw(5), draw(3, 5)), draw(2, 3)
    data, nothing = Observation(SEEN, COUNTED), jnp.ones(5)
    state = State(surface, lights, (), COUNTED, SHARES, nothing, nothing)
    drawn = jax.jit(jax.vmap(lambda key: ShadowLabels().given_albedo(key, params, data, state)))(
        jax.random.split(draws.make_key(0), count)
    )
    law = label_law(np.asarray(render(surface, lights)), np.full(5, 0.02), 0.07)
    lit = law[0] * np.asarray(COUNTED)
    error = np.sqrt(np.maximum(lit * (1 - lit), 1e-6) / count)
    assert np.max(np.abs(np.mean(drawn.weights, axis=0) - lit) / error) < 4.3
    np.testing.assert_allclose(np.sum(drawn.proportions, axis=-1), 1, rtol=1e-5)
    counts = np.array([17, 2, 1]) + np.sum(np.where(np.asarray(COUNTED) > 0, law, 0), axis=2).T
    expected = counts / counts.sum(axis=1, keepdims=True)
    error = np.std(drawn.proportions, axis=0) / np.sqrt(count)
    assert np.max(np.abs(np.mean(drawn.proportions, axis=0) - expected) / error) < 4.3


def test_conditional_5_integrates_the_albedo_out(tiny):
    """The first image's labels, given those of the second, by quadrature over the albedo of every pixel; then the
    second's, given what was drawn for the first. A pixel that counts by half has the root of its density.
    """
    rng, count = np.random.default_rng(4), 20_000
    mean, variance = rng.uniform(0.4, 0.7, 20), rng.uniform(0.01, 0.05, 20)
    prior = Gaussian.diagonal(mean, variance)
    params = replace(tiny.params, prior=prior, noise_var=jnp.full(5, 0.01), dark_mean=jnp.float32(0.07))
    draw = lambda *shape: jnp.asarray(rng.normal(0.6, 0.3, shape), jnp.float32)
    surface, lights = Surface(draw(5), draw(3, 5)), draw(2, 3)
    counted = COUNTED.at[0, 0].set(0.5)
    data, nothing = Observation(SEEN, counted), jnp.ones(5)
    before = counted * jnp.array([[1, 1, 0, 0, 0], [1, 0, 1, 0, 1.0]])
    state = State(surface, lights, jnp.zeros(0), before, SHARES, nothing, nothing)
    keys = jax.random.split(draws.make_key(1), count)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: ShadowLabels()(key, params, data, state).weights))(keys)) > 0
    albedo = np.linspace(-1, 2.5, 4001)[:, None]
    s, v, w = (np.asarray(each, np.float64) for each in (shading(surface.normals, lights), SEEN, counted))
    lit = [stats.norm.pdf(v[p], albedo * s[p], 0.1) ** w[p] for p in range(2)]
    dark = [(stats.expon.pdf(v[p], scale=0.07) ** w[p], stats.uniform.pdf(v[p]) ** w[p]) for p in range(2)]
    believed = stats.norm.pdf(albedo, mean[:5], np.sqrt(variance[:5]))

    def chance(p: int, other: np.ndarray) -> np.ndarray:
        """That the pixels (5,) of image p are lit, if those of the other image are or are not."""
        rest = believed * np.where(other, lit[1 - p], 1)
        mine = SHARES[p, 0] * np.where(v[p] >= 0.05, (rest * lit[p]).sum(axis=0) / rest.sum(axis=0), 0)
        return np.asarray(mine / (mine + SHARES[p, 1] * dark[p][0] + SHARES[p, 2] * dark[p][1]))

    first = chance(0, np.asarray(before[1]) > 0)
    given = [chance(1, np.full(5, other)) for other in (False, True)]
    second = np.where(drawn[:, 0], given[1], given[0])
    for p, expected in enumerate((first, second.mean(axis=0))):
        error = np.sqrt(np.maximum(expected * (1 - expected), 1e-6) / count)
        assert np.max(np.abs(np.where(w[p] > 0, drawn[:, p].mean(axis=0) - expected, 0)) / error) < 4.3


def test_a_pixel_below_zero_is_dark(tiny):
    """Noise takes black below 0, where no label but `dark` is left."""
    params = replace(tiny.params, noise_var=jnp.full(5, 0.02))
    logits = ShadowLabels().logits(params, Observation(-0.1 * SEEN, jnp.ones_like(SEEN)), PREDICTED, SHARES)
    np.testing.assert_allclose(jax.nn.softmax(logits, axis=0)[1], 1.0)


def test_the_energy_of_the_data_is_that_of_the_normal_density(world):
    """The first line of Eq. 6 is −log p(V | a, N, L) of Eq. 5, but for what does not depend on the surface."""
    params, data, albedo, normals, lights, hidden = world
    v, w, var = (np.asarray(x, np.float64) for x in (data.images, data.weights, params.noise_var))
    by_hand = 0.0
    for p in range(IMAGES):
        for i in range(PIXELS):
            mean = float(albedo[i]) * float(normals[:, i] @ lights[p])
            by_hand += w[p, i] * 0.5 * (v[p, i] - mean) ** 2 / var[i]
    nothing = Observation(data.images, jnp.zeros_like(data.weights))
    energy = lambda data: float(joint_energy(params, data, Surface(albedo, normals), lights, hidden))
    assert energy(data) - energy(nothing) == pytest.approx(by_hand, rel=1e-4)


def test_a_surface_has_one_content_in_all_its_layouts():
    rng = np.random.default_rng(0)
    albedo, normals = rng.normal(size=(5, 2, 3)).astype(np.float32), rng.normal(size=(5, 2, 3, 3)).astype(np.float32)
    surface = Surface.from_pictures(albedo, normals)
    np.testing.assert_array_equal(surface.pack()[:, 6:12], normals[..., 0].reshape(5, -1))  # vec(N) by components
    for before, after in zip((albedo, normals), Surface.unpack(surface.pack()).pictures((2, 3)), strict=True):
        np.testing.assert_array_equal(before, after)
    lights = rng.normal(size=(4, 3)).astype(np.float32)
    one = Surface(jnp.asarray(surface.albedo[0]), jnp.asarray(surface.normals[0]))
    plain = np.asarray(render(one, jnp.asarray(lights))).reshape(4, 2, 3)
    scaled = albedo[0, ..., None] * normals[0]
    np.testing.assert_allclose(illuminate(scaled, lights, shadows=False), plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(illuminate(scaled, lights[1]), np.maximum(plain[1], 0), rtol=1e-4, atol=1e-5)


def test_cholesky_of_3_by_3():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(50, 3, 3))
    matrices = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(3)
    triangle = jnp.asarray(np.stack([matrices[:, i, j] for i, j in TRIANGLE], axis=-1), jnp.float32)
    factor = cholesky3(triangle)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrices), rtol=1e-3, atol=1e-4)
    right = jnp.asarray(rng.normal(size=(50, 3)), jnp.float32)
    solved = solve_lower_t(factor, solve_lower(factor, right))
    np.testing.assert_allclose(np.einsum("kij,kj->ki", matrices, solved), right, atol=1e-3)
    # A matrix that rounding has made singular still has a finite factor.
    flat = jnp.array([[1e8, 1e8, 1e8, 1e8, 1e8, 1e8]], jnp.float32)
    assert np.isfinite(np.asarray(cholesky3(flat))).all()


def test_small_matrices_of_any_size():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(50, 4, 4))
    matrices = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(4)
    factor = cholesky(jnp.asarray(np.moveaxis(matrices, 0, -1), jnp.float32))
    np.testing.assert_allclose(np.moveaxis(factor, -1, 0), np.linalg.cholesky(matrices), rtol=1e-3, atol=1e-4)
    inverse = np.moveaxis(invert_lower(factor), -1, 0)
    np.testing.assert_allclose(inverse @ np.moveaxis(factor, -1, 0), np.tile(np.eye(4), (50, 1, 1)), atol=1e-3)
    vectors = jnp.asarray(rng.normal(size=(4, 50)), jnp.float32)
    got = multiply(jnp.asarray(np.moveaxis(matrices, 0, -1), jnp.float32), vectors)
    np.testing.assert_allclose(got, np.einsum("kij,jk->ik", matrices, vectors), rtol=1e-4, atol=1e-4)
    assert np.isfinite(np.asarray(cholesky(jnp.full((4, 4, 1), 1e8)))).all()
