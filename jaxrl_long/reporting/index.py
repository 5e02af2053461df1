"""A table of the runs below a folder, kept in SQLite so that only what has changed is read again.

It is a cache of what the runs' folders say: it may be deleted at any time. Knows no jax.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from jaxrl_long.fields import ConfigError, flat
from jaxrl_long.reporting.runs import Run, read
from jaxrl_long.runtime.folder import is_locked
from jaxrl_long.stored import SETTINGS_FILE

FILE = "index.sqlite"
COLUMNS = {
    **{"name": "TEXT PRIMARY KEY", "status": "TEXT", "progress": "REAL", "env": "TEXT", "horizon": "INTEGER", "seed": "INTEGER", "steps": "INTEGER"},
    **{"return": "REAL", "best": "REAL", "alive": "REAL", "lasting": "REAL", "failed": "INTEGER", "steps_per_s": "REAL", "wall_s": "REAL"},
    **{"created": "TEXT", "settings": "TEXT"},
}
"""`lasting`: steps between failures as `evaluate` found them last, else those of training; a 95 % lower bound where `failed` is 0: no failure was seen."""


def update(folder: Path) -> sqlite3.Connection:
    """The table of the runs in a folder, as they are now. Where the folder can't be written it is kept in memory."""
    path = folder / FILE if _writable(folder) else Path(":memory:")
    try:
        database = _opened(path)
    except sqlite3.Error:
        # Of another version, or damaged.
        path.unlink(missing_ok=True)
        database = _opened(path)
    found = {path.parent.name: path.parent for path in folder.glob(f"*/{SETTINGS_FILE}")}
    known = dict(database.execute("SELECT name, stamp FROM stamps"))
    for name in known.keys() - found.keys():
        database.execute("DELETE FROM runs WHERE name = ?", (name,))
        database.execute("DELETE FROM stamps WHERE name = ?", (name,))
    for name, path in found.items():
        stamp = _stamp(path)
        if known.get(name) != stamp:
            _put(database, path, stamp)
    database.commit()
    return database


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=10.0)
    database.row_factory = sqlite3.Row
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    database.execute(f"CREATE TABLE IF NOT EXISTS runs ({columns})")
    database.execute("CREATE TABLE IF NOT EXISTS stamps (name TEXT PRIMARY KEY, stamp TEXT)")
    if [row["name"] for row in database.execute("PRAGMA table_info(runs)")] != list(COLUMNS):
        raise sqlite3.DatabaseError("another version's index")
    return database


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and (not (folder / FILE).exists() or os.access(folder / FILE, os.W_OK))


def _stamp(path: Path) -> str:
    """Changes whenever a run's row would."""
    files = ("metrics.jsonl", "summary.json", "endurance.jsonl", SETTINGS_FILE)
    times = [(path / file).stat().st_mtime_ns if (path / file).exists() else 0 for file in files]
    return json.dumps([*times, is_locked(path / "lock")])


def _put(database: sqlite3.Connection, path: Path, stamp: str) -> None:
    try:
        values = row(read(path))
    except ConfigError as error:
        values = dict.fromkeys(COLUMNS) | {"name": path.name, "status": "unreadable", "settings": json.dumps({"error": error.problems[0]})}
    marks = ", ".join("?" for _ in COLUMNS)
    database.execute(f"INSERT OR REPLACE INTO runs VALUES ({marks})", [values[name] for name in COLUMNS])
    database.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?)", (path.name, stamp))


def row(run: Run) -> dict[str, Any]:
    """A run as the table has it."""
    settings, last = run.settings, run.last
    returns = [one["window_return"] for one in run.evaluations]
    examined = run.endurance[-1] if run.endurance else {}
    seen = examined or last
    bound = examined["steps_between_failures_interval"][0] if examined else last.get("steps_between_failures_low")
    return {
        "name": run.name,
        "status": run.status,
        "progress": run.progress,
        "env": settings.env.name,
        "horizon": settings.horizon,
        "seed": settings.seed,
        "steps": last.get("env_steps", 0),
        "return": returns[-1] if returns else None,
        "best": max(returns, default=None),
        "alive": examined.get("alive"),
        "lasting": seen.get("steps_between_failures") or bound,
        "failed": seen.get("steps_between_failures") is not None if seen else None,
        "steps_per_s": last.get("steps_per_s"),
        "wall_s": run.wall_s or None,
        "created": run.processes[0]["started"][:19] if run.processes else None,
        "settings": json.dumps(flat(settings)),
    }


def chosen(folder: Path, where: str = "", sort: str = "created", limit: int = 0) -> list[dict[str, Any]]:
    """Rows of the runs below a folder.

    Raises:
        ConfigError: no such folder; a condition that SQLite does not understand; no such column.
    """
    if not folder.is_dir():
        raise ConfigError([f"{folder}: no such folder."])
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    if column not in COLUMNS:
        raise ConfigError([f"sort={sort}: no such column. There are: {', '.join(COLUMNS)}; with a minus in front the largest first."])
    query = f'SELECT * FROM runs {f"WHERE {where}" if where else ""} ORDER BY "{column}" {"DESC" if descending else "ASC"}, name'
    with closing(update(folder)) as database:
        # A condition is to look, not to change.
        database.execute("PRAGMA query_only = ON")
        try:
            rows = [dict(found) for found in database.execute(query)]
        except sqlite3.Error as error:
            raise ConfigError([f"where={where}: {error}. Such as: where=\"env = 'ant' and status = 'finished'\"; columns: {', '.join(COLUMNS)}."]) from None
    return rows[:limit] if limit else rows


def differences(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Names of settings that are not the same in all of these runs, but for those that have a column or say where a run is."""
    settings = [json.loads(one["settings"]) for one in rows if one["status"] != "unreadable"]
    beside = ("env.name", "horizon", "seed", "run_dir")
    for name in settings[0] if settings else ():
        if name not in beside and any(one.get(name) != settings[0][name] for one in settings):
            yield name
