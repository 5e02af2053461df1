"""Evaluation is pure, whole and independent of how it is cut."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import assert_bit_equal, program, trained

from jaxrl_long.envs.probes import BreakAt, CountEnv, RandomStart
from jaxrl_long.launch import init_state
from jaxrl_long.runtime.evaluation import make_evaluator, snapshot


@pytest.mark.parametrize(("horizon", "die_at", "expected"), [(20, 0, 20.0), (20, 7, 7.0), (2000, 0, 2000.0)])
def test_the_return_over_the_whole_horizon(horizon, die_at, expected):
    plan = program(CountEnv(die_at), horizon=horizon)
    result = make_evaluator(plan, 4).window(init_state(plan, 0).learner, 0, horizon)
    assert result.window_return == expected
    assert result.died.all() == (die_at > 0)


def test_an_evaluation_changes_nothing_in_the_training_state():
    plan = program(RandomStart(die_at=5))
    state, _, _ = trained(plan, 2)
    before = jax.tree.map(jnp.copy, state)
    make_evaluator(plan, 4).window(state.learner, 0, 10)
    assert_bit_equal(before, state)


def test_numbers_do_not_depend_on_how_an_evaluation_is_cut():
    plan = program(RandomStart(die_at=70), horizon=100)
    learner = init_state(plan, 0).learner
    evaluator = make_evaluator(plan, 4)
    whole = evaluator.advance(learner, evaluator.start(jax.random.key(3)), jnp.int32(90))
    state = evaluator.start(jax.random.key(3))
    for steps in (1, 39, 50):
        state = evaluator.advance(learner, state, jnp.int32(steps))
    assert_bit_equal(whole, state)


def test_an_environment_that_broke_counts_as_cut_and_not_as_dead():
    plan = program(BreakAt(age=5, share=1.0), horizon=20)
    result = make_evaluator(plan, 2).window(init_state(plan, 0).learner, 0, 20)
    np.testing.assert_array_equal(result.life, [4, 4])
    assert result.faulted.all()
    assert not result.died.any()


def test_what_an_environment_does_after_its_end_does_not_count():
    plan = program(CountEnv(die_at=3), horizon=20)
    evaluator = make_evaluator(plan, 2)
    learner = init_state(plan, 0).learner
    state = evaluator.advance(learner, evaluator.start(jax.random.key(0)), jnp.int32(50))
    assert snapshot(state.tally).score.tolist() == [3.0, 3.0]


def test_environments_live_on_between_evaluations_and_those_that_died_start_anew():
    plan = program(CountEnv(die_at=7), horizon=100)
    learner, evaluator = init_state(plan, 0).learner, make_evaluator(plan, 3)
    state, seen = evaluator.start(jax.random.key(0)), []
    for _ in range(4):
        state, lived, known = evaluator.lasting(learner, state, 5)
        seen.append((lived, int(known.died.sum()), known.life.tolist()))
    # 5 steps each; 2 more to the death at 7; a new life of 5, and its end.
    assert seen == [(15, 0, [5, 5, 5]), (6, 3, [7, 7, 7]), (15, 0, [5, 5, 5]), (6, 3, [7, 7, 7])]


def test_who_starts_anew_meets_another_start_and_the_others_stay_as_they_are():
    plan = program(RandomStart(die_at=7), horizon=100)
    evaluator = make_evaluator(plan, 2)
    first = evaluator.start(jax.random.key(0))
    half = replace(first, tally=replace(first.tally, going=jnp.array([True, False]), life=jnp.array([4, 4])))
    starts = np.asarray(first.env.obs)
    after = evaluator.revive(half)
    assert after.tally.life.tolist() == [4, 0]
    assert after.tally.going.all()
    assert after.env.obs[0] == starts[0]
    assert after.env.obs[1] != starts[1]
    again = evaluator.revive(replace(after, tally=replace(after.tally, going=jnp.zeros(2, bool))))
    assert again.env.obs[1] != starts[1]
