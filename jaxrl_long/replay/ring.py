"""The on-device ring: the latest C steps of N environments, written in place by the fused program."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.replay.codec import Codec, decode, encode
from jaxrl_long.typing import Array, Int, PyTree


@struct.dataclass
class Ring:
    """The last C steps of N environments, overwritten oldest first."""

    rows: dict[str, PyTree]
    """Encoded fields, every leaf [C, N, ...]. Rows at and after `filled` are zeros and are never read."""
    cursor: Int[Array, ""]
    """Row the next write starts at; a multiple of the rollout length."""
    filled: Int[Array, ""]
    """Rows written so far, at most C."""


def make_ring(capacity: int, codec: Codec, row: dict[str, PyTree]) -> Ring:
    """An empty ring of `capacity` rows; `row` holds the shapes and dtypes [N, ...] of one step's fields."""
    stored = jax.eval_shape(lambda fields: encode(codec, fields), row)
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), stored)
    return Ring(rows, jnp.int32(0), jnp.int32(0))


def write(ring: Ring, codec: Codec, fields: dict[str, PyTree]) -> Ring:
    """The ring after a rollout [T, N, ...]. C is a multiple of T, so that a write never wraps and is one update in place per leaf."""

    def put(rows: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(rows, new, ring.cursor, axis=0)

    new = encode(codec, fields)
    length, capacity = jax.tree.leaves(new)[0].shape[0], jax.tree.leaves(ring.rows)[0].shape[0]
    return Ring(
        rows=jax.tree.map(put, ring.rows, new),
        cursor=(ring.cursor + length) % capacity,
        filled=jnp.minimum(ring.filled + length, capacity),
    )


def segment(ring: Ring, length: int, back: int) -> dict[str, PyTree]:
    """The rollout [T, N, ...] written `back` writes ago, decoded; 0 is the latest. Zeros where nothing was written yet."""
    capacity = jax.tree.leaves(ring.rows)[0].shape[0]
    start = (ring.cursor - (back + 1) * length) % capacity
    return decode(jax.tree.map(lambda rows: jax.lax.dynamic_slice_in_dim(rows, start, length, axis=0), ring.rows))
