r"""Conditionals 2 and 4 at once: the whole surface, lights and the prior's Gaussian factors integrated out.

That leaves of Eq. 6, for the surface x = [a, vec(N)] with its m = a n, given the labels of `shadows`,

$$E(\mathbf x) = \tfrac12 (\mathbf x - \boldsymbol\mu)^\top \Sigma^{-1} (\mathbf x - \boldsymbol\mu)
  + \tfrac\eta2 \sum_i (\mathbf n_i^\top \mathbf n_i - 1)^2 + \sum_p \Bigl[ \min_{\boldsymbol\ell} E_p(\mathbf x,
  \boldsymbol\ell) + \tfrac12 \log |\tilde{\boldsymbol\Lambda}_p| \Bigr], \qquad
  \Sigma = \mathrm{diag}\,\sigma^2 + \mathbf F \mathbf F^\top$$

with the precision of conditional 3. Pixel by pixel, each held by the factors and lights that the others have made, a
chain takes thousands of sweeps to find its way; here all pixels move together. E is nearly quadratic. Its Hessian at
the mode, as Gauss and Newton have it, is made of 4×4 blocks at the pixels, and of products of few columns: those of the
prior's factors and, of each image, three of its light. Woodbury's formula gives the inverse in the same form:

$$\mathbf H = \mathbf C - \mathbf W \mathbf W^\top + \Sigma^{-1}, \qquad
  \mathbf H^{-1} = \mathbf R \mathbf R^\top + \mathbf Y \mathbf Y^\top, \qquad
  (\mathbf R \mathbf R^\top)^{-1} = \mathbf C + \mathrm{diag}\,\sigma^{-2}$$

With H as mass, Hamiltonian dynamics is split (Shahbaba, Lan, Johnson & Neal, "Split Hamiltonian Monte Carlo", 2014)
into that of the Gaussian about the mode c, which is a rotation and has no error,

$$\mathbf x - \mathbf c \to (\mathbf x - \mathbf c) \cos h + \dot{\mathbf x} \sin h, \qquad
  \dot{\mathbf x} \to \dot{\mathbf x} \cos h - (\mathbf x - \mathbf c) \sin h$$

and kicks by what the Gaussian lacks, $\dot{\mathbf x} \to \dot{\mathbf x} - h\,(\mathbf H^{-1}\nabla E -
(\mathbf x - \mathbf c))$. What the kicks miss, Metropolis and Hastings' rule makes good. Lights must be drawn
afterwards, before anything that uses them: their block follows this one.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from deep_lambertian.energy import Observation, Params, State, light_energy, norm_energy
from deep_lambertian.geometry import cholesky, invert_lower, multiply
from deep_lambertian.inference.lights import light_conditional
from deep_lambertian.inference.shadows import ShadowLabels
from deep_lambertian.support import draws
from deep_lambertian.surface import Leaf, Surface, data_energy, on_sphere

STEPS, COLD = 14, 5  # of Gauss and Newton's to the mode, and how many of them are made without annealing
LEAST = 0.3  # of a pixel's weight in the curvature: what is dark now may be lit in some draws
UNLIKE = 0.15  # trajectories differ in length by up to this share, so that none is a whole turn for long
X = Float[Array, "4 V"]  # a surface, or a direction, as rows a, n_x, n_y, n_z
Lights = Float[Array, "P 3"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Near:
    """N(centre, H⁻¹), with the matrices of the formula above."""

    centre: Leaf  # (4, V)
    local: Leaf  # C (4, 4, V)
    lights: Leaf  # W (4V, 3P)
    root: Leaf  # R (4, 4, V)
    common: Leaf  # Y (4V, K + 3P)

    def inverse(self, x: X) -> X:
        """H⁻¹x."""
        alone = multiply(self.root, multiply(jnp.swapaxes(self.root, 0, 1), x))
        return alone + (self.common @ (x.reshape(-1) @ self.common)).reshape(x.shape)

    def of_images(self, x: X) -> X:
        """(C − WWᵀ)x, the curvature of all but the prior."""
        return multiply(self.local, x) - (self.lights @ (x.reshape(-1) @ self.lights)).reshape(x.shape)

    def draw(self, key: jax.Array) -> X:
        """A draw from N(0, H⁻¹)."""
        alone = multiply(self.root, draws.normal(key, self.centre.shape))
        shared = self.common @ draws.normal(key, (self.common.shape[1],), stream=1)
        return alone + shared.reshape(self.centre.shape)

    def start(self, key: jax.Array) -> X:
        """A draw about the centre, with normals of the lengths that they have there: a straight step leaves the sphere,
        and who starts off it is long in finding back.
        """
        x = self.centre + self.draw(key)
        length, own = (jnp.sqrt(jnp.sum(each[1:] ** 2, axis=0)) for each in (self.centre, x))
        return x.at[1:].multiply((length / jnp.maximum(own, 1e-6))[None])


def as_rows(surface: Surface) -> X:
    return jnp.concatenate([surface.albedo[None], surface.normals])


def image_energy(params: Params, data: Observation, x: X, lights: Lights | None) -> tuple[Float[Array, ""], X]:
    """All of E(x) but the prior's part, and its gradient; with `lights`, given those."""
    albedo, normals = x[0], x[1:]
    scaled = albedo[None] * normals
    per_noise = data.weights / params.noise_var[None]
    centre, energy, pull = lights, norm_energy(normals, params.norm_stiffness), jnp.zeros_like(scaled)
    if centre is None:
        centre, factor = light_conditional(params, data, scaled)
        inverse = invert_lower(jnp.moveaxis(factor, 0, -1))  # (3, 3, P)
        energy += light_energy(params, centre) + jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)))
        precise = jnp.sum(inverse[:, :, None] * inverse[:, None], axis=0)  # the covariance of each light
        pull = jnp.einsum("ijp,jv,pv->iv", precise, scaled, per_noise)
    predicted = centre @ scaled
    energy += data_energy(data.images, predicted, data.weights, params.noise_var)
    slope = pull - centre.T @ (per_noise * (data.images - predicted))  # by m
    long = jnp.sum(normals * normals, axis=0) - 1
    by_normals = albedo[None] * slope + 2 * params.norm_stiffness * long[None] * normals
    return energy, jnp.concatenate([jnp.sum(slope * normals, axis=0)[None], by_normals])


