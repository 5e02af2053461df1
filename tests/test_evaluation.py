"""Evaluation is pure, whole and independent of how it is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import assert_bit_equal, program, trained

from jaxrl_long.envs.probes import BreakAt, CountEnv, RandomStart
from jaxrl_long.runtime.evaluation import make_evaluator, snapshot
from jaxrl_long.trainer import init_state


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
