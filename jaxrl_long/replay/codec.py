"""How each field of the ring is written: bytes per number, and what is lost.

| codec | bytes per number | worst error of a number x |
|---|---|---|
| float32 | 4 | none |
| bfloat16 | 2 | 2^-8 of x |
| float16 | 2 | 2^-11 of x, below 65504 and above 6e-5 in size; beyond that it is refused by nothing and ends at that size |
| int8 | 1 | 1/508 of the span that the feature has in the rollout |
| delta | 1 + 4/T | 1/252 of the farthest that the feature moves in a step of the rollout |

int8 and delta keep their scale with each rollout of T steps: it is the rollout's own, so that nothing is clipped, and rows
need no new scales when statistics move. Rewards and ends decide what is learnt, and are never rounded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.typing import Array, Int, PyTree

LARGEST_HALF = 65504.0
"""Beyond it float16 says infinite."""


@struct.dataclass
class Stored:
    """One array of a field as the ring keeps it."""

    row: Array
    """[C, N, ...]"""
    key: Any
    """[S, N, ...] float32, what the rows of each of the S = C / T rollouts are differences to; () without."""
    scale: Any
    """[S, 2, ...] float32, each rollout's lowest value and step; () without."""


@dataclass(frozen=True)
class Codec:
    """How an array of float32 is stored. `encode` takes [T, N, ...]; `decode` takes what belongs to each sample, [B, ...]."""

    encode: Callable[[Array, str | None], Stored]
    decode: Callable[[Array, Any, Any], Array]
    bytes: Callable[[int], float]
    """Bytes per number, of the rollout's length."""
    sums: bool = False
    """Whether a row is the sum of the rows of its rollout up to it, and not itself."""


def _cast(dtype: Any, largest: float | None = None) -> Codec:
    def encode(x: Array, axis: str | None) -> Stored:
        del axis
        return Stored((x if largest is None else jnp.clip(x, -largest, largest)).astype(dtype), (), ())

    return Codec(encode, lambda row, key, scale: row.astype(jnp.float32), lambda length: jnp.dtype(dtype).itemsize)


def _steps(x: Array, low: Array, step: Array) -> Array:
    """How many steps of a scale x is above its lowest value."""
    return jnp.round((x - low) / jnp.where(step > 0, step, 1.0))


def _int8_encode(x: Array, axis: str | None) -> Stored:
    low, high = _least(jnp.min(x, axis=(0, 1)), axis), _most(jnp.max(x, axis=(0, 1)), axis)
    # Halved first: the span of two huge numbers is none.
    step = (high / 254 - low / 254).astype(jnp.float32)
    return Stored((_steps(x, low, step) - 127).astype(jnp.int8), (), jnp.stack([low, step])[None])


def _int8_decode(row: Array, key: Any, scale: Array) -> Array:
    del key
    return (row.astype(jnp.float32) + 127) * scale[:, 1] + scale[:, 0]


def _delta_encode(x: Array, axis: str | None) -> Stored:
    first = x[0]
    farthest = _most(jnp.max(jnp.abs(jnp.diff(x, axis=0)), axis=(0, 1)), axis) if x.shape[0] > 1 else jnp.zeros(x.shape[2:])
    # One more than 126: rounding may make a difference of two rounded numbers one step larger.
    step = farthest / 126
    at = _steps(x, first, step).astype(jnp.int32)
    return Stored(jnp.diff(at, axis=0, prepend=jnp.zeros_like(at[:1])).astype(jnp.int8), first[None], jnp.stack([jnp.zeros_like(step), step])[None])


def _delta_decode(row: Array, key: Array, scale: Array) -> Array:
    return key + row.astype(jnp.float32) * scale[:, 1]


def _least(x: Array, axis: str | None) -> Array:
    return jax.lax.pmin(x, axis) if axis else x


def _most(x: Array, axis: str | None) -> Array:
    return jax.lax.pmax(x, axis) if axis else x


CODECS: Mapping[str, Codec] = {
    "float32": _cast(jnp.float32),
    "bfloat16": _cast(jnp.bfloat16),
    "float16": _cast(jnp.float16, LARGEST_HALF),
    "int8": Codec(_int8_encode, _int8_decode, lambda length: 1.0),
    "delta": Codec(_delta_encode, _delta_decode, lambda length: 1.0 + 4.0 / length, sums=True),
}
EXACT = Codec(lambda x, axis: Stored(x, (), ()), lambda row, key, scale: row, lambda length: 4.0)
"""For what must stay as it is, of whatever dtype."""


def codec_of(names: Mapping[str, str], field: str) -> Codec:
    """A field's codec; one that `names` does not mention stays exact."""
    return CODECS[names[field]] if field in names else EXACT


def encode(names: Mapping[str, str], fields: Mapping[str, PyTree], axis: str | None = None) -> dict[str, PyTree]:
    """Named fields of a rollout [T, N, ...] as the ring keeps them; integers and flags among them as they are."""

    def stored(field: str, leaf: Array) -> Stored:
        codec = codec_of(names, field) if leaf.dtype == jnp.float32 else EXACT
        return codec.encode(leaf, axis)

    return {field: jax.tree.map(lambda leaf: stored(field, leaf), value) for field, value in fields.items()}


def read(names: Mapping[str, str], field: str, value: PyTree, row: Int[Array, " B"], env: Int[Array, " B"], length: int) -> PyTree:
    """A field of B samples, decoded; the ring's rollouts are `length` rows long."""

    def one(leaf: Stored) -> Array:
        codec = _of_stored(names, field, leaf)
        number = row // length
        # `()` where there is no key or scale.
        key = jax.tree.map(lambda all_keys: all_keys[number, env], leaf.key)
        scale = jax.tree.map(lambda all_scales: all_scales[number], leaf.scale)
        if not codec.sums:
            return codec.decode(leaf.row[row, env], key, scale)
        places = number[:, None] * length + jnp.arange(length)
        moved = leaf.row[places, env[:, None]].astype(jnp.int32)
        before = (places <= row[:, None]).reshape(*places.shape, *[1] * (moved.ndim - 2))
        return codec.decode(jnp.sum(jnp.where(before, moved, 0), axis=1), key, scale)

    return jax.tree.map(one, value, is_leaf=_is_stored)


def read_rollout(names: Mapping[str, str], field: str, value: PyTree) -> PyTree:
    """A field of one rollout [T, N, ...] from its stored form, decoded."""

    def one(leaf: Stored) -> Array:
        codec = _of_stored(names, field, leaf)
        row = jnp.cumsum(leaf.row.astype(jnp.int32), axis=0) if codec.sums else leaf.row
        return codec.decode(row, leaf.key, leaf.scale)

    return jax.tree.map(one, value, is_leaf=_is_stored)


def _of_stored(names: Mapping[str, str], field: str, leaf: Stored) -> Codec:
    codec = codec_of(names, field)
    # Integers and flags of a rounded field were kept as they are.
    kept = leaf.row.dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8)
    return codec if kept else EXACT


def _is_stored(node: Any) -> bool:
    return isinstance(node, Stored)