def gaussian_at(params: Params, data: Observation, x: X, lights: Lights | None) -> Near:
    """The Gaussian about x with the curvature there."""
    _, variance, factors = params.prior.gaussian(params.prior.mean_hidden(x.reshape(-1)))
    count, pixels = factors.shape[1], x.shape[1]
    scaled = x[:1] * x[1:]
    per_noise = data.weights / params.noise_var[None]
    light, lower = (lights, None) if lights is not None else light_conditional(params, data, scaled)
    # By a and n of every pixel, the change of what is predicted (P, 4, V).
    turned = jnp.broadcast_to(x[0][None, None] * light[:, :, None], (len(light), *scaled.shape))
    slope = jnp.concatenate([(light @ x[1:])[:, None], turned], axis=1)
    local = jnp.einsum("pv,piv,pjv->ijv", per_noise, slope, slope)
    local = local.at[1:, 1:].add(4 * params.norm_stiffness * x[1:, None] * x[None, 1:])
    diagonal = jnp.eye(4)[:, :, None] / variance.reshape(4, 1, pixels)
    root = jnp.swapaxes(invert_lower(cholesky(local + diagonal)), 0, 1)
    columns = jnp.zeros((4 * pixels, 0))
    if lower is not None:
        inverse = invert_lower(jnp.moveaxis(lower, 0, -1))
        columns = jnp.einsum("pv,piv,jv,kjp->ivpk", per_noise, slope, scaled, inverse).reshape(4 * pixels, -1)
    # H is what is left of the precision of x, z and u together, z the prior's factors and u the lights, when z and u
    # are integrated out: Y has the covariance of x by way of these.
    both = jnp.concatenate([factors / variance[:, None], -columns], axis=1).reshape(4, pixels, -1)
    each = jnp.einsum("ijv,jvk->ivk", jnp.einsum("ikv,jkv->ijv", root, root), both)
    bent = jnp.einsum("ijv,jvk->ivk", local, each[:, :, :count])
    flat, bent = each.reshape(4 * pixels, -1), bent.reshape(4 * pixels, -1)
    corner = both.reshape(4 * pixels, -1)[:, count:]
    precision = jnp.eye(flat.shape[1])  # of z and u, written so that nothing large cancels
    precision = precision.at[:count, :count].add(factors.T @ bent)
    precision = precision.at[count:, count:].add(-corner.T @ flat[:, count:])
    across = -corner.T @ flat[:, :count]
    precision = precision.at[count:, :count].set(across).at[:count, count:].set(across.T)
    common = lax.linalg.triangular_solve(
        jnp.linalg.cholesky(precision), flat, left_side=False, lower=True, transpose_a=True
    )
    return Near(x, local, columns, root, common)


