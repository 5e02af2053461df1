"""A long evaluation: environments continued to the horizon in bounded memory, saved on the way, and gone on with later.

Its numbers do not depend on how it is cut: not on the length of a dispatch, and not on an interruption.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.runtime.checkpoint import CheckpointError, Checkpoints
from jaxrl_long.runtime.evaluation import EvalState, Evaluator, Snapshot, Tally, snapshot
from jaxrl_long.runtime.folder import Lock
from jaxrl_long.runtime.progress import StepsBar
from jaxrl_long.runtime.stop import Stop

DISPATCH_S = 2.0
"""Seconds between two looks of the host."""
FIRST_STEPS = 100
SAVE_S = 120.0
"""Seconds between saves."""


@struct.dataclass
class Kept:
    """What a save of an evaluation holds."""

    state: EvalState
    tallies: dict[str, Tally]
    """As they were at the steps that are reported, by step."""


class Store:
    """Where an evaluation is saved: a folder of its own that is gone once it is finished; nowhere, if that can't be written."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """Take the folder. Raises ConfigError if the same evaluation is under way in another process."""
        self.folder, self._say, self._held = folder, say, ExitStack()
        self.checkpoints: Checkpoints | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(Lock(folder / "lock", "this evaluation"))
        except OSError as error:
            say(f"{folder} can't be written ({error.strerror}): an interrupted evaluation begins again.")
        else:
            self.checkpoints = Checkpoints(folder, keep=1, say=say)

    def load(self, evaluator: Evaluator) -> tuple[int, Kept] | None:
        """Steps done and what was kept of them; None if there is nothing to go on with."""
        done = self.checkpoints.latest() if self.checkpoints else None
        if self.checkpoints is None or done is None:
            return None
        marks = self.checkpoints.record(done)["host"]["marks"]
        kept, _ = self.checkpoints.restore(done, Kept(evaluator.shapes, dict.fromkeys(marks, evaluator.shapes.tally)))
        return done, kept

    def save(self, done: int, kept: Kept, *, block: bool = False) -> None:
        """Write down how far it is. Raises CheckpointError where that was the point (`block`); otherwise it is said, and the evaluation goes on."""
        if self.checkpoints is None:
            return
        try:
            self.checkpoints.save(done, done * len(kept.state.env.age), kept, {"marks": list(kept.tallies)}, block=block)
        except CheckpointError as error:
            if block:
                raise
            self._say(f"{error} This evaluation is not saved any more.")
            self.checkpoints = None

    def clear(self) -> None:
        """Remove the folder: the evaluation is finished."""
        if self.checkpoints:
            with suppress(CheckpointError):
                self.checkpoints.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Store":
        """Hold it for a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let others have the folder."""
        self._held.close()


def continued(evaluator: Evaluator, learner: Any, seed: int, stops: list[int], store: Store, stop: Stop, bar: StepsBar) -> dict[int, Snapshot] | None:
    """Step fresh environments to the last of `stops` and look at them at each; None if told to stop before, saved.

    Where nothing goes on any more, the remaining snapshots are the last one.
    """
    done, kept = store.load(evaluator) or (0, Kept(evaluator.start(jax.random.key(seed)), {}))
    length, saved_at, now = FIRST_STEPS, time.perf_counter(), snapshot(kept.state.tally)
    while done < stops[-1] and now.going.any():
        begin = time.perf_counter()
        end = min(done + length, *(mark for mark in stops if mark > done))
        kept = replace(kept, state=evaluator.advance(learner, kept.state, jnp.int32(end - done)))
        now = snapshot(kept.state.tally)
        took = time.perf_counter() - begin
        length = max(1, min(2 * length, int(DISPATCH_S * (end - done) / took)))
        done = end
        if done in stops:
            # A copy: the next dispatch is given the state's own buffers.
            kept.tallies[str(done)] = jax.tree.map(jnp.copy, kept.state.tally)
        # Not those that go on: at the horizon nobody does.
        bar.at(done, f"{1 - (now.died | now.faulted).mean():.1%} alive")
        if store.checkpoints:
            stop.something_to_save()
        if stop.poll():
            store.save(done, kept, block=True)
            return None
        if time.perf_counter() - saved_at > SAVE_S:
            store.save(done, kept)
            saved_at = time.perf_counter()
    seen = {int(mark): snapshot(tally) for mark, tally in kept.tallies.items()}
    return {mark: seen.get(mark, now) for mark in stops}
