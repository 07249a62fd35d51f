"""The sampler as a whole: Geweke's joint-distribution test, and a long chain against exact posterior moments."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp

from conftest import tiny_grbm
from deep_lambertian import DLN
from deep_lambertian.energy import Observation, Params, State, norm_energy
from deep_lambertian.inference import gauge
from deep_lambertian.inference.sampler import Sampler, blocks_of, sweep
from deep_lambertian.surface import Surface, render
from test_priors import mixture

CHAINS, IMAGES = 20_000, 2
KERNEL = Sampler(step_size=0.15, leapfrogs=5, epochs=1)


def normal_grid(mean: np.ndarray, variance: np.ndarray, points: int = 41) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (points³, 3) and weights of a product Gauss–Hermite rule for N(mean, diag variance)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    return mean + np.sqrt(variance) * grid, np.einsum("i,j,k->ijk", weights, weights, weights).reshape(-1)


def draw_prior(params: Params, rng: np.random.Generator) -> tuple[State, np.ndarray]:
    """Independent, exact draws from p(V, a, N, L, h, g): states and images (CHAINS, P, V)."""
    pixels, eta = params.pixels, float(params.norm_stiffness)
    h_states, h_law, a_means = mixture(params.prior.albedo)
    h = rng.choice(len(h_law), CHAINS, p=h_law)
    albedo = rng.normal(a_means[h], np.sqrt(params.prior.albedo.variance))

    g_states, g_law, n_means = mixture(params.prior.normals)
    n_means = np.moveaxis(n_means.reshape(-1, 3, pixels), 1, 2)  # (states, V, 3)
    n_var = np.asarray(params.prior.normals.variance).reshape(3, pixels).T
    # The norm constraint reweights each state by the mean of exp(−η/2 (n·n − 1)²) under its Gaussian.
    for k in range(len(g_law)):
        for i in range(pixels):
            nodes, weights = normal_grid(n_means[k, i], n_var[i])
            g_law[k] *= weights @ np.exp(-0.5 * eta * (np.sum(nodes**2, axis=1) - 1) ** 2)
    g = rng.choice(len(g_law), CHAINS, p=g_law / g_law.sum())
    normals = np.full((CHAINS, pixels, 3), np.nan)
    while np.isnan(normals).any():  # rejection from the Gaussian leaves exactly the constrained law
        proposal = rng.normal(n_means[g], np.sqrt(n_var)[None])
        keep = rng.uniform(size=(CHAINS, pixels)) < np.exp(-0.5 * eta * (np.sum(proposal**2, axis=-1) - 1) ** 2)
        normals = np.where(np.isnan(normals) & keep[..., None], proposal, normals)

    covariance = np.linalg.inv(np.asarray(params.light_precision, np.float64))
    lights = rng.multivariate_normal(np.asarray(params.light_mean), covariance, (CHAINS, IMAGES))
    shading = np.einsum("cvk,cpk->cpv", normals, lights)
    images = rng.normal(albedo[:, None] * shading, np.sqrt(params.noise_var))
    hidden = (jnp.asarray(h_states[h]), jnp.asarray(g_states[g]))
    values = [jnp.asarray(x, jnp.float32) for x in (albedo, np.swapaxes(normals, 1, 2), lights)]
    albedo, normals, lights = values
    step_size = jnp.full((CHAINS, pixels), KERNEL.step_size)
    everything = jnp.ones((CHAINS, IMAGES, pixels))
    state = State(Surface(albedo, normals), lights, hidden, everything, step_size, jnp.ones_like(step_size))
    return state, images.astype(np.float32)


def statistics(state: State, images: jax.Array) -> np.ndarray:
    """First, second and mixed moments of everything: one row a chain."""
    albedo, normals = np.asarray(state.surface.albedo), np.asarray(state.surface.normals)
    columns = [albedo, normals, state.lights, *state.hidden, images]
    flat = np.concatenate([np.asarray(c).reshape(CHAINS, -1) for c in columns], axis=1)
    length = np.sum(normals**2, axis=1)
    mixed = [albedo * length, flat[:, :1] * flat[:, -1:], np.asarray(images) ** 2]
    return np.concatenate([flat, flat**2, *[m.reshape(CHAINS, -1) for m in mixed], length**2], axis=1)


@partial(jax.jit, static_argnames=("steps", "kernel"))
def successive(
    params: Params, state: State, images: jax.Array, key: jax.Array, steps: int, kernel: Sampler, temperature=1.0
):
    """The successive-conditional simulator: latent variables given images by the sampler, images given latents."""
    blocks, hot = blocks_of(kernel), replace(params, noise_var=temperature * params.noise_var)

    def one(key, state, images):
        def step(t, carry):
            state, images = carry
            sweep_key, image_key = jax.random.split(jax.random.fold_in(key, t))
            data = Observation(images, jnp.ones_like(images))
            state = sweep(sweep_key, hot, data, state, blocks)
            noise = jnp.sqrt(params.noise_var)[None] * jax.random.normal(image_key, images.shape)
            return state, render(state.surface, state.lights) + noise

        return jax.lax.fori_loop(0, steps, step, (state, images))

    return jax.vmap(one)(jax.random.split(key, CHAINS), state, images)


def scores(params: Params, kernel: Sampler = KERNEL, temperature: float = 1.0) -> np.ndarray:
    """z-scores between prior draws and draws that went through the sampler; chains are independent of each other."""
    rng = np.random.default_rng(0)
    reference = statistics(*draw_prior(params, rng))
    state, images = draw_prior(params, rng)
    moved = statistics(*successive(params, state, jnp.asarray(images), jax.random.key(1), 30, kernel, temperature))
    difference = moved.mean(axis=0) - reference.mean(axis=0)
    return difference / np.sqrt((moved.var(axis=0) + reference.var(axis=0)) / CHAINS)


@pytest.mark.parametrize(
    "kernel", [KERNEL, pytest.param(replace(KERNEL, gauge_moves=2), marks=pytest.mark.slow)], ids=["paper", "gauge"]
)
def test_geweke(tiny, kernel):
    z = scores(tiny.params, kernel)
    # Bonferroni over all statistics at 1 in 1000.
    assert np.max(np.abs(z)) < 4.3, np.sort(np.abs(z))[-5:]


def test_geweke_would_notice(tiny):
    """The same test on a sampler that takes the noise to be a third larger than it is."""
    assert np.max(np.abs(scores(tiny.params, temperature=1.33))) > 6


def test_gauge_moves_leave_the_images_and_know_their_jacobian():
    rng = np.random.default_rng(4)
    change = jnp.asarray(rng.normal(0, 0.4, (3, 3)), jnp.float32)
    albedo, normals, lights = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((2,), (3, 2), (4, 3)))
    latent = Surface(albedo, normals), lights
    *moved, jacobian = gauge.transform(change, *latent)
    np.testing.assert_allclose(render(*moved), render(*latent), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(moved[0].normals, axis=0), np.linalg.norm(normals, axis=0), rtol=1e-5)
    *back, _ = gauge.transform(-change, *moved)
    for old, new in zip(jax.tree.leaves(latent), jax.tree.leaves(back), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)
    flat, unflatten = ravel_pytree(latent)
    matrix = jax.jacobian(lambda x: ravel_pytree(gauge.transform(change, *unflatten(x))[:2])[0])(flat)
    assert float(jacobian) == pytest.approx(np.linalg.slogdet(np.asarray(matrix, np.float64))[1], abs=1e-3)


def test_long_chain_has_the_exact_posterior_moments():
    """One pixel, two known lights, one hidden layer shared by albedo and normal: a four-dimensional grid is exact."""
    prior = tiny_grbm(4, 4, 3, scale=0.5)
    model = DLN.build(prior, (1, 1), noise_var=0.1, norm_stiffness=5.0)
    lights = np.array([[0.3, 0.1, 0.9], [-0.6, 0.5, 0.5]], np.float32)
    images = np.array([0.5, 0.2], np.float32).reshape(2, 1, 1)
    axis = jnp.linspace(-2.6, 2.6, 45)
    grid = jnp.stack(jnp.meshgrid(axis, axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 4)

    def energy(x: jax.Array) -> jax.Array:
        surface = Surface(x[:1], x[1:, None])
        residual = jnp.asarray(images).reshape(2, 1) - render(surface, jnp.asarray(lights))
        data = 0.5 * jnp.sum(residual**2) / 0.1
        return data + norm_energy(surface.normals, model.params.norm_stiffness) + prior.free_energy(surface.pack())

    energies = np.asarray(jax.lax.map(energy, grid, batch_size=8192), np.float64)
    law = np.exp(-energies - logsumexp(-energies))
    exact = law @ np.asarray(grid, np.float64)
    exact_square = law @ np.asarray(grid, np.float64) ** 2

    post = model.infer(
        images,
        lights=lights,
        chains=4,
        sampler=model.sampler.override(iterations=4000, burn_in=200, keep=3800, step_size=0.1, leapfrogs=10, epochs=2),
    )
    draws = np.concatenate(
        [post.samples["albedo"].reshape(4, -1, 1), post.samples["normals"].reshape(4, -1, 3)], axis=2
    ).astype(np.float64)
    axes = {"chain_axis": 0, "draw_axis": 1}
    for i in range(4):
        for power, truth in ((1, exact[i]), (2, exact_square[i])):
            values = draws[..., i] ** power
            error = float(array_stats.mcse(values, **axes))
            assert abs(values.mean() - truth) < 4 * error + 1e-3
    assert max(post.diagnostics.rhat.values()) == pytest.approx(1, abs=0.02)
