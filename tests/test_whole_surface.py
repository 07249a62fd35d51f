"""The whole surface at once: its energy, the Gaussian that resembles it, and the trajectories between."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from conftest import dome
from deep_lambertian import DLN, Gaussian
from deep_lambertian.energy import Observation, Params, State, norm_energy
from deep_lambertian.inference import whole_surface
from deep_lambertian.inference.lights import light_conditional
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.inference.whole_surface import DrawSurface, Near, find_near, gaussian_at, image_energy
from deep_lambertian.support import draws
from deep_lambertian.surface import Surface
from test_geweke import normal_grid

IMAGES = 3
LIGHTS = jnp.array([[0.3, 0.1, 0.9], [-0.5, 0.4, 0.6], [0.2, -0.6, 0.7]])


@dataclass(frozen=True)
class World:
    """Parameters, a surface x (4, V) of unit normals, and images of it."""

    params: Params
    data: Observation
    x: jax.Array

    def seen(self, lights: jax.Array) -> "World":
        """The same with images that the surface explains to the last bit."""
        return replace(self, data=replace(self.data, images=lights @ (self.x[:1] * self.x[1:])))

    @property
    def precision(self) -> np.ndarray:
        """Σ⁻¹ of the prior, as a matrix."""
        _, variance, factors = self.params.prior.gaussian(self.params.prior.mean_hidden(self.x.reshape(-1)))
        factors = np.asarray(factors, np.float64)
        return np.linalg.inv(np.diag(np.asarray(variance, np.float64)) + factors @ factors.T)


@pytest.fixture(scope="module")
def world(tiny) -> World:
    rng = np.random.default_rng(7)
    mean = np.array([0.7, 0.5, 0.3, -0.2, 0.1, 0.4, 0.8, 0.9])
    prior = Gaussian.of_factors(mean, rng.uniform(0.05, 0.2, 8), rng.normal(0, 0.3, (8, 3)))
    x = rng.normal(0.4, 0.4, (4, 2))
    x[1:] /= np.linalg.norm(x[1:], axis=0)
    images = jnp.asarray(rng.normal(0.4, 0.4, (IMAGES, 2)), jnp.float32)
    weights = jnp.array([[1.0, 0.4], [0.7, 1.0], [0.0, 0.0]])
    return World(replace(tiny.params, prior=prior), Observation(images, weights), jnp.asarray(x, jnp.float32))


def matrix_of(function: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A linear function of arrays of a shape, as a matrix."""
    size = int(np.prod(shape))
    columns = jax.jit(jax.vmap(lambda row: function(row.reshape(shape)).reshape(-1)))(jnp.eye(size))
    return np.asarray(columns, np.float64).T


def hessian_of(world: World, gaussian: Near) -> np.ndarray:
    """H of the file's docstring."""
    return matrix_of(gaussian.of_images, world.x.shape) + world.precision


