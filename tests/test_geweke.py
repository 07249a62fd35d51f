"""The sampler as a whole: Geweke's joint-distribution test, and a long chain against exact posterior moments."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from scipy.special import logsumexp

from conftest import tiny_grbm
from deep_lambertian import DLN, Gaussian
from deep_lambertian.energy import Observation, Params, State, norm_energy
from deep_lambertian.inference import whole_surface
from deep_lambertian.inference.sampler import Sampler, blocks_of, sweep
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.surface import Surface, render
from test_priors import mixture

CHAINS, IMAGES, SWEEPS = 20_000, 2, 30
KERNEL = Sampler(step_size=0.15, leapfrogs=5, epochs=1)
# Labels of which a half are not lit, so that each kind has its say.
LABELS = ShadowLabels(unlit=-1e9, prior=(3, 2, 1))
WHOLE = Sampler(surface="whole", step_size=0.5, leapfrogs=3)


@pytest.fixture(scope="module")
def factors(tiny) -> DLN:
    """A DLN of two pixels whose prior is a Gaussian with factors that albedo and normals share."""
    rng = np.random.default_rng(5)
    mean = np.array([0.7, 0.5, 0.3, -0.2, 0.1, 0.4, 0.8, 0.9])
    prior = Gaussian.of_factors(mean, rng.uniform(0.05, 0.2, 8), rng.normal(0, 0.3, (8, 3)))
    return replace(tiny, params=replace(tiny.params, prior=prior))


def normal_grid(mean: np.ndarray, variance: np.ndarray, points: int = 41) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (points³, 3) and weights of a product Gauss–Hermite rule for N(mean, diag variance)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    return mean + np.sqrt(variance) * grid, np.einsum("i,j,k->ijk", weights, weights, weights).reshape(-1)


def draw_product(params: Params, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Any]:
    """Independent, exact draws of albedo (CHAINS, V), normals (CHAINS, 3, V) and hidden units from two GRBMs."""
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
    return albedo, np.swapaxes(normals, 1, 2), (h_states[h], g_states[g])


def draw_gaussian(params: Params, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Any]:
    """The same from a Gaussian with factors, which are its hidden variables."""
    prior, eta = params.prior, float(params.norm_stiffness)
    rows, have = np.empty((0, prior.hidden_size + prior.size)), 0
    while have < CHAINS:  # rejection of the whole draw: its factors and all pixels hang together
        z = rng.normal(size=(CHAINS, prior.hidden_size))
        x = rng.normal(np.asarray(prior.mean) + z @ np.asarray(prior.factors).T, np.sqrt(prior.variance))
        length = np.sum(x.reshape(CHAINS, 4, -1)[:, 1:] ** 2, axis=1)
        keep = rng.uniform(size=CHAINS) < np.exp(-0.5 * eta * np.sum((length - 1) ** 2, axis=1))
        rows = np.concatenate([rows, np.concatenate([z, x], axis=1)[keep]])
        have = len(rows)
    z, x = np.split(rows[:CHAINS], [prior.hidden_size], axis=1)
    x = x.reshape(CHAINS, 4, -1)
    return x[:, 0], x[:, 1:], z


def draw_prior(params: Params, kernel: Sampler, rng: np.random.Generator) -> tuple[State, jax.Array]:
    """Independent, exact draws from p(V, a, N, L, h, g), and labels if the kernel has any: states and images."""
    draw = draw_gaussian if isinstance(params.prior, Gaussian) else draw_product
    albedo, normals, hidden = draw(params, rng)
    covariance = np.linalg.inv(np.asarray(params.light_precision, np.float64))
    lights = rng.multivariate_normal(np.asarray(params.light_mean), covariance, (CHAINS, IMAGES))
    images = rng.normal(np.einsum("cv,ckv,cpk->cpv", albedo, normals, lights), np.sqrt(params.noise_var))
    labels, proportions = np.zeros(images.shape, int), np.ones((CHAINS, IMAGES, 3)) / 3
    if kernel.shadow is not None:
        proportions = rng.dirichlet(kernel.shadow.prior, (CHAINS, IMAGES))
        below = np.cumsum(proportions, axis=-1)[..., None, :2]
        labels = np.sum(rng.uniform(size=images.shape)[..., None] > below, axis=-1)
        dark = rng.exponential(float(params.dark_mean), images.shape)
        images = np.choose(labels, [images, dark, rng.uniform(size=images.shape)])
    step_size = np.full(albedo.shape, kernel.step_size)
    state = State(
        Surface(albedo, normals), lights, hidden, labels == 0, proportions, step_size, np.ones_like(step_size)
    )
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (state, images))


def draw_images(key: jax.Array, params: Params, kernel: Sampler, state: State) -> jax.Array:
    """Images given all else. Where a pixel is not lit, whether it is dark is drawn with it: the state does not say."""
    keys = jax.random.split(key, 4)
    shape = state.weights.shape
    lit = render(state.surface, state.lights) + jnp.sqrt(params.noise_var)[None] * jax.random.normal(keys[0], shape)
    if kernel.shadow is None:
        return lit
    dark = state.proportions[:, 1] / (state.proportions[:, 1] + state.proportions[:, 2])
    unlit = jnp.where(
        jax.random.uniform(keys[1], shape) < dark[:, None],
        params.dark_mean * jax.random.exponential(keys[2], shape),
        jax.random.uniform(keys[3], shape),
    )
    return jnp.where(state.weights > 0, lit, unlit)


def statistics(state: State, images: jax.Array) -> np.ndarray:
    """First, second and mixed moments of everything: one row a chain."""
    albedo, normals = np.asarray(state.surface.albedo), np.asarray(state.surface.normals)
    weights = np.asarray(state.weights)
    columns = [albedo, normals, state.lights, *jax.tree.leaves(state.hidden), images, state.proportions]
    flat = np.concatenate([np.asarray(c).reshape(CHAINS, -1) for c in columns], axis=1)
    length = np.sum(normals**2, axis=1)
    images = np.asarray(images)
    mixed = [albedo * length, albedo * images[:, 0], images**2, weights, weights * images, length**2]
    rows = np.concatenate([flat, flat**2, *[m.reshape(CHAINS, -1) for m in mixed]], axis=1)
    return rows[:, rows.std(axis=0) > 0]  # without labels some never change


def reference(params: Params) -> whole_surface.Near:
    """Any Gaussian serves to draw the whole surface by, if it does not depend on the images: one of other images."""
    surface = Surface.unpack(params.prior.centre)
    images = render(surface, jnp.array([[0.3, 0.1, 0.7], [-0.4, 0.2, 0.6]]))
    data = Observation(images, jnp.full(images.shape, 0.3))
    return whole_surface.gaussian_at(params, data, whole_surface.as_rows(surface), None)


def successive(
    params: Params, kernel: Sampler, believed: Params, sampler: Sampler, state: State, images: jax.Array
) -> tuple[State, jax.Array]:
    """The successive-conditional simulator: latent variables given images by the sampler, with what it believes;
    images given latents.
    """
    near = reference(believed) if sampler.surface == "whole" else None
    blocks = blocks_of(sampler)

    def one(key: jax.Array, state: State, images: jax.Array) -> tuple[State, jax.Array]:
        def step(t: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, images = carry
            sweep_key, image_key = jax.random.split(jax.random.fold_in(key, t))
            data = Observation(images, jnp.ones_like(images), near)
            state = sweep(sweep_key, believed, data, state, blocks)
            return state, draw_images(image_key, params, kernel, state)

        return jax.lax.fori_loop(0, SWEEPS, step, (state, images))

    keys = jax.random.split(jax.random.key(1), CHAINS)
    return jax.jit(jax.vmap(one))(keys, state, images)  # compiled anew for every test, as some change the sampler


def scores(
    params: Params, kernel: Sampler = KERNEL, believed: Params | None = None, sampler: Sampler | None = None
) -> np.ndarray:
    """z-scores between prior draws and draws that went through the sampler; chains are independent of each other.

    The sampler may hold other beliefs, or have other settings, than those that the images are drawn with.
    """
    rng = np.random.default_rng(0)
    expected = statistics(*draw_prior(params, kernel, rng))
    start = draw_prior(params, kernel, rng)
    state, images = successive(params, kernel, believed or params, sampler or kernel, *start)
    assert 0.2 < float(jnp.mean(state.acceptance)) < 0.999  # it moves, and there is something to reject
    moved = statistics(state, images)
    difference = moved.mean(axis=0) - expected.mean(axis=0)
    return difference / np.sqrt((moved.var(axis=0) + expected.var(axis=0)) / CHAINS)


def largest(z: np.ndarray) -> float:
    found = float(np.max(np.abs(z)))
    print(f"largest of {len(z)} z-scores: {found:.2f}")
    return found


# Bonferroni over all statistics at 1 in 1000; and what is far beyond chance.
AGREE, NOTICED = 4.3, 6.0
CASES = {
    "paper": ("tiny", KERNEL),
    "labels": ("tiny", replace(KERNEL, shadow=LABELS)),
    "whole": ("factors", WHOLE),
    "whole, labels": ("factors", replace(WHOLE, shadow=LABELS)),
    "whole, binary units": ("tiny", WHOLE),
    "whole, binary units, labels": ("tiny", replace(WHOLE, shadow=LABELS)),
}


SLOW = ("whole", "whole, binary units", "whole, binary units, labels")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in CASES])
def test_geweke(case, request):
    name, kernel = CASES[case]
    assert largest(scores(request.getfixturevalue(name).params, kernel)) < AGREE


def hotter(params: Params) -> Params:
    return replace(params, noise_var=1.33 * params.noise_var)


def darker(params: Params) -> Params:
    return replace(params, dark_mean=0.75 * params.dark_mean)


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ("paper", hotter),
        ("labels", darker),
        pytest.param("labels", hotter, marks=pytest.mark.slow),
        pytest.param("whole", hotter, marks=pytest.mark.slow),
        pytest.param("whole, labels", darker, marks=pytest.mark.slow),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_geweke_would_notice_wrong_beliefs(case, wrong: Callable[[Params], Params], request):
    """A sampler that takes the noise to be a third larger than it is, or shadows to be a quarter darker."""
    name, kernel = CASES[case]
    params = request.getfixturevalue(name).params
    assert largest(scores(params, kernel, believed=wrong(params))) > NOTICED


@pytest.mark.slow
def test_geweke_would_notice_wrong_proportions(tiny):
    kernel = CASES["labels"][1]
    wrong = replace(kernel, shadow=replace(LABELS, prior=(3, 1, 1)))
    assert largest(scores(tiny.params, kernel, sampler=wrong)) > NOTICED


def test_geweke_would_notice_a_wrong_acceptance(factors, monkeypatch):
    """The determinant that the lights leave when they are integrated out is forgotten."""
    whole = whole_surface.image_energy

    def without_determinant(params, data, x, lights):
        energy, gradient = whole(params, data, x, lights)
        if lights is None:
            _, factor = whole_surface.light_conditional(params, data, x[:1] * x[1:])
            energy -= jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)))
        return energy, gradient

    monkeypatch.setattr(whole_surface, "image_energy", without_determinant)
    assert largest(scores(factors.params, WHOLE)) > NOTICED


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
