"""Hamiltonian Monte Carlo: the integrator's theorems, and its samples against three-dimensional quadrature."""

from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from deep_lambertian.geometry import TRIANGLE
from deep_lambertian.inference.normals import NormalsQuadratic, hamiltonian, hmc, potential, rescale, trajectory
from deep_lambertian.support import draws

ETA = jnp.float32(20.0)
MASS = 2.0


def problem(pixels: int, seed: int = 0) -> tuple[NormalsQuadratic, np.ndarray]:
    """Targets of varied shape, and the full matrices A (V, 3, 3)."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(pixels, 3, 3))
    a = root @ np.swapaxes(root, 1, 2) + 3 * np.eye(3)
    b = rng.normal(0, 3, (3, pixels))
    triangle = np.stack([a[:, i, j] for i, j in TRIANGLE])
    return NormalsQuadratic(jnp.asarray(triangle, jnp.float32), jnp.asarray(b, jnp.float32)), a


def start_on_sphere(pixels: int, seed: int = 1) -> jax.Array:
    n = np.random.default_rng(seed).normal(size=(3, pixels))
    return jnp.asarray(n / np.linalg.norm(n, axis=0), jnp.float32)


def vector(columns: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return columns[0], columns[1], columns[2]


def energy_by_hand(a: np.ndarray, b: np.ndarray, n: np.ndarray) -> np.ndarray:
    """E of one pixel at many points (K, 3), in double precision."""
    return 0.5 * np.einsum("ki,ij,kj->k", n, a, n) - n @ b + 0.5 * float(ETA) * (np.sum(n**2, axis=1) - 1) ** 2


def test_potential_is_the_energy_of_the_paper():
    target, a = problem(4)
    points = np.random.default_rng(0).normal(size=(50, 3))
    for i in range(4):
        expected = energy_by_hand(a[i], np.asarray(target.linear)[:, i], points)
        got = [float(potential(target, ETA, jnp.tile(jnp.asarray(p, jnp.float32)[:, None], 4))[i]) for p in points]
        np.testing.assert_allclose(got - expected, got[0] - expected[0], atol=2e-3)


def test_leapfrog_is_reversible():
    target, _ = problem(256)
    step = jnp.full(256, 0.02)
    scaled = rescale(target, ETA, step * step / MASS)
    n0 = start_on_sphere(256)
    r0 = 0.02 * draws.normal(draws.make_key(0), (3, 256))
    n1, r1 = trajectory(scaled, vector(n0), vector(r0), 20)
    n2, r2 = trajectory(scaled, n1, vector(-jnp.stack(r1)), 20)
    np.testing.assert_allclose(jnp.stack(n2), n0, atol=2e-5)
    np.testing.assert_allclose(-jnp.stack(r2), r0, atol=2e-5)


def test_energy_error_falls_with_the_square_of_the_step():
    with jax.enable_x64(True):
        target, _ = problem(512)
        target = NormalsQuadratic(*(x.astype(jnp.float64) for x in target))
        n0 = start_on_sphere(512).astype(jnp.float64)
        p0 = jnp.asarray(np.random.default_rng(2).normal(0, np.sqrt(MASS), (3, 512)))
        errors = []
        for halvings in range(4):
            h = 0.02 / 2**halvings
            unit = jnp.full(512, h * h / MASS, jnp.float64)
            scaled = rescale(target, ETA.astype(jnp.float64), unit)
            n, r = vector(n0), vector(p0 * h / MASS)
            moved = trajectory(scaled, n, r, 10 * 2**halvings)
            change = (hamiltonian(scaled, *moved) - hamiltonian(scaled, n, r)) / unit
            errors.append(float(jnp.sqrt(jnp.mean(change**2))))
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    np.testing.assert_allclose(ratios, 4, rtol=0.1)


def test_trajectory_is_blackjaxs():
    """Three leapfrogs of an independent implementation from the same place with the same momentum."""
    target, a = problem(1)
    n0, p0 = start_on_sphere(1), draws.normal(draws.make_key(3), (3, 1))
    matrix, linear = jnp.asarray(a[0], jnp.float32), target.linear[:, 0]

    def log_density(n: jax.Array) -> jax.Array:
        return -(0.5 * n @ matrix @ n - linear @ n + 0.5 * ETA * (n @ n - 1) ** 2)

    metric = blackjax.mcmc.metrics.gaussian_euclidean(jnp.full(3, 1 / MASS))
    step = blackjax.mcmc.integrators.velocity_verlet(log_density, metric.kinetic_energy)
    state = blackjax.mcmc.integrators.new_integrator_state(log_density, n0[:, 0], p0[:, 0])
    for _ in range(3):
        state = step(state, 0.03)
    unit = jnp.full(1, 0.03**2 / MASS)
    n, r = trajectory(rescale(target, ETA, unit), vector(n0), vector(p0 * 0.03 / MASS), 3)
    np.testing.assert_allclose(jnp.stack(n)[:, 0], state.position, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jnp.stack(r)[:, 0] * MASS / 0.03, state.momentum, rtol=1e-3, atol=1e-4)


def long_run(target: NormalsQuadratic, step: float, sweeps: int, leapfrogs: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Draws (sweeps, 3, V) after a burn-in, and the acceptance of each."""
    pixels = target.linear.shape[1]

    def sweep(n, t):
        n, acceptance = hmc(
            draws.fold_in(draws.make_key(5), t),
            target,
            ETA,
            jnp.full(pixels, step),
            n,
            leapfrogs=leapfrogs,
            epochs=2,
            mass=MASS,
        )
        return n, (n, acceptance)

    _, (kept, acceptance) = jax.jit(lambda n: jax.lax.scan(sweep, n, jnp.arange(sweeps)))(start_on_sphere(pixels))
    return np.asarray(kept)[sweeps // 10 :], np.asarray(acceptance)[sweeps // 10 :]


def quadrature(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of n and of n² by a grid."""
    axis = np.linspace(-1.9, 1.9, 91)
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    energies = energy_by_hand(a, b, grid)
    law = np.exp(-(energies - energies.min()))
    law /= law.sum()
    return law @ grid, law @ grid**2


def test_samples_have_the_moments_of_quadrature():
    target, a = problem(6)
    kept, _ = long_run(target, step=0.15, sweeps=6000)
    for i in range(6):
        moments = quadrature(a[i], np.asarray(target.linear, np.float64)[:, i])
        for power, truth in enumerate(moments, start=1):
            values = kept[:, :, i].astype(np.float64) ** power
            error = array_stats.mcse(values[None], chain_axis=0, draw_axis=1)
            assert np.all(np.abs(values.mean(axis=0) - truth) < 4.5 * np.asarray(error))


@pytest.mark.parametrize("step", [0.1, 0.18])
def test_acceptance_is_what_the_energy_error_says(step):
    """In equilibrium E exp(−ΔH) = 1, and the share accepted is E min(1, exp(−ΔH))."""
    pixels = 20_000
    target, _ = problem(1)
    many = NormalsQuadratic(*(jnp.repeat(x, pixels, axis=1) for x in target))
    kept, acceptance = long_run(many, step, sweeps=200)
    n = vector(jnp.asarray(kept[-1]))
    unit = jnp.full(pixels, step * step / MASS)
    scaled = rescale(many, ETA, unit)
    r = vector(step / np.sqrt(MASS) * draws.normal(draws.make_key(9), (3, pixels)))
    change = (hamiltonian(scaled, *trajectory(scaled, n, r, 10)) - hamiltonian(scaled, n, r)) / unit
    weight = np.exp(-np.asarray(change, np.float64))
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(pixels)
    expected = np.minimum(1, weight)
    assert acceptance[-20:].mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(pixels))


def test_a_trajectory_that_blows_up_is_a_rejection():
    target, _ = problem(5)
    n0 = start_on_sphere(5)
    step = jnp.array([0.05, 0.05, 30.0, 0.05, 0.05])
    n, acceptance = hmc(draws.make_key(0), target, ETA, step, n0, leapfrogs=10, epochs=4, mass=MASS)
    assert np.isfinite(np.asarray(n)).all()
    np.testing.assert_array_equal(n[:, 2], n0[:, 2])
    assert float(acceptance[2]) == 0
    assert float(acceptance[0]) > 0


def test_objects_in_a_batch_are_the_objects_alone():
    target, _ = problem(12)
    run = partial(hmc, leapfrogs=5, epochs=3, mass=MASS)
    batch = NormalsQuadratic(target.quadratic.reshape(6, 3, 4), target.linear.reshape(3, 3, 4))
    batch = NormalsQuadratic(batch.quadratic.swapaxes(0, 1), batch.linear.swapaxes(0, 1))
    keys = jnp.stack(draws.split(draws.make_key(4), 3))
    n0 = start_on_sphere(4)
    together, _ = jax.vmap(run, (0, 0, None, None, None))(keys, batch, ETA, jnp.full(4, 0.1), n0)
    for i in range(3):
        one = NormalsQuadratic(batch.quadratic[i], batch.linear[i])
        np.testing.assert_allclose(run(keys[i], one, ETA, jnp.full(4, 0.1), n0)[0], together[i], atol=1e-5)
