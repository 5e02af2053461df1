"""Numbers that stay right over millions of steps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.learning.moments import Count, Moments, Sum, moved, normalized


def test_a_counter_goes_on_past_two_to_the_32():
    assert Count.of(2**36).plus(jnp.int32(2048)).as_int() == 68719478784
    assert Count.of(2**32 - 1).plus(jnp.int32(1)).as_int() == 4294967296


@given(st.integers(0, 2**40), st.lists(st.integers(0, 2**31 - 1), max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_counter_counts_as_python_does(start, extras):
    count = Count.of(start)
    for extra in extras:
        count = count.plus(jnp.int32(extra))
    assert count.as_int() == start + sum(extras)


def test_moments_of_a_long_run_keep_count_mean_and_deviation():
    moments = replace(Moments.zeros((1,)), count=Count.of(2**36), mean=jnp.full((1,), 1e4))
    move = jax.jit(moved)
    late = move(moments, 1e4 + jax.random.normal(jax.random.key(0), (2048, 1)))
    assert late.count.as_int() == 68719478784
    fresh = Moments.zeros((1,))
    for key in jax.random.split(jax.random.key(1), 2000):
        fresh = move(fresh, 1e4 + jax.random.normal(key, (64, 1)))
    np.testing.assert_allclose(np.sqrt(fresh.variance), 1.0, atol=0.02)
    np.testing.assert_allclose(fresh.mean, 1e4, atol=0.02)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(-1e4, 1e4), st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_merged_batches_have_the_moments_of_all_rows(sizes, mean, std):
    rows = np.random.default_rng(0).normal(mean, std, (sum(sizes), 3)).astype(np.float32)
    moments, start = Moments.zeros((3,)), 0
    for size in sizes:
        moments, start = moved(moments, jnp.asarray(rows[start : start + size])), start + size
    exact = rows.astype(np.float64)
    scale = np.abs(exact).max()
    np.testing.assert_allclose(moments.mean, exact.mean(0), atol=2e-6 * scale)
    np.testing.assert_allclose(moments.variance, exact.var(0), rtol=1e-3, atol=1e-11 * scale**2)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, 1e30, -1e16])
def test_a_row_with_a_number_that_moments_cannot_hold_is_left_out_and_counted(bad):
    rows = jax.random.normal(jax.random.key(0), (64, 3))
    broken = moved(Moments.zeros((3,)), rows.at[17, 1].set(bad))
    clean = moved(Moments.zeros((3,)), jnp.delete(rows, 17, axis=0))
    np.testing.assert_allclose(broken.mean, clean.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(broken.variance, clean.variance, rtol=1e-6)
    assert int(broken.refused) == 1
    assert broken.count.as_int() == 63


def test_batches_without_any_finite_row_change_nothing():
    before = moved(Moments.zeros((2,)), jnp.ones((4, 2)))
    after = moved(before, jnp.full((4, 2), jnp.inf))
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.variance, before.variance)
    assert int(after.refused) == 4


def test_a_feature_that_moves_after_a_long_rest_stays_within_the_clip():
    moments = moved(Moments.zeros((1,)), jnp.full((100_000, 1), 0.5))
    assert abs(float(normalized(moments, jnp.array([0.501]), 10.0)[0])) <= 10.0


@given(st.sampled_from([2.0**24, 2.0**31, 2.0**36]), st.lists(st.floats(-1e3, 1e3, width=32), max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_sum_goes_on_past_where_float32_stops(start, terms):
    total = Sum(jnp.float32(start), jnp.float32(0))
    for term in terms:
        total = total.plus(jnp.float32(term))
    # Each term is rounded by at most half of 2^-23 of what it and the residue, below half a float32 of the sum, amount to.
    slack = sum(abs(term) + start * 2.0**-23 for term in terms) * 2.0**-23
    assert abs(total.as_float() - (start + sum(terms))) <= slack


def test_a_compensated_sum_of_a_million_rewards_is_exact_to_float32():
    reward = jnp.float32(0.1)
    total = jax.lax.fori_loop(0, 1_000_000, lambda _, s: s.plus(reward), Sum.zeros(()))
    exact = 1_000_000 * float(np.float32(0.1))
    assert abs(total.as_float() - exact) < 1e-2
    # What a plain float32 sum makes of it: 100958.34, 1 % off.
    plain = jax.lax.fori_loop(0, 1_000_000, lambda _, s: s + reward, jnp.float32(0))
    assert abs(float(plain) - exact) > 100
