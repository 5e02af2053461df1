"""The host's side of a run: it dispatches chunks, and reads one chunk's numbers while the next one runs."""

import errno
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long.config import Settings
from jaxrl_long.fields import RunError
from jaxrl_long.launch import Totals, empty_ring, init_state, make_chunk, read, state_shapes, without_ring
from jaxrl_long.runtime import archiving, assemble, devices, faults, footprint, shares
from jaxrl_long.runtime.archiving import Archiving
from jaxrl_long.runtime.checkpoint import CheckpointError, Checkpoints
from jaxrl_long.runtime.evaluation import make_evaluator
from jaxrl_long.runtime.filming import Filming
from jaxrl_long.runtime.folder import Lock, RunFolder, provenance, record, write_atomically
from jaxrl_long.runtime.lending import lent_shapes
from jaxrl_long.runtime.limits import Limits
from jaxrl_long.runtime.metrics import Clock, evaluation_row, lasting_row, training_row
from jaxrl_long.runtime.progress import View
from jaxrl_long.runtime.schedule import Schedule
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.runtime.tracking import MetricsFile, make_trackers, read_rows
from jaxrl_long.runtime.tracking.jsonl import clean
from jaxrl_long.stored import save_settings, shareable
from jaxrl_long.trainer import Fault, TrainState

STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""What the system says when a disk is full, read-only, forbidden or broken."""
EXHAUSTED = "RESOURCE_EXHAUSTED"
"""What XLA says when memory that a program needs beside its state is not there."""
EVAL_SEED = 1_000_003
"""Evaluation draws its starts from its own seed, the same for every run: runs are compared on the same starts."""


@dataclass
class Launched:
    """A chunk that was dispatched and whose numbers were not read yet."""

    update: int
    """The update that it ends with."""
    updates: int
    totals: Totals
    fault: Fault


def no_page() -> None:
    """Of a run that nobody reports on."""


def train(settings: Settings, stop: Stop, view: View, started: float, page: Callable[[], Path | None] = no_page, foretold: Sequence[str] = ()) -> int:
    """Train as the settings say, in `settings.run_dir`, from its newest checkpoint if it has one. Returns the exit code.

    `started` is the `time.time()` at which the process began: `wall_s` counts from there. `page` writes the run's report and returns
    where. `foretold` is said once it is clear that the run can begin.
    """
    folder = RunFolder(Path(settings.run_dir or "")).create()
    try:
        with Lock(folder.lock) as lock:
            if lock.stale:
                view.say(lock.stale)
            return Experiment(footprint.settled(settings), folder, stop, view, started, page).run(foretold)
    except OSError as error:
        if error.errno not in STORAGE:
            raise
        where = error.filename or folder.path
        remedy = "What was saved before is untouched; when it can be written again, the same command goes on."
        raise RunError(f"{where} can't be written: {error.strerror}. {remedy}") from error
    except jax.errors.JaxRuntimeError as error:
        if EXHAUSTED not in str(error):
            raise
        what, remedy = str(error).splitlines()[0], "Fewer or shorter take less; what was saved before is untouched."
        raise RunError(f"memory ran out with num_envs={settings.num_envs} and rollout_length={settings.rollout_length}: {what} {remedy}") from error
    finally:
        view.close()


class Experiment:
    """One process's part of a run."""

    def __init__(self, settings: Settings, folder: RunFolder, stop: Stop, view: View, started: float, page: Callable[[], Path | None]) -> None:
        """Read what the folder holds; nothing is computed yet."""
        self.settings, self.folder, self.stop, self.view, self.started, self.page = settings, folder, stop, view, started, page
        self.clock = Clock()
        self.schedule = Schedule(settings.chunk, settings.eval.every, settings.updates)
        self.metrics = MetricsFile(folder.metrics)
        self.checkpoints = Checkpoints(folder.checkpoints, settings.checkpoint.keep, say=view.say)
        self.trackers = make_trackers(settings, view.say)
        self.filming = Filming(settings, folder.path, self.checkpoints, self._show, view.say)
        self.tracker_ids = folder.tracker_ids()
        self.limits = Limits(settings.stop)
        self.update = 0
        self.saved: int | None = None
        """Update of the newest intact checkpoint."""
        self.saved_whole: int | None = None
        """Update of the newest checkpoint that holds all that can be saved, the ring included."""
        self.ring_due = time.perf_counter() + settings.replay.save_every
        """When the ring is saved again."""
        self.score: float | None = None
        """Window return of the agent of this update; None where it was not evaluated."""
        self.best: float | None = None
        """The best score that was saved."""
        self.examined: Any = ()
        """Environments of the lasting evaluation."""
        self.dumped = 0
        self.row: dict[str, Any] = {}

    def run(self, foretold: Sequence[str]) -> int:
        """Everything from start to end; returns the exit code."""
        self.program = assemble.program(self.settings)
        self.has_success = hasattr(self.program.vector.simulator, "success")
        self.evaluator = make_evaluator(self.program, self.settings.eval.num_envs)
        self.shapes = state_shapes(self.program)
        footprint.require(self.settings, self.program, self.shapes)
        for line in foretold:
            self.view.say(line)
        self._describe()
        state = self._prepare()
        self._start_trackers()
        with self._archiving() as self.archiving, closing(self.filming):
            state = self._train(state)
            self._save(state, last=True)
            self.filming.finish(self.stop.poll)
        done = self.update >= self.schedule.total
        # The last report was not the end: the final checkpoint is saved now too.
        wall_s = self.clock.before_s + time.time() - self.started
        summary = {**self.row, "wall_s": wall_s, "finished": done, "stopped_by": self.stop.reason}
        write_atomically(self.folder.path / "summary.json", json.dumps(clean(summary), indent=1))
        self._say_end(done)
        page = self.page()
        self.trackers.finish(summary, [*([page] if page else []), *self.folder.videos()])
        return 0 if done else self.stop.exit_code

    def _archiving(self) -> Archiving:
        """Who takes the steps to disk, from here on."""
        asked = self.settings.archive
        if not asked.enabled:
            return Archiving.off()
        self.schedule.grid = archiving.grid(self.program)
        about = {"env": self.settings.env.name, "rollout_length": self.settings.rollout_length, "seed": self.settings.seed}
        return Archiving(self.program, self.shapes, self.folder.archive, self.update, asked, about, self.view.say)

    def _start_trackers(self) -> None:
        """Open the run with all trackers; who they know it by is on the disk before anything else happens."""
        past = read_rows(self.folder.metrics)
        self.tracker_ids = self.trackers.start(self.folder.path.name, shareable(self.settings), self.folder.path, self.tracker_ids, past)
        if self.tracker_ids:
            write_atomically(self.folder.trackers, json.dumps(self.tracker_ids))

    def _show(self, video: Path, update: int) -> None:
        """Hand over a film that was made."""
        self.view.say(f"film of update {update}: {video}")
        self.trackers.show(video, update * self.program.steps_per_update)

    def _describe(self) -> None:
        """Write down what runs here, and say what is going to happen."""
        device = devices.describe() | {"used": self.program.mesh.size}
        save_settings(self.settings, self.folder.path)
        record(self.folder.provenance, provenance(device) | {"seed": self.settings.seed})
        latest = self.checkpoints.latest()
        self.update = latest or 0
        self.saved = latest
        task = f"{self.settings.env.name} horizon={self.settings.horizon} seed={self.settings.seed}"
        where = f"{self.program.mesh.size} x {device['kind']}, {self.settings.num_envs} environments"
        self.view.header(task, where, self.schedule.total, self.settings.total_steps, self.update * self.program.steps_per_update)

    def _prepare(self) -> TrainState:
        """Compile, and meanwhile build the state or read it from the newest checkpoint."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            # Two compilations at once: XLA releases Python's lock.
            compiling = pool.submit(
                lambda: make_chunk(self.program).lower(self.shapes, jax.ShapeDtypeStruct((), jnp.int32), lent_shapes(self.program, self.shapes)).compile()
            )
            state = self._restore(self.shapes) if self.update else init_state(self.program, self.settings.seed)
            self.chunk: Callable[..., Any] = compiling.result()
        if self.settings.eval.lasting:
            self.examined = self._examined()
        cut = self.metrics.truncate_after(self.update)
        if cut:
            self.view.say(f"{cut} rows after update {self.update} are cut from {self.folder.metrics.name}: they are computed again.")
        jax.block_until_ready(state)
        self.clock.compile_s += time.perf_counter() - begin
        return state

    def _restore(self, shapes: TrainState) -> TrainState:
        # Examined environments may lie there, of these settings of the evaluation or of others.
        whole = any(name.startswith(".replay") for name in self.checkpoints.record(self.update)["leaves"])
        state, host = self.checkpoints.restore(self.update, shapes if whole else without_ring(shapes), beside=".examined")
        self.saved_whole = self.update
        self.clock = Clock(**host["clock"])
        self.schedule.chunk = self.schedule.chunk or host["chunk"]
        self.dumped, self.row, self.best = host["dumped"], host["row"], host.get("best")
        self.limits = Limits(self.settings.stop, host.get("limits"))
        self.view.say(f"goes on from update {self.update} ({self.update * self.program.steps_per_update:,} steps).")
        if not whole:
            why = "replay.save=false" if not self.settings.replay.save else f"replay.save_every={self.settings.replay.save_every:g}"
            self.view.say(f"the ring was not saved ({why}): it is filled anew, and this is not exactly the run that was interrupted.")
        return state if whole else replace(state, replay=empty_ring(self.program))

    def _examined(self) -> Any:
        """The environments of the lasting evaluation: those of the checkpoint, or fresh ones where it has none like these."""
        if self.update:
            nothing: Any = dict.fromkeys(vars(self.shapes))
            try:
                return self.checkpoints.restore(self.update, TrainState(**nothing | {"examined": self.evaluator.shapes}), partial=True)[0].examined
            except CheckpointError:
                self.view.say("the checkpoint holds no lasting evaluation like this one: its environments start anew.")
        return self.evaluator.start(jax.random.key(EVAL_SEED))

    def _train(self, state: TrainState) -> TrainState:
        """Chunk after chunk until the end or a stop."""
        pending: Launched | None = None
        last_save = self.free_since = time.perf_counter()
        while self.update < self.schedule.total and not self.stop.poll():
            end = self.schedule.next(self.update)
            self.archiving.wait()
            state, totals, fault = self.chunk(state, jnp.int32(end - self.update), self.archiving.lent(self.update))
            self.archiving.prepare(end)
            self.stop.something_to_save()
            self.checkpoints.raise_failure()
            if pending:
                # The device is busy with the next chunk meanwhile.
                self._log(pending)
            # Before the next chunk takes the state over, and after the last one's time was taken: a CPU waits here until this chunk is done.
            self.archiving.take(state.replay, end - self.update)
            pending = Launched(end, end - self.update, totals, fault)
            self.update, self.score = end, None
            save = bool(self.settings.checkpoint.every) and time.perf_counter() - last_save >= self.settings.checkpoint.every
            if save or not self.schedule.chunk or self.schedule.evaluates(end):
                self._log(pending, state)
                pending = None
            film = self.schedule.evaluates(end) and self.filming.wants(end)
            if save or self._is_best() or film:
                self._save(state)
                last_save = time.perf_counter()
            if film:
                self.filming.ask(end)
            self.filming.look()
        if pending:
            self._log(pending)
        return state

    def _log(self, launched: Launched, state: TrainState | None = None) -> None:
        """Wait for a chunk's numbers, evaluate if it is time (which needs the state), and report."""
        numbers = read(jax.device_get(launched.totals), launched.updates)
        now = time.perf_counter()
        train_s, self.free_since = now - self.free_since, now
        self.clock.train_s += train_s
        self.schedule.measured(train_s / launched.updates)
        row = training_row(numbers, launched.update, launched.updates, self.program.steps_per_update, train_s, self.has_success, self.row)
        row["window_return"] = None
        row["horizon_seen"] = max(self.row.get("horizon_seen", 0.0), row["age_max"] / self.settings.horizon)
        if state is not None and self.schedule.evaluates(launched.update):
            row |= self._evaluate(state)
        if row["faults"] and not self.dumped:
            self.dumped = 1
            self.view.say(faults.dump(self.folder.path, launched.fault))
        self._write(row)
        gradients = launched.updates * self.program.algorithm.gradient_steps
        if verdict := self.limits.look(row, launched.updates * self.program.steps_per_update, gradients):
            self.stop.ask(*verdict)
        if state is not None and not self.clock.shares and launched.update >= self.program.first_learning:
            self._measure_shares(state, train_s / launched.updates)
        self.free_since = time.perf_counter() if state is not None else self.free_since

    def _evaluate(self, state: TrainState) -> dict[str, Any]:
        begin, steps = time.perf_counter(), min(self.settings.eval.window, self.settings.horizon)
        result = self.evaluator.window(state.learner, EVAL_SEED, steps)
        row = evaluation_row(result, self.has_success)
        if self.settings.eval.lasting:
            self.examined, lived, known = self.evaluator.lasting(state.learner, self.examined, steps)
            row |= lasting_row(lived, known)
        self.clock.eval_s += time.perf_counter() - begin
        self.score = row["lasting_between_failures_low" if self.settings.checkpoint.best == "endurance" else "window_return"]
        return row

    def _is_best(self) -> bool:
        """Whether this update's agent was evaluated and is better than every one saved before (or lasts no less)."""
        if self.score is None or self.best is None:
            return self.score is not None
        return self.score >= self.best if self.settings.checkpoint.best == "endurance" else self.score > self.best

    def _measure_shares(self, state: TrainState, update_s: float) -> None:
        """Once per run, and per machine and settings only the first time: where the time goes."""
        self.clock.shares = shares.measured(self.program, self.settings, state, update_s)
        parts = ", ".join(f"{name} {share:.0%}" for name, share in self.clock.shares.items())
        self.view.say(f"an update's time: {parts}")

    def _write(self, row: dict[str, Any]) -> None:
        clock = self.clock
        row |= {"wall_s": clock.before_s + time.time() - self.started, "compile_s": clock.compile_s, "train_s": clock.train_s, "eval_s": clock.eval_s}
        row |= {f"{name}_share": share for name, share in clock.shares.items()}
        self.row = row
        self.metrics.append(row)
        self.trackers.log(row, row["env_steps"])
        self.view.report(row)

    def _save(self, state: TrainState, last: bool = False) -> None:
        """Commit state and host record together; the state may be donated afterwards. Of a ring that is saved, the `last` one always is."""
        now = time.perf_counter()
        with_ring = self.settings.replay.save and (last or now >= self.ring_due)
        # Not what the folder lists: a checkpoint of this update may be there and damaged.
        if self.update in (self.saved_whole, None if with_ring else self.saved):
            return self.checkpoints.wait()
        self.best = self.score if self._is_best() else self.best
        clock = vars(self.clock) | {"before_s": self.clock.before_s + time.time() - self.started}
        host = {"clock": clock, "chunk": self.schedule.chunk, "dumped": self.dumped, "row": clean(self.row)}
        host |= {"best": self.best, "limits": self.limits.memory}
        # Whoever goes on from here finds all steps before it on disk.
        self.archiving.flush()
        state = replace(state if with_ring else without_ring(state), examined=self.examined)
        self.checkpoints.save(self.update, self.update * self.program.steps_per_update, state, host, score=self.score, block=last)
        self.saved = self.update
        if with_ring:
            self.saved_whole, self.ring_due = self.update, now + self.settings.replay.save_every
        return None

    def _say_end(self, done: bool) -> None:
        if done:
            self.view.summary(self.row, str(self.folder.path))
        else:
            self.view.say(f"stopped by {self.stop.reason} at update {self.update}, saved; the same command with run_dir={self.folder.path} goes on.")
