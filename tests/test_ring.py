"""The ring against a Python deque."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.replay.codec import decode, encode
from jaxrl_long.replay.ring import make_ring, segment, write


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_the_ring_holds_the_latest_rows_as_a_deque_does(segments, length, writes):
    ring = make_ring(segments * length, "float32", {"obs": jax.ShapeDtypeStruct((2, 3), jnp.float32)})
    kept: deque[np.ndarray] = deque(maxlen=segments)
    for number in range(writes):
        rollout = np.full((length, 2, 3), float(number), np.float32)
        ring = write(ring, "float32", {"obs": jnp.asarray(rollout)})
        kept.append(rollout)
    assert int(ring.filled) == len(kept) * length
    for back, rollout in enumerate(reversed(kept)):
        np.testing.assert_array_equal(segment(ring, length, back)["obs"], rollout)


@given(st.lists(st.integers(-(10**30), 10**30).map(float) | st.floats(-1024.0, 1024.0, width=32, allow_subnormal=False), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_bfloat16_loses_at_most_one_part_in_256_of_what_networks_read(numbers):
    fields = {"obs": jnp.array(numbers, jnp.float32), "reward": jnp.array(numbers, jnp.float32)}
    stored = encode("bfloat16", fields)
    assert stored["obs"].dtype == jnp.bfloat16
    back = decode(stored)
    np.testing.assert_array_equal(back["reward"], fields["reward"])
    # Below the smallest normal number (1.2e-38) precision is lost gradually.
    np.testing.assert_allclose(back["obs"], fields["obs"], rtol=2**-8, atol=1e-38)


@pytest.mark.parametrize(("codec", "expected"), [("float32", 4 * 3), ("bfloat16", 2 * 3)])
def test_bytes_of_an_observation(codec, expected):
    ring = make_ring(1, codec, {"obs": jax.ShapeDtypeStruct((1, 3), jnp.float32)})
    assert ring.rows["obs"].nbytes == expected
