"""Worlds with known values are learned, in seconds; real tasks at the smallest size that shows learning."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import program

from jaxrl_long.envs import probes
from jaxrl_long.envs.classic import CartPole, GridWorld
from jaxrl_long.launch import init_state, make_chunk
from jaxrl_long.learning.moments import normalize
from jaxrl_long.runtime.evaluation import make_evaluator
from jaxrl_long.trainer import Program, TrainState

SPEED: dict[str, Any] = {"learning_rate": 3e-3, "schedule": "linear", "minibatches": 4, "epochs": 4, "policy_layers": (64, 64), "value_layers": (64, 64)}


def learned(simulator, updates: int, seed: int = 0, **changes) -> tuple[TrainState, Program]:
    plan = program(simulator, **{"num_envs": 32, "rollout_length": 16, "total_updates": updates, **SPEED, **changes})
    state, _, _ = make_chunk(plan)(init_state(plan, seed), jnp.int32(updates))
    return state, plan


def value(state: TrainState, plan, obs: list[float]) -> float:
    seen = normalize(state.learner.moments, jnp.array([obs], jnp.float32), 10.0)
    out = plan.algorithm.critic.apply(state.learner.params["value"], seen)[0, 0]
    return float(out * state.learner.scale.std + state.learner.scale.mean)


@pytest.mark.slow
def test_a_constant_reward_of_one_step_episodes_is_worth_one():
    state, plan = learned(probes.ConstantReward(), 60)
    assert value(state, plan, [0.0]) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_an_endless_reward_of_one_is_worth_the_lookahead_though_every_episode_is_cut():
    # Cut every 10 steps with a bootstrap: V = 1 / (1 - 0.9) = 10. Without it 6.5 at the start and 1 at the end.
    class Blind(probes.CountEnv):
        def _observe(self, t):
            return jnp.zeros(1)

    state, plan = learned(Blind(), 200, restart_every=10, stagger=True, discount=0.9)
    assert value(state, plan, [0.0]) == pytest.approx(10.0, abs=0.5)


@pytest.mark.slow
def test_a_death_is_worth_nothing_after_it():
    # CountEnv that dies at 3, discount 0.5: V(0) = 1 + 0.5 + 0.25 = 1.75, V(2) = 1.
    state, plan = learned(probes.CountEnv(die_at=3), 200, discount=0.5)
    assert value(state, plan, [0.0]) == pytest.approx(1.75, abs=0.1)
    assert value(state, plan, [2.0]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "best"), [(probes.ChosenReward, 1.0), (probes.MatchedReward, 1.0)])
def test_the_rewarded_action_is_found(world, best):
    state, plan = learned(world(), 100)
    result = make_evaluator(plan, 32).window(state.learner, 0, 1)
    assert result.window_return == pytest.approx(best, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_is_solved(seed):
    state, plan = learned(CartPole(), 120, seed, num_envs=64, rollout_length=32, horizon=500, discount=0.99, learning_rate=1e-3)
    assert make_evaluator(plan, 32).window(state.learner, 0, 500).window_return >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gridworld_is_solved(seed):
    state, plan = learned(GridWorld(), 240, seed, num_envs=64, rollout_length=32, horizon=100, discount=0.95, entropy=0.03)
    result = make_evaluator(plan, 32).window(state.learner, 0, 100)
    assert result.succeeded.mean() >= 0.95


@pytest.mark.slow
def test_scaling_all_rewards_changes_what_is_learned_by_rounding_only():
    class Scaled(probes.ChosenReward):
        def step(self, state, action, key):
            step = super().step(state, action, key)
            return replace(step, reward=step.reward * 1000)

    choices = []
    for world in (probes.ChosenReward(), Scaled()):
        state, plan = learned(world, 50)
        obs = jnp.zeros((1, plan.vector.simulator.obs_size))
        choices.append(np.asarray(plan.algorithm.act(state.learner, obs, (), jnp.zeros(1, bool), None).choice))
    np.testing.assert_allclose(np.tanh(choices[0]), np.tanh(choices[1]), atol=0.05)
    assert jax.tree.all(jax.tree.map(lambda leaf: bool(np.isfinite(leaf).all()), choices))
