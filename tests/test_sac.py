"""Soft actor-critic on worlds with known values."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import arrays, program, trained

from jaxrl_long.algorithms.sac import SAC
from jaxrl_long.envs import probes
from jaxrl_long.envs.classic import CartPole
from jaxrl_long.launch import init_state, make_chunk
from jaxrl_long.learning.moments import normalize
from jaxrl_long.runtime.evaluation import make_evaluator

SIZES: dict[str, Any] = {"name": "sac", "num_envs": 16, "rollout_length": 4, "capacity": 400, "begin": 256, "batch": 64, "update_ratio": 0.125,
                         "learning_rate": 3e-3, "schedule": "constant", "policy_layers": (64, 64), "value_layers": (64, 64), "max_grad_norm": 100.0,
                         "target_rate": 0.02}  # fmt: skip


def learned(simulator: Any, updates: int, seed: int = 0, **changes: Any) -> tuple[Any, Any]:
    """State and program after some updates."""
    plan = program(simulator, **{"total_updates": updates, **SIZES, **changes})
    state, _, _ = make_chunk(plan)(init_state(plan, seed), jnp.int32(updates))
    return state, plan


def value(state: Any, plan: Any, obs: list[float], action: float) -> float:
    """What the critics say of an action, in reward units."""
    algorithm = plan.algorithm
    assert isinstance(algorithm, SAC)
    seen = normalize(state.learner.moments, jnp.array([obs], jnp.float32), 10.0)
    out = algorithm._values(state.learner.params["critic"], seen, None if algorithm.discrete else jnp.array([[action]]))
    values = out[:, 0, int(action)] if algorithm.discrete else out[:, 0, 0]
    return float(values.min() * algorithm._reward_unit(state.learner))


def test_nothing_is_learnt_before_the_ring_holds_enough():
    # 16 environments x 4 steps: 64 transitions an update, and learning begins at 256 of them, in update 4.
    plan = program(probes.RandomStart(), **SIZES)
    before = arrays(init_state(plan, 0).learner.params)
    waiting, report, _ = trained(plan, 3)
    assert all(np.array_equal(one, other) for one, other in zip(before, arrays(waiting.learner.params), strict=True))
    assert report["grad_norm"] == 0.0
    assert trained(plan, 4)[1]["grad_norm"] > 0.0


def test_an_update_takes_as_many_gradient_steps_as_its_environment_steps_ask_for():
    # 0.125 for each of 16 x 4 environment steps: 8.
    assert program(probes.RandomStart(), **SIZES).algorithm.gradient_steps == 8


def test_a_reward_of_1e30_leaves_parameters_finite():
    state, report, _ = trained(program(probes.HugeReward(age=3), **{**SIZES, "begin": 16}), 6)
    assert all(np.isfinite(leaf).all() for leaf in arrays((state.learner.params, state.learner.optimizer, state.learner.target)))
    assert all(np.isfinite(number) for number in report.values())


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_a_death_is_worth_nothing_after_it(steps):
    # CountEnv that dies at 3, discount 0.5: Q(0) = 1 + 0.5 + 0.25 = 1.75, Q(2) = 1; the temperature is held near 0.
    state, plan = learned(probes.CountEnv(die_at=3), 600, discount=0.5, n_step=steps, temperature=1e-6, target_entropy=-100.0)
    assert value(state, plan, [0.0], 0.0) == pytest.approx(1.75, abs=0.15)
    assert value(state, plan, [2.0], 0.0) == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_an_endless_reward_of_one_is_worth_the_lookahead_though_every_episode_is_cut():
    # Cut every 10 steps, with a bootstrap from what the cut hid: Q = 1 / (1 - 0.9) = 10.
    class Blind(probes.CountEnv):
        def _observe(self, t: Any) -> Any:
            return jnp.zeros(1)

    state, plan = learned(Blind(), 800, restart_every=10, stagger=True, discount=0.9, temperature=1e-6, target_entropy=-100.0)
    assert value(state, plan, [0.0], 0.0) == pytest.approx(10.0, abs=0.7)


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("prioritise", [0.0, 0.6])
def test_the_rewarded_action_is_found(continuous, prioritise):
    state, plan = learned(probes.ChosenReward(continuous=continuous), 300, prioritise=prioritise, discount=0.5)
    result = make_evaluator(plan, 32).window(state.learner, 0, 1)
    assert result.window_return == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_cartpole_is_solved():
    state, plan = learned(CartPole(), 1500, num_envs=16, horizon=500, discount=0.99, capacity=2000, learning_rate=1e-3, update_ratio=0.125)
    assert make_evaluator(plan, 32).window(state.learner, 0, 500).window_return >= 475


def test_no_batch_of_matrices_is_factorised_at_the_start_whose_threads_could_wait_for_one_another_on_two_devices():
    algorithm = program(probes.RandomStart(), **SIZES).algorithm
    text = jax.jit(lambda key: algorithm.init(key, jnp.zeros(3))).lower(jax.random.key(0)).as_text()
    shapes = re.findall(r"custom_call @lapack_\w*geqrf\w*\(.*?\) .*?\(tensor<([0-9x]+)xf32>\)", text)
    assert len(shapes) > 3
    assert {shape.count("x") for shape in shapes} == {1}, shapes
