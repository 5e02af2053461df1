"""What can be drawn from the ring: single steps, windows, n-step transitions, and later steps of the same episode.

Every draw costs the same whatever the ring's capacity and the episodes' length: a sample looks at its own rollout's ends, at the
rows that it asks for, and, to find where its episode ends, at a binary search's few rollouts.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.replay import priority
from jaxrl_long.replay.codec import read
from jaxrl_long.replay.ring import TERMINATED, TRUNCATED, Layout, Ring
from jaxrl_long.typing import Array, Bool, Float, Int, Key, PyTree


@struct.dataclass
class Place:
    """B steps in the ring."""

    row: Int[Array, " B"]
    env: Int[Array, " B"]
    """Number of the environment on this device."""

    def after(self, number: int) -> "Place":
        """All but the first so many."""
        return Place(self.row[number:], self.env[number:])

    def later(self, layout: Layout, rows: Int[Array, "..."] | int) -> "Place":
        """The same environments, some rows on."""
        return Place((self.row + rows) % layout.capacity, self.env)


@struct.dataclass
class Standing:
    """Where B steps stand in their environment's life; leaves [B]."""

    age: Int[Array, " B"]
    """Steps of the episode before this one."""
    episode: Int[Array, " B"]
    """Number of the episode, counted from the run's first of this environment."""
    cut: Int[Array, " B"]
    """Cuts of the environment before this step."""
    version: Int[Array, " B"]
    """The update in which the step was taken: the policy's version."""


@struct.dataclass
class Transition:
    """B transitions over up to n steps; leaves [B, ...]."""

    fields: dict[str, PyTree]
    """The algorithm's fields at the first step, decoded."""
    reward: Float[Array, " B"]
    """Discounted sum of the steps' rewards, up to the episode's end."""
    weight: Float[Array, " B"]
    """What the value of `next_obs` counts: γ to the number of steps, 0 after a termination."""
    next_obs: PyTree
    standing: Standing
    usable: Bool[Array, " B"]
    """False where the episode was cut and what followed is no longer kept."""


