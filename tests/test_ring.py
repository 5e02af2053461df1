"""The ring against a Python deque, and each of its codecs against what it promises."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from histories import lived
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.replay.codec import CODECS, encode, read, read_rollout
from jaxrl_long.replay.ring import Ends, Layout, earlier, make_ring, write

numbers = st.integers(-(10**30), 10**30).map(float) | st.floats(-1024.0, 1024.0, width=32, allow_subnormal=False)


def ends(length: int, number: int) -> Ends:
    """Nothing ends."""
    nothing = jnp.zeros((length, number), bool)
    return Ends(nothing, nothing, jnp.zeros((length, number), jnp.int32), jnp.zeros((length, number, 3)))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_the_ring_holds_the_latest_rows_as_a_deque_does(segments, length, writes):
    layout = Layout(segments * length, length)
    ring = make_ring(layout, {"obs": jax.ShapeDtypeStruct((length, 2, 3), jnp.float32)}, jnp.zeros((2, 3)), 2)
    kept: deque[np.ndarray] = deque(maxlen=segments)
    for number in range(writes):
        rollout = np.full((length, 2, 3), float(number), np.float32)
        ring = write(ring, layout, {"obs": jnp.asarray(rollout)}, ends(length, 2), jnp.int32(number))
        kept.append(rollout)
    assert int(ring.filled) == len(kept) * length
    for back, rollout in enumerate(reversed(kept)):
        np.testing.assert_array_equal(earlier(ring, layout, back)["obs"], rollout)


@given(st.sampled_from(sorted(CODECS)), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_every_codec_gives_back_through_wraps_what_it_promises(codec, length, segments, seed):
    layout = Layout(segments * length, length, (("obs", codec),))
    random = np.random.default_rng(seed)
    ring = make_ring(layout, {"obs": jax.ShapeDtypeStruct((length, 2, 3), jnp.float32)}, jnp.zeros((2, 3)), 2)
    written = []
    for number in range(segments + 2):
        rollout = (random.normal(size=(length, 2, 3)) * [1e-3, 1.0, 1e4] + [0, 100, -1e5]).astype(np.float32)
        ring = write(ring, layout, {"obs": jnp.asarray(rollout)}, ends(length, 2), jnp.int32(number))
        written.append(rollout)
    for back in range(segments):
        rollout = written[-1 - back]
        error = np.abs(np.asarray(earlier(ring, layout, back)["obs"]) - rollout)
        np.testing.assert_array_less(error, np.broadcast_to(worst(codec, rollout), error.shape))


def worst(codec: str, rollout: np.ndarray) -> np.ndarray:
    """The largest error that the codec's table names, and float32's own of the arithmetic."""
    size = np.abs(rollout).max(axis=(0, 1))
    span = rollout.max(axis=(0, 1)) - rollout.min(axis=(0, 1))
    move = np.abs(np.diff(rollout, axis=0)).max(axis=(0, 1), initial=0.0)
    promised = {"float32": 0 * size, "bfloat16": size / 2**8, "float16": np.where(size < 65504, size / 2**11, np.inf), "int8": span / 508, "delta": move / 252}
    return promised[codec] * (1 + 1e-3) + 4e-7 * size + 1e-9


@given(st.lists(numbers, min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_bfloat16_loses_at_most_one_part_in_256_and_other_fields_nothing(values):
    fields = {"obs": jnp.array(values, jnp.float32)[None], "reward": jnp.array(values, jnp.float32)[None]}
    names = {"obs": "bfloat16"}
    stored = encode(names, fields)
    assert stored["obs"].row.dtype == jnp.bfloat16
    np.testing.assert_array_equal(read_rollout(names, "reward", stored["reward"]), fields["reward"])
    # Below the smallest normal number (1.2e-38) precision is lost gradually.
    np.testing.assert_allclose(read_rollout(names, "obs", stored["obs"]), fields["obs"], rtol=2**-8, atol=1e-38)


def test_a_constant_feature_is_kept_exactly_by_every_codec():
    values = jnp.full((4, 2, 1), 0.5)
    for codec in CODECS:
        stored = encode({"obs": codec}, {"obs": values})
        np.testing.assert_array_equal(read_rollout({"obs": codec}, "obs", stored["obs"]), values)


def test_float16_ends_at_its_largest_number():
    stored = encode({"obs": "float16"}, {"obs": jnp.array([[1e30, -1e30]])})
    np.testing.assert_array_equal(read_rollout({"obs": "float16"}, "obs", stored["obs"]), [[65504.0, -65504.0]])


def test_integers_among_a_rounded_field_stay_as_they_are():
    stored = encode({"action": "int8"}, {"action": jnp.array([[3, 300]])})
    np.testing.assert_array_equal(read({"action": "int8"}, "action", stored["action"], jnp.array([0, 0]), jnp.array([0, 1]), 1), [3, 300])


@pytest.mark.parametrize(("codec", "expected"), [("float32", 4.0), ("bfloat16", 2.0), ("float16", 2.0), ("int8", 1.0), ("delta", 1.125)])
def test_bytes_of_an_observation(codec, expected):
    layout = Layout(320, 32, (("obs", codec),))
    ring = make_ring(layout, {"obs": jax.ShapeDtypeStruct((32, 7, 3), jnp.float32)}, jnp.zeros((7, 3)), 7)
    obs = ring.fields["obs"]
    numbers = 320 * 7 * 3
    assert (obs.row.nbytes + (obs.key.nbytes if codec == "delta" else 0)) / numbers == CODECS[codec].bytes(32) == expected


def test_single_samples_are_what_whole_rollouts_say():
    for codec in CODECS:
        history = lived(Layout(12, 4, (("obs", codec),)), 5)
        row, env = jnp.arange(12).repeat(3), jnp.tile(jnp.arange(3), 12)
        single = read({"obs": codec}, "obs", history.ring.fields["obs"], row, env, 4)
        whole = jnp.concatenate([earlier(history.ring, history.layout, back)["obs"] for back in (1, 0, 2)])
        # Written 5 rollouts into 3 places: the oldest of them is in the last.
        np.testing.assert_allclose(single.reshape(12, 3, 1), whole, rtol=1e-6)