def test_the_energy_is_that_of_the_lights_integrated_out(world):
    """Against Gauss and Hermite's quadrature of each light, whose prior is the weight of the rule."""
    params, data = world.params, world.data
    precision = np.asarray(params.light_precision, np.float64)
    white, rule = normal_grid(np.zeros(3), np.ones(3))
    lights = np.asarray(params.light_mean) + np.linalg.solve(np.linalg.cholesky(precision).T, white.T).T
    energy = jax.jit(lambda x: image_energy(params, data, x, None)[0])
    for x in (world.x, 1.3 * world.x, -0.6 * world.x):
        predicted = lights @ np.asarray(x[:1] * x[1:], np.float64)  # (K, V)
        off = (np.asarray(data.images)[:, None] - predicted[None]) ** 2
        energies = 0.5 * np.sum(np.asarray(data.weights / params.noise_var[None])[:, None] * off, axis=2)
        expected = float(norm_energy(x[1:], params.norm_stiffness))
        expected += np.sum(0.5 * np.linalg.slogdet(precision)[1] - np.log(np.exp(-energies) @ rule))
        assert float(energy(x)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("lights", [None, LIGHTS], ids=["lights unknown", "lights known"])
def test_the_gradient_is_that_of_the_energy(world, lights):
    both = jax.jit(jax.value_and_grad(lambda x: image_energy(world.params, world.data, x, lights), has_aux=True))
    for x in (world.x, 1.3 * world.x, -0.6 * world.x):
        (_, got), expected = both(x)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lights", [None, LIGHTS], ids=["lights unknown", "lights known"])
def test_the_inverse_is_one(world, lights):
    gaussian = jax.jit(gaussian_at)(world.params, world.data, world.x, lights)
    product = hessian_of(world, gaussian) @ matrix_of(gaussian.inverse, world.x.shape)
    np.testing.assert_allclose(product, np.eye(8), atol=1e-4)


def test_the_curvature_is_exact_where_images_are_explained(world):
    """Given the lights, and when they follow the surface: their prior's mean is then the best of them. The determinant
    that they leave has no part in it.
    """

    def followed(params: Params, data: Observation, x: jax.Array) -> jax.Array:
        _, factor = light_conditional(params, data, x[:1] * x[1:])
        return image_energy(params, data, x, None)[0] - jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)))

    known = world.seen(LIGHTS)
    energy = lambda x: image_energy(known.params, known.data, x, LIGHTS)[0]
    exact = jax.jit(jax.hessian(energy))(known.x).reshape(8, 8)
    got = matrix_of(jax.jit(gaussian_at)(known.params, known.data, known.x, LIGHTS).of_images, known.x.shape)
    np.testing.assert_allclose(got, exact, atol=1e-4)

    unknown = world.seen(jnp.tile(world.params.light_mean[None], (IMAGES, 1)))
    energy = lambda x: followed(unknown.params, unknown.data, x)
    exact = jax.jit(jax.hessian(energy))(unknown.x).reshape(8, 8)
    got = matrix_of(jax.jit(gaussian_at)(unknown.params, unknown.data, unknown.x, None).of_images, unknown.x.shape)
    np.testing.assert_allclose(got, exact, atol=1e-4)


def test_draws_have_the_inverse_as_covariance(world):
    gaussian, count = jax.jit(gaussian_at)(world.params, world.data, world.x, None), 100_000
    keys = jax.random.split(draws.make_key(3), count)
    rows = np.asarray(jax.jit(jax.vmap(gaussian.draw))(keys), np.float64).reshape(count, 8)
    expected = np.linalg.inv(hessian_of(world, gaussian))
    spread = np.diag(expected)
    error = np.sqrt((np.outer(spread, spread) + expected**2) / count)  # of a covariance of so many Gaussian draws
    assert np.max(np.abs(rows.T @ rows / count - expected) / error) < 4.3
    assert np.max(np.abs(rows.mean(axis=0)) / np.sqrt(spread / count)) < 4.3


def test_a_start_has_the_lengths_of_the_centre(world):
    gaussian = jax.jit(gaussian_at)(world.params, world.data, 0.9 * world.x, None)
    starts = jax.jit(jax.vmap(gaussian.start))(jax.random.split(draws.make_key(4), 10))
    np.testing.assert_allclose(jnp.linalg.norm(starts[:, 1:], axis=1), 0.9, rtol=1e-4)
    assert np.all(np.std(starts, axis=0) > 0.01)


# ---- Trajectories. The block draws its own speed and takes its own steps: these are caught on their way.


def a_state(world: World) -> State:
    surface = Surface(1.1 * world.x[0], 0.95 * world.x[1:])
    hidden, ones = world.params.prior.mean_hidden(surface.pack()), jnp.ones_like(world.x[0])
    return State(surface, LIGHTS, hidden, world.data.weights, jnp.full((IMAGES, 3), 1 / 3), ones, ones)


class Travelled(NamedTuple):
    """Of each key: where the block started, where its steps led, where they led from there with the speed turned round,
    and the state that the block left.
    """

    start: tuple[jax.Array, jax.Array]
    end: tuple[jax.Array, jax.Array]
    back: tuple[jax.Array, jax.Array]
    state: State


