"""Contrastive divergence against exact gradients and likelihoods of RBMs small enough to enumerate."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import tiny_grbm
from deep_lambertian import GRBM
from deep_lambertian.learning import contrastive_divergence as cd
from deep_lambertian.learning.contrastive_divergence import CD, fit
from deep_lambertian.learning.gradient import cd_gradient, minibatches, permutation
from deep_lambertian.learning.scores import held_out_score, probes
from deep_lambertian.priors import BinaryRBM
from deep_lambertian.priors.rbm import LEAST_SPREAD, MOST_LOG_STEP
from deep_lambertian.support import draws

KEY = draws.make_key(3)
gradient_of = jax.jit(cd_gradient, static_argnames="steps")
FIELDS = ("bias", "hidden_bias", "weights", "variance")


def states(count: int) -> jax.Array:
    return jnp.array(list(product([0.0, 1.0], repeat=count)))


def tiny_rbm(seed: int, visible: int, hidden: int, scale: float = 0.8) -> BinaryRBM:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(0, scale, shape), jnp.float32)
    return BinaryRBM(draw(visible), draw(hidden), draw(visible, hidden))


def tiny(kind: str, seed: int = 0) -> Any:
    return tiny_grbm(seed, 3, 4) if kind == "real" else tiny_rbm(seed, 3, 4)


def log_normaliser(rbm: Any) -> jax.Array:
    """log Z, by listing the visible states of a binary RBM and the hidden ones, each a Gaussian, of a GRBM."""
    if isinstance(rbm, BinaryRBM):
        return jax.nn.logsumexp(-jax.vmap(rbm.free_energy)(states(rbm.size)))
    hidden = states(rbm.hidden_size)
    top = hidden @ rbm.weights.T
    masses = hidden @ rbm.hidden_bias + top @ rbm.bias + 0.5 * top**2 @ rbm.variance
    return jax.nn.logsumexp(masses) + 0.5 * jnp.sum(jnp.log(2 * jnp.pi * rbm.variance))


@jax.jit
def log_likelihood(rbm: Any, data: jax.Array) -> jax.Array:
    return -jnp.mean(jax.vmap(rbm.free_energy)(data)) - log_normaliser(rbm)


def exact_samples(rbm: Any, count: int, seed: int = 0) -> np.ndarray:
    """Independent draws from the RBM itself."""
    rng = np.random.default_rng(seed)
    if isinstance(rbm, BinaryRBM):
        visible = states(rbm.size)
        log_mass = -np.asarray(jax.vmap(rbm.free_energy)(visible), np.float64)
        mass = np.exp(log_mass - log_mass.max())
        return np.asarray(visible)[rng.choice(len(visible), count, p=mass / mass.sum())]
    hidden = states(rbm.hidden_size)
    b, c, w, var = (np.asarray(x, np.float64) for x in (rbm.bias, rbm.hidden_bias, rbm.weights, rbm.variance))
    top = np.asarray(hidden) @ w.T
    log_mass = np.asarray(hidden) @ c + np.sum(b * top + 0.5 * var * top**2, axis=1)
    mass = np.exp(log_mass - log_mass.max())
    means = (b + var * top)[rng.choice(len(top), count, p=mass / mass.sum())]
    return (means + np.sqrt(var) * rng.normal(size=means.shape)).astype(np.float32)


def data_for(kind: str) -> jax.Array:
    """Seven samples that the RBM with seed 0 finds neither likely nor odd."""
    return jnp.asarray(exact_samples(tiny(kind, 5), 7, seed=1))


def assert_same(one: Any, other: Any, **tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), **tolerance)


def assert_same_bytes(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# ---- The gradient


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_long_chains_give_the_exact_gradient(kind, persistent):
    rbm, few = tiny(kind), data_for(kind)
    exact = jax.grad(log_likelihood)(rbm, few)
    batch = jnp.tile(few, (100, 1))

    def estimate(key: jax.Array) -> Any:
        start, *keys = draws.split(key, 4)
        particles = draws.bernoulli(start, jnp.zeros((500, 4))) if persistent else None
        if not persistent:
            return cd_gradient(rbm, batch, keys[0], 40)[0]
        for k in keys:  # short runs that go on where the last one stopped
            gradient, particles, _ = cd_gradient(rbm, batch, k, 15, particles=particles)
        return gradient

    repeats = jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 40))
    for name in FIELDS[: 4 if kind == "real" else 3]:
        values, target = np.asarray(getattr(repeats, name)), np.asarray(getattr(exact, name))
        error = values.std(axis=0, ddof=1) / np.sqrt(40)
        assert np.all(np.abs(values.mean(axis=0) - target) < 4 * error), name
        # The errors are small enough for a wrong sign or factor to show.
        assert np.median(error) < 0.15 * np.median(np.abs(target)), name


def test_one_step_from_the_data_is_contrastive_divergence():
    """CD-1 written out with the draws it makes."""
    rbm, batch = tiny("real"), data_for("real")
    gradient, hidden, fantasy = gradient_of(rbm, batch, KEY, 1)
    up = jax.nn.sigmoid(rbm.hidden_bias[None] + batch @ rbm.weights)
    on = (draws.uniform(KEY, up.shape, 0) < up).astype(jnp.float32)
    mean = rbm.bias[None] + rbm.variance[None] * (on @ rbm.weights.T)
    down = mean + jnp.sqrt(rbm.variance)[None] * draws.normal(KEY, mean.shape, 1)
    again = jax.nn.sigmoid(rbm.hidden_bias[None] + down @ rbm.weights)
    np.testing.assert_allclose(fantasy, down, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hidden, draws.uniform(KEY, up.shape, 2) < again)
    np.testing.assert_allclose(gradient.weights, (batch.T @ up - down.T @ again) / 7, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient.hidden_bias, jnp.mean(up - again, axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("persistent", [False, True])
def test_weights_of_samples(persistent):
    """The gradient is linear in them, and neither they nor rows that weigh nothing change the draws."""
    rbm, batch = tiny("real"), data_for("real")
    particles = draws.bernoulli(KEY, jnp.zeros((5, 4))) if persistent else None
    gradient = lambda b, w: gradient_of(rbm, b, KEY, 2, weights=w, particles=particles)[0]
    alone = [gradient(batch, w) for w in jnp.eye(7)]
    weights = jnp.array([2.0, 1, 0, 0.5, 0, 3, 1])
    mean = jax.tree.map(lambda *g: sum(w * x for w, x in zip(weights / 7.5, g, strict=True)), *alone)
    assert_same(gradient(batch, weights), mean, rtol=1e-4, atol=1e-5)
    padded = jnp.concatenate([batch, 7 * jnp.ones((2, 3))])
    assert_same(gradient(padded, jnp.pad(weights, (0, 2))), mean, rtol=1e-4, atol=1e-5)


# ---- Units


def test_units_leave_the_energy_as_it_was():
    rbm, data = tiny("real"), 5 + 0.1 * data_for("real")
    units = rbm.units_of(data, jnp.ones(7))
    np.testing.assert_allclose(units.mean, np.mean(data, axis=0), rtol=1e-6)
    np.testing.assert_allclose(units.spread, np.std(data, axis=0), rtol=1e-4)
    inside = rbm.into_units(units)
    h = jnp.array([1.0, 0, 1, 1])
    for v in data:
        u = (v - units.mean) / units.spread
        assert float(inside.energy(u, h)) == pytest.approx(float(rbm.energy(v, h)), rel=1e-4)
        assert float(inside.free_energy(u)) == pytest.approx(float(rbm.free_energy(v)), rel=1e-4)
    assert_same(inside.out_of_units(units), rbm, rtol=1e-5, atol=1e-5)


def test_elements_that_hardly_vary_have_a_unit_of_their_own():
    rbm = tiny("real")
    data = data_for("real").at[:, 1].set(0.3)
    units = rbm.units_of(data, jnp.ones(7))
    usual = np.sqrt(np.mean(np.var(data, axis=0)))
    assert float(units.spread[1]) == pytest.approx(LEAST_SPREAD * usual, rel=1e-4)
    assert_same_bytes(rbm.units_of(jnp.ones((4, 3)), jnp.ones(4)), (jnp.ones(3), jnp.ones(3)))


# ---- What an epoch does

ONE_BATCH = CD(batch_size=7, learning_rate=0.1, momentum=0.0, weight_decay=0.0, variance_rate=0.5)


def learn(state: cd.State, data: jax.Array, config: CD, weights: Any = None) -> cd.State:
    """An epoch without its monitors."""
    weights = jnp.ones(len(data)) if weights is None else weights
    return cd.learn_compiled(state, data, weights, config.rates, config.plan(len(data)))


def step(state: cd.State, data: jax.Array, **changes: Any) -> cd.State:
    return learn(state, data, replace(ONE_BATCH, **changes))


def test_a_step_of_gradient_ascent():
    data = data_for("real")
    begin = cd.start(tiny("real"), data, ONE_BATCH, KEY)
    after = step(begin, data)
    order_key, batch_key, _ = draws.split(draws.fold_in(KEY, 1), 3)
    batch = begin.units.standardised(data[permutation(order_key, 7)])
    rbm = cd._flip(begin.params)
    gradient, _, _ = gradient_of(rbm, batch, draws.fold_in(batch_key, 0), 1)
    moved = cd._flip(after.params)
    np.testing.assert_allclose(moved.weights, rbm.weights + 0.1 * gradient.weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved.hidden_bias, rbm.hidden_bias + 0.1 * gradient.hidden_bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved.bias, rbm.bias + 0.1 * rbm.variance * gradient.bias, rtol=1e-4, atol=1e-5)
    log_step = np.clip(0.05 * rbm.variance * gradient.variance, -MOST_LOG_STEP, MOST_LOG_STEP)
    np.testing.assert_allclose(moved.variance, rbm.variance * np.exp(log_step), rtol=1e-5)


def test_decay_is_of_the_weights_alone():
    data = data_for("real")
    begin = cd.start(tiny("real"), data, ONE_BATCH, KEY)
    plain, decayed = step(begin, data).params, step(begin, data, weight_decay=0.2).params
    np.testing.assert_allclose(decayed.weights - plain.weights, -0.1 * 0.2 * begin.params.weights, atol=1e-6)
    assert_same_bytes(replace(decayed, weights=plain.weights), plain)


def test_momentum_adds_a_share_of_the_last_step():
    data = data_for("real")
    begin = cd.start(tiny("real"), data, ONE_BATCH, KEY)
    first = step(begin, data)
    without, with_it = step(first, data), step(first, data, momentum=0.5)
    for name in ("bias", "hidden_bias", "weights"):
        last = getattr(first.params, name) - getattr(begin.params, name)
        difference = getattr(with_it.params, name) - getattr(without.params, name)
        np.testing.assert_allclose(difference, 0.5 * last, rtol=1e-3, atol=1e-6)


def test_adams_first_step_is_the_sign_of_the_gradient():
    data, settings = data_for("binary"), {"optimiser": "adam", "learning_rate": 0.01, "momentum": 0.9}
    begin = cd.start(tiny("binary"), data, replace(ONE_BATCH, **settings), KEY)
    plain = cd.start(tiny("binary"), data, ONE_BATCH, KEY)
    moves = step(begin, data, **settings).params.weights - begin.params.weights
    signs = jnp.sign(step(plain, data).params.weights - plain.params.weights)
    np.testing.assert_allclose(moves, 0.01 * signs, rtol=1e-3)


@pytest.mark.parametrize("count", [6, 7, 8, 9])
def test_minibatches_hold_every_sample_once(count):
    order = np.asarray(minibatches(jnp.arange(count), 3))
    assert order.shape == (-(-count // 3), 3)
    np.testing.assert_array_equal(np.sort(order[order >= 0]), np.arange(count))
    sizes = np.sum(order >= 0, axis=1)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("weights", [None, [3.0, 0, 1, 0.5, 0, 2, 0.5]])
def test_minibatches_weigh_what_their_samples_do(weights):
    """Seven samples in minibatches of 4 and 3: steps along the mean gradient, scaled by the mean weight."""
    rbm, data = tiny("binary"), data_for("binary")
    config = replace(ONE_BATCH, batch_size=4)
    after = learn(cd.start(rbm, data, config, KEY), data, config, None if weights is None else jnp.array(weights))
    order_key, batch_key, _ = draws.split(draws.fold_in(KEY, 1), 3)
    order = np.asarray(permutation(order_key, 7))
    for number, rows in enumerate([order[0::2], order[1::2]]):
        weight = jnp.array(weights or [1.0] * 7)[rows]
        gradient, _, _ = gradient_of(rbm, data[rows], draws.fold_in(batch_key, number), 1, weights=weight)
        size = 0.1 * float(jnp.mean(weight))
        rbm = jax.tree.map(lambda p, g, size=size: p + size * g, rbm, gradient)
    assert_same(cd._flip(after.params), rbm, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_variances_stay_within_bounds(optimiser):
    data = data_for("real")
    wild = CD(batch_size=3, optimiser=optimiser, learning_rate=0.05, variance_rate=10.0, variance_bounds=(0.7, 0.8))
    state = cd.start(tiny("real"), data, wild, KEY)
    seen = [np.asarray(state.params.variance)]
    for _ in range(30):
        state = learn(state, data, wild)
        seen.append(np.asarray(state.params.variance))
    assert np.all((np.array(seen) >= np.float32(0.7)) & (np.array(seen) <= np.float32(0.8)))
    assert np.ptp(seen[1:]) > 0.05  # and they do move
    relative = np.asarray(cd.parameters(state).variance) / np.var(data, axis=0)
    np.testing.assert_allclose(relative, seen[-1], rtol=1e-4)


def test_variances_may_be_kept_as_they_are():
    data = data_for("real")
    kept, _ = fit(tiny("real"), data, CD(epochs=2, batch_size=7, learn_variance=False, variance_bounds=(0.7, 0.8)))
    np.testing.assert_allclose(kept.variance, tiny("real").variance, rtol=1e-6)


# ---- Learning


def lively(kind: str) -> Any:
    """An RBM whose hidden units are as often on as off, and far from a product of its visible ones."""
    rbm = tiny_grbm(8, 3, 4, scale=1.5) if kind == "real" else tiny_rbm(8, 3, 4, scale=2.0)
    half = 0.5 * jnp.sum(rbm.weights, axis=1)
    if kind == "binary":
        return replace(rbm, bias=-half, hidden_bias=-0.5 * jnp.sum(rbm.weights, axis=0))
    return replace(rbm, bias=-rbm.variance * half, hidden_bias=jnp.zeros(4))


LEARN = CD(epochs=100, momentum=0.5, weight_decay=0.0, steps=3, variance_rate=0.3)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_learning_recovers_a_known_density(kind, persistent):
    true = lively(kind)
    data = jnp.asarray(exact_samples(true, 2000))
    held_out = jnp.asarray(exact_samples(true, 500, seed=1))
    begin = (BinaryRBM if kind == "binary" else GRBM).of_data(draws.make_key(1), data, 4)
    fast = replace(LEARN, persistent=persistent, learning_rate=0.05 if kind == "real" else 0.1)
    rbm, _ = fit(begin, data, fast, KEY, held_out=held_out)
    slow = replace(fast, epochs=30, learning_rate=fast.learning_rate / 10)  # the noise of large steps dies down
    rbm, history = fit(rbm, data, slow, KEY, held_out=held_out)
    before, after, best = (float(log_likelihood(r, data)) for r in (begin, rbm, true))
    assert before < best - 0.2  # there is something to learn
    assert after > best - 0.15 * (best - before)
    first = fit(begin, data, replace(fast, epochs=1), held_out=held_out)[1][0]
    assert history[-1]["held_out_score"] < first["held_out_score"]
    # First and second moments of the learned density against those of the data, by their standard errors.
    drawn = exact_samples(rbm, 20_000, seed=2).astype(np.float64)
    for moment in (lambda x: x, lambda x: (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)):
        given, got = moment(np.asarray(data, np.float64)), moment(drawn)
        error = given.std(axis=0) / np.sqrt(len(given)) + got.std(axis=0) / np.sqrt(len(got))
        assert np.all(np.abs(given.mean(axis=0) - got.mean(axis=0)) < 4 * error)


def test_monitors_say_what_they_should():
    data = data_for("real")
    held_out = jnp.asarray(exact_samples(tiny("real"), 4))
    rbm = tiny("real")
    rbm = replace(rbm, hidden_bias=jnp.array([-30.0, 30.0, 0.0, 0.0]))
    config = replace(ONE_BATCH, learn_variance=False)
    state, monitors = cd.look(cd.start(rbm, data, config, KEY), data, config, held_out)
    mean_free_energy = lambda visible: float(jnp.mean(jax.vmap(rbm.free_energy)(visible)))
    gap = mean_free_energy(held_out) - mean_free_energy(data[np.array([0, 1, 3, 5])])
    assert float(monitors["free_energy_gap"]) == pytest.approx(gap, rel=1e-3)
    assert float(monitors["dead"]) == float(monitors["saturated"]) == 0.25
    mean = jax.vmap(lambda v: rbm.top_down(rbm.mean_hidden(v))[0])(held_out)
    error = np.mean(np.asarray((held_out - mean) / state.units.spread[None]) ** 2)
    assert float(monitors["held_out_reconstruction"]) == pytest.approx(error, rel=1e-3)
    assert float(monitors["weight_size"]) == pytest.approx(np.mean(np.abs(np.asarray(state.params.weights))), rel=1e-4)
    own = np.mean(jax.vmap(lambda h: rbm.top_down(h)[0])(state.chains), axis=0)
    off = (own - np.mean(data[np.array([0, 1, 3, 5])], axis=0)) / np.asarray(state.units.spread)
    assert float(monitors["sample_mean_error"]) == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-3)


def test_score_of_real_data_is_hyvarinens():
    rbm, data = tiny("real"), data_for("real")

    @jax.jit
    @jax.vmap
    def by_differentiation(v: jax.Array) -> jax.Array:
        slope = -jax.grad(rbm.free_energy)(v)
        return 0.5 * slope**2 - jnp.diag(jax.hessian(rbm.free_energy)(v))

    score = float(jnp.mean(by_differentiation(data)))
    assert float(jax.jit(held_out_score)(rbm, data)) == pytest.approx(score, rel=1e-4)


def test_score_of_binary_data_is_a_pseudo_likelihood():
    rbm, data = tiny("binary"), np.asarray(data_for("binary"))
    free = lambda v: float(rbm.free_energy(jnp.asarray(v)))
    values = []
    for v, looked_at in zip(data, probes(7, 3), strict=True):
        for i in looked_at:
            flipped = v.copy()
            flipped[i] = 1 - v[i]
            values.append(np.logaddexp(0, free(v) - free(flipped)))
    assert float(held_out_score(rbm, jnp.asarray(data))) == pytest.approx(np.mean(values), rel=1e-4)
    np.testing.assert_array_less(30, np.bincount(probes(7, 3).ravel()))


def test_early_stopping_returns_the_best():
    """Few samples and many epochs: the held-out score turns, and its lowest point is what is returned."""
    data = data_for("binary")
    held_out = jnp.asarray(exact_samples(tiny("binary", 5), 100, seed=2))
    begin = BinaryRBM.of_data(draws.make_key(1), data, 4)
    config = CD(epochs=300, batch_size=7, learning_rate=0.3, weight_decay=0.0, patience=20)
    rbm, history = fit(begin, data, config, KEY, held_out=held_out)
    scores = np.array([h["held_out_score"] for h in history])
    best = int(np.argmin(scores))
    assert 0 < best < 280
    assert len(history) == best + 1 + 20
    assert float(held_out_score(rbm, held_out)) == pytest.approx(scores[best], rel=1e-5)
    assert float(held_out_score(rbm, held_out)) < scores[-1]
    # From a start that cannot be bettered, the start itself comes back.
    true, _ = fit(tiny("binary"), data, replace(config, patience=3, learning_rate=3.0), KEY, held_out=held_out)
    assert_same_bytes(true, tiny("binary"))


# ---- How it runs


def test_an_epoch_is_compiled_once():
    """For equal shapes, whatever the rates, the epoch, the data or the parameters."""
    config, data = CD(epochs=3, batch_size=3), data_for("real")
    fit(tiny("real"), data, config, held_out=data)
    before = cd.learn_compiled._cache_size(), cd._monitor._cache_size(), cd._start._cache_size()
    other = replace(
        config, learning_rate=0.5e-3, momentum=0.5, weight_decay=0.1, variance_bounds=(0.1, 1.0), patience=9
    )
    fit(tiny("real", 1), data + 1, other, draws.make_key(9), held_out=data + 1, weights=np.arange(7))
    assert (cd.learn_compiled._cache_size(), cd._monitor._cache_size(), cd._start._cache_size()) == before


@pytest.mark.parametrize("persistent", [False, True])
def test_an_interrupted_run_goes_on_byte_for_byte(persistent):
    data = data_for("real")
    config = CD(batch_size=3, persistent=persistent, learning_rate=0.01)
    run = partial(cd.epoch, data=data, config=config, held_out=data)
    whole = cd.start(tiny("real"), data, config, KEY)
    for _ in range(4):
        whole, _ = run(whole)
    parts = cd.start(tiny("real"), data, config, KEY)
    for _ in range(2):
        parts, _ = run(parts)
    leaves, tree = jax.tree.flatten(parts)
    parts = jax.tree.unflatten(tree, [jnp.asarray(np.array(leaf)) for leaf in leaves])  # as through a file
    for _ in range(2):
        parts, _ = run(parts)
    assert_same_bytes(whole, parts)


DEVICES = """
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from dataclasses import replace
from functools import partial
from deep_lambertian.support import draws
from deep_lambertian.learning import contrastive_divergence as cd
from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.priors import GRBM

