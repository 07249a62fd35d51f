"""What CONTRIBUTING.md says about adding to the house: each of its examples is done here, and works."""

import sys
from dataclasses import dataclass, replace
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deep_lambertian as dl
from deep_lambertian import cli
from deep_lambertian.energy import Observation, Params, State
from deep_lambertian.inference import chain, sampler
from deep_lambertian.priors import PRIORS, Prior
from deep_lambertian.priors.contract import check_array
from deep_lambertian.support import compiled, draws


# A prior: a dataclass of arrays with the methods of `priors.contract.Prior`, and a name in `priors.PRIORS`.
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Laplace(Prior):
    """Independent elements, each a Gaussian whose variance is itself exponential: E = Σ (x − μ)²/2v + v/s − …"""

    mean: jax.Array
    scale: jax.Array

    @property
    def size(self) -> int:
        return self.mean.shape[-1]

    @property
    def centre(self) -> jax.Array:
        return self.mean

    def sample_hidden(self, key: jax.Array, visible: jax.Array) -> jax.Array:
        """Variances given the elements: reciprocals of inverse Gaussian numbers (Michael, Schucany & Haas, 1976)."""
        centre = jnp.sqrt(self.scale / jnp.maximum((visible - self.mean) ** 2, 1e-12))
        y = draws.normal(key, visible.shape) ** 2 * centre / (2 * self.scale)
        low = centre * (1 + y - jnp.sqrt(y * y + 2 * y))
        u = draws.uniform(key, visible.shape, stream=1)
        return 1 / jnp.maximum(jnp.where(u < centre / (centre + low), low, centre**2 / jnp.maximum(low, 1e-12)), 1e-6)

    def mean_hidden(self, visible: jax.Array) -> jax.Array:
        return jnp.abs(visible - self.mean) * jnp.sqrt(1 / self.scale) + 1 / self.scale

    def top_down(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.mean, hidden

    def energy(self, visible: jax.Array, hidden: jax.Array) -> jax.Array:
        return jnp.sum(0.5 * (visible - self.mean) ** 2 / hidden + 0.5 * self.scale * hidden + 0.5 * jnp.log(hidden))

    def free_energy(self, visible: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sqrt(self.scale) * jnp.abs(visible - self.mean))

    def chain_start(self, key: jax.Array) -> jax.Array:
        return self.mean

    def chain_step(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return self.mean + draws.normal(key, state.shape, 2) * jnp.sqrt(self.sample_hidden(key, state))

    def chain_visible(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return state

    def validate(self, name: str = "laplace") -> None:
        check_array(f"{name}.mean", self.mean, (self.size,))
        check_array(f"{name}.scale", self.scale, (self.size,), positive=True)


def test_a_new_prior_infers_and_is_saved(small, tmp_path, monkeypatch):
    monkeypatch.setitem(PRIORS, "laplace", Laplace)
    centre = small.params.prior.centre
    prior = Laplace(centre, jnp.full_like(centre, 50.0))
    assert isinstance(prior, Prior)
    model = dl.DLN.build(prior, (8, 8), noise_var=0.01, preset="quick")
    model.save(tmp_path / "laplace.safetensors")
    again = dl.load_model(tmp_path / "laplace.safetensors")
    assert isinstance(again.params.prior, Laplace)
    images = small.sample(1, images=3).images[0]
    np.testing.assert_array_equal(model.infer(images).albedo, again.infer(images).albedo)


def test_the_new_prior_is_the_density_that_it_says():
    """Its hidden variables, drawn and forgotten, leave the Laplace distribution: mean |x − μ| = 1/√s."""
    prior = Laplace(jnp.zeros(4000), jnp.full(4000, 9.0))
    drawn = np.abs(np.asarray(prior.sample(jax.random.key(0), 60)))
    assert drawn.mean() == pytest.approx(1 / 3, abs=4 * drawn.std() / np.sqrt(drawn.size))


# A block: a pure function of key, parameters, data and state, a name at the end of BLOCKS, a place in `blocks_of`.
def doubt_the_brightest(key: jax.Array, params: Params, data: Observation, state: State) -> State:
    """A likelihood in which saturated pixels say nothing."""
    return replace(state, weights=jnp.where(data.images < 0.95, data.weights, 0.0))


def test_a_new_block_joins_the_sweep_and_leaves_the_others_draws(small, monkeypatch):
    usual = sampler.blocks_of

    def blocks_of(settings, known=frozenset()):
        return {"saturation": doubt_the_brightest, **usual(settings, known)}

    images = np.clip(small.sample(1, images=3, seed=2).images[0], 0, 0.9)
    before = small.infer(images)
    monkeypatch.setattr(compiled, "_programs", {})
    monkeypatch.setattr(chain, "blocks_of", blocks_of)
    monkeypatch.setattr(sampler, "BLOCKS", (*sampler.BLOCKS, "saturation"))
    monkeypatch.setattr(compiled, "_code", lambda: "another version")
    np.testing.assert_allclose(small.infer(images).albedo, before.albedo, rtol=1e-4)  # nothing is saturated
    images[:, 0, 0] = 1.0
    masked = np.ones((8, 8))
    masked[0, 0] = 0
    with_block = small.infer(images)
    monkeypatch.undo()
    monkeypatch.setattr(compiled, "_programs", {})
    np.testing.assert_allclose(with_block.albedo, small.infer(images, mask=masked).albedo, rtol=1e-3)


# A command: a module of `cli` with a docstring, EXAMPLE, add_arguments and run, and its name in COMMANDS.
def test_a_new_command_is_listed_and_runs(monkeypatch, capsys):
    module = ModuleType("deep_lambertian.cli.hello", "Say hello.")
    module.EXAMPLE = "example: dln hello --name you"
    module.add_arguments = lambda parser: parser.add_argument("--name", default="you")
    module.run = lambda options: print(f"hello, {options.name}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli, "COMMANDS", (*cli.COMMANDS, "hello"))
    assert cli.main(["hello", "--name", "light"]) == 0
    assert capsys.readouterr().out == "hello, light\n"
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "say hello" in capsys.readouterr().out
