"""A run as its folder tells it. Knows no jax: a run may be looked at while it trains."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError, flat
from jaxrl_long.runtime.folder import RunFolder, is_locked
from jaxrl_long.stored import load_settings

Row = dict[str, Any]
BESIDE = ("seed", "run_dir", "devices", "block", "chunk", "compilation_cache", "machine", "tracker", "wandb", "mlflow", "stop", "checkpoint")
"""Settings in which runs of one experiment may differ: they are not what it is about."""
NEEDED = {"update", "env_steps", "wall_s", "reward_per_step", "steps_between_failures", "steps_between_failures_low", "steps_between_failures_high", "age_max"}
NEEDED |= {"steps_per_s", "age_median"}


@dataclass(frozen=True)
class Run:
    """One run's files."""

    folder: Path
    settings: Settings
    rows: list[Row]
    """Of metrics.jsonl, in order."""
    processes: list[Row]
    """Of provenance.jsonl: one for each process that worked on it."""
    endurance: list[Row]
    """Results of `evaluate`, oldest first."""
    summary: Row = field(default_factory=dict)
    """At its end; empty before it."""
    running: bool = False

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.name

    @property
    def status(self) -> str:
        """running, finished, interrupted (it goes on when asked to), or failed (it ended without a word)."""
        if self.running:
            return "running"
        if self.summary.get("finished"):
            return "finished"
        return "interrupted" if self.summary else "failed"

    @cached_property
    def evaluations(self) -> list[Row]:
        """Rows that carry a `window_return`."""
        return [row for row in self.rows if row.get("window_return") is not None]

    @property
    def last(self) -> Row:
        """The newest row; empty where there is none yet."""
        return self.rows[-1] if self.rows else {}

    @property
    def wall_s(self) -> float:
        """Seconds that its processes took, to the very end where it has one."""
        return self.summary.get("wall_s") or self.last.get("wall_s", 0.0)

    @property
    def progress(self) -> float:
        """Share of its updates that are done."""
        return min(1.0, self.last.get("update", 0) / self.settings.updates)

    @cached_property
    def kind(self) -> tuple[tuple[str, str], ...]:
        """What it has in common with runs of other seeds."""
        found = {name: value for name, value in flat(self.settings).items() if name.split(".")[0] not in BESIDE}
        return tuple(sorted((name, repr(value)) for name, value in found.items()))


def read(folder: Path | str) -> Run:
    """The run in a folder.

    Raises:
        ConfigError: there is none.
    """
    path = Path(folder)
    settings, files = load_settings(path), RunFolder(path)
    summary: Row = {}
    if (text := path / "summary.json").exists():
        try:
            summary = json.loads(text.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError([f"{text} can't be read: {error}"]) from None
    # Of other versions, or written by hand, there may be rows without what every report has.
    rows = [row for row in _rows(files.metrics) if row.keys() >= NEEDED]
    # That of an earlier end, where it has gone on since.
    stale = bool(rows) and summary.get("update", 0) < rows[-1]["update"]
    return Run(path, settings, rows, _rows(files.provenance), _rows(files.endurance), {} if stale else summary, is_locked(files.lock))


def _rows(path: Path) -> list[Row]:
    """Whole lines of a file that may just be written to; none where it is missing."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            # The last line, half written.
            continue
    return found


def differing(runs: list[Run]) -> list[str]:
    """Names of the settings that are not the same in all runs, but for where they are."""
    flats = [flat(run.settings) for run in runs]
    return [name for name in flats[0] if name != "run_dir" and any(one[name] != flats[0][name] for one in flats)]
