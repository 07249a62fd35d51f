"""Long-run generation from a prior alone (the paper's Figure 4 runs 50,000 iterations)."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from deep_lambertian.priors.contract import Chain, Prior
from deep_lambertian.support import draws
from deep_lambertian.support.moments import Moments
from deep_lambertian.support.progress import chunks

Count = int | Int[Array, ""]  # traced within a compiled function


@dataclass(frozen=True)
class Generated:
    """Draws of the last iteration, one a chain, and the moments of every kept iteration of each chain."""

    samples: np.ndarray  # (chains, size)
    mean: np.ndarray  # (chains, size)
    std: np.ndarray  # (chains, size)


def generate(
    prior: Prior, seed: int = 0, steps: int = 50_000, chains: int = 16, burn_in: int | None = None, thin: int = 10
) -> Generated:
    """Run `chains` alternating Gibbs chains in parallel for `steps` iterations.

    Every `thin`-th iteration after `burn_in` (half of them unless told) enters the moments. Memory does not
    grow with `steps`.
    """
    if steps < 1 or chains < 1 or thin < 1:
        raise ValueError(f"expected positive steps, chains and thin, got {steps}, {chains} and {thin}")
    burn_in = steps // 2 if burn_in is None else burn_in
    keys = jax.vmap(partial(draws.fold_in, draws.make_key(seed)))(jnp.arange(chains))
    state = jax.vmap(lambda key: prior.chain_start(draws.fold_in(key, 0)))(keys)
    carry = state, Moments.zeros((chains, prior.size))
    for start, stop in chunks(steps, "sampling the prior"):
        carry = _advance(prior, keys, carry, start, stop, burn_in, thin)
    state, moments = carry
    samples = jax.vmap(lambda key, s: prior.chain_visible(draws.fold_in(key, 1), s))(keys, state)
    return Generated(np.asarray(samples), np.asarray(moments.mean), np.asarray(moments.std))


@partial(jax.jit, donate_argnames="carry")
def _advance(
    prior: Prior,
    keys: Key[Array, " C"],
    carry: tuple[Chain, Moments],
    start: Count,
    stop: Count,
    burn_in: Count,
    thin: Count,
) -> tuple[Chain, Moments]:
    """Iterations start … stop−1 of every chain; the bounds are traced, so one compilation serves all."""

    def step(t: Count, carry: tuple[Chain, Moments]) -> tuple[Chain, Moments]:
        state, moments = carry
        step_keys, look_keys = jax.vmap(lambda key: draws.split(draws.fold_in(key, t + 2), 2))(keys)
        state = jax.vmap(prior.chain_step)(step_keys, state)

        def look(moments: Moments) -> Moments:
            return moments.add(jax.vmap(prior.chain_visible)(look_keys, state))

        kept = (t >= burn_in) & ((t - burn_in) % thin == 0)
        return state, jax.lax.cond(kept, look, lambda m: m, moments)

    return jax.lax.fori_loop(start, stop, step, carry)
