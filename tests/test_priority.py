"""Priorities against plain arrays."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.replay.priority import Priorities, changed, draw, importance, make_priorities, written


def plain(priorities: Priorities, capacity: int) -> np.ndarray:
    """The priorities of the rows, [C, N]."""
    leaves = priorities.tree.shape[0] // 2
    return np.asarray(priorities.tree[leaves : leaves + capacity])


@given(st.sampled_from([1, 3]), st.sampled_from([2, 5]), st.sampled_from([1, 2, 4]), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_what_lacks_later_rows_can_not_be_drawn(length, segments, window, writes):
    capacity = length * segments
    if window > capacity:
        return
    priorities = make_priorities(capacity, 2)
    for number in range(writes):
        cursor, filled = number * length % capacity, min(number * length, capacity)
        priorities = written(priorities, jnp.int32(cursor), jnp.int32(filled), length, capacity, window)
    steps = writes * length
    stored = {step % capacity for step in range(max(0, steps - capacity), steps - window + 1)}
    expected = np.array([[1.0, 1.0] if row in stored else [0.0, 0.0] for row in range(capacity)])
    np.testing.assert_array_equal(plain(priorities, capacity), expected)
    np.testing.assert_allclose(priorities.tree[1], expected.sum(axis=0))


def test_steps_are_drawn_in_proportion_to_their_priorities():
    priorities = written(make_priorities(5, 2), jnp.int32(0), jnp.int32(0), 5, 5, 1)
    wanted = np.array([[1.0, 2.0], [0.5, 4.0], [8.0, 0.25], [1.0, 1.0], [3.0, 0.25]])
    row, env = (grid.ravel() for grid in np.meshgrid(np.arange(5), np.arange(2), indexing="ij"))
    priorities = changed(priorities, jnp.asarray(row), jnp.asarray(env), jnp.asarray(wanted.ravel()))
    np.testing.assert_allclose(plain(priorities, 5), wanted)
    assert float(priorities.most) == 8.0
    number = 4200
    rows, envs, probability = draw(priorities, jax.random.key(0), number)
    seen = np.zeros((5, 2))
    np.add.at(seen, (np.asarray(rows), np.asarray(envs)), 1)
    # Drawn from equal shares of the total, 21: one step gets its share of them, give or take one or two.
    np.testing.assert_allclose(seen, wanted / wanted.sum() * number, atol=2.5)
    np.testing.assert_allclose(probability, wanted[np.asarray(rows), np.asarray(envs)] / wanted.sum(), rtol=1e-5)


def test_what_can_not_be_drawn_gets_no_priority():
    priorities = written(make_priorities(4, 1), jnp.int32(0), jnp.int32(0), 2, 4, 2)
    priorities = changed(priorities, jnp.array([0, 1]), jnp.array([0, 0]), jnp.array([5.0, 7.0]))
    np.testing.assert_array_equal(plain(priorities, 4)[:, 0], [5.0, 0.0, 0.0, 0.0])


def test_importance_takes_the_preference_back():
    # Twice as likely counts half as much; exponent 0 takes nothing back.
    np.testing.assert_allclose(importance(jnp.array([0.2, 0.4]), jnp.int32(3), 1.0), [1.0, 0.5])
    np.testing.assert_allclose(importance(jnp.array([0.2, 0.4]), jnp.int32(3), 0.0), [1.0, 1.0])
