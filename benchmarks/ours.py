"""How this project's own commands are started and read by the benchmarks, through the interface that everybody scripts against."""

import statistics
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.harness import Row, jsonl

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Trained:
    """A finished training: its reports and what the process took."""

    reports: list[Row]
    peak_bytes: int

    @property
    def steps_per_s(self) -> float:
        """Training steps/s in steady state: the median of all reports but the first, which may still be warming up."""
        return steady([row["steps_per_s"] for row in self.reports])


def steady(rates: list[float], *, warmup: int = 1) -> float:
    """Median of all rates but the first `warmup`; raises ValueError where none is left."""
    if len(rates) <= warmup:
        msg = f"{len(rates)} report(s) are too few for a rate without the first {warmup}: ask for more steps."
        raise ValueError(msg)
    return round(statistics.median(rates[warmup:]), 1)


def scratch() -> AbstractContextManager[str]:
    """A temporary folder for runs: they are no part of the results."""
    return tempfile.TemporaryDirectory(prefix="jaxrl_long_bench_", ignore_cleanup_errors=True)


def words(**settings: Any) -> list[str]:
    """Settings as a command line has them; a double underscore stands for a dot (`eval__every=0`)."""
    return [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]


def train(folder: Path, settings: list[str], *, until: Callable[[Path], bool] | None = None, timeout_s: float = 3600.0) -> Trained:
    """Train into `folder`, which must not exist yet; `until` is asked about the metrics file and stops the run."""
    metrics = folder / METRICS
    command = processes.module("jaxrl_long.train", *settings, f"run_dir={folder}")
    finished = processes.run(command, folder.parent / f"{folder.name}.log", until=lambda: until is not None and until(metrics), timeout_s=timeout_s)
    reports = [row for row in jsonl(metrics) if row.get("steps_per_s") is not None]
    return Trained(reports, finished.peak_bytes)


def evaluations(metrics: Path) -> list[Row]:
    """The reports that carry a `window_return`, oldest first."""
    return [row for row in jsonl(metrics) if row.get("window_return") is not None]


def evaluate(folder: Path, *, horizon: int, num_envs: int, timeout_s: float = 3600.0) -> Row:
    """What the evaluation command says about the run in `folder`."""
    command = processes.module("jaxrl_long.evaluate", *words(run=folder, horizon=horizon, num_envs=num_envs, json="true"))
    return processes.run(command, folder.parent / f"{folder.name}.evaluate.log", timeout_s=timeout_s).rows[-1]
