"""Numbers that stay right over millions of steps: running moments, wide counters, compensated sums."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.typing import Array, Float, PyTree, Shaped, typed

LARGEST = 1e15
"""Numbers beyond it count as not finite: one squared would make a variance infinite, for ever, and the feature vanish."""


@struct.dataclass
class Count:
    """A counter up to 2^64 of two 32-bit halves: float32 stops counting at 2^24, int32 wraps at 2^31.

    >>> Count.of(2**33 - 1).plus(jnp.int32(2)).as_int() == 2**33 + 1
    True
    """

    high: Shaped[Array, "..."]
    """uint32 []: multiples of 2^32."""
    low: Shaped[Array, "..."]
    """uint32 []: the rest."""

    @classmethod
    def of(cls, number: int) -> "Count":
        """The counter that stands at `number`, a Python int."""
        return cls(jnp.uint32(number >> 32), jnp.uint32(number & 0xFFFFFFFF))

    def plus(self, extra: Array) -> "Count":
        """The counter moved on by `extra` >= 0, a [] integer below 2^31."""
        low = self.low + extra.astype(jnp.uint32)
        return Count(self.high + (low < self.low).astype(jnp.uint32), low)

    def as_float(self) -> Float[Array, ""]:
        """The count rounded to float32: right to 7 digits, good for ratios."""
        return self.high.astype(jnp.float32) * jnp.float32(2**32) + self.low.astype(jnp.float32)

    def as_int(self) -> int:
        """The exact count, on the host."""
        return (int(self.high) << 32) + int(self.low)


@struct.dataclass
class Sum:
    """A running float32 sum and what its rounding has lost so far.

    high + low is the exact sum of what was added, but for a rounding (half of 2⁻²³ of it) of each term itself.

    >>> Sum(jnp.float32(2**24), jnp.float32(0)).plus(jnp.float32(1)).as_float() - 2**24
    1.0
    >>> float(jnp.float32(2**24) + jnp.float32(1)) - 2**24
    0.0
    """

    high: Float[Array, "..."]
    low: Float[Array, "..."]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "Sum":
        """Sums that stand at 0."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def plus(self, term: Float[Array, "..."]) -> "Sum":
        """The sum after one more term. Source: Kahan 1965, with Knuth's two-sum, which needs no order of magnitudes."""
        term = term + self.low
        total = self.high + term
        kept = total - self.high
        return Sum(total, (self.high - (total - kept)) + (term - kept))

    def as_float(self) -> float:
        """The sum of a [] on the host, in float64."""
        return float(self.high) + float(self.low)

    @property
    def value(self) -> Float[Array, "..."]:
        """The sum, rounded once."""
        return self.high + self.low


@struct.dataclass
class Moments:
    """Mean and variance of every row of [O] features seen so far."""

    count: Count
    mean: Float[Array, " O"]
    mean_low: Float[Array, " O"]
    """What the rounding of `mean` has lost: late in a run a batch moves the mean by less than its last digit."""
    variance: Float[Array, " O"]
    refused: Array
    """int32 []: rows left out because they were not finite, or beyond LARGEST."""

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "Moments":
        """Nothing seen yet: normalising changes nothing but the clip."""
        zero = jnp.zeros(shape)
        return cls(Count.of(0), zero, zero, jnp.ones(shape), jnp.int32(0))


def _total(x: Array, axis_name: str | None) -> Array:
    return jax.lax.psum(x, axis_name) if axis_name else x


@typed
def moved(moments: Moments, rows: Float[Array, "B ..."], axis_name: str | None = None) -> Moments:
    """The moments after another batch of rows; inside a mesh axis, after the batches of all its devices.

    Rows with an entry that is not finite, or beyond LARGEST, are left out and counted. Two passes over the batch, centred first on the running mean and
    then on the batch's own, so that features far from 0 keep their variance.
    Source: Chan, Golub, LeVeque 1983, pairwise merging of (count, mean, variance).
    """
    finite = (jnp.abs(rows.reshape(rows.shape[0], -1)) <= LARGEST).all(axis=1)
    keep = finite.reshape(-1, *([1] * (rows.ndim - 1)))
    number = _total(jnp.sum(finite), axis_name)
    new = jnp.maximum(number, 1).astype(jnp.float32)
    offset = jnp.where(keep, rows - moments.mean, 0.0)
    shift = _total(jnp.sum(offset, axis=0), axis_name) / new
    variance = _total(jnp.sum(jnp.where(keep, (offset - shift) ** 2, 0.0), axis=0), axis_name) / new

    count = moments.count.plus(number)
    share = jnp.where(number > 0, new / jnp.maximum(count.as_float(), 1.0), 0.0)
    mean = Sum(moments.mean, moments.mean_low).plus(share * (shift - moments.mean_low))
    merged = (1 - share) * moments.variance + share * variance + share * (1 - share) * (shift - moments.mean_low) ** 2
    refused = moments.refused + _total(jnp.sum(~finite), axis_name).astype(jnp.int32)
    return Moments(count, mean.high, mean.low, merged, refused)


@typed
def normalized(moments: Moments, rows: Float[Array, "..."], clip: float) -> Float[Array, "..."]:
    """Rows [..., O] in standard deviations from the mean, within ± clip. A feature that never moved is only centred."""
    scale = jax.lax.rsqrt(jnp.maximum(moments.variance, 1e-12))
    return jnp.clip((rows - moments.mean) * scale, -clip, clip)


def _is_moments(node: PyTree) -> bool:
    return isinstance(node, Moments)


def moments_like(obs: PyTree) -> PyTree:
    """A `Moments` for each entry of one observation, whose leaves are [O]."""
    return jax.tree.map(lambda leaf: Moments.zeros(leaf.shape), obs)


def observe(moments: PyTree, obs: PyTree, axis_name: str | None = None) -> PyTree:
    """Each entry's moments after a batch of observations, whose leaves are [B, O]."""
    return jax.tree.map(lambda m, rows: moved(m, rows, axis_name), moments, obs, is_leaf=_is_moments)


def normalize(moments: PyTree, obs: PyTree, clip: float) -> PyTree:
    """Each entry of observations [..., O], normalised by its own moments."""
    return jax.tree.map(lambda m, rows: normalized(m, rows, clip), moments, obs, is_leaf=_is_moments)
