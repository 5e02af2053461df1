"""What a tracker is: somewhere else than metrics.jsonl where a run's numbers go."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

Row = dict[str, Any]


class Tracker(Protocol):
    """A place for metrics. Its calls may be slow or raise: `background.Background` stands between it and the run."""

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row]) -> str:
        """Open a run and return the id by which a later process goes on with it.

        `folder` is the run's: nothing may be written elsewhere, unless the user names a place. `resume_id`: the id to open, created
        if it does not exist yet. `past`: the rows of metrics.jsonl before this process, oldest first. What the place does not have of
        them is to be added; what it has beyond them is computed again, and must not be seen twice.
        """
        ...

    def log(self, row: Row, step: int) -> None:
        """Take one row of metrics.jsonl at `step` environment steps."""
        ...

    def show(self, video: Path, step: int) -> None:
        """Take a video (mp4 or gif) of the agent at `step` environment steps."""
        ...

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        """Take the final numbers, and copies of these files, and close."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind that would hold up the end of this process; called when it did not finish in time."""
        ...
