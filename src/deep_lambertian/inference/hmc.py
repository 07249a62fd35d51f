"""Hamiltonian Monte Carlo for the normals (conditional 4): every pixel is a three-dimensional chain of its own."""

import jax
import jax.numpy as jnp

from deep_lambertian.inference.conditionals import NormalsQuadratic


def potential(target: NormalsQuadratic, eta, n):
    a00, a01, a02, a11, a12, a22 = target.quadratic
    b0, b1, b2 = target.linear
    x, y, z = n
    q = 0.5 * (a00 * x * x + a11 * y * y + a22 * z * z) + a01 * x * y + a02 * x * z + a12 * y * z
    excess = x * x + y * y + z * z - 1
    return q - b0 * x - b1 * y - b2 * z + 0.5 * eta * excess * excess


def hmc(key, target, norm_stiffness, step_size, normals, *, leapfrogs, epochs, mass):
    grad = jax.vmap(
        jax.grad(lambda q, b, n: potential(NormalsQuadratic(q, b), norm_stiffness, n), argnums=2),
        (1, 1, 1),
        1,
    )
    force = lambda n: grad(target.quadratic, target.linear, n)

    def epoch(e, carry):
        n, acc = carry
        kp, ku = jax.random.split(jax.random.fold_in(key, e))
        p = jnp.sqrt(mass) * jax.random.normal(kp, n.shape)

        def leap(_, c):
            n, p = c
            p = p - 0.5 * step_size[None] * force(n)
            n = n + step_size[None] * p / mass
            p = p - 0.5 * step_size[None] * force(n)
            return n, p

        h0 = potential(target, norm_stiffness, n) + 0.5 * jnp.sum(p * p, 0) / mass
        n1, p1 = jax.lax.fori_loop(0, leapfrogs, leap, (n, p))
        h1 = potential(target, norm_stiffness, n1) + 0.5 * jnp.sum(p1 * p1, 0) / mass
        ok = jax.random.uniform(ku, h0.shape) < jnp.exp(h0 - h1)
        return jnp.where(ok[None], n1, n), acc + ok.astype(acc.dtype)

    n, acc = jax.lax.fori_loop(0, epochs, epoch, (normals, jnp.zeros(normals.shape[1])))
    return n, acc / epochs
