"""Episodes go back to moments of their own past: which ones, how exactly, and what that is good for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import assert_bit_equal, program, trained

from jaxrl_long.envs.archive import Archive, drawn, make_archive, remembered
from jaxrl_long.envs.brax import BraxSimulator
from jaxrl_long.envs.probes import CountEnv, Keyed, LateReward, RareTrap
from jaxrl_long.envs.vector import EnvState, Moment, Outcome, VectorEnv
from jaxrl_long.launch import init_state, make_chunk, state_shapes
from jaxrl_long.learning.moments import Sum
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.evaluation import make_evaluator
from jaxrl_long.trainer import Program


def environments(ages: list[int]) -> EnvState:
    """Counting worlds of these ages."""
    number = len(ages)
    vector = VectorEnv(CountEnv(), horizon=1000)
    env = vector.reset(jax.random.split(jax.random.key(0), number), jnp.arange(number))
    age = jnp.array(ages, jnp.int32)
    return replace(env, age=age, sim=replace(env.sim, t=age), obs=age[:, None].astype(jnp.float32), score=Sum(age.astype(jnp.float32), jnp.zeros(number)))


def filled(ages: list[list[int]], every: int = 1) -> Archive:
    """An archive of three moments after these ages of each environment, one list a rollout of ten steps."""
    archive = make_archive(environments(ages[0]), 3)
    for update, row in enumerate(ages):
        archive = remembered(archive, environments(row), jnp.int32(update), every, rollout_length=10)
    return archive


def test_the_oldest_moment_makes_room():
    archive = filled([[10], [20], [30], [40]])
    np.testing.assert_array_equal(archive.moment.age[:, 0], [40, 20, 30])
    assert archive.known.all()


def test_a_moment_is_kept_every_so_many_updates():
    archive = filled([[10], [20], [30], [40]], every=3)
    # Updates 0 and 3.
    np.testing.assert_array_equal(archive.moment.age[:2, 0], [10, 40])
    np.testing.assert_array_equal(archive.known[:, 0], [True, True, False])


def test_what_started_anew_has_no_past_and_its_neighbour_keeps_its_own():
    archive = filled([[10, 10], [20, 20], [3, 30]])
    np.testing.assert_array_equal(archive.known, [[False, True], [False, True], [True, True]])


def test_only_known_moments_are_drawn_each_as_likely_as_the_others():
    archive = filled([[10] * 4000, [20] * 4000])
    moment, there = drawn(archive, jax.random.split(jax.random.key(3), 4000))
    assert there.all()
    ages, counts = np.unique(moment.age, return_counts=True)
    np.testing.assert_array_equal(ages, [10, 20])
    # 4000 fair draws: a standard deviation is 31.6.
    assert abs(counts[0] - 2000) < 160
    np.testing.assert_array_equal(moment.sim.t, moment.age)
    np.testing.assert_array_equal(moment.score.high, moment.age)


def test_without_a_moment_there_is_nowhere_to_go():
    _, there = drawn(make_archive(environments([5, 6]), 3), jax.random.split(jax.random.key(3), 2))
    assert not there.any()


def stepped(source: str, horizon: int, age: int, back_to: int, share: float = 1.0, **settings: Any) -> tuple[EnvState, Outcome]:
    """One step of a world that dies at 50, at this age, with a moment of another age to go back to."""
    vector = VectorEnv(CountEnv(die_at=50), horizon, source=source, share=share, **settings)
    env = replace(environments([age]), deadline=jnp.array([horizon]))
    past = (Moment.of(environments([back_to])), jnp.ones(1, bool))
    starts = vector.starts(jax.random.split(jax.random.key(2), 4))
    return vector.step(env, jnp.zeros(1, jnp.int32), jax.random.split(jax.random.key(3), 1), starts, past)


@pytest.mark.parametrize(("source", "age", "goes_back"), [("rewind", 49, True), ("rewind", 98, False), ("archive", 49, True), ("archive", 98, True)])
def test_a_failure_is_rewound_and_with_an_archive_any_end(source, age, goes_back):
    # It dies at 50 and is cut at 99.
    env, outcome = stepped(source, 99, age, 40)
    assert bool(outcome.terminated[0]) == (age == 49)
    assert bool(outcome.returned[0]) == goes_back
    assert int(env.age[0]) == (40 if goes_back else 0)


def test_what_goes_back_goes_on_with_its_age_and_score_and_has_its_whole_interval_again():
    env, outcome = stepped("rewind", 1000, 49, 40, restart_every=30)
    assert int(outcome.finished_length[0]) == 50
    assert (int(env.age[0]), int(env.deadline[0]), float(env.score.value[0]), int(env.sim.t[0]), float(env.obs[0, 0])) == (40, 70, 40.0, 40, 40.0)


def test_no_deadline_lies_beyond_the_horizon_or_an_int32():
    horizon = 2**31 - 2
    env, _ = stepped("archive", horizon, horizon - 1, horizon - 10, restart_every=30)
    assert int(env.deadline[0]) == horizon


def test_a_share_of_none_goes_back_never():
    assert not stepped("rewind", 1000, 49, 40, share=0.0)[1].returned.any()


def test_a_fresh_start_comes_from_no_pool():
    vector = VectorEnv(Keyed(), horizon=1, source="fresh")
    env = vector.reset(jax.random.split(jax.random.key(0), 2), jnp.arange(2))
    starts = vector.starts(jax.random.split(jax.random.key(2), 1))
    after, _ = vector.step(env, jnp.zeros((2, 1)), jax.random.split(jax.random.key(3), 2), starts)
    keys = np.asarray(jax.random.key_data(after.sim))
    assert not np.array_equal(keys[0], keys[1])
    assert not np.isin(np.asarray(jax.random.key_data(starts.state)), keys).all()


@pytest.mark.parametrize("simulator", [pytest.param(Keyed(), id="keyed"), pytest.param(None, id="hopper", marks=pytest.mark.slow)])
def test_the_same_actions_from_a_moment_give_the_same_trajectory(simulator):
    vector = VectorEnv(simulator or BraxSimulator("hopper", "spring"), horizon=1000, source="rewind", share=1.0)
    index = jnp.arange(3)
    starts = vector.starts(jax.random.split(jax.random.key(2), 3))
    actions = jax.random.uniform(jax.random.key(4), (12, 3, getattr(vector.simulator.action, "size", 1)), minval=-1, maxval=1)
    keys = jax.random.split(jax.random.key(5), (12, 3))

    def go(env: EnvState, some: slice) -> tuple[EnvState, Outcome]:
        return jax.jit(lambda env: jax.lax.scan(lambda env, row: vector.step(env, *row, starts), env, (actions[some], keys[some])))(env)

    middle, _ = go(vector.begin(starts, keys[0], index), slice(0, 5))
    end, seen = go(middle, slice(5, 12))
    # Another way first, then back: through a step that ends the episodes.
    astray = replace(go(middle, slice(0, 3))[0], deadline=jnp.ones(3, jnp.int32))
    past = (Moment.of(middle), jnp.ones(3, bool))
    returned, outcome = replace(vector, source="archive").step(astray, actions[0], keys[0], starts, past)
    assert outcome.returned.all()
    again, seen_again = go(replace(returned, deadline=middle.deadline), slice(5, 12))
    assert_bit_equal((end, seen), (again, seen_again))


def rewinding(simulator: Any, source: str = "rewind", **changes: Any) -> Program:
    """A small program whose episodes go back."""
    plan = program(simulator, **changes)
    return replace(plan, vector=replace(plan.vector, source=source, share=0.9), keep=4)


def test_a_run_that_goes_back_is_the_same_however_it_is_cut_and_after_it_was_saved(tmp_path: Path):
    plan = rewinding(CountEnv(die_at=11))
    chunk = make_chunk(plan)
    whole, totals, _ = chunk(init_state(plan, 0), jnp.int32(8))
    assert int(totals["returned_count"].as_int()) > 0
    state, _, _ = chunk(init_state(plan, 0), jnp.int32(3))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, 96, state, {}, block=True)
    restored, _ = checkpoints.restore(3, state_shapes(plan))
    assert_bit_equal(whole, chunk(restored, jnp.int32(5))[0])


def test_where_episodes_go_back_to_does_not_depend_on_the_number_of_devices():
    runs = [trained(rewinding(CountEnv(die_at=11), devices=devices, minibatches=1), 8) for devices in (1, 2)]
    assert_bit_equal(runs[0][0].env, runs[1][0].env)
    assert runs[0][1]["returned_count"] == runs[1][1]["returned_count"] > 0


def test_runs_that_never_go_back_carry_no_archive():
    assert init_state(program(CountEnv()), 0).archive == ()


LEARNING: dict[str, Any] = {"num_envs": 32, "rollout_length": 16, "stagger": True, "learning_rate": 3e-3, "minibatches": 4, "epochs": 4, "discount": 0.9}
LEARNING |= {"policy_layers": (32, 32), "value_layers": (32, 32)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_pays_late_is_learned_where_episodes_grow_older_than_their_restarts(seed):
    # Cut every 50 steps, paid for another action from 200 on: 200 of 400 is all that fresh starts can learn.
    for source, worth in (("pool", 200.0), ("archive", 400.0)):
        plan = rewinding(LateReward(), source, total_updates=150, restart_every=50, **LEARNING)
        state, _, _ = trained(plan, 150, seed)
        assert make_evaluator(plan, 32).window(state.learner, 0, 400).window_return == pytest.approx(worth, abs=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_rare_trap_is_learned_where_failures_are_rewound(seed):
    # Three right actions in a row, needed once in 1000 steps, in episodes of 200. Everybody comes by within 2000 steps.
    for source, dead in (("pool", 1.0), ("rewind", 0.0)):
        plan = rewinding(RareTrap(), source, total_updates=300, restart_every=200, entropy=0.05, **LEARNING)
        state, _, _ = trained(plan, 300, seed)
        assert make_evaluator(plan, 32).window(state.learner, 0, 2000).died.mean() == dead
