"""How each field of the ring is written: bytes per number, and what is lost.

| codec | bytes per number | worst error of a number x |
|---|---|---|
| float32 | 4 | none |
| bfloat16 | 2 | 2^-8 of x |
| float16 | 2 | 2^-11 of x from 6e-5 to 65504 in size; what is larger ends there |
| int8 | 1 | 1/508 of the span that the feature has in the rollout |
| delta | 1 + 4/T | 1/252 of the farthest that the feature moves in a step of the rollout |

int8 and delta keep their scale with each rollout of T steps: it is the rollout's own, so that nothing is clipped, and rows
need no new scales when statistics move. Rewards and ends decide what is learnt, and are never rounded.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long import named
from jaxrl_long.fields import ConfigError
from jaxrl_long.typing import Array, Int, PyTree

LARGEST_HALF = 65504.0
"""Beyond it float16 says infinite."""
ROWS = (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8)
"""What a codec makes of float32; other types in the ring are numbers that were kept as they are."""
NEEDED = ("sums", "encode", "decode", "bytes")
"""What a Codec has."""


@struct.dataclass
class Stored:
    """One array of a field as the ring keeps it."""

    row: Array
    """[C, N, ...]"""
    key: Any
    """[S, N, ...] float32, what the rows of each of the S = C / T rollouts are differences to; () without."""
    scale: Any
    """[S, 2, ...] float32, each rollout's lowest value and step; () without."""


class Codec(Protocol):
    """How an array of float32 is stored."""

    @property
    def sums(self) -> bool:
        """Whether a number is the sum of its rollout's rows up to its own."""
        ...

    def encode(self, x: Array, axis: str | None) -> Stored:
        """The stored form of a rollout [T, N, ...]; `axis` names the mesh axis that N is split over, if any."""
        ...

    def decode(self, row: Array, key: Any, scale: Any) -> Array:
        """Float32 again, from what belongs to each of B samples: row [B, ...], key [B, ...], scale [B, 2, ...]."""
        ...

    def bytes(self, length: int) -> float:
        """Bytes per number, in rollouts of that many rows."""
        ...


@dataclass(frozen=True)
class Cast:
    """Another floating-point type; numbers beyond its largest end there."""

    dtype: Any
    largest: float = math.inf
    sums: bool = False

    def encode(self, x: Array, axis: str | None) -> Stored:
        """Each number by itself."""
        del axis
        return Stored(jnp.clip(x, -self.largest, self.largest).astype(self.dtype), (), ())

    def decode(self, row: Array, key: Any, scale: Any) -> Array:
        """The type back."""
        del key, scale
        return row.astype(jnp.float32)

    def bytes(self, length: int) -> float:
        """Of the type."""
        del length
        return jnp.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Exact:
    """Whatever it is, as it is."""

    sums: bool = False

    def encode(self, x: Array, axis: str | None) -> Stored:
        """Itself."""
        del axis
        return Stored(x, (), ())

    def decode(self, row: Array, key: Any, scale: Any) -> Array:
        """Itself."""
        del key, scale
        return row

    def bytes(self, length: int) -> float:
        """Of float32."""
        del length
        return 4.0


@dataclass(frozen=True)
class Int8:
    """The nearest of 255 equal steps from the lowest to the highest value that the feature takes in the rollout."""

    sums: bool = False

    def encode(self, x: Array, axis: str | None) -> Stored:
        """Steps above the lowest, from -127 on."""
        low, high = jnp.min(x, axis=(0, 1)), jnp.max(x, axis=(0, 1))
        if axis:
            low, high = jax.lax.pmin(low, axis), jax.lax.pmax(high, axis)
        # Divided first: the span of two huge numbers is none.
        step = high / 254 - low / 254
        return Stored((_steps(x, low, step) - 127).astype(jnp.int8), (), jnp.stack([low, step])[None])

    def decode(self, row: Array, key: Any, scale: Array) -> Array:
        """Steps times their size, on top of the lowest."""
        del key
        return (row.astype(jnp.float32) + 127) * scale[:, 1] + scale[:, 0]

    def bytes(self, length: int) -> float:
        """Scales are as good as nothing: one for all environments."""
        del length
        return 1.0


