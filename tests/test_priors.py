"""Tiny RBMs and deep belief nets against exact enumeration; Gaussians against their closed form."""

from itertools import pairwise, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from conftest import tiny_grbm
from deep_lambertian.learning.binary_units import BinaryUnits, learn_units
from deep_lambertian.learning.contrastive_divergence import CD
from deep_lambertian.priors import DBN, GRBM, BinaryRBM, Gaussian, GaussianBinary, Prior, Product, generate
from deep_lambertian.priors.density import log_density, log_normaliser
from deep_lambertian.support.progress import show_progress

STILL = CD(epochs=1, learning_rate=0.0, persistent=True, learn_variance=False)  # learns nothing


def binary(count: int) -> np.ndarray:
    """All 2^count rows of zeros and ones."""
    return np.array(list(product([0.0, 1.0], repeat=count)), np.float32)


def tiny_rbm(seed: int, visible: int, hidden: int) -> BinaryRBM:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(0, 0.8, shape), jnp.float32)
    return BinaryRBM(draw(visible), draw(hidden), draw(visible, hidden))


def tiny_dbn(*hidden: int, visible: int = 2, **options: Any) -> DBN:
    sizes = list(hidden)
    layers = tuple(tiny_rbm(5 + i, low, high) for i, (low, high) in enumerate(pairwise(sizes)))
    return DBN(tiny_grbm(3, visible, sizes[0]), layers, **options)


def tiny_both(seed: int = 0, visible: int = 3, hidden: int = 4) -> GaussianBinary:
    rng = np.random.default_rng(seed)
    base = Gaussian.of_factors(rng.normal(size=visible), rng.uniform(0.3, 1, visible), rng.normal(size=(visible, 2)))
    units = rng.normal(0, 0.5, hidden), rng.normal(0, 0.5, (visible, hidden))
    return GaussianBinary(base, *(jnp.asarray(each, jnp.float32) for each in units))


def both_as_mixture(prior: GaussianBinary) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Probabilities of all h, the means of x, its covariance, and log ∫ Σ exp(−E): written out."""
    states = binary(prior.hidden_size).astype(np.float64)
    base = [np.asarray(x, np.float64) for x in (prior.base.mean, prior.base.variance, prior.base.factors)]
    covariance, top = np.diag(base[1]) + base[2] @ base[2].T, states @ np.asarray(prior.weights, np.float64).T
    log_mass = states @ np.asarray(prior.hidden_bias, np.float64) + 0.5 * np.sum(top * (top @ covariance), axis=1)
    # ∫ over z and x of the Gaussian's part alone: its two determinants cancel but for that of the noise.
    constant = 0.5 * (len(base[0]) + base[2].shape[1]) * np.log(2 * np.pi) + 0.5 * np.sum(np.log(base[1]))
    return (
        np.exp(log_mass - logsumexp(log_mass)),
        base[0] + top @ covariance,
        covariance,
        logsumexp(log_mass) + constant,
    )


def mixture(grbm: GRBM) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A GRBM as the mixture of Gaussians it is: hidden states, their probabilities, their means."""
    states = binary(grbm.hidden_size)
    b, c, w, var = (np.asarray(x, np.float64) for x in (grbm.bias, grbm.hidden_bias, grbm.weights, grbm.variance))
    top = states @ w.T
    log_mass = states @ c + np.sum(b * top + 0.5 * var * top**2, axis=1)  # ∫ exp(−E) dv, but for a constant
    return states, np.exp(log_mass - logsumexp(log_mass)), b + var * top


VISIBLE = np.array([[0.3, -0.8, 1.1], [-1.0, 0.4, 0.2]], np.float32)


