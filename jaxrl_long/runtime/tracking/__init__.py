"""Where a run's numbers go: metrics.jsonl always, and trackers that can neither stop nor slow it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_long import named
from jaxrl_long.config import WandbSettings
from jaxrl_long.fields import USER_CLASS, ConfigError
from jaxrl_long.runtime.tracking.background import Background
from jaxrl_long.runtime.tracking.jsonl import MetricsFile, read_rows
from jaxrl_long.runtime.tracking.protocol import Tracker
from jaxrl_long.runtime.tracking.wandb import WandbTracker

__all__ = ["Background", "MetricsFile", "Tracker", "Trackers", "make_trackers", "read_rows"]

Say = Callable[[str], None]

NEEDED = ("start", "log", "finish", "abandon")
"""What a Tracker has."""
WANDB_PATIENCE_S = 15.0
"""Longest wait for wandb after the last row; it uploads meanwhile."""


class Trackers:
    """Several trackers, called as one."""

    def __init__(self, trackers: dict[str, Background]) -> None:
        """Take trackers by name; none is fine."""
        self._trackers = trackers

    def start(self, run_name: str, config: dict[str, Any], folder: Path, ids: dict[str, str]) -> dict[str, str]:
        """Open all; `ids` are those that an earlier process got from here and stored, by name. Returns the ids to store."""
        return {name: tracker.start(run_name, config, folder, ids.get(name)) for name, tracker in self._trackers.items()}

    def log(self, row: dict[str, Any], step: int) -> None:
        """Hand a row to all."""
        for tracker in self._trackers.values():
            tracker.log(row, step)

    def finish(self, summary: dict[str, Any]) -> None:
        """Close all; each may take its bounded time."""
        for tracker in self._trackers.values():
            tracker.finish(summary)


def make_trackers(names: list[str], settings: WandbSettings, say: Say) -> Trackers:
    """Make the trackers of the `tracker` setting. To add one: a class with the methods of `Tracker`, and a line here."""
    trackers = {}
    if "wandb" in names:
        trackers["wandb"] = Background("wandb", WandbTracker(settings, say), say, patience_s=WANDB_PATIENCE_S)
    for name in names:
        if USER_CLASS.fullmatch(name):
            trackers[name] = Background(name, own(name), say)
    return Trackers(trackers)


def own(name: str) -> Tracker:
    """The tracker of a class of the user's own. Raises ConfigError if there is none such, or it is no Tracker."""
    tracker = named.built("tracker", name, None, named.load("tracker", name))
    if problems := named.lacking("tracker", name, tracker, "A Tracker", NEEDED, "jaxrl_long/runtime/tracking/protocol.py", NEEDED):
        raise ConfigError(problems)
    return tracker
