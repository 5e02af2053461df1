"""metrics.jsonl: one row a report, safe on the disk before the run goes on, strictly increasing in env_steps."""

import json
import math
from pathlib import Path
from typing import Any

from jaxrl_long.runtime.folder import append_line, write_atomically


class MetricsFile:
    """The run's own record of its numbers, which never depends on a tracker."""

    def __init__(self, path: Path) -> None:
        """Open `path`, which need not exist yet."""
        self.path = path
        rows = read_rows(path)
        self._last = rows[-1]["env_steps"] if rows else -1

    def append(self, row: dict[str, Any]) -> None:
        """Write one row and force it onto the disk; NaN and infinities become null. Raises ValueError if env_steps does not grow."""
        if row["env_steps"] <= self._last:
            raise ValueError(f"{self.path}: a row of {row['env_steps']} env steps can't follow one of {self._last}.")
        append_line(self.path, json.dumps(clean(row), allow_nan=False))
        self._last = row["env_steps"]

    def truncate_after(self, update: int) -> int:
        """Cut away, atomically, the rows that a killed process wrote after its checkpoint of `update`; return how many, a torn one included."""
        if not self.path.exists():
            return 0
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [row for row in read_rows(self.path) if row["update"] <= update]
        if len(kept) < len(lines):
            write_atomically(self.path, "".join(f"{json.dumps(row)}\n" for row in kept))
        self._last = kept[-1]["env_steps"] if kept else -1
        return len(lines) - len(kept)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a metrics file, up to the first torn line (a process may be writing it, or was killed doing so)."""
    rows: list[dict[str, Any]] = []
    if not path.exists():
        return rows
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        row = _parse(line)
        if row is None:
            break
        rows.append(row)
    return rows


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "update" in row and "env_steps" in row else None


def clean(value: Any) -> Any:
    """Turn numbers of NumPy and jax into Python's, and non-finite ones into None, in nested dicts and lists."""
    if isinstance(value, dict):
        return {str(name): clean(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    if hasattr(value, "tolist"):
        return clean(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