def test_grbm_conditionals_are_those_of_its_energy():
    grbm = tiny_grbm(0, 3, 4)
    states = binary(4)
    for v in VISIBLE:
        energies = np.array([grbm.energy(jnp.array(v), jnp.array(h)) for h in states])
        weights = np.exp(-energies - logsumexp(-energies))
        np.testing.assert_allclose(weights @ states, grbm.mean_hidden(jnp.array(v)), rtol=2e-4)
        assert float(grbm.free_energy(jnp.array(v))) == pytest.approx(-logsumexp(-energies), rel=1e-4)
    h = jnp.array(states[11])
    mean, variance = grbm.top_down(h)
    grid = np.linspace(-4, 4, 801).astype(np.float32)
    for i in range(3):
        line = jax.vmap(lambda x, i=i: grbm.energy(jnp.array(VISIBLE[0]).at[i].set(x), h))(jnp.array(grid))
        density = np.exp(-np.asarray(line, np.float64))
        density /= density.sum()
        assert density @ grid == pytest.approx(float(mean[i]), abs=1e-3)
        assert density @ (grid - float(mean[i])) ** 2 == pytest.approx(float(variance[i]), rel=1e-3)


def test_eq8_is_eq7_with_its_square_expanded():
    grbm = tiny_grbm(0, 3, 2)
    h = jnp.array([1.0, 0.0])

    def eq8(n: jax.Array) -> jax.Array:
        quadratic = 0.5 * jnp.sum(n**2 / grbm.variance) - jnp.sum(grbm.bias * n / grbm.variance)
        return quadratic - grbm.hidden_bias @ h - n @ grbm.weights @ h

    differences = [float(grbm.energy(jnp.array(v), h) - eq8(jnp.array(v))) for v in VISIBLE]
    assert differences[0] == pytest.approx(differences[1], abs=1e-5)


def test_binary_rbm_against_enumeration():
    rbm = tiny_rbm(4, 3, 5)
    visibles, hiddens = binary(3), binary(5)
    energies = np.array([[rbm.energy(jnp.array(v), jnp.array(h)) for h in hiddens] for v in visibles])
    free = np.array([rbm.free_energy(jnp.array(v)) for v in visibles])
    np.testing.assert_allclose(free, -logsumexp(-energies, axis=1), rtol=1e-4, atol=1e-5)
    joint = np.exp(-energies - logsumexp(-energies))
    for k, v in enumerate(visibles):
        np.testing.assert_allclose(joint[k] @ hiddens / joint[k].sum(), rbm.mean_hidden(jnp.array(v)), rtol=1e-4)
    for k, h in enumerate(hiddens):
        mean = joint[:, k] @ visibles / joint[:, k].sum()
        np.testing.assert_allclose(mean, rbm.top_down(jnp.array(h))[0], rtol=1e-4)
    # A long chain visits each visible state as often as the enumeration says.
    result = generate(rbm, seed=1, steps=1500, chains=64, thin=1)
    expected = joint.sum(axis=1) @ visibles
    standard_error = result.mean.std(axis=0) / np.sqrt(64)
    assert np.all(np.abs(result.mean.mean(axis=0) - expected) < 4 * standard_error)


