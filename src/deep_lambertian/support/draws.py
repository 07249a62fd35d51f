"""Random numbers written out so that they fuse with the arithmetic that uses them.

The generator is the one behind JAX's default keys: Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", 2011), a function of a key and a counter. `jax.random` runs it as a loop over whole
arrays, which takes two to three times as long to run, and as long to compile, as what is here; in a sweep that draws
a few thousand numbers some fifteen times, that is more than its matrix products cost.

The functions below stand in for those of `jax.random`, and a key is used once, or once for each `stream`: the streams
of a key are as independent of each other as keys are, and cost nothing to make.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Words = Any  # unsigned 32-bit integers
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry_words(key0: Words, key1: Words, x0: Words, x1: Words) -> tuple[Words, Words]:
    """Two random 32-bit words for each counter (x0, x1) under the key (key0, key1), of JAX or of NumPy."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


threefry = jax.jit(threefry_words)


def key_words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two words of a threefry key."""
    words = jax.random.key_data(key)
    return words[0], words[1]


def make_key(seed: int) -> jax.Array:
    """The key of a seed; threefry, whatever the default of the process is."""
    return jax.random.key(seed, impl="threefry2x32")


def fold_in(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """A new key from a key and a whole number.

    New keys come from JAX's own loop: written out, they would be fused into, and compiled with, every use of them.
    """
    return jax.random.fold_in(key, number)


def split(key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    """`count` new keys."""
    return tuple(jax.random.split(key, count))


def bits(key: jax.Array, shape: tuple[int, ...], stream: int = 0) -> jax.Array:
    """Random 32-bit words. Those of a longer array begin with those of a shorter one."""
    counter = lax.iota(jnp.uint32, math.prod(shape))
    word, _ = threefry(*key_words(key), counter, jnp.full_like(counter, stream))
    return word.reshape(shape)


def uniform(key: jax.Array, shape: tuple[int, ...], stream: int = 0) -> jax.Array:
    """Numbers evenly spread over (0, 1)."""
    return unit_interval(bits(key, shape, stream))


def normal(key: jax.Array, shape: tuple[int, ...], stream: int = 0) -> jax.Array:
    """Standard normal numbers."""
    return gaussian(bits(key, shape, stream))


def bernoulli(key: jax.Array, logits: jax.Array, stream: int = 0) -> jax.Array:
    """0 or 1, as floats, with probability sigmoid(logits) of a 1."""
    return bernoulli_of(bits(key, logits.shape, stream), jax.nn.sigmoid(logits))


def bernoulli_of(word: jax.Array, probability: jax.Array) -> jax.Array:
    """0 or 1, as floats, made of random words; the probabilities are those of a 1."""
    return (unit_interval(word) < probability).astype(probability.dtype)


@jax.jit
def unit_interval(word: jax.Array) -> jax.Array:
    """One of 2²⁴ evenly spaced points of (0, 1], the ends of which are half a step away."""
    i = (word >> jnp.uint32(8)).astype(jnp.int32)  # through int32, which vectorises; 24 bits are a float's
    return (i.astype(jnp.float32) + 0.5) * 2.0**-24


@jax.jit
def gaussian(word: jax.Array) -> jax.Array:
    """A standard normal number, by the inverse error function at one of 2²⁴ evenly spaced points of (−1, 1)."""
    i = lax.shift_right_arithmetic(lax.bitcast_convert_type(word, jnp.int32), jnp.int32(8))
    return math.sqrt(2) * lax.erf_inv((i.astype(jnp.float32) + 0.5) * 2.0**-23)


def exponential(word: jax.Array) -> jax.Array:
    """A standard exponential number, −log of one of those of the unit interval."""
    return -jnp.log(unit_interval(word))
