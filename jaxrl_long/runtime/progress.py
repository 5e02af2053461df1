"""What a person sees of a run: a header, one line a report, a summary; with a live bar where there is a terminal."""

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from jaxrl_long.runtime.process import let_go

Row = Mapping[str, Any]


def number(value: float | None) -> str:
    """Write a count in at most four digits and a letter: 950, 22.4k, 1.23M.

    >>> [number(value) for value in (950, 22_400, 1_234_567, 0.0123, None)]
    ['950', '22.4k', '1.23M', '0.0123', '-']
    """
    if value is None:
        return "-"
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 999,950 and more would round to 1000 of the smaller unit.
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.{2 if abs(value) < 9.995 * limit else 1 if abs(value) < 99.95 * limit else 0}f}{unit}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Write a time with its two largest units: 0.4s, 1m 20s, 2h 05m, 3d 04h.

    >>> [duration(seconds) for seconds in (0.4, 80, 7500, 273_600)]
    ['0.4s', '1m 20s', '2h 05m', '3d 04h']
    """
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller:02d}{name}"
    return f"{whole}s"


def amount(value: float | None) -> str:
    """Write a return or reward: thousands separated, three decimals where it is small."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Lines(Console):
    """A console whose reader may leave: what runs goes on without it. Rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Nobody reads any more."""
        self.quiet = True
        let_go(self.file)


class View:
    """The run's lines on `out`: plain ones, each starting with a fixed word, or coloured above a live bar on a terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Write to `out`, standard output by default."""
        self._console = Lines(file=out or sys.stdout, highlight=False, soft_wrap=True, markup=False)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._planned = 0

    def header(self, task: str, devices: str, updates: int, env_steps: int, done_steps: int = 0) -> None:
        """Say what is going to happen: `updates` and `env_steps` are the run's totals, `done_steps` what a resumed run has."""
        self._planned = env_steps
        already = f", {number(done_steps)} of them done" if done_steps else ""
        self._print(f"run {task} | {devices} | {updates:,} updates, {env_steps:,} steps ({number(env_steps)}){already}", "bold")
        if self._console.is_terminal:
            self._bar = _bar(self._console)
            self._task = self._bar.add_task("training", total=env_steps, completed=done_steps, note="compiling")
            self._bar.start()

    def report(self, row: Row) -> None:
        """Write one line about a row of metrics.jsonl; keys that it lacks are left out."""
        self._print("update " + " | ".join(self._parts(row)), "")
        if self._bar is not None:
            self._bar.update(self._task, completed=row["env_steps"], note=f"{number(row.get('steps_per_s'))} steps/s")

    def say(self, text: str) -> None:
        """Write a line of text in between."""
        self._print(text, "dim")

    def summary(self, row: Row, where: str) -> None:
        """Write how it ended: the last row, and the folder that everything is in."""
        self.close()
        self._print("done " + " | ".join(self._parts(row)), "bold")
        self._print(f"run_dir {where}", "")

    def close(self) -> None:
        """Take the live bar away; lines can still be written."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _parts(self, row: Row) -> list[str]:
        """Write the columns of a row."""
        parts = [f"{row['update']}", f"{number(row['env_steps'])} steps", f"{number(row.get('steps_per_s'))} steps/s"]
        parts += [f"reward {amount(row['reward_per_step'])}/step"] if row.get("reward_per_step") is not None else []
        parts += [f"return {amount(row['window_return'])}"] if row.get("window_return") is not None else []
        parts += [f"success {row['success_rate']:.0%}"] if row.get("success_rate") is not None else []
        if "steps_between_failures" in row:
            seen = row["steps_between_failures"]
            parts += [f"fails every {number(seen)}" if seen is not None else f"fails every > {number(row['steps_between_failures_low'])}"]
        parts += [_times(row)]
        left = self._left(row)
        return parts if left is None else [*parts, f"ETA {duration(left)}"]

    def _left(self, row: Row) -> float | None:
        """Estimate the seconds left of training, from the speed of this report."""
        speed = row.get("steps_per_s")
        return max(0, self._planned - row["env_steps"]) / speed if speed and row["env_steps"] < self._planned else None

    def _print(self, text: str, style: str) -> None:
        self._console.print(text, style=style or None)


def _times(row: Row) -> str:
    """Write the elapsed time and how much of it was compiling and evaluating."""
    shares = ", ".join(f"{name} {duration(row[key])}" for key, name in (("compile_s", "compile"), ("train_s", "train"), ("eval_s", "eval")) if row.get(key))
    elapsed = duration(row.get("wall_s"))
    return f"{elapsed} ({shares})" if shares else elapsed


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[note]}"))
    return Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console, transient=True, refresh_per_second=4)


@contextmanager
def steps_bar(name: str, total: int, out: TextIO | None = None, unit: str = "steps") -> "Generator[StepsBar]":
    """Show how far `name` has come towards `total` steps, on standard error by default so that results can be piped."""
    bar = StepsBar(name, total, Lines(file=out or sys.stderr, highlight=False, markup=False, soft_wrap=True), unit)
    try:
        yield bar
    finally:
        bar.close()


class StepsBar:
    """A bar on a terminal; elsewhere one line for each tenth of the way."""

    def __init__(self, name: str, total: int, console: Console, unit: str = "steps") -> None:
        """Start at 0 of `total`."""
        self._name, self._total, self._console, self._unit = name, total, console, unit
        self._tenth = 0
        self._bar = _bar(console) if console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=total, note="")
            self._bar.start()

    def at(self, step: int, note: str = "") -> None:
        """Say that `step` steps are done, and something worth knowing."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, note=note)
        elif step * 10 // max(1, self._total) > self._tenth:
            self._tenth = step * 10 // self._total
            self._console.print(f"{self._name} {number(step)} of {number(self._total)} {self._unit} {note}".rstrip())

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