def dbn_log_joint(dbn: DBN, v: np.ndarray, states: list[np.ndarray]) -> float:
    """log p̃(v, h¹, …, h^L) written out from the definition."""
    mean, variance = (np.asarray(x, np.float64) for x in dbn.base.top_down(jnp.array(states[0])))
    total = -0.5 * np.sum((v - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    for layer, low, high in zip(dbn.layers[:-1], states, states[1:], strict=False):
        logits = np.asarray(layer.visible_logits(jnp.array(high)), np.float64)
        total += np.sum(low * logits - np.logaddexp(0, logits))
    return total - float(dbn.layers[-1].energy(jnp.array(states[-2]), jnp.array(states[-1])))


def dbn_exact(dbn: DBN, v: np.ndarray) -> float:
    sizes = [dbn.base.hidden_size, *(layer.hidden_size for layer in dbn.layers)]
    return -logsumexp([dbn_log_joint(dbn, v, list(states)) for states in product(*map(binary, sizes))])


def test_dbn_energy_sums_out_the_layers_above():
    dbn = tiny_dbn(3, 2)
    v = VISIBLE[0, :2]
    for h in binary(3):
        exact = -logsumexp([dbn_log_joint(dbn, v, [h, top]) for top in binary(2)])
        assert float(dbn.energy(jnp.array(v), jnp.array(h))) == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("hidden", [(3,), (3, 2), (3, 2, 2), (2, 3, 2, 2)])
def test_dbn_free_energy_bounds_the_exact_one_from_above(hidden):
    dbn = tiny_dbn(*hidden)
    for v in VISIBLE[:, :2]:
        bound = float(dbn.free_energy(jnp.array(v)))
        if len(hidden) == 1:
            assert bound == float(dbn.base.free_energy(jnp.array(v)))
        else:
            assert dbn_exact(dbn, v) - 1e-4 <= bound <= dbn_exact(dbn, v) + sum(hidden)


@pytest.mark.parametrize("hidden", [(3, 2), (3, 2, 2)])
def test_dbn_generates_what_enumeration_says(hidden):
    dbn = tiny_dbn(*hidden)
    sizes = [dbn.base.hidden_size, *(layer.hidden_size for layer in dbn.layers)]
    log_mass, means = [], []
    for states in product(*map(binary, sizes)):
        mean, variance = dbn.base.top_down(jnp.array(states[0]))
        log_mass.append(dbn_log_joint(dbn, np.asarray(mean), list(states)) + 0.5 * float(jnp.sum(jnp.log(variance))))
        means.append(np.asarray(mean))
    mass = np.exp(log_mass - logsumexp(log_mass))
    result = generate(dbn, seed=3, steps=1500, chains=64, thin=1)
    standard_error = result.mean.std(axis=0) / np.sqrt(64)
    assert np.all(np.abs(result.mean.mean(axis=0) - mass @ np.array(means)) < 4 * standard_error)


def test_dbn_pass_mixes_the_messages_as_it_says():
    v = jnp.array(VISIBLE[0, :2])
    plain = tiny_dbn(3, 2, top_weight=0.0)
    np.testing.assert_allclose(plain.mean_hidden(v), plain.base.mean_hidden(v), rtol=1e-6)
    deep, mixed = tiny_dbn(3, 2), tiny_dbn(3, 2, top_weight=0.3)
    logit = lambda p: jnp.log(p) - jnp.log1p(-p)
    expected = 0.3 * logit(deep.mean_hidden(v)) + 0.7 * logit(plain.mean_hidden(v))
    np.testing.assert_allclose(logit(mixed.mean_hidden(v)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"top_steps": 3}, {"top_weight": 0.4}])
def test_dbn_sampled_pass_has_the_distribution_of_its_definition(options):
    """Up, alternate in the top RBM, and down: exact probabilities by enumerating every intermediate state."""
    dbn = tiny_dbn(2, 2, **options)
    v = jnp.array(VISIBLE[1, :2])
    top, steps = dbn.layers[0], dbn.top_steps
    prob = lambda logits, state: np.prod(np.where(state > 0, 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))))
    states = binary(2)
    up = np.asarray(dbn.base.hidden_logits(v), np.float64)
    law = np.array([prob(up, h) for h in states])
    rise = np.array([[prob(np.asarray(top.hidden_logits(jnp.array(h))), t) for t in states] for h in states])
    fall = np.array([[prob(np.asarray(top.visible_logits(jnp.array(t))), h) for h in states] for t in states])
    for _ in range(steps - 1):
        law = law @ rise @ fall
    mix = lambda t: dbn.top_weight * np.asarray(top.visible_logits(jnp.array(t))) + (1 - dbn.top_weight) * up
    law = law @ rise @ np.array([[prob(mix(t), h) for h in states] for t in states])
    draws = jax.vmap(lambda k: dbn.sample_hidden(k, v))(jax.random.split(jax.random.key(0), 40_000))
    counts = np.array([np.mean(np.all(np.asarray(draws) == h, axis=1)) for h in states])
    assert np.all(np.abs(counts - law) < 4 * np.sqrt(law * (1 - law) / 40_000))