def find_near(
    params: Params, data: Observation, lights: Lights | None, shadow: ShadowLabels | None, anneal: float
) -> tuple[Near, Float[Array, "P V"], Float[Array, "P 3"]]:
    """The Gaussian at the mode of the surface, the weights that its labels expect there, and their proportions.

    Gauss and Newton's steps go there. Noise falls from `anneal` times its own, so that the prior has its say before
    details have theirs.
    """
    start = Surface.unpack(params.prior.centre)
    begin = as_rows(replace(start, normals=on_sphere(start.normals)))
    options = shadow or ShadowLabels()
    lit = data.weights if shadow is None else jnp.where(data.images >= shadow.unlit, data.weights, 0.0)

    def step(t: jax.Array, found: tuple[Near, jax.Array, jax.Array]) -> tuple[Near, jax.Array, jax.Array]:
        last, weights, proportions = found
        x = last.centre
        temperature = jnp.power(anneal, jnp.maximum(1 - t.astype(jnp.float32) / (STEPS - COLD), 0.0))
        warm = replace(params, noise_var=params.noise_var * temperature)
        believed = Observation(data.images, weights)
        here = gaussian_at(warm, Observation(data.images, jnp.maximum(weights, LEAST * lit)), x, lights)
        mean, _, _ = params.prior.gaussian(params.prior.mean_hidden(x.reshape(-1)))
        mean = mean.reshape(x.shape)
        _, gradient = image_energy(warm, believed, x, lights)
        x = mean - here.inverse(gradient - here.of_images(x - mean))  # H⁻¹∇E, as the prior's part of it is x − mean
        length = jnp.sqrt(jnp.sum(x[1:] * x[1:], axis=0))
        x = x.at[1:].multiply((jnp.clip(length, 0.9, 1.1) / jnp.maximum(length, 1e-6))[None])
        here = replace(here, centre=x)
        if shadow is None:
            return here, weights, proportions
        scaled = x[:1] * x[1:]
        light = light_conditional(warm, believed, scaled)[0] if lights is None else lights
        shares = jax.nn.softmax(options.logits(warm, data, light @ scaled, proportions), axis=0)
        counts = jnp.sum(jnp.where((data.weights > 0)[None], shares, 0.0), axis=2).T
        counts = counts + jnp.asarray([options.prior], jnp.float32)
        return here, data.weights * shares[0], counts / jnp.sum(counts, axis=1, keepdims=True)

    shapes = jax.eval_shape(lambda: gaussian_at(params, data, begin, lights))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.fori_loop(0, STEPS, step, (replace(nothing, centre=begin), lit, options.expected(len(data.images))))


@dataclass(frozen=True)
class DrawSurface:
    """The block: a trajectory of `leapfrogs` kicks, the state's step size apart in radians."""

    leapfrogs: int
    known_lights: bool = False

    def __call__(self, key: jax.Array, params: Params, data: Observation, state: State) -> State:
        near, believed = data.near, Observation(data.images, state.weights)
        lights = state.lights if self.known_lights else None
        mean, variance, factors = params.prior.gaussian(state.hidden)
        mean, precision = mean.reshape(near.centre.shape), 1 / variance
        scale = 1 + jnp.sum(factors**2 * precision[:, None], axis=0)
        u = draws.uniform(key, (2,), stream=2)
        h = state.step_size[0] * (1 + UNLIKE * (2 * u[0] - 1))
        half = jnp.cos(h / 2), jnp.sin(h / 2)

        def energy(x: X, speed: X) -> jax.Array:
            """E(x) + ½ ẋᵀHẋ: both have the prior's quadratic form."""
            both = jnp.stack([(x - mean).reshape(-1), speed.reshape(-1)])
            shared = (both * precision[None]) @ factors
            prior = jnp.sum(both * both * precision[None]) - jnp.sum(shared * shared / scale[None])
            return image_energy(params, believed, x, lights)[0] + 0.5 * (prior + jnp.sum(speed * near.of_images(speed)))

        def rotate(x: X, speed: X) -> tuple[X, X]:
            offset = x - near.centre
            return near.centre + half[0] * offset + half[1] * speed, half[0] * speed - half[1] * offset

        def step(_: jax.Array, at: tuple[X, X]) -> tuple[X, X]:
            x, speed = rotate(*at)
            offset = x - mean
            rest = image_energy(params, believed, x, lights)[1] - near.of_images(offset)
            return rotate(x, speed - h * (near.centre - mean + near.inverse(rest)))

        start = as_rows(state.surface), near.draw(key)
        x, speed = lax.fori_loop(0, self.leapfrogs, step, start)
        change = energy(x, speed) - energy(*start)
        probability = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(-change, 0.0)), 0.0)
        x = jnp.where(u[1] < probability, x, start[0])
        return replace(state, surface=Surface(x[0], x[1:]), acceptance=jnp.full_like(state.acceptance, probability))
