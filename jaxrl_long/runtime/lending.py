"""What the archive on disk lends to training: transitions from before what the ring holds.

Which ones is a function of the seed and the update alone: rows so old that they are on disk for certain, whenever the thread that
writes got to them. So a resumed run draws the same. Few blocks are read, and many transitions taken from each: reading is by the block.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl_long.config import ARCHIVED
from jaxrl_long.replay.sampling import Place, Standing, Transition, View
from jaxrl_long.runtime.disk import BLOCK, COLUMNS, TERMINATED, TRUNCATED, Reader
from jaxrl_long.trainer import Program, TrainState

GROUPS = 16
"""Blocks that transitions are taken from at a time."""


@dataclass(frozen=True)
class Lender:
    """Draws from the archive in `folder`."""

    folder: Path
    program: Program
    seed: int

    @property
    def steps(self) -> int:
        """N of n-step returns."""
        return self.program.layout.window - 1

    @property
    def discount(self) -> float:
        """The learner's γ."""
        algorithm: Any = self.program.algorithm
        return algorithm.discount

    @property
    def grid(self) -> int:
        """Updates for which the same transitions are lent, whatever chunks they are done in."""
        return min(ARCHIVED, self.program.layout.segments)

    def reach(self, update: int) -> int:
        """Row up to which transitions are lent to this update: behind the ring, and written for certain.

        The chunk before may still be on its way to the disk, and a block be half full.
        """
        behind = update // self.grid * self.grid * self.program.rollout_length - 2 * self.program.layout.capacity
        return max(0, behind // BLOCK * BLOCK - BLOCK)

    def draw(self, update: int, empty: Transition) -> Transition:
        """As many transitions as `empty` has room for; `usable` is False where there are none so far. Host arrays."""
        end, number = self.reach(update), empty.usable.shape[0]
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), empty)
        if not end:
            return nothing
        reader, rng = Reader(self.folder, cache_bytes=0), np.random.default_rng([self.seed, update // self.grid])
        blocks = [number for first, last in reader.manifest.spans for number in range(-(-first // BLOCK), min(last, end) // BLOCK)]
        if not blocks:
            return nothing
        sizes = np.diff(np.linspace(0, number, min(GROUPS, number) + 1).astype(int))
        parts = [self._part(reader, int(rng.choice(blocks)), int(size), rng) for size in sizes]
        return jax.tree.map(lambda leaf, *some: np.concatenate(some).astype(leaf.dtype), empty, *parts)

    def _part(self, reader: Reader, block: int, size: int, rng: np.random.Generator) -> Transition:
        """`size` transitions that begin in one block, of neighbouring environments."""
        envs, steps, first = reader.manifest.num_envs, self.steps, block * BLOCK
        low = int(rng.integers(-(-envs // COLUMNS))) * COLUMNS
        columns = slice(low, min(low + COLUMNS, envs))
        # The last rows' futures lie in the next block.
        rows = {name: reader.store(name)[first : first + BLOCK, columns].read().result() for name in (*reader.manifest.fields, "end")}
        row, env = rng.integers(0, BLOCK - steps, size), rng.integers(0, rows["end"].shape[1], size)
        ended = rows["end"] > 0
        window = ended[row[:, None] + np.arange(steps), env[:, None]]
        going = np.cumprod(np.concatenate([np.ones((size, 1), bool), ~window[:, :-1]], axis=1), axis=1)
        taken = going.sum(axis=1)
        last = row + taken - 1
        kind = rows["end"][last, env]
        reward = (self.discount ** np.arange(steps) * going * rows["reward"][row[:, None] + np.arange(steps), env[:, None]]).sum(axis=1)
        next_obs = {name: rows[name][last + 1, env].astype(np.float32) for name in rows if name.startswith("obs")}
        kept = self._with_finals(reader, block, low, last, env, kind == TRUNCATED, next_obs)
        heads = {name: reader.store(f"heads/{name}")[block, columns].read().result() for name in ("episode", "age")}
        stands = standing(ended, heads, row, env, (first + row) // self.program.rollout_length)
        fields = {name: rows[name][row, env] for name in rows if name != "end"}
        return cast(Any, Transition)(
            fields=_nested({name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in fields.items()}),
            reward=reward,
            weight=np.where(kind == TERMINATED, 0.0, self.discount**taken),
            next_obs=_nested(next_obs)["obs"],
            # Where episodes may begin at any age, it was stored.
            standing=replace(stands, age=rows["age"][row, env]) if "age" in rows else stands,
            usable=kept,
        )

    def _with_finals(self, reader: Reader, block: int, low: int, row: np.ndarray, env: np.ndarray, cut: np.ndarray, next_obs: dict[str, Any]) -> np.ndarray:
        """Put what cut episodes led to in its place; whether it is known."""
        at, finals = reader.finals(block)
        where = {(int(place[0]) - block * BLOCK, int(place[1]) - low): number for number, place in enumerate(at)}
        kept = ~cut
        for number in np.flatnonzero(cut).tolist():
            found = where.get((int(row[number]), int(env[number])))
            if found is not None:
                kept[number] = True
                for name, values in finals.items():
                    next_obs[name][number] = values[found]
        return kept


def standing(ended: np.ndarray, heads: dict[str, Any], row: np.ndarray, env: np.ndarray, version: np.ndarray) -> Standing:
    """Where steps of one block stand: from how its rows ended [R, N], and ages and episodes at its first row [N]."""
    at = np.arange(ended.shape[0])[:, None]
    # Rows since the one after the latest end before each; the step that ends an episode belongs to it still.
    begun = np.maximum.accumulate(np.where(ended, at + 1, 0), axis=0)
    begun = np.concatenate([np.zeros_like(begun[:1]), begun[:-1]])
    before = np.cumsum(ended, axis=0) - ended
    age = np.where(before > 0, at - begun, heads["age"] + at)
    return cast(Any, Standing)(age[row, env], (heads["episode"] + before)[row, env], np.zeros_like(row), version)


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Entries named `obs.camera` as a mapping of their own again."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        outer, dot, entry = name.partition(".")
        if dot:
            found.setdefault(outer, {})[entry] = value
        else:
            found[name] = value
    return found


def lent_shapes(program: Program, shapes: TrainState) -> Any:
    """Shapes of what a chunk is lent, split over devices; () where it is nothing."""
    if not program.lent:
        return ()
    place = jax.ShapeDtypeStruct((program.lent,), jnp.int32)
    drawn = jax.eval_shape(lambda ring, row: View(ring, program.layout).transitions(Place(row, row), 1, 0.5), shapes.replay, place)
    sharding = NamedSharding(program.mesh, P(program.mesh.axis_names[0]))
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), drawn)