def test_grbm_generates_the_mixture_it_is():
    grbm = tiny_grbm(7, 3, 4, scale=0.5)
    _, mass, means = mixture(grbm)
    mean = mass @ means
    variance = mass @ means**2 - mean**2 + np.asarray(grbm.variance)
    result = generate(grbm, seed=2, steps=2000, chains=64, thin=1)
    error = result.mean.std(axis=0) / 8
    assert np.all(np.abs(result.mean.mean(axis=0) - mean) < 4 * error)
    error = (result.std**2).std(axis=0) / 8
    assert np.all(np.abs((result.std**2).mean(axis=0) - variance) < 4 * error + 0.01 * variance)


def test_gaussian_and_binary_units_are_the_mixture_of_their_energy():
    prior = tiny_both()
    mass, means, covariance, log_z = both_as_mixture(prior)
    states = binary(4)
    for v in VISIBLE:
        z = prior.base.mean_hidden(jnp.array(v))
        energies = np.array([prior.energy(jnp.array(v), (z, jnp.array(h))) for h in states])
        weights = np.exp(-energies - logsumexp(-energies))
        np.testing.assert_allclose(weights @ states, prior.mean_hidden(jnp.array(v))[1], rtol=2e-4)
        off = v - means
        squares = 0.5 * np.sum(off * np.linalg.solve(covariance, off.T).T, axis=1)
        exact = logsumexp(np.log(mass) - squares) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        assert -float(prior.free_energy(jnp.array(v))) - log_z == pytest.approx(exact, abs=1e-4)
    mean, variance, factors = prior.gaussian((jnp.zeros(2), jnp.array(states[11])))
    np.testing.assert_allclose(mean, means[11], rtol=1e-4)
    np.testing.assert_allclose(np.diag(variance) + factors @ factors.T, covariance, rtol=1e-4)
    result = generate(prior, seed=2, steps=2000, chains=64, thin=1)
    spread = mass @ means**2 - (mass @ means) ** 2 + np.diag(covariance)
    assert np.all(np.abs(result.mean.mean(axis=0) - mass @ means) < 4 * result.mean.std(axis=0) / 8)
    assert np.all(np.abs((result.std**2).mean(axis=0) - spread) < 0.05 * spread)


def test_gaussian_and_binary_units_are_drawn_from_one_joint_density():
    """Gibbs between x and (z, h), by the conditionals that inference takes, leaves the moments of x as they are."""
    prior = tiny_both(seed=1)
    mass, means, covariance, _ = both_as_mixture(prior)

    def step(key: jax.Array, x: jax.Array) -> jax.Array:
        mean, variance = prior.top_down(prior.sample_hidden(jax.random.fold_in(key, 0), x))
        return mean + jnp.sqrt(variance) * jax.random.normal(jax.random.fold_in(key, 1), mean.shape)

    def chain(key: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, k: (step(k, x),) * 2, prior.centre, jax.random.split(key, 2000))[1][200:]

    found = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 64)), np.float64)
    error = found.mean(axis=1).std(axis=0) / 8
    assert np.all(np.abs(found.mean(axis=(0, 1)) - mass @ means) < 4 * error)
    spread = mass @ means**2 - (mass @ means) ** 2 + np.diag(covariance)
    assert np.all(np.abs(found.var(axis=(0, 1)) - spread) < 0.05 * spread)


