"""The on-device ring: the latest C steps of N environments, written in place by the fused program.

Time-major and written a rollout of T rows at a time, S = C / T of them. An observation is stored once: what an action led to is
the next row's, except where an episode was cut. The observations that cuts hid are in a small table of each environment's
latest cuts, found by counting them: each rollout keeps how many there had been before it, and its rows' ends do the rest.
So age, episode and final observation of any step follow from its rollout's rows alone, however long episodes or the ring are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.replay import priority
from jaxrl_long.replay.codec import Stored, encode, read_rollout
from jaxrl_long.typing import Array, Bool, Int, PyTree

TERMINATED, TRUNCATED = 1, 2
"""Bits of a row's `end`."""


@dataclass(frozen=True)
class Layout:
    """The static half of a ring."""

    capacity: int
    """Rows C, a multiple of `length`."""
    length: int
    """Rows T of a rollout."""
    codecs: tuple[tuple[str, str], ...] = ()
    """Field and codec, for fields that are not kept exactly."""
    cuts: int = 0
    """Latest cuts of each environment whose final observations are kept; 0: none, where the algorithm keeps what it needs of them."""
    window: int = 1
    """Rows that a draw reads, from its first on."""
    begin: int = 0
    """Rows stored before there is anything to draw; at least `window`."""
    prioritised: bool = False
    """Whether steps are drawn by priority."""
    stack: int = 1
    """Latest observations that make up what the policy sees: only the newest is stored, and draws put them together again."""

    @property
    def names(self) -> Mapping[str, str]:
        """Codec by field."""
        return dict(self.codecs)

    @property
    def segments(self) -> int:
        """Rollouts S that it holds."""
        return self.capacity // self.length


@struct.dataclass
class Count:
    """How often each environment's episodes have ended; leaves [N], or before each rollout [S, N]."""

    episode: Int[Array, "..."]
    """In whatever way."""
    cut: Int[Array, "..."]
    """By truncation."""


@struct.dataclass
class Finals:
    """The final observations of each environment's latest cuts, in turn; leaves [K, N, ...]."""

    obs: PyTree
    cut: Int[Array, "K N"]
    """Which cut of the environment it was; -1 where there was none yet."""


@struct.dataclass
class Ring:
    """The last C steps of N environments, overwritten oldest first. Rows at and after `filled` are zeros and are never read."""

    fields: dict[str, PyTree]
    """What the algorithm keeps of each step, every array a Stored."""
    end: Array
    """uint8 [C, N]: how the step ended the episode."""
    age: Int[Array, "S N"]
    """Age of each environment's episode at the first row of each rollout."""
    before: Count
    """Ends before each rollout, leaves [S, N]."""
    finals: Any
    """Finals; () where none are kept."""
    priorities: Any
    """Priorities; () where all steps are alike."""
    version: Int[Array, " S"]
    """The update in which each rollout was collected."""
    count: Count
    """Ends so far, leaves [N]."""
    cursor: Int[Array, ""]
    """Row the next write starts at; a multiple of T."""
    filled: Int[Array, ""]
    """Rows written so far, at most C."""


@struct.dataclass
class Ends:
    """What the ring must know of a rollout whatever the algorithm; leaves [T, N, ...]."""

    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    age: Int[Array, "T N"]
    """Of the episode before the step."""
    final_obs: PyTree


def make_ring(layout: Layout, fields: Mapping[str, PyTree], final_obs: PyTree, number: int) -> Ring:
    """An empty ring; `fields` holds the shapes and dtypes [T, N, ...] of a rollout's, `final_obs` those [N, ...] of one row."""
    stored = jax.eval_shape(lambda fields: encode(layout.names, singled(layout, fields)), dict(fields))

    def room(leaf: Stored) -> Stored:
        row = jnp.zeros((layout.capacity, *leaf.row.shape[1:]), leaf.row.dtype)
        key, scale = (jax.tree.map(lambda one: jnp.zeros((layout.segments, *one.shape[1:]), one.dtype), part) for part in (leaf.key, leaf.scale))
        return Stored(row, key, scale)

    # Arrays of their own: a donated ring must not hold one buffer twice.
    def none(*shape: int) -> Array:
        return jnp.zeros((*shape, number), jnp.int32)

    return Ring(
        fields=jax.tree.map(room, stored, is_leaf=lambda node: isinstance(node, Stored)),
        end=jnp.zeros((layout.capacity, number), jnp.uint8),
        age=none(layout.segments),
        before=Count(none(layout.segments), none(layout.segments)),
        finals=_no_finals(layout.cuts, number, final_obs) if layout.cuts else (),
        priorities=priority.make_priorities(layout.capacity, number) if layout.prioritised else (),
        version=jnp.zeros(layout.segments, jnp.int32),
        count=Count(none(), none()),
        cursor=jnp.int32(0),
        filled=jnp.int32(0),
    )


def _no_finals(cuts: int, number: int, final_obs: PyTree) -> Finals:
    obs = jax.tree.map(lambda leaf: jnp.zeros((cuts, *leaf.shape), leaf.dtype), final_obs)
    return Finals(obs, jnp.full((cuts, number), -1, jnp.int32))


