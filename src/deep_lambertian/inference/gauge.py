r"""Moves along the linear ambiguity, which the four conditionals cross only in very small steps.

For any invertible G the images are the same after $a_i n_i \to G\, a_i n_i$ and $\ell_p \to G^{-\top} \ell_p$: only the
priors tell one from another. The conditionals change surface and lights in turn, each held by the other, the more
firmly the less noise there is. This move changes both at once, by a random G near the identity, and is accepted
by Metropolis and Hastings' rule. Lengths of normals stay, albedo takes what they would have changed by:

$$n \to |n|\, \frac{G n}{|G n|}, \qquad a \to a\, \frac{|G n|}{|n|}, \qquad
  \left|\frac{\partial(a', n')}{\partial(a, n)}\right| = \frac{\det G\; |n|^2}{|G n|^2}$$

Hidden units are summed out, by the prior's free energy, and must be drawn anew before they are used: this block comes
before theirs. (A deep belief net knows its free energy only up to a bound; the move is then approximate.)
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State, light_energy
from deep_lambertian.support import draws
from deep_lambertian.surface import Surface

# A proposal changes one element of G by a random amount of one of these sizes: how far one can go depends on the
# element, the image and the prior, and differs by orders of magnitude.
SIZES = (0.3, 0.1, 0.03, 0.01)


@dataclass(frozen=True)
class GaugeMoves:
    """The block: `count` proposals in a row."""

    count: int

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        surface, lights = state.surface, state.lights
        for move in range(self.count):
            surface, lights = gauge_move(draws.fold_in(key, move), params, surface, lights)
        return replace(state, surface=surface, lights=lights)


def transform(
    change: Float[Array, "3 3"], surface: Surface, lights: Float[Array, "P 3"]
) -> tuple[Surface, Float[Array, "P 3"], Float[Array, ""]]:
    """Surface and lights after G = (I − A/2)⁻¹(I + A/2), whose inverse is that of −A, and the log Jacobian."""
    eye = jnp.eye(3)
    up, down = eye + change / 2, eye - change / 2
    gauge, inverse = _inverse(down) @ up, _inverse(up) @ down
    moved = gauge @ surface.normals
    length, new_length = (jnp.maximum(jnp.sqrt(jnp.sum(n * n, axis=0)), 1e-12) for n in (surface.normals, moved))
    stretch = new_length / length
    log_det = jnp.log(jnp.abs(_det(gauge)))
    jacobian = jnp.sum(log_det - 2 * jnp.log(stretch)) - lights.shape[0] * log_det
    return Surface(surface.albedo * stretch, moved / stretch[None]), lights @ inverse, jacobian


def gauge_move(
    key: jax.Array, params: Params, surface: Surface, lights: Float[Array, "P 3"]
) -> tuple[Surface, Float[Array, "P 3"]]:
    """One proposal, accepted or not."""
    u = draws.uniform(key, (3,))
    element = jnp.minimum((9 * u[0]).astype(jnp.int32), 8)
    size = jnp.asarray(SIZES)[jnp.minimum((len(SIZES) * u[1]).astype(jnp.int32), len(SIZES) - 1)]
    step = size * draws.normal(key, (1,), stream=1)[0]
    change = jnp.where(jnp.arange(9) == element, step, 0.0).reshape(3, 3)

    def energy(surface: Surface, lights: jax.Array) -> jax.Array:
        return params.prior.free_energy(surface.pack()) + light_energy(params, lights)

    new_surface, new_lights, jacobian = transform(change, surface, lights)
    log_ratio = energy(surface, lights) - energy(new_surface, new_lights) + jacobian
    accept = jnp.log(u[2]) < log_ratio
    choose = lambda new, old: jnp.where(accept, new, old)
    return jax.tree.map(choose, new_surface, surface), choose(new_lights, lights)


def _det(m: jax.Array) -> jax.Array:
    return jnp.sum(m[0] * jnp.cross(m[1], m[2]))


def _inverse(m: jax.Array) -> jax.Array:
    """Of a 3×3 matrix, by cross products: LAPACK is called for one matrix at a time."""
    columns = jnp.stack([jnp.cross(m[1], m[2]), jnp.cross(m[2], m[0]), jnp.cross(m[0], m[1])], axis=1)
    return columns / _det(m)
