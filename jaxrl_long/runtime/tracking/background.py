"""A tracker that can't hurt: its calls are made by a thread of their own, which takes the slowness and the exceptions."""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxrl_long.fields import masked
from jaxrl_long.runtime.tracking.jsonl import clean
from jaxrl_long.runtime.tracking.protocol import Row, Tracker


class Background:
    """Hands a run's rows to `tracker`, never waiting for it until the run's end, and there only a bounded time."""

    def __init__(self, name: str, tracker: Tracker, say: Callable[[str], None], *, patience_s: float = 0.6, slow_s: float = 0.4, capacity: int = 4096) -> None:
        """Stand before `tracker`, called `name` in messages.

        `patience_s`: longest wait at the end. `slow_s`: a `log` in progress for longer than that is not waited for at all.
        `capacity`: rows kept for a slow tracker; beyond it new ones are dropped and counted.
        """
        self._name, self._tracker, self._say = name, tracker, say
        self._patience_s, self._slow_s = patience_s, slow_s
        self._calls: queue.Queue[tuple[str, Callable[[], Any]]] = queue.Queue(capacity)
        self._current: tuple[str, float] = ("", 0.0)
        self._dead = False
        self._told = False
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name=f"tracker-{name}", daemon=True)

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row] = ()) -> str:
        """Open the run in the background and return its id at once: it is chosen here, so that nobody has to be asked for it."""
        identity = resume_id or secrets.token_hex(4)
        settings = clean(config)
        self._put("start", lambda: self._tracker.start(run_name, settings, folder, identity, past))
        self._thread.start()
        return identity

    def log(self, row: Row, step: int) -> None:
        """Hand over a row."""
        copy = clean(row)
        self._put("log", lambda: self._tracker.log(copy, step))

    def show(self, video: Path, step: int) -> None:
        """Hand over a video."""
        self._put("show", lambda: self._tracker.show(video, step))

    def close(self, summary: dict[str, Any], files: Sequence[Path] = ()) -> None:
        """Ask the tracker to close the run; nothing more may be logged."""
        copy = clean(summary)
        self._put("finish", lambda: self._tracker.finish(copy, files))

    def wait(self, began: float) -> None:
        """Wait until it has closed; where it takes too long since `began` (of `time.monotonic`), leave it alone and say so."""
        deadline = began + self._patience_s
        while self._thread.is_alive() and time.monotonic() < deadline and not self._is_slow():
            self._thread.join(timeout=0.02)
        if self._thread.is_alive():
            self._dead = True
            waiting = sum(1 for what, _ in list(self._calls.queue) if what == "log")
            self._say(f"{self._name} is too slow and is left behind with {waiting} rows not handed over; metrics.jsonl has all of them.")
            self._guard("abandon", self._tracker.abandon)
        elif self._lost:
            self._say(f"{self._name} lost {self._lost} rows; metrics.jsonl has all of them.")

    def finish(self, summary: dict[str, Any], files: Sequence[Path] = ()) -> None:
        """Close the run, and wait for it."""
        began = time.monotonic()
        self.close(summary, files)
        self.wait(began)

    def _put(self, what: str, call: Callable[[], Any]) -> None:
        try:
            self._calls.put_nowait((what, call))
        except queue.Full:
            self._lost += 1

    def _is_slow(self) -> bool:
        what, since = self._current
        return what == "log" and time.monotonic() - since > self._slow_s

    def _run(self) -> None:
        """Make the calls, one after the other, until `finish` has been made."""
        what = ""
        while what != "finish" and not self._dead:
            what, call = self._calls.get()
            self._current = (what, time.monotonic())
            self._guard(what, call)
            self._current = ("", 0.0)

    def _guard(self, what: str, call: Callable[[], Any]) -> None:
        """Make one call; say the first time that it fails, and give up on a tracker that did not even start."""
        try:
            call()
        # Whatever a tracker raises is its own trouble, not the run's.
        except Exception as error:
            if not self._told:
                self._say(f"{self._name} failed to {what}: {reason(error)}. The run goes on; metrics.jsonl has everything.")
            self._told = True
            self._lost += what == "log"
            self._dead = self._dead or what == "start"


def reason(error: BaseException) -> str:
    """What went wrong, in a line without passwords."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {masked(first)[:400]}".rstrip(".")
