"""Every registered environment, on every backend that it supports, keeps the Simulator's contract."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.config import EnvSettings
from jaxrl_long.envs import probes, registry
from jaxrl_long.envs.simulator import Discrete, SimStep, Simulator
from jaxrl_long.rules import environments
from jaxrl_long.typing import Array

TASKS = [(name, backend) for name, facts in environments().items() for backend in facts.backends or ("auto",)]
QUICK = {"cartpole", "gridworld", "bitflip", "fast", "inverted_pendulum", "hopper"}
PROBES = [
    probes.CountEnv,
    probes.RandomStart,
    probes.BreakAt,
    probes.HugeReward,
    probes.ConstantReward,
    probes.SeenReward,
    probes.DelayedReward,
    probes.ChosenReward,
    probes.MatchedReward,
    probes.LateReward,
    probes.RareTrap,
]
N, STEPS = 3, 4


def is_quick(name: str, backend: str) -> bool:
    """Whether the case compiles in seconds. The others are slow, each compiles a physics step of its own."""
    return name in QUICK and backend in ("auto", "spring")


def cases() -> list[Any]:
    return [pytest.param(*task, id="-".join(task), marks=[] if is_quick(*task) else pytest.mark.slow) for task in TASKS]


def draw(action: Any, key: Array) -> Array:
    """A random action."""
    if isinstance(action, Discrete):
        return jax.random.randint(key, (), 0, action.count)
    return jax.random.uniform(key, (action.size,), minval=-1.0, maxval=1.0)


def keep_contract(simulator: Simulator) -> None:
    """Reset and step N copies under jit, and check shapes, dtypes and numbers."""

    def step(before: SimStep, key: Array) -> tuple[SimStep, SimStep]:
        action_key, step_key = jax.random.split(key)
        after = simulator.step(before.state, draw(simulator.action, action_key), step_key)
        return after, after

    def roll(key: Array) -> tuple[SimStep, SimStep]:
        # `scan` itself refuses a step whose state, observation, reward or end differs from reset's in structure, shape or dtype.
        start = simulator.reset(key)
        return start, jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]

    start, after = jax.jit(jax.vmap(roll))(jax.random.split(jax.random.key(0), N))
    sizes = simulator.obs_size if isinstance(simulator.obs_size, dict) else {"": simulator.obs_size}
    for obs, size in zip(jax.tree.leaves(start.obs), sizes.values(), strict=True):
        assert (obs.shape, obs.dtype) == ((N, size), jnp.float32)
    assert (start.reward.shape, start.reward.dtype) == ((N,), jnp.float32)
    assert (start.terminated.shape, start.terminated.dtype) == ((N,), bool)
    np.testing.assert_array_equal(start.reward, 0.0)
    assert not start.terminated.any()
    for leaf in jax.tree.leaves((start, after)):
        assert np.isfinite(leaf).all()
    assert simulator.dt > 0


@pytest.mark.parametrize(("name", "backend"), cases())
def test_every_registered_environment_resets_and_steps_under_jit_with_finite_results(name: str, backend: str):
    keep_contract(registry.make(EnvSettings(name=name, backend=backend)))


@pytest.mark.parametrize("kind", PROBES, ids=lambda kind: kind.__name__)
def test_every_probe_world_resets_and_steps_under_jit_with_finite_results(kind: type):
    keep_contract(kind())
