"""PPO's options, each on the smallest program that shows it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import assert_bit_equal, largest_difference, program, trained

from jaxrl_long.algorithms.ppo import PPO
from jaxrl_long.algorithms.protocol import Rollout
from jaxrl_long.envs.probes import ChosenReward, CountEnv
from jaxrl_long.launch import empty_rollout, init_state
from jaxrl_long.replay.sampling import View


def improved(progress: float, **changes):
    """The learner before and after one update of a step in each of eight environments, at this share of the run."""
    plan = program(ChosenReward(continuous=True), **changes)
    state = init_state(plan, 0)
    # The critic says 0, in a unit whose zero is 2: V = 2.
    learner = replace(state.learner, scale=replace(state.learner.scale, mean=jnp.float32(2)))
    drawn = plan.algorithm.act(learner, state.env.obs, (), state.env.age == 0, jax.random.split(jax.random.key(2), 8))
    row: Rollout = empty_rollout(plan, learner, state.env, state.memory)
    rollout = replace(row, choice=drawn.choice[None], log_prob=drawn.log_prob[None], reward=jnp.arange(8.0)[None])
    after, _, report = plan.algorithm.improve(learner, rollout, View(state.replay, plan.layout), jax.random.key(1), jnp.float32(progress), None)
    return plan, learner, after, report


def test_the_policy_handed_over_is_the_moving_average_and_the_latest_one_explores():
    plan, before, after, _ = improved(0.0, average=0.75, minibatches=2)
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, before.params["policy"], after.params["policy"])
    assert largest_difference(after.averaged, expected) < 1e-6
    assert largest_difference(after.averaged, after.params["policy"]) > 1e-5
    obs, restarted = jnp.ones((3, 1)), jnp.zeros(3, bool)
    decided = plan.algorithm.act(after, obs, (), restarted, None)
    swapped = replace(after, params={**after.params, "policy": after.averaged}, averaged=after.params["policy"])
    assert_bit_equal(decided.choice, program(ChosenReward(continuous=True)).algorithm.act(swapped, obs, (), restarted, None).choice)
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = plan.algorithm.act(after, obs, (), restarted, keys)
    assert_bit_equal(drawn.choice, plan.algorithm.act(replace(after, averaged=before.averaged), obs, (), restarted, keys).choice)


def test_without_an_average_nothing_is_kept():
    _, _, after, _ = improved(0.0)
    assert after.averaged == ()


def test_a_linear_entropy_bonus_is_gone_at_the_end():
    at_end = improved(1.0, entropy=0.5, entropy_schedule="linear", schedule="constant")[2]
    none = improved(1.0, entropy=0.0, schedule="constant")[2]
    halfway = improved(0.5, entropy=0.5, entropy_schedule="linear", schedule="constant")[2]
    half = improved(0.5, entropy=0.25, schedule="constant")[2]
    assert_bit_equal(at_end.params, none.params)
    assert_bit_equal(halfway.params, half.params)
    assert largest_difference(half.params, none.params) > 1e-5


@pytest.mark.parametrize(("settings", "progress", "lookahead"), [
    ({"discount": 0.99}, 0.7, 100.0),
    ({"discount": 0.5, "lookahead": 100.0}, 0.7, 100.0),
    ({"lookahead": 100.0, "lookahead_end": 10_000.0}, 0.5, 1000.0),
    ({"discount": 0.99, "lookahead_end": 10_000.0}, 1.0, 10_000.0),
])  # fmt: skip
def test_the_lookahead_is_given_or_grows(settings, progress, lookahead):
    algorithm = program(CountEnv(), **settings).algorithm
    assert isinstance(algorithm, PPO)
    np.testing.assert_allclose(1 / (1 - float(algorithm.discount(jnp.float32(progress)))), lookahead, rtol=2e-3)


def test_a_growing_lookahead_moves_what_the_critic_is_told():
    # Rewards 0 to 7, then V = 2, and nothing ends: 3.5 + 0.5 * 2 at the start, 3.5 + 0.999 * 2 at the end.
    for progress, target in ((0.0, 4.5), (1.0, 5.498)):
        _, _, after, _ = improved(progress, lookahead=2.0, lookahead_end=1000.0)
        assert float(after.scale.mean) == pytest.approx(target)


@pytest.mark.slow
def test_failing_costs_so_many_steps_rewards():
    # A world that dies at once and pays 1: V = 1, less the 3 mean rewards that failing costs.
    for cost, worth in ((0.0, 1.0), (3.0, -2.0)):
        sizes = {"num_envs": 32, "rollout_length": 16, "total_updates": 60, "minibatches": 4, "epochs": 4, "value_layers": (64, 64)}
        plan = program(CountEnv(die_at=1), learning_rate=3e-3, failure_cost=cost, **sizes)
        state, _, _ = trained(plan, 60)
        assert isinstance(plan.algorithm, PPO)
        out = plan.algorithm._critic_of(state.learner)(jnp.zeros((1, 1)))
        assert float(out[0]) == pytest.approx(worth, abs=0.1)
