"""Small programs that tests run, on worlds whose right answers are known."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long.config import AlgorithmSettings, EnvSettings, ReplaySettings, Settings
from jaxrl_long.envs.vector import VectorEnv
from jaxrl_long.launch import init_state, make_chunk, read
from jaxrl_long.runtime import assemble
from jaxrl_long.trainer import Program, TrainState

SMALL = AlgorithmSettings(policy_layers=(8,), value_layers=(8,), minibatches=2, epochs=2)
KINDS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "sac": {"name": "sac", "capacity": 40, "begin": 16, "batch": 8, "update_ratio": 0.1},
    "sac, by priority, n steps": {"name": "sac", "capacity": 40, "begin": 16, "batch": 8, "update_ratio": 0.1, "prioritise": 0.6, "n_step": 3, "codec": "int8"},
}
"""Every kind of learner, for the tests that each of them must pass."""
REPLAY = ("codec", "begin", "prioritise", "importance", "hindsight", "hindsight_discount")


def program(simulator: Any, *, num_envs: int = 8, rollout_length: int = 4, devices: int = 1, horizon: int = 1000, **changes: Any) -> Program:
    """A program on `simulator`; settings of the algorithm and fields of Program by name."""
    env = EnvSettings(stack=changes.pop("stack", 1))
    known = {name: changes.pop(name) for name in list(changes) if hasattr(SMALL, name)}
    vector = {name: changes.pop(name) for name in list(changes) if name in ("restart_every", "restart_random", "stagger")}
    sizes = {"num_envs": num_envs, "rollout_length": rollout_length, "horizon": horizon}
    rows = changes.pop("capacity", rollout_length * (1 + known.get("reuse", 0)))
    replay = ReplaySettings(capacity=rows * num_envs, **{name: changes.pop(name) for name in REPLAY if name in changes})
    settings = Settings(env=env, algorithm=replace(SMALL, **known), replay=replay, **sizes)
    made = Program(
        vector=VectorEnv(simulator, horizon, **vector),
        algorithm=assemble.algorithm(settings, simulator),
        mesh=assemble.mesh(devices),
        num_envs=num_envs,
        rollout_length=rollout_length,
        block=changes.pop("block", num_envs // devices),
        total_updates=changes.pop("total_updates", 10),
        layout=assemble.layout(settings),
        pool=changes.pop("pool", 4),
        renew=changes.pop("renew", 1),
        curriculum=changes.pop("curriculum", None),
    )
    assert not changes, f"no such settings: {', '.join(changes)}"
    return made


def trained(program: Program, updates: int, seed: int = 0) -> tuple[TrainState, dict[str, Any], Any]:
    """State, numbers and fault after one chunk."""
    state, totals, fault = make_chunk(program)(init_state(program, seed), jnp.int32(updates))
    return state, read(totals, updates), fault


def arrays(tree: Any) -> list[np.ndarray]:
    """Every leaf as NumPy, keys as their data."""
    return [np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf) for leaf in jax.tree.leaves(tree)]


def assert_bit_equal(one: Any, other: Any) -> None:
    """Every leaf is the same to the last bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


def largest_difference(one: Any, other: Any) -> float:
    """Over all leaves."""
    return max(float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0)) for a, b in zip(arrays(one), arrays(other), strict=True))