assert jax.device_count() == 2
data = jnp.asarray(np.random.default_rng(0).normal(size=(11, 3)), jnp.float32)
weights = jnp.arange(1.0, 12.0)
mesh = jax.sharding.Mesh(jax.devices(), ("rows",))
for persistent in (False, True):
    config = CD(batch_size=6 if persistent else 5, persistent=persistent, learning_rate=0.1)
    state = cd.start(GRBM.of_data(draws.make_key(0), data, 4), data, config, draws.make_key(1), weights)
    chains = P("rows") if persistent else P()
    specs = jax.tree_util.tree_map_with_path(lambda path, _: chains if path[0].name == "chains" else P(), state)
    both = jax.jit(jax.shard_map(
        lambda s: cd.learn(s, data, weights, config.rates, config.plan(11), axis_name="rows"),
        mesh=mesh, in_specs=(specs,), out_specs=specs, check_vma=False))
    one = two = state
    for _ in range(3):
        one, two = cd.learn_compiled(one, data, weights, config.rates, config.plan(11)), both(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
print("equal")
"""


def test_two_devices_learn_what_one_does():
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    environment = os.environ | cache | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", DEVICES]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "equal", done.stderr


# ---- What is refused


def test_bad_input_is_refused():
    rbm, data = tiny("real"), np.zeros((5, 3), np.float32)
    with pytest.raises(ValueError, match=r"data: expected shape \(samples, 3\), got \(5, 2\)"):
        fit(rbm, data[:, :2])
    with pytest.raises(ValueError, match="data: expected at least 2 samples, got 1"):
        fit(rbm, data[:1])
    with pytest.raises(ValueError, match="data: expected finite numbers, got 5 that are not"):
        fit(rbm, data + np.array([0, np.nan, 0], np.float32))
    with pytest.raises(ValueError, match=r"held_out: expected shape \(samples, 3\), got \(3,\)"):
        fit(rbm, data, held_out=data[0])
    with pytest.raises(ValueError, match="data: expected bits or probabilities for a binary RBM, got 0 to 2"):
        fit(tiny("binary"), data + np.array([0, 2, 0], np.float32))
    with pytest.raises(ValueError, match=r"weights: expected shape \(5,\)"):
        fit(rbm, data, weights=np.ones(4))
    with pytest.raises(ValueError, match="none negative and not all zero"):
        fit(rbm, data, weights=np.zeros(5))
    with pytest.raises(ValueError, match=r"held_out: expected samples, as CD.patience asks"):
        fit(rbm, data, CD(patience=3))
    with pytest.raises(ValueError, match=r"rbm.variance: expected positive"):
        fit(replace(rbm, variance=-rbm.variance), data)
    for settings, message in [
        ({"epochs": 0}, "CD.epochs: expected a whole number of at least 1, got 0"),
        ({"optimiser": "newton"}, r"CD.optimiser: expected one of \('sgd', 'adam'\), got 'newton'"),
        ({"momentum": 1.0}, r"CD.momentum: expected a number in \[0, 1\), got 1.0"),
        ({"variance_bounds": (2.0, 1.0)}, "CD.variance_bounds: expected 0 < low ≤ high"),
        ({"learning_rate": -1.0}, "CD.learning_rate: expected a finite number, not negative, got -1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            CD(**settings)


def test_learning_that_runs_away_is_an_error():
    data = data_for("real")
    with pytest.raises(FloatingPointError, match=r"weights.* no longer finite after epoch \d+"):
        fit(tiny("real"), data, CD(batch_size=7, learning_rate=1e30))


def test_batches_larger_than_the_data_are_the_data():
    _, history = fit(tiny("binary"), data_for("binary"), CD(epochs=2, batch_size=1000))
    assert [h["epoch"] for h in history] == [0, 1, 2]
    assert isinstance(fit(tiny("real"), data_for("real"), CD(epochs=1))[0], GRBM)
