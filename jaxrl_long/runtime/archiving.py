"""Training's way to the archive on disk: steps are copied out of the ring after each chunk, and written by a thread while the next one runs."""

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long.config import ARCHIVED, ArchiveSettings
from jaxrl_long.replay.ring import TERMINATED, TRUNCATED, Ring, earlier
from jaxrl_long.runtime.disk import Rows
from jaxrl_long.runtime.disk_writer import Writer
from jaxrl_long.runtime.lending import Lender, lent_shapes
from jaxrl_long.trainer import Program, TrainState
from jaxrl_long.typing import PyTree

WAITING = 2
"""Chunks that may wait for the disk before training waits with them."""


class Steps(NamedTuple):
    """The rows of one of a ring's newest rollouts, copied; leaves [T, N, ...]."""

    fields: dict[str, PyTree]
    end: Any
    """uint8, as in the ring."""
    episode: Any
    """[N] Number of each environment's episode at the first row."""
    cut: Any
    """[N] Cuts before it."""
    age: Any
    """[N] Age at it."""
    finals: Any
    """The ring's table of final observations."""


class Archiving:
    """One thread that writes, and a queue of chunks to it. What goes wrong with the disk ends archiving, never training."""

    def __init__(
        self, program: Program, shapes: TrainState, folder: Path, update: int, asked: ArchiveSettings, about: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        """Go on from `update` in `folder`, or begin there."""
        self._say = say
        # Compiled now: in a chunk's time it would be taken for the chunk's.
        self._taken = jax.jit(partial(taken, program, asked.codec)).lower(shapes.replay, jax.ShapeDtypeStruct((), jnp.int32)).compile()
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._room = threading.Semaphore(WAITING)
        self._failed = False
        one = jax.eval_shape(partial(taken, program, asked.codec), shapes.replay, jnp.int32(0))
        fields = {name: np.zeros((1, *leaf.shape[1:]), leaf.dtype) for name, leaf in named(one.fields).items()}
        self._writer: Any = None
        self._guarded(lambda: setattr(self, "_writer", Writer(folder, program.num_envs, fields, update * program.rollout_length, about, asked.limit_bytes())))
        self._lender = Lender(folder, program, about["seed"]) if program.lent else None
        self._empty = lent_shapes(program, shapes)
        if self._lender is not None and not self._lender.reach(program.total_updates):
            steps = 2 * program.layout.capacity * program.num_envs
            self._lends_nothing(f"this run lends nothing: only what lies more than twice the ring ({steps:,} steps) back is lent")
        self._drawn: tuple[int, Future[PyTree]] | None = None
        self._thread = threading.Thread(target=self._work, name="archive", daemon=True)
        self._thread.start()

    @classmethod
    def off(cls) -> "Archiving":
        """One that does nothing."""
        return _Off()

    def wait(self) -> None:
        """Before a chunk is begun: wait for a disk that is slower than training, so that later no time is taken for a chunk's that is the disk's."""
        if not self._failed:
            self._room.acquire()

    def take(self, ring: Ring, updates: int) -> None:
        """Let the newest rollouts be written."""
        if not self._failed:
            rollouts = [self._taken(ring, np.int32(back)) for back in range(updates - 1, -1, -1)]
            self._queue.put(lambda: self._append(rollouts))

    def prepare(self, update: int) -> None:
        """Let the thread fetch what the chunk that begins with `update` will be lent."""
        # The thread may give the lender up at any moment.
        lender = self._lender
        if lender is not None and (self._drawn is None or self._drawn[0] != update // lender.grid):
            drawn: Future[PyTree] = Future()
            self._drawn = update // lender.grid, drawn
            self._queue.put(lambda: self._draw(update, drawn))

    def lent(self, update: int) -> PyTree:
        """Transitions for the chunk that begins with `update`, on the devices; () where nothing is lent."""
        if not self._empty:
            return ()
        self.prepare(update)
        if self._drawn is None or self._lender is None:
            return jax.tree.map(lambda shape: jax.device_put(np.zeros(shape.shape, shape.dtype), shape.sharding), self._empty)
        return jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), self._drawn[1].result(), self._empty)

    def _draw(self, update: int, drawn: "Future[PyTree]") -> None:
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._empty)
        try:
            if (lender := self._lender) is not None and not self._failed:
                nothing = lender.draw(update, self._empty)
        # A block that can't be read is no reason to stop writing.
        except Exception as error:
            self._lends_nothing(f"the archive can't be read ({error}), and lends nothing from update {update} on")
            self._lender = None
        finally:
            drawn.set_result(nothing)

    def _lends_nothing(self, why: str) -> None:
        self._say(f"archive.share: {why}.")

    def flush(self) -> None:
        """Wait until everything that was taken is on disk."""
        done = threading.Event()

        def last() -> None:
            try:
                if not self._failed:
                    self._writer.flush()
            finally:
                done.set()

        if not self._failed:
            self._queue.put(last)
            done.wait()

    def __enter__(self) -> "Archiving":
        """For the time of training."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write what was taken, and end the thread."""
        if error is None:
            self.flush()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            self._guarded(task)

    def _guarded(self, task: Callable[[], Any]) -> None:
        try:
            task()
        # Whatever a library says of a full or broken disk.
        except Exception as error:
            if not self._failed:
                self._failed = True
                first = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
                self._say(f"archiving has stopped, training goes on: {first}")

    def _append(self, rollouts: list[Steps]) -> None:
        try:
            if not self._failed:
                for steps in rollouts:
                    self._write(steps)
        finally:
            self._room.release()

    def _write(self, steps: Steps) -> None:
        on_host = jax.device_get(steps)
        self._writer.append(named(on_host.fields), on_host.end, on_host.episode, on_host.age, cut_observations(on_host))


