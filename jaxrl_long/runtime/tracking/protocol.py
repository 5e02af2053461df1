"""What a tracker is: somewhere else than metrics.jsonl where a run's numbers go."""

from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """A place for metrics. Its calls may be slow or raise: `background.Background` stands between it and the run."""

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None) -> str:
        """Open a run and return the id by which a later process goes on with it.

        `folder` is the run's: nothing may be written elsewhere. `resume_id`: the id to open, created if it does not exist yet.
        """
        ...

    def log(self, row: dict[str, Any], step: int) -> None:
        """Take one row of metrics.jsonl at `step` environment steps."""
        ...

    def finish(self, summary: dict[str, Any]) -> None:
        """Take the final numbers and close."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind that would hold up the end of this process; called when it did not finish in time."""
        ...
