"""List runs, or delete some: `python -m jaxrl_long.runs sort=-return`. `--help` lists the settings."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl_long import cli
from jaxrl_long.fields import ConfigError, setting, show

SHOWN = {"name": "", "status": "", "progress": ".0%", "env": "", "horizon": ",", "seed": "", "return": ",.1f", "alive": ".0%", "lasting": ",.0f"}
SHOWN |= {"steps_per_s": ",.0f", "wall_s": ""}
"""Columns of the table and how their values are written."""
DIFFERENCES = 6
"""Settings shown beside the columns."""
DISPENSABLE = ("wall_s", "steps_per_s", "horizon", "progress", "alive", "seed", "env")
"""Columns that are left out first where a terminal is narrow, in this order."""


@dataclass
class RunsSettings:
    """Which runs, and what of them."""

    where: str | None = setting(None, path=True, main=True)
    """Condition on the columns, as SQL has it, null: all runs. Such as where="env = 'ant' and return > 5000"."""
    sort: str = setting("created", main=True)
    """Column to sort by; with a minus in front the largest first."""
    limit: int = setting(0, low=0, main=True)
    """Most rows; 0: all."""
    json: bool = setting(False, main=True)
    """Print each run as a line of JSON."""
    confirm: bool = setting(False, main=True)
    """Delete without asking."""


def main(call: cli.Call) -> int:
    """List, or delete what the condition chooses."""
    from jaxrl_long.reporting import index

    settings: RunsSettings = call.settings
    folder = Path(call.paths[0]) if call.paths else Path("runs")
    if call.verb == "delete":
        return _delete(folder, settings)
    rows = index.chosen(folder, settings.where or "", settings.sort, settings.limit)
    if settings.json:
        for row in rows:
            print(json.dumps(row | {"settings": json.loads(row["settings"])}))
    else:
        _table(rows, list(index.differences(rows))[:DIFFERENCES])
    return cli.DONE


def _delete(folder: Path, settings: RunsSettings) -> int:
    import shutil

    from jaxrl_long.reporting import index
    from jaxrl_long.runtime.folder import Lock

    if not settings.where:
        raise ConfigError(["delete needs where=: which runs? Such as: delete where=\"name = 'ant-20260102-030405-s0'\"."])
    rows = index.chosen(folder, settings.where or "", settings.sort, settings.limit)
    busy = [row["name"] for row in rows if row["status"] == "running"]
    if busy:
        raise ConfigError([f"{name} is running: stop it first." for name in busy])
    for row in rows:
        print(f"{row['name']}  {row['status']}, {row['steps'] or 0:,} steps")
    if not rows:
        print("no such run")
        return cli.DONE
    if not settings.confirm and not _agreed(len(rows)):
        print("nothing was deleted")
        return cli.FAILED
    deleted = 0
    for row in rows:
        try:
            # It may have been started again while the question stood.
            with Lock(folder / row["name"] / "lock"):
                shutil.rmtree(folder / row["name"])
            deleted += 1
        except ConfigError as error:
            print(error.problems[0], file=sys.stderr)
    print(f"{deleted} deleted")
    return cli.DONE


def _agreed(number: int) -> bool:
    """Asked at a terminal; nobody there means no."""
    if not sys.stdin.isatty():
        print("confirm=true deletes them", file=sys.stderr)
        return False
    what = "this run with everything in its folder" if number == 1 else f"these {number} runs with everything in their folders"
    return input(f"Delete {what}? [y/N] ").lower() in ("y", "yes")


def _table(rows: list[dict[str, Any]], different: list[str]) -> None:
    """As wide as it is where it goes into a file or a pipe; on a terminal, what fits."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    shown = [*SHOWN, *different]

    def table() -> Table:
        made = Table(box=None, padding=(0, 2, 0, 0))
        for name in shown:
            made.add_column(name.rsplit(".", 1)[-1], overflow="fold", justify="left" if name in ("name", "status", "env", *different) else "right")
        for row in rows:
            made.add_row(*(_cell(row, name) for name in shown))
        return made

    wide = console.options.update(width=100_000)
    dropped = []
    for name in DISPENSABLE if console.is_terminal else ():
        if console.measure(table(), options=wide).maximum > console.width:
            shown.remove(name)
            dropped.append(name)
    if not console.is_terminal:
        console.width = console.measure(table(), options=wide).maximum
    console.print(table())
    if dropped:
        print(f"too narrow for {', '.join(dropped)}: a wider terminal, a pipe or json=true shows them", file=sys.stderr)


def _cell(row: dict[str, Any], name: str) -> str:
    """What stands in a column, which a condition or an order may name too."""
    from jaxrl_long.planning.report import duration

    if name not in row:
        return show(json.loads(row["settings"]).get(name))
    value = row[name]
    if value is None:
        return "–"
    if name == "wall_s":
        return duration(value)
    bound = "> " if name == "lasting" and not row["failed"] else ""
    return f"{bound}{value:{SHOWN[name]}}"


COMMAND = cli.Command(
    name="runs",
    summary="List the runs in a folder (by default runs/), or delete some of them.",
    settings=RunsSettings,
    main=main,
    verbs=("list", "delete"),
    paths=(0, 1),
    examples=("sort=-return", "where=\"env = 'ant' and status = 'finished'\"", "list old_runs json=true", "delete where=\"status = 'failed'\""),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