def travel(monkeypatch: Any, world: World, keys: int, step_size: float, leapfrogs: int) -> Travelled:
    caught: list[Any] = []

    def loop(first: int, end: int, step: Any, start: Any) -> Any:
        caught.append((step, start, real(first, end, step, start)))
        return caught[-1][-1]

    def one(key: jax.Array) -> Travelled:
        old = a_state(world)
        state = DrawSurface(leapfrogs)(
            key, world.params, world.data, replace(old, step_size=jnp.full_like(old.step_size, step_size))
        )
        step, start, (x, speed) = caught.pop()
        return Travelled(start, (x, speed), real(0, leapfrogs, step, (x, -speed)), state)

    real = lax.fori_loop
    with monkeypatch.context() as patched:
        patched.setattr(whole_surface.lax, "fori_loop", loop)
        return jax.jit(jax.vmap(one))(jax.random.split(draws.make_key(0), keys))


@jax.jit
def energies(params: Params, data: Observation, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda each: image_energy(params, data, each, None)[0])(x)


def energy_change(world: World, found: Travelled) -> np.ndarray:
    """The change of E(x) + ½ ẋᵀHẋ from start to end, with matrices written out."""
    hessian, mean = hessian_of(world, world.data.near), np.asarray(world.params.prior.mean, np.float64)

    def total(x: jax.Array, speed: jax.Array) -> np.ndarray:
        off, moving = (np.asarray(each, np.float64).reshape(len(x), -1) for each in (x, speed))
        prior = np.einsum("ki,ij,kj->k", off - mean, world.precision, off - mean)
        kinetic = np.einsum("ki,ij,kj->k", moving, hessian, moving)
        return np.asarray(energies(world.params, world.data, x), np.float64) + 0.5 * (prior + kinetic)

    return total(*found.end) - total(*found.start)


@pytest.fixture
def about(world) -> World:
    """The same with a Gaussian to go by."""
    return replace(world, data=replace(world.data, near=jax.jit(gaussian_at)(world.params, world.data, world.x, None)))


def test_the_trajectory_is_reversible(about, monkeypatch):
    start, end, back, _ = travel(monkeypatch, about, keys=20, step_size=0.3, leapfrogs=6)
    assert np.all(np.max(np.abs(end[0] - start[0]), axis=(1, 2)) > 0.05)
    np.testing.assert_allclose(back[0], start[0], atol=5e-5)
    np.testing.assert_allclose(-back[1], start[1], atol=5e-5)


def test_energy_error_falls_with_the_square_of_the_step(world, monkeypatch):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        double = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (world.params, world.data, world.x))
        about = World(*double)
        about = replace(about, data=replace(about.data, near=jax.jit(gaussian_at)(*double, None)))
        errors = []
        for halvings in range(3):
            found = travel(monkeypatch, about, 30, 0.2 / 2**halvings, 5 * 2**halvings)
            errors.append(np.sqrt(np.mean(energy_change(about, found) ** 2)))
    np.testing.assert_allclose(np.array(errors[:-1]) / np.array(errors[1:]), 4, rtol=0.1)


def test_what_is_accepted_follows_from_the_energy(about, monkeypatch):
    found = travel(monkeypatch, about, keys=100, step_size=0.6, leapfrogs=3)
    start, end, _, state = found
    expected = np.exp(np.minimum(-energy_change(about, found), 0))
    np.testing.assert_allclose(state.acceptance, np.tile(expected[:, None], 2), rtol=1e-3, atol=1e-6)
    rows = np.concatenate([state.surface.albedo[:, None], state.surface.normals], axis=1)
    stayed, moved = (np.all(rows == np.asarray(each[0]), axis=(1, 2)) for each in (start, end))
    assert np.all(stayed ^ moved)
    # As many stay as the rule says, judged by the spread of so many tosses.
    error = np.sqrt(np.sum(expected * (1 - expected)))
    assert error > 1
    assert abs(moved.sum() - expected.sum()) < 4 * error


