"""Drawing steps of the ring in proportion to a priority, at a cost that grows with the batch and the logarithm of the capacity only.

Every environment has a sum tree over its rows; environments are chosen by their totals, which are N numbers.
Source: Schaul et al. 2016, arXiv:1511.05952, "Prioritized experience replay" (proportional variant).
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.typing import Array, Float, Int, Key


@struct.dataclass
class Priorities:
    """A priority of each row, as it is summed up: node i has the children 2 i and 2 i + 1, the root is node 1, the leaves come last."""

    tree: Float[Array, "M N"]
    """M is twice the least power of two that is at least the capacity; node 0 is not used."""
    most: Float[Array, ""]
    """The highest priority so far, which new rows get: each is looked at once at least."""


def make_priorities(capacity: int, number: int) -> Priorities:
    """Nothing to draw yet: all priorities are 0."""
    leaves = 1 << (capacity - 1).bit_length()
    return Priorities(jnp.zeros((2 * leaves, number)), jnp.float32(1.0))


def _leaves(priorities: Priorities) -> int:
    return priorities.tree.shape[0] // 2


def written(priorities: Priorities, cursor: Int[Array, ""], filled: Int[Array, ""], length: int, capacity: int, window: int) -> Priorities:
    """After `length` rows were written at `cursor`, where `filled` were stored before.

    What is drawn is the first of `window` rows: the newest that lack their later ones can't be drawn yet, those that lacked them until now can.
    """
    leaves, lacking = _leaves(priorities), window - 1
    whole, partial = cursor - lacking + jnp.arange(length), cursor + length - lacking + jnp.arange(lacking)
    value = jnp.concatenate([jnp.where(whole >= cursor - filled, priorities.most, 0.0), jnp.zeros(lacking)])
    node = leaves + jnp.concatenate([whole, partial]) % capacity
    tree = priorities.tree.at[node].set(jnp.broadcast_to(value[:, None], (value.size, priorities.tree.shape[1])))
    return Priorities(_summed(tree, node, leaves), priorities.most)


def _summed(tree: Float[Array, "M N"], node: Int[Array, " K"], leaves: int) -> Float[Array, "M N"]:
    """The sums above these leaves, of all environments, anew."""
    for _ in range(leaves.bit_length() - 1):
        node = node // 2
        tree = tree.at[node].set(tree[2 * node] + tree[2 * node + 1])
    return tree


def changed(priorities: Priorities, row: Int[Array, " B"], env: Int[Array, " B"], priority: Float[Array, " B"]) -> Priorities:
    """With new priorities > 0 of B steps. A step drawn twice gets one of its two."""
    tree, leaves = priorities.tree, _leaves(priorities)
    node = leaves + row
    # What can't be drawn (any more) stays so.
    kept = jnp.where(tree[node, env] > 0, priority, 0.0)
    tree = tree.at[node, env].set(kept)
    for _ in range(leaves.bit_length() - 1):
        node = node // 2
        tree = tree.at[node, env].set(tree[2 * node, env] + tree[2 * node + 1, env])
    return Priorities(tree, jnp.maximum(priorities.most, jnp.max(priority)))


def draw(priorities: Priorities, key: Key[Array, ""], number: int) -> tuple[Int[Array, " B"], Int[Array, " B"], Float[Array, " B"]]:
    """Row and environment of B steps, each in proportion to its priority, and the probability of each. One from each of B equal shares of the total."""
    tree, leaves = priorities.tree, _leaves(priorities)
    until = jnp.cumsum(tree[1])
    at = (jnp.arange(number) + jax.random.uniform(key, (number,))) / number * until[-1]
    env = jnp.minimum(jnp.searchsorted(until, at, side="right"), tree.shape[1] - 1)
    left = jnp.clip(at - (until[env] - tree[1, env]), 0.0)
    node = jnp.ones_like(env)
    for _ in range(leaves.bit_length() - 1):
        first, second = tree[2 * node, env], tree[2 * node + 1, env]
        # Rounding must not lead to where nothing can be drawn.
        right = ((left >= first) & (second > 0)) | (first <= 0)
        left = jnp.where(right, left - first, left)
        node = 2 * node + right
    return node - leaves, env, tree[node, env] / until[-1]


def importance(probability: Float[Array, " B"], steps: Int[Array, ""], exponent: float) -> Float[Array, " B"]:
    """Weights (1 / (n p))^β that take back the preference, n the number of steps drawn from; the largest of the batch is 1."""
    weight = (steps.astype(jnp.float32) * jnp.maximum(probability, 1e-30)) ** -exponent
    return weight / jnp.max(weight)