@dataclass(frozen=True)
class View:
    """A ring together with its layout, to draw from."""

    ring: Ring
    layout: Layout
    lent: Any = ()
    """Transitions [M, ...] from farther back than the ring reaches; () where there are none."""

    @property
    def ready(self) -> Bool[Array, ""]:
        """Whether there is anything to draw."""
        return self.ring.filled >= max(self.layout.begin, self.layout.window)

    def draw(self, key: Key[Array, ""], number: int) -> tuple[Place, Float[Array, " B"]]:
        """First steps of the layout's windows, and how likely each was: by priority, or any as likely as another."""
        if self.layout.prioritised:
            row, env, probability = priority.draw(self.ring.priorities, key, number)
            return Place(row, env), probability
        starts = jnp.maximum(self.ring.filled - self.layout.window + 1, 1) * self.ring.end.shape[1]
        return self.uniform(key, number, self.layout.window), jnp.broadcast_to(1.0 / starts, (number,))

    def uniform(self, key: Key[Array, ""], number: int, window: int = 1) -> Place:
        """First steps of windows of that many rows, all of which are stored and none beyond the newest; any as likely as another."""
        row_key, env_key = jax.random.split(key)
        starts = jnp.maximum(self.ring.filled - window + 1, 1)
        offset = jax.random.randint(row_key, (number,), 0, starts)
        envs = self.ring.end.shape[1]
        return Place((self.oldest + offset) % self.layout.capacity, jax.random.randint(env_key, (number,), 0, envs))

    @property
    def oldest(self) -> Int[Array, ""]:
        """The row that will be overwritten first."""
        return (self.ring.cursor - self.ring.filled) % self.layout.capacity

    def rows_after(self, place: Place) -> Int[Array, " B"]:
        """How many stored rows are newer than each step's."""
        return (self.ring.cursor - 1 - place.row) % self.layout.capacity

    def field(self, name: str, place: Place) -> PyTree:
        """One of the algorithm's fields, decoded; leaves [B, ...]."""
        if name != "obs" or self.layout.stack == 1:
            return self._stored(name, place)
        # The first observation of an episode stands in for those before it.
        back = jnp.minimum(jnp.arange(self.layout.stack - 1, -1, -1), self.standing(place).age[:, None])
        rows, envs = (place.row[:, None] - back) % self.layout.capacity, jnp.broadcast_to(place.env[:, None], back.shape)
        frames = self._stored(name, Place(rows.reshape(-1), envs.reshape(-1)))
        return jax.tree.map(lambda leaf: leaf.reshape(place.row.shape[0], -1), frames)

    def _stored(self, name: str, place: Place) -> PyTree:
        return read(self.layout.names, name, self.ring.fields[name], place.row, place.env, self.layout.length)

    def remembered(self, place: Place, standing: Standing) -> Bool[Array, " B"]:
        """Whether all observations that make up what was seen at these steps are still stored."""
        return (place.row - self.oldest) % self.layout.capacity >= jnp.minimum(standing.age, self.layout.stack - 1)

    def window(self, name: str, place: Place, length: int) -> PyTree:
        """A field of the rows from each step on; leaves [B, L, ...]."""
        number = place.row.shape[0]
        rows = (place.row[:, None] + jnp.arange(length)) % self.layout.capacity
        envs = jnp.broadcast_to(place.env[:, None], rows.shape)
        flat = self.field(name, Place(rows.reshape(-1), envs.reshape(-1)))
        return jax.tree.map(lambda leaf: leaf.reshape(number, length, *leaf.shape[1:]), flat)

    def ends(self, place: Place, length: int) -> tuple[Bool[Array, "B L"], Bool[Array, "B L"]]:
        """Where the rows from each step on terminated or truncated an episode."""
        rows = (place.row[:, None] + jnp.arange(length)) % self.layout.capacity
        end = self.ring.end[rows, place.env[:, None]]
        return end & TERMINATED > 0, end & TRUNCATED > 0

    def standing(self, place: Place) -> Standing:
        """Where these steps stand, from the ends of their rollouts' rows before them."""
        number, at = place.row // self.layout.length, jnp.arange(self.layout.length)
        rows = number[:, None] * self.layout.length + at
        end = jnp.where(rows < place.row[:, None], self.ring.end[rows, place.env[:, None]], 0)
        ended, cut = end > 0, end & TRUNCATED > 0
        since = place.row % self.layout.length - jnp.max(jnp.where(ended, at + 1, 0), axis=1)
        first_age = self.ring.age[number, place.env]
        age = since + jnp.where(jnp.any(ended, axis=1), 0, first_age)
        if "age" in self.ring.fields:
            age = self.field("age", place)
        before = jax.tree.map(lambda leaf: leaf[number, place.env], self.ring.before)
        episode, cuts = before.episode + jnp.sum(ended, axis=1, dtype=jnp.int32), before.cut + jnp.sum(cut, axis=1, dtype=jnp.int32)
        return Standing(age, episode, cuts, self.ring.version[number])

    def final_obs(self, place: Place, standing: Standing) -> tuple[PyTree, Bool[Array, " B"]]:
        """What these steps, which cut their episodes, led to; and whether that is still kept."""
        finals: Any = self.ring.finals
        slot = standing.cut % finals.cut.shape[0]
        return jax.tree.map(lambda leaf: leaf[slot, place.env], finals.obs), finals.cut[slot, place.env] == standing.cut

    def transitions(self, place: Place, steps: int, discount: float | Array) -> Transition:
        """Transitions over n = `steps` rows, or up to the episode's end within them; row n must be stored too.

        R = Σₖ γᵏ rₖ over the steps taken, m of them; the value of what followed counts γᵐ, and nothing where the world ended.
        """
        terminated, truncated = self.ends(place, steps)
        ended = terminated | truncated
        # Whether the episode still goes on at the beginning of each row.
        going = jnp.cumprod(jnp.concatenate([jnp.ones_like(ended[:, :1]), ~ended[:, :-1]], axis=1), axis=1)
        taken = jnp.sum(going, axis=1).astype(jnp.int32)
        reward = jnp.sum(discount ** jnp.arange(steps) * going * self.window("reward", place, steps), axis=1)
        last = place.later(self.layout, taken - 1)
        next_obs, kept = self.following(last, self.standing(last))
        weight = jnp.where(self.ring.end[last.row, last.env] & TERMINATED > 0, 0.0, discount**taken)
        fields, standing = {name: self.field(name, place) for name in self.ring.fields}, self.standing(place)
        return Transition(fields, reward, weight, next_obs, standing, kept & self.remembered(place, standing))

    def following(self, place: Place, standing: Standing) -> tuple[PyTree, Bool[Array, " B"]]:
        """What these steps led to, before any restart, and whether that is still kept; their next rows must be stored."""
        hidden, kept = self.final_obs(place, standing)
        was_cut = self.ring.end[place.row, place.env] & TRUNCATED > 0
        next_row = self.field("obs", place.later(self.layout, 1))
        return jax.tree.map(lambda final, row: jnp.where(was_cut[:, None], final, row), hidden, next_row), kept | ~was_cut

    def same_episode(self, place: Place, length: int) -> Bool[Array, "B L"]:
        """Which of the rows from each step on belong to its episode, the one that ends it included."""
        terminated, truncated = self.ends(place, length)
        over = jnp.cumsum(terminated | truncated, axis=1)
        return jnp.concatenate([jnp.ones_like(terminated[:, :1]), over[:, :-1] == 0], axis=1)

    def rows_left(self, place: Place, standing: Standing) -> Int[Array, " B"]:
        """How many later rows of the same episode are stored: the last of them ends it, or is the newest.

        Episode numbers grow with time, so that the last rollout that begins within the episode is found by halving.
        """
        length, segments = self.layout.length, self.layout.segments
        own = place.row // length
        # Rollouts after a step's own, in order of time, as far as there are any.
        newer = (self.ring.cursor // length - 1 - own) % segments

        def begins_within(ahead: Int[Array, " B"]) -> Bool[Array, " B"]:
            return self.ring.before.episode[(own + ahead) % segments, place.env] <= standing.episode

        low, high = jnp.zeros_like(newer), newer
        for _ in range(segments.bit_length()):
            middle = (low + high + 1) // 2
            within = begins_within(middle) & (middle > low)
            low, high = jnp.where(within, middle, low), jnp.where(within, high, jnp.maximum(middle - 1, low))
        # In that rollout the episode ends at the first end at or after the step, or goes on beyond it.
        at = jnp.arange(length)
        rows = ((own + low) % segments)[:, None] * length + at
        first = jnp.where(low > 0, 0, place.row % length)
        ended = (self.ring.end[rows, place.env[:, None]] > 0) & (at >= first[:, None])
        final = jnp.where(jnp.any(ended, axis=1), jnp.argmax(ended, axis=1), length - 1)
        return low * length + final - place.row % length
