"""Policies' distributions, against numbers worked out apart from the code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.learning.distributions import Categorical, TanhNormal


def params(mean: float, std: float) -> jnp.ndarray:
    spread = np.log(np.expm1(std - 1e-3))
    return jnp.array([mean, spread], jnp.float32)


def test_the_density_of_a_squashed_action_integrates_to_one():
    policy, row = TanhNormal(1), params(0.3, 0.7)
    action = np.linspace(-0.999999, 0.999999, 200_001)
    choice = jnp.arctanh(jnp.asarray(action, jnp.float32))[:, None]
    density = np.exp(jax.vmap(lambda c: policy.log_prob(row, c))(choice))
    assert np.trapezoid(density, action) == pytest.approx(1.0, abs=1e-3)


def test_a_choice_far_out_keeps_a_finite_log_probability():
    policy = TanhNormal(1)
    # tanh(20) rounds to 1, whose inverse is infinite; the choice itself is kept instead. log(1 - tanh^2 20) = 2 log 2 - 40.
    got = float(policy.log_prob(params(20.0, 1.0), jnp.array([20.0])))
    assert got == pytest.approx(-0.5 * np.log(2 * np.pi) - (2 * np.log(2) - 40), rel=1e-5)


def test_entropy_estimated_at_samples_matches_numerical_entropy_and_its_gradient_reaches_the_spread():
    policy, row = TanhNormal(1), params(0.0, 0.5)
    choice = jax.vmap(lambda key: policy.sample(row, key))(jax.random.split(jax.random.key(0), 20_000))
    estimate = float(jnp.mean(policy.entropy(row, choice)))
    action = np.linspace(-0.999999, 0.999999, 200_001)
    log_density = jax.vmap(lambda c: policy.log_prob(row, c))(jnp.arctanh(jnp.asarray(action, jnp.float32))[:, None])
    assert estimate == pytest.approx(-np.trapezoid(np.exp(log_density) * log_density, action), abs=0.01)
    assert float(jax.grad(lambda p: jnp.mean(policy.entropy(p, choice)))(row)[1]) > 0.1


def test_rows_are_drawn_from_their_own_keys():
    rows, keys = jnp.zeros((3, 2)), jax.random.split(jax.random.key(0), 3)
    drawn = TanhNormal(1).sample(rows, keys)
    assert len(np.unique(drawn)) == 3
    np.testing.assert_array_equal(drawn[1], TanhNormal(1).sample(rows[1], keys[1]))


def test_categorical_probabilities_entropy_and_divergence():
    logits = jnp.log(jnp.array([0.5, 0.25, 0.25]))
    policy = Categorical(3)
    assert float(policy.log_prob(logits, jnp.int32(1))) == pytest.approx(np.log(0.25), rel=1e-6)
    assert float(policy.entropy(logits, jnp.int32(0))) == pytest.approx(1.5 * np.log(2), rel=1e-6)
    assert int(policy.mode(logits)) == 0
    # sum p log(p / q) with q uniform: log 3 - 1.5 log 2
    assert float(policy.kl(logits, jnp.zeros(3))) == pytest.approx(np.log(3) - 1.5 * np.log(2), rel=1e-5)


def test_divergence_of_normals():
    # log(2) + (1 + 1) / 8 - 0.5 for N(0, 1) against N(1, 2)
    assert float(TanhNormal(1).kl(params(0, 1), params(1, 2))) == pytest.approx(np.log(2) + 2 / 8 - 0.5, rel=1e-5)
