"""The written-out generator is JAX's own, and its numbers have the distributions they claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from deep_lambertian.inference.chain import chain_keys
from deep_lambertian.support import draws


def test_words_are_those_of_jax():
    key = jnp.array([0x13198A2E, 0x03707344], jnp.uint32)
    counter = jnp.arange(1000, dtype=jnp.uint32)
    mine = draws.threefry(key[0], key[1], counter, counter + jnp.uint32(7))
    theirs = threefry_2x32(key, jnp.concatenate([counter, counter + jnp.uint32(7)]))
    np.testing.assert_array_equal(jnp.concatenate(mine), theirs)


def test_the_known_answer_of_random123():
    words = [jnp.uint32(w) for w in (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)]
    assert [int(w) for w in draws.threefry(*words)] == [0xC4923A9C, 0x483DF7A0]


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (draws.uniform, stats.uniform()),
        (draws.normal, stats.norm()),
        (lambda key, shape: draws.exponential(draws.bits(key, shape)), stats.expon()),
    ],
)
def test_distributions(draw, law):
    values = np.asarray(draw(draws.make_key(0), (200_000,)), np.float64)
    assert np.isfinite(values).all()
    assert stats.kstest(values, law.cdf).pvalue > 1e-3


def test_the_ends_of_the_range_are_finite():
    ends = jnp.array([0, 2**31 - 1, 2**31, 2**32 - 1], jnp.uint32)
    for function in (draws.gaussian, draws.exponential, draws.unit_interval):
        assert np.isfinite(np.asarray(function(ends))).all()
    assert float(draws.gaussian(ends).max()) > 5


def test_bernoulli_has_the_probability_of_its_logit():
    logits = jnp.repeat(jnp.array([-3.0, 0.0, 1.5]), 40_000)
    drawn = np.asarray(draws.bernoulli(draws.make_key(1), logits)).reshape(3, -1).mean(axis=1)
    p = 1 / (1 + np.exp(-np.array([-3.0, 0.0, 1.5])))
    assert np.all(np.abs(drawn - p) < 4 * np.sqrt(p * (1 - p) / 40_000))


def test_streams_keys_and_objects_are_independent():
    key = draws.make_key(0)
    columns = [draws.normal(key, (50_000,), stream) for stream in range(3)]
    columns += [draws.normal(k, (50_000,)) for k in draws.split(key, 3)]
    columns.append(draws.normal(draws.fold_in(key, 5), (50_000,)))
    correlation = np.corrcoef(np.stack([np.asarray(c) for c in columns])) - np.eye(7)
    assert np.abs(correlation).max() < 5 / np.sqrt(50_000)


def test_a_longer_array_begins_with_a_shorter_one():
    key = draws.make_key(2)
    np.testing.assert_array_equal(draws.normal(key, (10, 3))[:4], draws.normal(key, (4, 3)))
    batch = jax.vmap(lambda k: draws.uniform(k, (6,)))(jnp.stack(draws.split(key, 2)))
    np.testing.assert_array_equal(batch[1], draws.uniform(draws.split(key, 2)[1], (6,)))


@pytest.mark.parametrize("seed", [0, 7, -1, 2**31 + 5, 2**40 + 3])
def test_the_keys_of_chains_are_folded_from_their_numbers(seed):
    numbers = (0, 5, 2**31 - 1)
    of_objects = [draws.fold_in(draws.make_key(seed), number) for number in numbers]
    folded = [[jax.random.key_data(draws.fold_in(key, chain)) for chain in range(3)] for key in of_objects]
    np.testing.assert_array_equal(chain_keys(seed, numbers, 3), folded)
