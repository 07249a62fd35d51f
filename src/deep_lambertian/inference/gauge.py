r"""Moves along the linear ambiguity, which the four conditionals cross only in very small steps.

For any invertible G the images are the same after $a_i n_i \to G\, a_i n_i$ and $\ell_p \to G^{-\top} \ell_p$: only the
priors tell one from another. The conditionals change surface and lights in turn, each held by the other, the more
firmly the less noise there is. This move changes both at once, by a random G near the identity, and is accepted
by Metropolis and Hastings' rule. Lengths of normals stay, albedo takes what they would have changed by:

$$n \to |n|\, \frac{G n}{|G n|}, \qquad a \to a\, \frac{|G n|}{|n|}, \qquad
  \left|\frac{\partial(a', n')}{\partial(a, n)}\right| = \frac{\det G\; |n|^2}{|G n|^2}$$

Hidden units are summed out, by the prior's free energy, and must be drawn anew before they are used: a sweep begins
with them. (A deep belief net knows its free energy only up to a bound; the move is then approximate.)
"""

import jax
import jax.numpy as jnp

from deep_lambertian.energy import Params, light_energy
from deep_lambertian.support import draws
from deep_lambertian.surface import pack

# A proposal changes one element of G by a random amount of one of these sizes: how far one can go depends on the
# element, the image and the prior, and differs by orders of magnitude.
SIZES = (0.3, 0.1, 0.03, 0.01)


def transform(
    change: jax.Array, albedo: jax.Array, normals: jax.Array, lights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Surface and lights after G = (I − A/2)⁻¹(I + A/2), whose inverse is that of −A, and the log Jacobian."""
    eye = jnp.eye(3)
    up, down = eye + change / 2, eye - change / 2
    gauge, inverse = _inverse(down) @ up, _inverse(up) @ down
    moved = gauge @ normals
    length, new_length = (jnp.maximum(jnp.sqrt(jnp.sum(n * n, axis=0)), 1e-12) for n in (normals, moved))
    stretch = new_length / length
    log_det = jnp.log(jnp.abs(_det(gauge)))
    jacobian = jnp.sum(log_det - 2 * jnp.log(stretch)) - lights.shape[0] * log_det
    return albedo * stretch, moved / stretch[None], lights @ inverse, jacobian


def gauge_move(
    key: jax.Array, params: Params, albedo: jax.Array, normals: jax.Array, lights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One proposal, accepted or not."""
    u = draws.uniform(key, (3,))
    element = jnp.minimum((9 * u[0]).astype(jnp.int32), 8)
    size = jnp.asarray(SIZES)[jnp.minimum((len(SIZES) * u[1]).astype(jnp.int32), len(SIZES) - 1)]
    step = size * draws.normal(key, (1,), stream=1)[0]
    change = jnp.where(jnp.arange(9) == element, step, 0.0).reshape(3, 3)

    def energy(albedo: jax.Array, normals: jax.Array, lights: jax.Array) -> jax.Array:
        return params.prior.free_energy(pack(albedo, normals)) + light_energy(params, lights)

    now = albedo, normals, lights
    *proposed, jacobian = transform(change, *now)
    log_ratio = energy(*now) - energy(*proposed) + jacobian
    accept = jnp.log(u[2]) < log_ratio
    albedo, normals, lights = (jnp.where(accept, new, old) for new, old in zip(proposed, now, strict=True))
    return albedo, normals, lights


def _det(m: jax.Array) -> jax.Array:
    return jnp.sum(m[0] * jnp.cross(m[1], m[2]))


def _inverse(m: jax.Array) -> jax.Array:
    """Of a 3×3 matrix, by cross products: LAPACK is called for one matrix at a time."""
    columns = jnp.stack([jnp.cross(m[1], m[2]), jnp.cross(m[2], m[0]), jnp.cross(m[0], m[1])], axis=1)
    return columns / _det(m)