def test_a_net_on_gaussian_and_binary_units():
    net = DBN(tiny_both(visible=2, hidden=3), (tiny_rbm(5, 3, 2),))
    base, top = net.base, net.layers[0]
    _, means, covariance, _ = both_as_mixture(base)  # type: ignore[arg-type]
    for v in VISIBLE[:, :2]:
        z = base.base.mean_hidden(jnp.array(v))  # type: ignore[union-attr]
        below = -0.5 * np.sum((v - means) * np.linalg.solve(covariance, (v - means).T).T, axis=1)
        below -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        above = np.array([-float(top.free_energy(jnp.array(h))) for h in binary(3)])
        exact = -logsumexp(below + above)
        assert exact - 1e-4 <= float(net.free_energy(jnp.array(v))) <= exact + 5
        # E(x, z, h) − E(x, z', h) is that of the Gaussian: z given x knows nothing of h.
        energies = [float(net.energy(jnp.array(v), (each, jnp.array(binary(3)[5])))) for each in (z, z + 1)]
        own = [float(base.base.energy(jnp.array(v), each)) for each in (z, z + 1)]  # type: ignore[union-attr]
        assert energies[1] - energies[0] == pytest.approx(own[1] - own[0], abs=1e-4)


@pytest.mark.parametrize("prior", [tiny_both(), tiny_grbm(7, 3, 4, scale=0.5), tiny_rbm(2, 4, 3), tiny_dbn(4, 3)])
def test_annealed_importance_sampling_finds_the_normaliser_of_enumeration(prior):
    if isinstance(prior, GaussianBinary):
        exact = both_as_mixture(prior)[3]
    elif isinstance(prior, GRBM):
        b, c, w, var = (
            np.asarray(x, np.float64) for x in (prior.bias, prior.hidden_bias, prior.weights, prior.variance)
        )
        top = binary(4) @ w.T
        exact = logsumexp(binary(4) @ c + np.sum(b * top + 0.5 * var * top**2, axis=1))
        exact += 0.5 * np.sum(np.log(2 * np.pi * var))
    else:
        rbm = prior.layers[-1] if isinstance(prior, DBN) else prior
        exact = logsumexp([-float(rbm.free_energy(jnp.array(v))) for v in binary(rbm.size)])
    found = log_normaliser(prior, steps=200)
    assert 0 < found.error < 0.1
    assert abs(found.value - exact) < 4 * found.error + 1e-3


def test_densities_of_gaussians_are_exact_and_those_of_a_product_add_up():
    rng = np.random.default_rng(0)
    mean, variance, factors = rng.normal(size=3), rng.uniform(0.3, 1, 3), rng.normal(size=(3, 2))
    prior = Gaussian.of_factors(mean, variance, factors)
    covariance = factors @ factors.T + np.diag(variance)
    exact = [-0.5 * (v - mean) @ np.linalg.solve(covariance, v - mean) for v in VISIBLE]
    found, error = log_density(prior, VISIBLE)
    np.testing.assert_allclose(found, exact - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1], atol=1e-4)
    assert error == 0
    albedo = Gaussian.diagonal(jnp.zeros(1), jnp.ones(1))
    joint, _ = log_density(Product(albedo, prior), np.concatenate([VISIBLE[:, :1], VISIBLE], axis=1))
    np.testing.assert_allclose(joint, found + log_density(albedo, VISIBLE[:, :1])[0], atol=1e-4)
    silent = GaussianBinary(prior, jnp.zeros(4), jnp.zeros((3, 4)))
    np.testing.assert_allclose(log_density(silent, VISIBLE, steps=10)[0], found, atol=1e-3)


