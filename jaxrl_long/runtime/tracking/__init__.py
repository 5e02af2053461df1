"""Where a run's numbers go: metrics.jsonl always, and trackers that can neither stop nor slow it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxrl_long import named
from jaxrl_long.config import Settings
from jaxrl_long.fields import USER_CLASS, ConfigError
from jaxrl_long.runtime.tracking.background import Background
from jaxrl_long.runtime.tracking.jsonl import MetricsFile, read_rows
from jaxrl_long.runtime.tracking.mlflow import MlflowTracker
from jaxrl_long.runtime.tracking.protocol import Row, Tracker
from jaxrl_long.runtime.tracking.tensorboard import TensorboardTracker
from jaxrl_long.runtime.tracking.wandb import WandbTracker

__all__ = ["Background", "MetricsFile", "Tracker", "Trackers", "make_trackers", "read_rows"]

Say = Callable[[str], None]

NEEDED = ("start", "log", "show", "finish", "abandon")
"""What a Tracker has."""
PATIENCE_S = 15.0
"""Longest wait for all trackers together after the last row; they upload meanwhile."""
DATABASE_SLOW_S = 5.0
"""A row that a database has not taken after this long is not waited for."""


class Trackers:
    """Several trackers, called as one."""

    def __init__(self, trackers: dict[str, Background]) -> None:
        """Take trackers by name; none is fine."""
        self._trackers = trackers

    def start(self, run_name: str, config: dict[str, Any], folder: Path, ids: dict[str, str], past: Sequence[Row] = ()) -> dict[str, str]:
        """Open all; `ids` are those that an earlier process got from here and stored, by name. Returns the ids to store.

        `past`: the rows that stand in metrics.jsonl already.
        """
        return ids | {name: tracker.start(run_name, config, folder, ids.get(name), past) for name, tracker in self._trackers.items()}

    def log(self, row: Row, step: int) -> None:
        """Hand a row to all."""
        for tracker in self._trackers.values():
            tracker.log(row, step)

    def show(self, video: Path, step: int) -> None:
        """Hand a video of the agent to all."""
        for tracker in self._trackers.values():
            tracker.show(video, step)

    def finish(self, summary: dict[str, Any], files: Sequence[Path] = ()) -> None:
        """Close all at once, waiting for each its bounded time."""
        began = time.monotonic()
        for tracker in self._trackers.values():
            tracker.close(summary, files)
        for tracker in self._trackers.values():
            tracker.wait(began)


def make_trackers(settings: Settings, say: Say) -> Trackers:
    """Make the trackers of the `tracker` setting. To add one: a class with the methods of `Tracker`, a line here, and its name in `config.TRACKERS`.

    Raises ConfigError if one of the user's own can't be made.
    """
    make: dict[str, Callable[[], Background]] = {
        "wandb": lambda: Background("wandb", WandbTracker(settings.wandb, say), say, patience_s=PATIENCE_S),
        "mlflow": lambda: Background("mlflow", MlflowTracker(settings.mlflow, say), say, patience_s=PATIENCE_S, slow_s=DATABASE_SLOW_S),
        "tensorboard": lambda: Background("tensorboard", TensorboardTracker(say), say, patience_s=PATIENCE_S),
    }
    return Trackers({name: Background(name, own(name), say) if USER_CLASS.fullmatch(name) else make[name]() for name in settings.tracker})


def own(name: str) -> Tracker:
    """The tracker of a class of the user's own. Raises ConfigError if there is none such, or it is no Tracker."""
    tracker = named.built("tracker", name, None, named.load("tracker", name))
    if problems := named.lacking("tracker", name, tracker, "A Tracker", NEEDED, "jaxrl_long/runtime/tracking/protocol.py", NEEDED):
        raise ConfigError(problems)
    return tracker
