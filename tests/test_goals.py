"""Worlds with goals, and learning from goals that were reached by chance."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commandline import train
from worlds import program, trained

from jaxrl_long.envs.goals import BitFlip
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import init_state, make_chunk
from jaxrl_long.replay.hindsight import relabelled
from jaxrl_long.replay.sampling import View
from jaxrl_long.runtime.evaluation import make_evaluator

BITS = 10
SAC: dict[str, Any] = {"name": "sac", "num_envs": 16, "rollout_length": 4, "horizon": BITS, "batch": 64}


def test_a_bit_is_flipped_or_none_and_all_equal_is_success():
    world = BitFlip(3)
    start = world.reset(jax.random.key(0))
    state = start.state.replace(now=jnp.array([0.0, 1.0, 0.0]), goal=jnp.array([1.0, 1.0, 0.0]))
    flipped = world.step(state, jnp.int32(0), jax.random.key(1))
    np.testing.assert_array_equal(flipped.obs, [1, 1, 0, 1, 1, 0])
    assert (float(flipped.reward), bool(world.success(flipped.state)), bool(flipped.terminated)) == (0.0, True, False)
    stayed = world.step(state, jnp.int32(3), jax.random.key(1))
    np.testing.assert_array_equal(stayed.obs, [0, 1, 0, 1, 1, 0])
    assert (float(stayed.reward), bool(world.success(stayed.state))) == (-1.0, False)


def test_new_goals_were_reached_later_in_the_same_episode_and_are_paid_as_such():
    # Random flips of 16 copies; a ring of 40 rows, written 25 times 4 rows: it has wrapped.
    world = BitFlip(BITS)
    plan = program(world, **SAC, capacity=40, begin=40 * 16, stagger=True)
    state, _, _ = trained(plan, 25)
    view = View(state.replay, plan.layout)
    place = view.uniform(jax.random.key(1), 2000, window=2)
    batch = view.transitions(place, 1, 0.9)
    new = relabelled(view, place, batch, world, jax.random.key(2), share=1.0)
    obs, old, next_obs = (np.asarray(array) for array in (new.fields["obs"], batch.fields["obs"], new.next_obs))
    np.testing.assert_array_equal(obs[:, :BITS], old[:, :BITS])
    np.testing.assert_array_equal(obs[:, BITS:], next_obs[:, BITS:])
    changed = (obs[:, BITS:] != old[:, BITS:]).any(axis=1)
    assert changed.mean() > 0.9
    np.testing.assert_array_equal(new.reward, np.where((next_obs[:, :BITS] == next_obs[:, BITS:]).all(axis=1), 0.0, -1.0))
    # A goal k steps later differs in at most k bits, and in the last step of an episode in none.
    apart = np.abs(next_obs[:, :BITS] - next_obs[:, BITS:]).sum(axis=1)[changed]
    left = BITS - 1 - np.asarray(batch.standing.age)[changed]
    assert (apart <= left).all()
    assert (apart > 0).any()


def test_without_a_share_nothing_is_changed():
    world = BitFlip(BITS)
    plan = program(world, **SAC, capacity=40, begin=40 * 16)
    view = View(trained(plan, 10)[0].replay, plan.layout)
    place = view.uniform(jax.random.key(1), 100, window=2)
    batch = view.transitions(place, 1, 0.9)
    same = relabelled(view, place, batch, world, jax.random.key(2), share=0.0)
    jax.tree.map(np.testing.assert_array_equal, same, batch)


@pytest.mark.slow
def test_hindsight_finds_goals_that_chance_does_not():
    reached, bits = {}, 14
    for share in (0.0, 0.8):
        sizes: dict[str, Any] = SAC | {"horizon": bits, "capacity": 2000, "begin": 1000, "update_ratio": 0.5, "schedule": "constant", "target_entropy": 0.5}
        layers: dict[str, Any] = {"policy_layers": (64,), "value_layers": (128,), "max_grad_norm": 100.0, "discount": 0.93, "target_rate": 0.02}
        plan = program(BitFlip(bits), **sizes, **layers, hindsight=share, total_updates=1600)
        state, _, _ = make_chunk(plan)(init_state(plan, 0), jnp.int32(1600))
        # -1 a step until all bits are equal: about seven flips are needed, the last of which costs nothing.
        reached[share] = make_evaluator(plan, 64).window(state.learner, 0, bits).window_return
    assert reached[0.8] > -8.0
    assert reached[0.0] < -13.0


def test_hindsight_over_several_steps_is_refused():
    nearest = r"algorithm\.n_step=3 does not go with replay\.hindsight=0\.8\. Nearest: algorithm\.n_step=1 or replay\.hindsight=0\."
    with pytest.raises(ConfigError, match=nearest):
        train("env=bitflip", "algorithm=sac", "algorithm.n_step=3")
    with pytest.raises(ConfigError, match=r"algorithm\.n_step=3 does not go with hindsight"):
        program(BitFlip(3), **SAC, capacity=40, begin=40, n_step=3)
