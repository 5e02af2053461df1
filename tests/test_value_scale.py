"""The critic's unit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long.learning import value_scale
from jaxrl_long.learning.networks import MLP
from jaxrl_long.learning.value_scale import ValueScale


def test_values_stay_the_same_when_their_unit_moves():
    critic, obs = MLP((8,), 1), jax.random.normal(jax.random.key(0), (5, 3))
    params = critic.init(jax.random.key(1), obs)
    old, new = ValueScale(jnp.float32(2), jnp.float32(9), jnp.int32(1)), ValueScale(jnp.float32(-100), jnp.float32(1e4), jnp.int32(2))
    apply: Any = critic.apply
    before = apply(params, obs) * old.std + old.mean
    after = apply(value_scale.rescaled(params, old, new), obs) * new.std + new.mean
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_the_first_batch_sets_the_scale_and_later_ones_move_it():
    scale = value_scale.moved(value_scale.initial(), jnp.float32(50), jnp.float32(4))
    assert (float(scale.mean), float(scale.std)) == (50.0, 2.0)
    scale = value_scale.moved(scale, jnp.float32(60), jnp.float32(4))
    # Half each: mean 55, variance 4 + 0.25 * 10^2 = 29.
    assert (float(scale.mean), float(scale.variance)) == (55.0, 29.0)


def test_a_batch_that_is_not_finite_moves_nothing():
    scale = value_scale.moved(value_scale.initial(), jnp.float32(jnp.inf), jnp.float32(jnp.nan))
    assert (float(scale.mean), float(scale.std), int(scale.updates)) == (0.0, 1.0, 0)


def test_returns_that_hardly_differ_do_not_blow_up_the_unit():
    scale = value_scale.moved(value_scale.initial(), jnp.float32(100), jnp.float32(0))
    assert 0.0999 < float(scale.std) < 0.1001
