"""Whole commands as the thing that is measured: run, watched, and in alternation."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT, Row, json_lines


@dataclass(frozen=True)
class Command:
    """A command line, run from the repository's root with this environment added to ours."""

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True)
class Finished:
    """What is left of a command: exit code, output, seconds from start to end, and its peak memory."""

    returncode: int
    output: str
    wall_s: float
    peak_bytes: int
    """Largest resident size of the process (Linux: `ru_maxrss`)."""

    @property
    def rows(self) -> list[Row]:
        """The JSON objects that the command printed, one a line."""
        return list(json_lines(self.output))


def module(name: str, *arguments: str, **environment: str) -> Command:
    """`python -m name arguments` in the interpreter that runs the benchmark."""
    return Command([sys.executable, "-m", name, *arguments], environment)


def run(command: Command, log: Path, *, until: Callable[[], bool] = lambda: False, timeout_s: float = 3600.0, poll_s: float = 0.5) -> Finished:
    """Run to the end, or until `until()` holds (then SIGTERM, as a user would stop it); standard output goes to `log`, errors beside it.

    Raises RuntimeError with the last lines of both when the command fails by itself or does not end within `timeout_s`.
    """
    errors = log.with_suffix(log.suffix + ".err")
    start = time.perf_counter()
    with log.open("w") as out, errors.open("w") as err:
        environment = {**os.environ, **command.environment}
        process = subprocess.Popen(command.words, cwd=ROOT, stdout=out, stderr=err, env=environment)
        try:
            status, peak_bytes, stopped = _wait(process.pid, until, start + timeout_s, poll_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text()
    if process.returncode != 0 and not stopped:
        tail = "\n".join((output + errors.read_text()).splitlines()[-20:])
        message = f"`{command}` ended with {process.returncode}:\n{tail}"
        raise RuntimeError(message)
    return Finished(process.returncode, output, time.perf_counter() - start, peak_bytes)


def _wait(pid: int, until: Callable[[], bool], deadline: float, poll_s: float) -> tuple[int, int, bool]:
    """Wait status, peak bytes, and whether the process was asked to stop. `wait4`, because only it tells one child's memory from another's."""
    stopped = False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            unit = 1 if sys.platform == "darwin" else 1024
            return status, usage.ru_maxrss * unit, stopped
        if time.perf_counter() > deadline:
            message = "The command did not end in time. Raise timeout_s, or ask for fewer steps."
            raise RuntimeError(message)
        if not stopped and until():
            os.kill(pid, signal.SIGTERM)
            stopped = True
        time.sleep(poll_s)


def alternate(sides: Mapping[str, Callable[[int], Row]], repeats: int) -> dict[str, list[Row]]:
    """Call the sides in turn, A B A B ..., each with the number of the turn: a machine that slows down slows both.

    One measurement at a time: nothing else runs meanwhile.
    """
    found: dict[str, list[Row]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name, measure in sides.items():
            found[name].append(measure(turn))
    return found