class _Off(Archiving):
    """Does nothing."""

    def __init__(self) -> None:
        pass

    def wait(self) -> None:
        """Nothing."""

    def take(self, ring: Ring, updates: int) -> None:
        """Nothing."""

    def prepare(self, update: int) -> None:
        """Nothing."""

    def lent(self, update: int) -> PyTree:
        """Nothing."""
        del update
        return ()

    def flush(self) -> None:
        """Nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing."""


def grid(program: Program) -> int:
    """Updates after which steps are fetched from the ring at the latest: few, for a copy of them waits in memory."""
    return min(ARCHIVED, program.layout.segments)


def taken(program: Program, codec: str, ring: Ring, back: Any) -> Steps:
    """A copy of the rollout that was written `back` writes ago, decoded."""
    layout = program.layout
    rows = earlier(ring, layout, back)
    floats = {"obs": rows["obs"], "action": program.algorithm.action(rows)}
    rounded = jax.tree.map(lambda leaf: leaf.astype(codec) if leaf.dtype == jnp.float32 else leaf, floats)
    exact = {name: rows[name] for name in ("reward", "age") if name in rows}
    end = (rows["terminated"] * TERMINATED + rows["truncated"] * TRUNCATED).astype(jnp.uint8)
    number = (ring.cursor // layout.length - 1 - back) % layout.segments
    return Steps(rounded | exact, end, ring.before.episode[number], ring.before.cut[number], ring.age[number], ring.finals)


def named(fields: Mapping[str, PyTree]) -> Rows:
    """Each array of the fields by a name of its own: entries of a mapping are named `obs.camera`."""
    found = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{entry}": leaf for entry, leaf in value.items()}
        else:
            found[name] = value
    return found


def cut_observations(steps: Steps) -> tuple[np.ndarray, Rows]:
    """What truncated episodes led to, as far as the ring still had it: places [K, 2] (row, environment), and observations [K, ...]."""
    place = np.argwhere(steps.end == TRUNCATED)
    number = steps.cut + np.cumsum(steps.end == TRUNCATED, axis=0) - 1
    cut = number[place[:, 0], place[:, 1]]
    slot = cut % steps.finals.cut.shape[0]
    kept = steps.finals.cut[slot, place[:, 1]] == cut
    width = {name: leaf.shape[-1] for name, leaf in named(steps.fields).items()}
    # Of several in a row the newest, as of all other steps.
    obs = {name: leaf[..., -width[name] :] for name, leaf in named({"obs": steps.finals.obs}).items()}
    return place[kept], {name: leaf[slot[kept], place[kept, 1]] for name, leaf in obs.items()}