def write(ring: Ring, layout: Layout, fields: Mapping[str, PyTree], ends: Ends, version: Int[Array, ""], axis: str | None = None) -> Ring:
    """The ring after a rollout [T, N, ...]. C is a multiple of T, so that a write never wraps and is one update in place per array."""
    segment_number = ring.cursor // layout.length

    def put(place: Array) -> Any:
        return lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new.astype(rows.dtype), place, axis=0)

    def stored(old: Stored, new: Stored) -> Stored:
        at = put(segment_number)
        return Stored(put(ring.cursor)(old.row, new.row), jax.tree.map(at, old.key, new.key), jax.tree.map(at, old.scale, new.scale))

    new = encode(layout.names, singled(layout, fields), axis)
    ended = ends.terminated | ends.truncated
    count = Count(ring.count.episode + jnp.sum(ended, axis=0, dtype=jnp.int32), ring.count.cut + jnp.sum(ends.truncated, axis=0, dtype=jnp.int32))

    def per_rollout(rows: Array, row: Array) -> Array:
        return put(segment_number)(rows, row[None])

    return Ring(
        fields=jax.tree.map(stored, ring.fields, new, is_leaf=lambda node: isinstance(node, Stored)),
        end=put(ring.cursor)(ring.end, ends.terminated * TERMINATED + ends.truncated * TRUNCATED),
        age=per_rollout(ring.age, ends.age[0]),
        before=jax.tree.map(per_rollout, ring.before, ring.count),
        finals=_with_finals(ring.finals, ring.count.cut, ends) if layout.cuts else (),
        priorities=_with_new_rows(ring, layout) if layout.prioritised else (),
        version=per_rollout(ring.version, version),
        count=count,
        cursor=(ring.cursor + layout.length) % layout.capacity,
        filled=jnp.minimum(ring.filled + layout.length, layout.capacity),
    )


def singled(layout: Layout, fields: Mapping[str, PyTree]) -> dict[str, PyTree]:
    """The fields as they are stored: of several observations in a row [..., K O] the newest."""
    if layout.stack == 1:
        return dict(fields)
    return {**fields, "obs": jax.tree.map(lambda leaf: leaf[..., leaf.shape[-1] // layout.stack * (layout.stack - 1) :], fields["obs"])}


def _with_new_rows(ring: Ring, layout: Layout) -> priority.Priorities:
    return priority.written(ring.priorities, ring.cursor, ring.filled, layout.length, layout.capacity, layout.window)


def _with_finals(finals: Finals, before: Int[Array, " N"], ends: Ends) -> Finals:
    """The table after the cuts of a rollout, `before` of which there had been.

    Few steps are cut: those are gathered first; if more than fit are, all steps take the slower path.
    """
    kept, total = finals.cut.shape[0], jnp.sum(ends.truncated, axis=0, dtype=jnp.int32)
    nth = jnp.cumsum(ends.truncated, axis=0, dtype=jnp.int32) - 1
    # Of more cuts than there are slots only the last: no slot is written twice.
    new = (ends.truncated & (nth >= total - kept)).reshape(-1)
    number, size, envs = (before + nth).reshape(-1), ends.truncated.size, ends.truncated.shape[1]
    slots = max(1, min(size, max(64, size // 16)))

    def put(step: Int[Array, " K"]) -> Finals:
        """Take in these steps, numbered as in `new`; `size` stands for none."""

        def of(rows: Array) -> Array:
            return rows.at[step].get(mode="clip")

        slot, env = jnp.where(step < size, of(number) % kept, kept), step % envs
        obs = jax.tree.map(lambda old, leaf: old.at[slot, env].set(of(leaf.reshape(-1, *leaf.shape[2:])), mode="drop"), finals.obs, ends.final_obs)
        return Finals(obs, finals.cut.at[slot, env].set(of(number), mode="drop"))

    return jax.lax.cond(
        jnp.sum(new) <= slots,
        lambda: put(jnp.nonzero(new, size=slots, fill_value=size)[0]),
        lambda: put(jnp.where(new, jnp.arange(size), size)),
    )


def earlier(ring: Ring, layout: Layout, back: int) -> dict[str, PyTree]:
    """The rollout [T, N, ...] written `back` writes ago, its fields decoded, and its ends; 0 is the latest. Zeros where nothing was written yet."""
    start = (ring.cursor - (back + 1) * layout.length) % layout.capacity
    number = start // layout.length

    def one(rows: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(rows, number, 1)

    def part(leaf: Stored) -> Stored:
        return Stored(jax.lax.dynamic_slice_in_dim(leaf.row, start, layout.length), jax.tree.map(one, leaf.key), jax.tree.map(one, leaf.scale))

    fields = jax.tree.map(part, ring.fields, is_leaf=lambda node: isinstance(node, Stored))
    end = jax.lax.dynamic_slice_in_dim(ring.end, start, layout.length)
    ends: dict[str, PyTree] = {"terminated": end & TERMINATED > 0, "truncated": end & TRUNCATED > 0}
    return {name: read_rollout(layout.names, name, value) for name, value in fields.items()} | ends