def test_a_trajectory_that_blows_up_is_a_rejection(about):
    state = replace(a_state(about), surface=Surface(jnp.full(2, jnp.nan), about.x[1:]))
    moved = jax.jit(DrawSurface(3))(draws.make_key(0), about.params, about.data, state)
    assert np.all(moved.acceptance == 0)
    np.testing.assert_array_equal(moved.surface.normals, about.x[1:])


# ---- The way to the mode


@pytest.fixture(scope="module")
def face() -> DLN:
    """A DLN of 8×8 pixels that believes in a dome, with a few directions in which all of it varies."""
    rng = np.random.default_rng(2)
    mean = np.concatenate([np.full(64, 0.6), dome(8, 8).reshape(-1, 3).T.ravel()])
    slopes = np.stack([np.linspace(-1, 1, 64), np.cos(np.arange(64) / 10), np.sin(np.arange(64) / 7)], axis=1)
    factors = np.concatenate([0.1 * slopes, rng.normal(0, 0.02, (192, 3))])
    prior = Gaussian.of_factors(mean, np.repeat([0.01, 0.004], [64, 192]), factors)
    return DLN.build(prior, (8, 8), noise_var=2e-3, light_precision=4.0, preset="best")


@jax.jit
def decrement(params: Params, data: Observation, gaussian: Near) -> jax.Array:
    """gᵀH⁻¹g at the centre: twice the energy that the Gaussian still sees below it."""
    mean, variance, factors = params.prior.gaussian(params.prior.mean_hidden(gaussian.centre.reshape(-1)))
    off = (gaussian.centre.reshape(-1) - mean) / variance
    scale = 1 + jnp.sum(factors**2 / variance[:, None], axis=0)
    prior = off - (factors / variance[:, None]) @ ((off @ factors) / scale)
    gradient = image_energy(params, data, gaussian.centre, None)[1] + prior.reshape(gaussian.centre.shape)
    return jnp.sum(gradient * gaussian.inverse(gradient))


@pytest.fixture(scope="module")
def photos(face) -> np.ndarray:
    """Four images (4, 64) of a surface that the model believes in."""
    x = np.asarray(jax.jit(face.params.prior.sample, static_argnums=1)(draws.make_key(1), 1)).reshape(4, 64)
    normals = x[1:] / np.linalg.norm(x[1:], axis=0)
    lights = np.array([[0.2, 0.1, 1.0], [-0.5, 0.4, 0.8], [0.4, -0.6, 0.7], [0.9, 0.3, 0.4]])
    images = x[0] * np.maximum(lights @ normals, 0)
    return np.maximum(images + np.random.default_rng(0).normal(0, 0.04, images.shape), 0).astype(np.float32)


@pytest.mark.parametrize("shadow", [None, ShadowLabels()], ids=["all lit", "labels"])
def test_steps_end_at_the_mode_where_chains_are(face, photos, shadow):
    """Means of chains lie about the mode, by a fraction of the spread, and are as wide as the Gaussian there."""
    data = Observation(jnp.asarray(photos), jnp.ones_like(photos))
    gaussian, weights, proportions = jax.jit(lambda data: find_near(face.params, data, None, shadow, 100.0))(data)
    np.testing.assert_allclose(jnp.sum(proportions, axis=1), 1, rtol=1e-5)
    assert (shadow is None) == bool(jnp.all(weights == 1))
    assert float(decrement(face.params, Observation(data.images, weights), gaussian)) < 0.05  # 256 is a usual draw's
    start = replace(gaussian, centre=jnp.asarray(face.params.prior.centre).reshape(4, 64))
    assert float(decrement(face.params, data, start)) > 10

    sampler = face.sampler.override(iterations=200, shadow=shadow or False)
    post = face.infer(photos.reshape(4, 8, 8), sampler=sampler)
    assert post.diagnostics.acceptance.mean() > 0.6
    off = (post.albedo.ravel() - np.asarray(gaussian.centre[0])) / post.albedo_std.ravel()
    assert np.sqrt(np.mean(off**2)) < 0.5
    spread = np.sqrt(np.diag(matrix_of(gaussian.inverse, (4, 64))))[:64]
    assert np.mean(post.albedo_std) == pytest.approx(np.mean(spread), rel=0.2)
