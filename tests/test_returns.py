"""Advantages and bootstrapping, by hand. V-stub: V(obs) = 10 t + 5, discount 0.9; CountEnv pays 1 a step."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.learning.returns import gae, growing_discount, lookahead_discount


def column(*numbers: float) -> jnp.ndarray:
    return jnp.array(numbers, jnp.float32)[:, None]


def flags(*numbers: int) -> jnp.ndarray:
    return jnp.array(numbers, bool)[:, None]


def test_the_last_step_of_a_truncated_episode_bootstraps_on_its_final_observation():
    # t = 2 -> 3: 1 + 0.9 * 35 - 25 = 7.5. The start's value 5 would give -19.5, death -24, V(s_t) -1.5.
    delta = gae(column(1), column(25), column(35), flags(0), flags(1), discount=0.9, trace=0.95)
    np.testing.assert_allclose(delta, [[7.5]], rtol=1e-6)


def test_a_death_has_no_future():
    # 1 + 0.9 * 0 - 25 = -24
    delta = gae(column(1), column(25), column(35), flags(1), flags(1), discount=0.9, trace=0.95)
    np.testing.assert_allclose(delta, [[-24.0]], rtol=1e-6)


def test_advantages_do_not_leak_across_episodes():
    # Two episodes of 2 steps, values 5, 15 then 15 -> 25 at the cut. delta0 = 1 + 13.5 - 5 = 9.5, delta1 = 1 + 22.5 - 15 = 8.5,
    # A1 = 8.5, A0 = 9.5 + 0.9 * 0.5 * 8.5 = 13.325.
    value, after, ended = column(5, 15, 5, 15), column(15, 25, 15, 25), flags(0, 1, 0, 1)
    plain = gae(column(1, 1, 1, 1), value, after, flags(0, 0, 0, 0), ended, discount=0.9, trace=0.5)
    np.testing.assert_allclose(plain[:, 0], [13.325, 8.5, 13.325, 8.5], rtol=1e-6)
    changed = gae(column(1, 1, 1001, 1), value, after, flags(0, 0, 0, 0), ended, discount=0.9, trace=0.5)
    np.testing.assert_array_equal(changed[:2], plain[:2])


def test_truncation_bootstraps_and_termination_does_not():
    one = jnp.ones((1, 2))
    advantage = gae(one, 0 * one, 10 * one, jnp.array([[True, False]]), jnp.array([[True, True]]), discount=0.5, trace=1.0)
    # terminated: 1 + 0.5*0 - 0 = 1      truncated: 1 + 0.5*10 - 0 = 6
    np.testing.assert_allclose(advantage, [[1.0, 6.0]])


def test_importance_weights_shorten_the_trace():
    # delta = 1, 1; w = 0.5, 1: A1 = 1, A0 = 0.5 * (1 + 0.5 * 1) = 0.75
    zero = column(0, 0)
    advantage = gae(column(1, 1), zero, zero, flags(0, 0), flags(0, 0), discount=0.5, trace=1.0, weight=column(0.5, 1))
    np.testing.assert_allclose(advantage[:, 0], [0.75, 1.0])


@pytest.mark.parametrize(("lookahead", "discount", "expected"), [(100.0, 0.5, 0.99), (0.0, 0.97, 0.97), (2.0, 0.9, 0.5)])
def test_a_lookahead_of_n_steps_is_a_discount_of_one_minus_one_in_n(lookahead, discount, expected):
    assert lookahead_discount(lookahead, discount) == pytest.approx(expected)


def test_a_lookahead_grows_by_equal_ratios():
    # From 100 to 10,000 steps: a tenth of 1,000 at the middle. Beyond the end it stays.
    seen = [1 / (1 - float(growing_discount(0.99, 0.9999, jnp.float32(progress)))) for progress in (0.0, 0.5, 1.0, 1.5)]
    np.testing.assert_allclose(seen, [100, 1000, 10_000, 10_000], rtol=2e-3)
