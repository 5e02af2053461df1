"""Every question's plot, from the recorded rows.

    python -m benchmarks.plots             # benchmarks/plots/*.png, those whose rows exist

Each name is a question of README.md; medians where there are several turns.
"""

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import compile_time, endurance, horizon, plan_accuracy, rollout, time_to_return
from benchmarks.harness import RESULTS, Row, latest

PLOTS = horizon.PLOTS
PARTS = ("simulate", "infer", "learn")
"""Where an update's time goes, as `metrics.jsonl` names it."""


def medians(rows: list[Row], group: str, column: str) -> dict[str, float]:
    """Median of a column for each value of another, in order of appearance."""
    names = list(dict.fromkeys(row[group] for row in rows))
    return {name: statistics.median(row[column] for row in rows if row[group] == name) for name in names}


def bars(panel: Any, values: dict[str, float], label: str) -> None:
    """Horizontal bars with their names, the first on top."""
    panel.barh(list(values), list(values.values()))
    panel.invert_yaxis()
    panel.set(xlabel=label)
    panel.grid(alpha=0.3, axis="x")


def steps_alone(rows: list[Row], figure: Any) -> None:
    """Environment alone: over numbers of environments, and by task and backend."""
    left, right = figure.subplots(1, 2)
    counts = sorted((row["num_envs"], row["steps_per_s"]) for row in rows if (row["env"], row["backend"]) == ("ant", "spring"))
    left.plot([count for count, _ in counts], [rate for _, rate in counts], marker="o")
    left.set(xscale="log", xlabel="environments", ylabel="steps/s", ylim=(0, None), title="ant, spring, alone")
    left.grid(alpha=0.3)
    bars(right, {f"{row['env']} {row['backend']}": row["steps_per_s"] for row in rows if row["num_envs"] == 256}, "steps/s, 256 environments alone")
    right.set(xscale="log", xlim=(1e3, None))


def where_time_goes(rows: list[Row], figure: Any) -> None:
    """An update's time in simulation, inference and learning, for each planned run."""
    panel = figure.subplots()
    names = [row["case"] for row in rows]
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [row["shares"].get(part, 0.0) for row in rows]
        panel.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    panel.invert_yaxis()
    panel.set(xlabel="share of an update", xlim=(0, 1))
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(PARTS))


def scaling(rows: list[Row], figure: Any) -> None:
    """Training steps/s over devices."""
    panel = figure.subplots()
    rates = medians(rows, "side", "steps_per_s")
    panel.plot([int(name) for name in rates], list(rates.values()), marker="o", label="training, ant")
    first = rates["1"]
    panel.plot([int(name) for name in rates], [first * int(name) for name in rates], linestyle=":", label="as many times one device's")
    panel.set(xlabel="devices", ylabel="steps/s", ylim=(0, None), xticks=[int(name) for name in rates])
    panel.legend()
    panel.grid(alpha=0.3)


def compiling(rows: list[Row], figure: Any) -> None:
    """Seconds of compiling, by world."""
    bars(figure.subplots(), {f"{row['env']} {row['backend']}": row["compile_s"] for row in rows}, "compiling, s, empty cache")


def planned(rows: list[Row], figure: Any) -> None:
    """Planned and real wall times."""
    panel = figure.subplots()
    most = max(max(row["wall_s"], row["planned_wall_s"]) for row in rows) * 1.05
    panel.plot([0, most], [0, most], color="grey", linewidth=1)
    spread = [[row["planned_wall_s"] - row["planned_wall_low_s"] for row in rows], [row["planned_wall_high_s"] - row["planned_wall_s"] for row in rows]]
    panel.errorbar([row["planned_wall_s"] for row in rows], [row["wall_s"] for row in rows], xerr=spread, fmt="o")
    panel.set(xlabel="planned, s", ylabel="took, s", xlim=(0, most), ylim=(0, most))
    panel.grid(alpha=0.3)


def trainers(rows: list[Row], figure: Any) -> None:
    """Other libraries beside ours."""
    bars(figure.subplots(), medians(rows, "side", "steps_per_s"), "training steps/s (see the table for what each of them trains)")


def curves(rows: list[Row], figure: Any) -> None:
    """Window return over seconds, ours and the peers', every seed."""
    panel = figure.subplots()
    for side, colour in (("ours", "C0"), ("brax", "C1"), ("rejax", "C2")):
        for row in (row for row in rows if row["side"] == side):
            panel.plot([second for _, second, _ in row["curve"]], [value for _, _, value in row["curve"]], color=colour, label=f"{side}, seed {row['seed']}")
    panel.set(xlabel="seconds from the start of the process", ylabel="window return, ant")
    panel.legend()
    panel.grid(alpha=0.3)


def lasting(rows: list[Row], figure: Any) -> None:
    """Steps between failures with each option, a dot a seed: filled where failures were seen, hollow for a bound where none was."""
    tasks = list(dict.fromkeys(row["env"] for row in rows))
    figure.set_size_inches(5 * len(tasks), 6)
    for panel, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        runs = [row for row in rows if row["env"] == task]
        typical = {name: statistics.median(endurance.lasting(row) for row in runs if row["option"] == name) for name in {row["option"] for row in runs}}
        order = sorted(typical, key=lambda name: typical[name])
        for row in runs:
            seen = bool(row["steps_between_failures"])
            panel.plot(endurance.lasting(row), order.index(row["option"]), "o", color="C0", markerfacecolor="C0" if seen else "none")
        if endurance.BASE in typical:
            panel.axvline(typical[endurance.BASE], color="grey", linewidth=1)
        panel.set(xscale="log", xlabel="steps between failures", title=task)
        panel.set_yticks(range(len(order)), order)
        panel.grid(alpha=0.3, axis="x")


QUESTIONS: dict[str, tuple[Callable[[Path], list[Row]], Callable[[list[Row], Any], None]]] = {
    "rollout": (rollout.newest, steps_alone),
    "train": (lambda results: [row for row in plan_accuracy.newest(results) if row.get("shares")], where_time_goes),
    "scaling": (lambda results: latest("train", "side", "turn", results=results, kind="cpu", measure="scaling"), scaling),
    "compile_time": (compile_time.newest, compiling),
    "plan_accuracy": (plan_accuracy.newest, planned),
    "others": (lambda results: latest("others", "side", "turn", results=results, kind="cpu"), trainers),
    "endurance": (endurance.newest, lasting),
    "time_to_return": (lambda results: time_to_return.newest(results=results), curves),
}
"""Each plot's name, its rows, and what draws them."""


def draw(results: Path = RESULTS, folder: Path = PLOTS) -> list[Path]:
    """Draw what there are rows for; the files."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, (rows_of, paint) in QUESTIONS.items():
        rows = rows_of(results)
        if not rows:
            continue
        figure = pyplot.figure(figsize=(10, 4), layout="constrained")
        paint(rows, figure)
        files.append(folder / f"{name}.png")
        figure.savefig(files[-1], dpi=80)
        pyplot.close(figure)
    return [*files, horizon.plot(results, folder)] if horizon.newest(results) else files


def main() -> None:
    """Draw everything."""
    for file in draw():
        print(os.path.relpath(file))


if __name__ == "__main__":
    main()