def test_gaussian_against_its_closed_form():
    rng = np.random.default_rng(0)
    mean, variance, factors = rng.normal(size=3), rng.uniform(0.3, 1, 3), rng.normal(size=(3, 2))
    prior = Gaussian.of_factors(mean, variance, factors)
    covariance = factors @ factors.T + np.diag(variance)
    exact = [0.5 * (v - mean) @ np.linalg.solve(covariance, v - mean) for v in VISIBLE]
    got = [float(prior.free_energy(jnp.array(v))) for v in VISIBLE]
    # Equal but for a constant, which is that of ∫ exp(−E(x, z)) dz.
    assert got[0] - exact[0] == pytest.approx(got[1] - exact[1], abs=1e-4)
    constant = 0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * np.sum(np.log(variance)) - np.log(2 * np.pi)
    assert got[0] - exact[0] == pytest.approx(constant, abs=1e-4)
    v = jnp.array(VISIBLE[0])
    factors = np.asarray(prior.factors, np.float64)  # rotated, which the density above does not show
    precision = np.eye(2) + factors.T @ (factors / variance[:, None])
    posterior = np.linalg.solve(precision, factors.T @ ((VISIBLE[0] - mean) / variance))
    np.testing.assert_allclose(prior.mean_hidden(v), posterior, rtol=1e-4)
    draws = jax.vmap(lambda k: prior.sample_hidden(k, v))(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), atol=0.02)
    samples = jax.vmap(lambda k: prior.sample(k, 1))(jax.random.split(jax.random.key(1), 20_000))
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.1)
    prior.validate()
    with pytest.raises(ValueError, match=r"factors: expected orthogonal .* make it by Gaussian.of_factors"):
        Gaussian(jnp.zeros(3), jnp.ones(3), jnp.ones((3, 2))).validate()


def test_product_is_the_two_side_by_side():
    albedo, normals = tiny_grbm(1, 2, 3), tiny_grbm(2, 6, 2)
    both = Product(albedo, normals)
    x = jnp.linspace(-1, 1, 8)
    a, n = x[:2], x[2:]
    hidden = both.sample_hidden(jax.random.key(0), x)
    assert [h.shape for h in hidden] == [(3,), (2,)]
    assert float(both.energy(x, hidden)) == pytest.approx(
        float(albedo.energy(a, hidden[0]) + normals.energy(n, hidden[1])), rel=1e-5
    )
    assert float(both.free_energy(x)) == pytest.approx(float(albedo.free_energy(a) + normals.free_energy(n)), rel=1e-5)
    mean, _ = both.top_down(hidden)
    np.testing.assert_array_equal(mean[:2], albedo.top_down(hidden[0])[0])
    np.testing.assert_array_equal(mean[2:], normals.top_down(hidden[1])[0])


@pytest.mark.parametrize(
    "prior",
    [
        tiny_grbm(0, 4, 2),
        tiny_dbn(3, 2, visible=4),
        Product(tiny_grbm(0, 1, 2), tiny_grbm(1, 3, 2)),
        tiny_both(visible=4),
        DBN(tiny_both(visible=4), (tiny_rbm(1, 4, 2),)),
        Gaussian.diagonal(jnp.zeros(4), jnp.ones(4)),
        Gaussian.of_factors(jnp.zeros(4), jnp.ones(4), jnp.arange(8.0).reshape(4, 2)),
    ],
)
def test_every_prior_keeps_the_contract(prior):
    assert isinstance(prior, Prior)
    prior.validate()
    assert prior.centre.shape == (prior.size,)
    visible = prior.sample(jax.random.key(0), 3)
    hidden = prior.sample_hidden(jax.random.key(1), visible)
    assert jax.tree.map(jnp.shape, prior.mean_hidden(visible)) == jax.tree.map(jnp.shape, hidden)
    mean, variance = prior.top_down(hidden)
    assert mean.shape == variance.shape == (prior.size,)
    assert np.isfinite(float(prior.energy(visible, hidden)))
    assert np.isfinite(float(prior.free_energy(visible)))


def test_generation_is_the_same_however_it_is_cut():
    """Neither a progress bar, which cuts the run, nor further chains change a chain."""
    grbm = tiny_grbm(7, 3, 4)
    alone = generate(grbm, seed=5, steps=100, chains=1)
    with show_progress():
        cut = generate(grbm, seed=5, steps=100, chains=3)
    np.testing.assert_allclose(alone.samples[0], cut.samples[0], rtol=1e-5)
    np.testing.assert_allclose(alone.mean[0], cut.mean[0], rtol=1e-4, atol=1e-5)


