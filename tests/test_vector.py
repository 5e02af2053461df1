"""N copies with a clock, a guard, a score and restarts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.envs.probes import BreakAt, CountEnv, HugeReward, RandomStart
from jaxrl_long.envs.vector import EnvState, Outcome, VectorEnv, each
from jaxrl_long.learning.moments import Sum


def roll(vector: VectorEnv, number: int, steps: int, pool: int = 64, state: EnvState | None = None) -> tuple[EnvState, Outcome]:
    """Zero actions; outcomes [T, N]."""
    index = jnp.arange(number)
    first = vector.reset(jax.random.split(jax.random.key(1), number), index) if state is None else state
    starts = vector.starts(jax.random.split(jax.random.key(2), pool))
    size = getattr(vector.simulator.action, "size", None)
    action = jnp.zeros((number, size)) if size else jnp.zeros((number,), jnp.int32)

    def step(state: EnvState, key: jax.Array) -> tuple[EnvState, Outcome]:
        return vector.step(state, action, jax.random.split(key, number), starts)

    return jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(jax.random.key(3), steps)))(first)


def test_the_horizon_truncates_and_never_terminates():
    _, seen = roll(VectorEnv(CountEnv(), horizon=3), 2, 7)
    np.testing.assert_array_equal(seen.truncated[:, 0], [0, 0, 1, 0, 0, 1, 0])
    assert not seen.terminated.any()


def test_the_final_observation_is_the_one_before_the_restart():
    state, seen = roll(VectorEnv(CountEnv(), horizon=3), 1, 3)
    np.testing.assert_array_equal(seen.final_obs[:, 0, 0], [1, 2, 3])
    np.testing.assert_array_equal(state.obs, [[0.0]])


def test_a_world_that_allows_a_few_copies_at_once_goes_the_same_way():
    class Few(RandomStart):
        at_once = 3

    few, all_at_once = (roll(VectorEnv(world, horizon=5), 8, 12) for world in (Few(), RandomStart()))
    for one, other in zip(jax.tree.leaves(few), jax.tree.leaves(all_at_once), strict=True):
        np.testing.assert_array_equal(one, other)


def test_arrays_of_no_elements_come_through_in_parts_too():
    doubled, nothing = each(lambda x: (2 * x, jnp.zeros((0, 3))), 4, jnp.arange(6.0))
    np.testing.assert_array_equal(doubled, 2 * np.arange(6.0))
    assert nothing.shape == (6, 0, 3)


def test_a_death_at_the_horizon_is_a_death():
    _, seen = roll(VectorEnv(CountEnv(die_at=3), horizon=3), 1, 3)
    assert bool(seen.terminated[2, 0])
    assert not bool(seen.truncated[2, 0])


def test_scores_and_lengths_of_finished_episodes():
    _, seen = roll(VectorEnv(CountEnv(die_at=3), horizon=10), 1, 6)
    np.testing.assert_array_equal(seen.finished_score[:, 0], [0, 0, 3, 0, 0, 3])
    np.testing.assert_array_equal(seen.finished_length[:, 0], [0, 0, 3, 0, 0, 3])


def test_every_episode_has_a_start_of_its_own():
    # 4 environments, 3 episodes of 5 steps each.
    _, seen = roll(VectorEnv(RandomStart(), horizon=5), 4, 15, pool=4096)
    assert [len(np.unique(seen.final_obs[:, i, 0])) for i in range(4)] == [3, 3, 3, 3]


def test_a_world_with_a_counter_of_its_own_has_the_length_of_the_horizon():
    _, seen = roll(VectorEnv(CountEnv(), horizon=10), 1, 10)
    assert int(seen.finished_length[-1, 0]) == 10
    _, seen = roll(VectorEnv(CountEnv(), horizon=2500), 1, 2500)
    assert int(seen.finished_length[-1, 0]) == 2500


def test_staggered_environments_do_not_end_together():
    _, seen = roll(VectorEnv(CountEnv(), horizon=1000, stagger=True), 1024, 1000)
    assert int(seen.ended.sum(axis=1).max()) < 10
    assert int(seen.ended.sum()) == 1024
    _, together = roll(VectorEnv(CountEnv(), horizon=1000), 1024, 1000)
    assert int(together.ended.sum(axis=1).max()) == 1024


@pytest.mark.parametrize("age", [2**24, 2**31 - 4])
def test_the_clock_does_not_stop_where_float32_and_int32_end(age):
    vector = VectorEnv(CountEnv(), horizon=age + 2)
    fresh = vector.reset(jax.random.split(jax.random.key(1), 1), jnp.arange(1))
    old = replace(fresh, age=fresh.age + age, score=Sum(jnp.full(1, float(age)), jnp.zeros(1)))
    _, seen = roll(vector, 1, 3, state=old)
    np.testing.assert_array_equal(seen.truncated[:, 0], [0, 1, 0])
    assert int(seen.finished_length[1, 0]) == age + 2


def test_training_restarts_are_truncations_before_the_horizon():
    vector = VectorEnv(CountEnv(), horizon=1_000_000, restart_every=4)
    _, seen = roll(vector, 1, 8)
    np.testing.assert_array_equal(seen.truncated[:, 0], [0, 0, 0, 1, 0, 0, 0, 1])
    _, never = roll(vector.endless(), 1, 8)
    assert not never.ended.any()


def test_random_restart_intervals_have_the_mean_asked_for():
    _, seen = roll(VectorEnv(CountEnv(), horizon=10_000, restart_every=20, restart_random=True), 256, 1000)
    lengths = np.asarray(seen.finished_length)[np.asarray(seen.ended)]
    # A geometric mean of 20 (the ceiling of an exponential adds 1/2); about 12,800 draws: its error is 20 / sqrt(12800) = 0.2.
    assert abs(lengths.mean() - 20.5) < 1.0
    assert lengths.std() > 10


def test_a_broken_environment_is_cut_where_it_stood_and_the_others_never_notice():
    vector = VectorEnv(BreakAt(age=3), horizon=100)
    keys, index = jax.random.split(jax.random.key(1), 8), jnp.arange(8)
    state = vector.reset(keys, index)
    cracked = replace(state, sim=state.sim.replace(cracked=jnp.zeros(8).at[3].set(1.0)))
    clean_state, clean = roll(vector, 8, 6, state=state)
    broken_state, broken = roll(vector, 8, 6, state=cracked)
    np.testing.assert_array_equal(broken.fault[:, 3], [0, 0, 1, 0, 0, 0])
    assert int(broken.fault.sum()) == 1
    assert bool(broken.truncated[2, 3])
    assert float(broken.reward[2, 3]) == 0.0
    np.testing.assert_array_equal(broken.final_obs[2, 3], [2.0])
    others = jnp.array([0, 1, 2, 4, 5, 6, 7])
    for one, other in zip(jax.tree.leaves((clean_state, clean)), jax.tree.leaves((broken_state, broken)), strict=True):
        axis = 0 if one.shape[0] == 8 else 1
        np.testing.assert_array_equal(jnp.take(one, others, axis), jnp.take(other, others, axis))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(broken_state.sim))


def test_a_huge_but_finite_reward_is_passed_on():
    _, seen = roll(VectorEnv(HugeReward(age=2), horizon=10), 1, 3)
    np.testing.assert_allclose(seen.reward[:, 0], [1.0, 1e30, 1.0])


def test_scores_of_long_episodes_are_compensated():
    class Tenth(CountEnv):
        def _pay(self, t):
            return jnp.float32(0.1)

    _, seen = roll(VectorEnv(Tenth(), horizon=200_000), 1, 200_000)
    # A plain float32 sum of 200,000 times 0.1 ends at 20,005 or so.
    assert abs(float(seen.finished_score[-1, 0]) - 200_000 * float(np.float32(0.1))) < 0.01
