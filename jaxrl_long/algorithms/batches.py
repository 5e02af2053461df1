"""From a rollout to minibatches: values across cuts, and shuffled slices."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_long.algorithms.protocol import Rollout
from jaxrl_long.typing import Array, Float, Key, PyTree


def values_after(value: Callable[[PyTree], Array], values: Float[Array, "T N"], last_value: Float[Array, " N"], rollout: Rollout) -> Float[Array, "T N"]:
    """V of the observation that each action led to, before any restart, in reward units.

    Where nothing was cut that is the next row's value. Cut steps are few, so their final observations are gathered into a
    table of 1/16 of the rows, and the critic looks at those only; when more than fit end together, it looks at all of them.
    """
    following = jnp.concatenate([values[1:], last_value[None]])
    cut = rollout.truncated.reshape(-1)
    slots = max(1, min(cut.size, max(64, cut.size // 16)))

    def few() -> Array:
        row = jnp.nonzero(cut, size=slots, fill_value=cut.size)[0]
        final = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]).at[row].get(mode="clip"), rollout.final_obs)
        return following.reshape(-1).at[row].set(value(final), mode="drop").reshape(following.shape)

    def many() -> Array:
        return jnp.where(rollout.truncated, value(rollout.final_obs), following)

    return jax.lax.cond(jnp.sum(cut) <= slots, few, many)


@dataclass(frozen=True)
class Slices:
    """A batch as rows of samples, and which rows each minibatch takes."""

    columns: PyTree
    """[T*N, ...]"""
    rows: Array
    """int32 [epochs * minibatches, B]"""

    def take(self, rows: Array) -> PyTree:
        """The samples of one minibatch."""
        return jax.tree.map(lambda leaf: leaf[rows], self.columns)


def minibatches(batch: PyTree, key: Key[Array, ""], epochs: int, number: int, axis: str | None) -> Slices:
    """`epochs` random partitions of a batch [T, N, ...] into `number` minibatches.

    Each device shuffles its own samples with a key of its own, so minibatches hold equally many samples of every device;
    runs on different numbers of devices draw different minibatches of the same samples.
    """
    if axis:
        key = jax.random.fold_in(key, jax.lax.axis_index(axis))
    columns = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    size = jax.tree.leaves(columns)[0].shape[0]
    # One sort of random numbers; `jax.random.permutation` sorts several times to keep ties even, which are one pair in 4 billion.
    order = jnp.argsort(jax.random.bits(key, (epochs, size)), axis=1)
    return Slices(columns, order.reshape(epochs * number, size // number))