@dataclass(frozen=True)
class Delta:
    """The first row of a rollout whole, and of the others by how many steps of a scale each feature has moved since the row before.

    Differences of rounded numbers, not rounded differences: errors do not add up.
    """

    sums: bool = True

    def encode(self, x: Array, axis: str | None) -> Stored:
        """The scale's step is 1/126 of the farthest move: rounding may make a move one step larger, and int8 ends at 127."""
        moves = jnp.abs(jnp.diff(x, axis=0))
        farthest = jnp.max(moves, axis=(0, 1), initial=0.0)
        step = (jax.lax.pmax(farthest, axis) if axis else farthest) / 126
        at = _steps(x, x[0], step).astype(jnp.int32)
        return Stored(jnp.diff(at, axis=0, prepend=jnp.zeros_like(at[:1])).astype(jnp.int8), x[:1], jnp.stack([jnp.zeros_like(step), step])[None])

    def decode(self, row: Array, key: Array, scale: Array) -> Array:
        """The sum of the moves, on top of the first row."""
        return key + row.astype(jnp.float32) * scale[:, 1]

    def bytes(self, length: int) -> float:
        """A row in `length` is whole, besides."""
        return 1.0 + 4.0 / length


def _steps(x: Array, low: Array, step: Array) -> Array:
    """How many steps of a scale x is above its lowest value."""
    return jnp.round((x - low) / jnp.where(step > 0, step, 1.0))


CODECS: Mapping[str, Codec] = {
    "float32": Exact(),
    "bfloat16": Cast(jnp.bfloat16),
    "float16": Cast(jnp.float16, LARGEST_HALF),
    "int8": Int8(),
    "delta": Delta(),
}


@functools.cache
def find(name: str) -> Codec:
    """The codec of this name, or of the user's class `package.module:Class`.

    Raises:
        ConfigError: no such class, or one that is no codec.
    """
    if name in CODECS:
        return CODECS[name]
    constructor = named.load("replay.codec", name)
    codec = named.built("replay.codec", name, None, constructor)
    problems = named.lacking("replay.codec", name, codec, "A Codec", NEEDED, "jaxrl_long/replay/codec.py", NEEDED[1:])
    if not problems:
        row = jax.eval_shape(lambda: codec.encode(jnp.zeros((2, 2, 2)), None)).row.dtype
        allowed = ", ".join(str(jnp.dtype(each)) for each in ROWS)
        problems = [f"replay.codec={name}: its rows are {row}. They may be {allowed}."] if row not in ROWS else []
    if problems:
        raise ConfigError(problems)
    return codec


def codec_of(names: Mapping[str, str], field: str) -> Codec:
    """A field's codec; one that `names` does not mention stays exact.

    >>> [codec_of({"obs": "delta", "action": "bfloat16"}, field).bytes(32) for field in ("obs", "action", "reward")]
    [1.125, 2, 4.0]
    """
    return find(names[field]) if field in names else Exact()


def encode(names: Mapping[str, str], fields: Mapping[str, PyTree], axis: str | None = None) -> dict[str, PyTree]:
    """Named fields of a rollout [T, N, ...] as the ring keeps them; integers and flags among them as they are."""

    def stored(field: str, leaf: Array) -> Stored:
        codec = codec_of(names, field) if leaf.dtype == jnp.float32 else Exact()
        return codec.encode(leaf, axis)

    return {field: jax.tree.map(functools.partial(stored, field), value) for field, value in fields.items()}


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
    return codec if leaf.row.dtype in ROWS else Exact()


def _is_stored(node: Any) -> bool:
    return isinstance(node, Stored)