def test_the_papers_albedo_net_runs_at_its_size():
    prior = DBN.random(jax.random.key(0), 576, (800, 200))
    result = generate(prior, steps=200, chains=8, thin=50)
    assert result.samples.shape == (8, 576)
    assert np.isfinite(result.samples).all()
    assert np.isfinite(result.std).all()


def test_bad_priors_are_refused():
    good = tiny_grbm(0, 3, 2)
    with pytest.raises(ValueError, match=r"grbm.variance: expected positive numbers, got a smallest of -1"):
        GRBM(good.bias, good.hidden_bias, good.weights, -jnp.ones(3)).validate()
    with pytest.raises(ValueError, match=r"grbm.weights: expected shape \(3, 2\), got \(2, 3\)"):
        GRBM(good.bias, good.hidden_bias, good.weights.T, good.variance).validate()
    with pytest.raises(ValueError, match=r"expected finite numbers, got 1"):
        GRBM(good.bias.at[0].set(jnp.nan), good.hidden_bias, good.weights, good.variance).validate()
    with pytest.raises(ValueError, match=r"layers\[0\]: expected 2 visible units.*got 3"):
        DBN(good, (tiny_rbm(0, 3, 2),)).validate()
    with pytest.raises(ValueError, match="expected top_steps of at least 1"):
        tiny_dbn(3, 2, top_steps=0).validate()
    with pytest.raises(ValueError, match=r"expected 6 elements.*got 3"):
        Product(tiny_grbm(0, 2, 2), tiny_grbm(0, 3, 2)).validate()
    with pytest.raises(ValueError, match="expected positive steps"):
        generate(good, steps=0)


@pytest.mark.slow
def test_figure_4_at_its_full_length():
    """50,000 iterations of the paper's albedo net: sixteen chains agree with each other as independent draws would."""
    prior = DBN.random(jax.random.key(0), 576, (800, 200), scale=0.05)
    result = generate(prior, steps=50_000, chains=16, thin=100)
    assert result.samples.shape == (16, 576)
    kept = 50_000 // 2 // 100
    ratio = result.mean.var(axis=0, ddof=1).mean() / (result.std**2).mean() * kept
    assert ratio == pytest.approx(1, abs=0.15)


def test_binary_units_find_what_a_gaussian_cannot_hold():
    """Surfaces of two kinds: rare units raise the held-out density by much more than the error of annealing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 6)) * [1, 1, 0.5, 0.5, 0.2, 0.2]
    rows[:, :2] += 4 * (rng.random((4000, 1)) < 0.12)
    seen, unseen = np.float32(rows[:3000]), np.float32(rows[3000:])
    gaussian = Gaussian.of_factors(
        seen.mean(0), np.full(6, 0.02), np.linalg.cholesky(np.cov(seen.T) - 0.019 * np.eye(6))
    )
    before, _ = log_density(gaussian, unseen)
    learned = CD(100, 100, 2, persistent=True, learning_rate=1e-2, weight_decay=0.0, variance_bounds=(0.2, 1.0))
    prior, _ = learn_units(gaussian, seen, BinaryUnits(units=20, directions=4, cd=learned), seed=1)
    after, error = log_density(prior, unseen, steps=400)
    assert np.mean(after - before) > 0.1 > 10 * error
    prior.validate()
    silent, _ = learn_units(
        gaussian, seen, BinaryUnits(units=4, directions=4, scale=1e-6, variance=1.0, cd=STILL), seed=1
    )
    np.testing.assert_allclose(log_density(silent, unseen, steps=10)[0], before, atol=2e-2)
    deep, _ = learn_units(gaussian, seen, BinaryUnits(units=6, above=3, directions=4, cd=STILL), seed=1)
    assert isinstance(deep, DBN)
    deep.validate()
