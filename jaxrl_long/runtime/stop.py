"""Stopping: signals, the STOP file, and work that must not be cut in the middle.

The main thread owns the signals and the work runs in another: Python's signal handlers wait while the main thread is inside
XLA, and a compile takes many seconds. What a signal (SIGINT, SIGTERM, or SLURM's usual warning SIGUSR1) does:

    first, while nothing new exists     the process exits with 75 at once
    first, later                        the work finishes the chunk in flight, logs it, saves and returns `stop.exit_code`, 75
    second, anywhere                    the process dies of it at once: shells report 128 + its number (130, 143)
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

DONE, SAVED = 0, 75
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STACK_BYTES = 64 << 20


class Stop:
    """Whether and why the work should end. `poll` it between chunks."""

    def __init__(self, file: Path | None = None) -> None:
        """Watch `file`, the run's STOP file, if one is given."""
        self.reason: str | None = None
        self.exit_code = DONE
        self.signalled = threading.Event()
        self._file = file
        self._from_file = False
        self._fresh = False
        self._lock = threading.RLock()

    def nothing_to_save(self) -> None:
        """Say that a signal may end the process at once from here on: so it is at the start, while compiling."""
        with self._lock:
            self._fresh = False

    def something_to_save(self) -> None:
        """Say that there is new work: from here on a signal only asks, and the work must `poll`, save and return."""
        with self._lock:
            self._fresh = True

    def poll(self) -> bool:
        """Look whether to stop: a signal came, the STOP file exists, or somebody asked."""
        if self.reason is None and self._file is not None and self._file.exists():
            self._from_file = True
            self.ask(f"{self._file} exists")
        return self.reason is not None

    def ask(self, reason: str, exit_code: int = DONE) -> None:
        """Ask for an end; the first reason counts."""
        with self._lock:
            if self.reason is None:
                self.reason, self.exit_code = reason, exit_code

    def signal(self, number: int) -> None:
        """Take a first signal: exit at once where nothing new exists, otherwise ask."""
        with self._lock:
            if not self._fresh:
                self._exit_now(f"{signal.Signals(number).name}: nothing new to save.")
            self.ask(signal.Signals(number).name, SAVED)
            self.signalled.set()

    def obeyed(self) -> None:
        """Remove the STOP file that was obeyed, so that the same command goes on later."""
        if self._from_file and self._file is not None:
            self._file.unlink(missing_ok=True)

    @staticmethod
    def _exit_now(text: str) -> None:
        """Leave without waiting for threads that are inside XLA."""
        # Not `print`: a handler may have interrupted one.
        os.write(2, f"{text}\n".encode())
        sys.stdout.flush()
        os._exit(SAVED)


class _Handlers:
    """Signal handlers of a block. After the first signal the kernel's own action is back: nothing can delay a second one."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._first) for number in SIGNALS}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _first(self, number: int, frame: FrameType | None) -> None:
        del frame
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self._stop.signal(number)


def run_interruptibly(work: Callable[[Stop], int], stop_file: Path | None = None, say: Callable[[str], None] | None = None) -> int:
    """Run `work(stop)` in a thread of its own while this one waits for signals; return the exit code that it returns.

    Its exceptions are raised here. Called from another thread than the main one, where Python allows no handlers, it runs `work` plainly.
    """
    stop = Stop(stop_file)
    if threading.current_thread() is not threading.main_thread():
        code = work(stop)
    else:
        code = _in_thread(work, stop, say or (lambda text: print(text, file=sys.stderr, flush=True)))
    stop.obeyed()
    return code


def _in_thread(work: Callable[[Stop], int], stop: Stop, say: Callable[[str], None]) -> int:
    outcome: list[int] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(work(stop))
        # Everything, SystemExit too: it is raised again in the main thread, with its traceback.
        except BaseException as error:
            failure.append(error)

    # Tracing and LLVM recurse deeply, and some systems give new threads half a megabyte.
    before = threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=body, name="work", daemon=True)
    with _Handlers(stop):
        thread.start()
        threading.stack_size(before)
        _wait(thread, stop, say)
    if failure:
        raise failure[0]
    return outcome[0]


def _wait(thread: threading.Thread, stop: Stop, say: Callable[[str], None]) -> None:
    """Wait for the work's end; say once, outside the handler, that a signal was heard."""
    said = False
    while thread.is_alive():
        thread.join(timeout=0.2)
        if stop.signalled.is_set() and not said:
            said = True
            say(f"{stop.reason}: finishing the chunk in flight and saving; once more to quit at once.")
