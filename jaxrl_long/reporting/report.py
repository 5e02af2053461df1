"""The report of one run, or of several side by side. Knows no jax."""

import datetime
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_long.config import Settings
from jaxrl_long.fields import flat, show
from jaxrl_long.planning import cache
from jaxrl_long.planning.model import predict
from jaxrl_long.planning.report import compared, duration
from jaxrl_long.reporting import page
from jaxrl_long.reporting.charts import Curve, chart
from jaxrl_long.reporting.runs import Row, Run, differing
from jaxrl_long.reporting.statistics import aligned, interquartile_mean, interval
from jaxrl_long.runtime.folder import write_atomically
from jaxrl_long.runtime.memory import gigabytes

FILE = "report.html"


def write(runs: Sequence[Run], to: Path) -> Path:
    """Write the report of these runs; returns where."""
    write_atomically(to, one(runs[0]) if len(runs) == 1 else several(list(runs)))
    return to


def one(run: Run) -> str:
    """The page of a run."""
    body = [f"<h1>{page.escape(run.name)}</h1>\n", page.paragraph(summary(run))]
    if run.rows:
        body += [page.tiles(_numbers(run)), *_curves(run), *_endurance(run), *_coverage(run), *_time(run), *_memory(run)]
    body += [*_history(run), *_settings(run), *_versions(run)]
    return page.page(f"{run.name}: {run.settings.env.name}", body)


def summary(run: Run) -> str:
    """What happened, in one sentence."""
    settings, last = run.settings, run.last
    task = f"{settings.env.name} with a horizon of {settings.horizon:,} steps, seed {settings.seed}"
    if not last:
        return f"{task}: {run.status}, nothing was reported yet."
    parts = [f"{last['env_steps']:,} of {settings.total_steps:,} environment steps in {duration(run.wall_s)}"]
    if run.evaluations:
        parts.append(f"a return of {run.evaluations[-1]['window_return']:,.1f} in the first {min(settings.eval.window, settings.horizon):,} steps")
    if run.endurance:
        latest = run.endurance[-1]
        rest = "none failed" if not latest["failures"] else f"one failed every {latest['steps_between_failures']:,.0f} steps"
        parts.append(f"{latest['alive']:.0%} of {latest['num_envs']} agents alive after {latest['horizon']:,} steps ({rest})")
    else:
        parts.append("how long its agents last was not examined yet")
    return f"{task}: {run.status}; {', '.join(parts)}."


def _numbers(run: Run) -> Iterator[tuple[str, str]]:
    last = run.last
    yield "of the run done", f"{run.progress:.0%}"
    if run.evaluations:
        yield "return, latest", f"{run.evaluations[-1]['window_return']:,.1f}"
        yield "return, best", f"{max(row['window_return'] for row in run.evaluations):,.1f}"
    rates = [row["steps_per_s"] for row in run.rows if row.get("steps_per_s")]
    if rates:
        yield "training steps/s, median", f"{np.median(rates):,.0f}"
    failing = last.get("steps_between_failures")
    yield "training steps between failures", f"{failing:,.0f}" if failing else f"> {last['steps_between_failures_low']:,.0f}"
    if last.get("success_rate") is not None:
        yield "episodes that succeed", f"{last['success_rate']:.0%}"
    yield "wall time", duration(run.wall_s)
    if run.settings.stop.price:
        yield "cost", f"{run.wall_s / 3600 * run.settings.stop.price:,.2f} USD"


def _curves(run: Run) -> Iterator[str]:
    rows, evaluations = run.rows, run.evaluations
    drawn = []
    if evaluations:
        returns = [row["window_return"] for row in evaluations]
        drawn.append(chart("return", [Curve(_steps(evaluations), returns)], x="environment steps", y="return", title="Return, deterministic"))
        drawn.append(chart("minutes", [Curve(_minutes(evaluations), returns)], x="minutes", y="return", title="Return over time"))
    reward = [row["reward_per_step"] for row in rows]
    drawn.append(chart("reward", [Curve(_steps(rows), reward)], x="environment steps", y="reward per step", title="Reward in training"))
    if any(row.get("success_rate") is not None for row in rows):
        success = [Curve(_steps(rows), [row.get("success_rate") for row in rows], "training")]
        success.append(Curve(_steps(evaluations), [row.get("eval_success_rate") for row in evaluations], "evaluation", colour=1))
        drawn.append(chart("success", success, x="environment steps", y="share of episodes", title="Success", low=0.0))
    yield page.heading("Learning") + page.charts(drawn)


def _endurance(run: Run) -> Iterator[str]:
    rows = run.rows
    yield page.heading("How long agents last")
    low = [row["steps_between_failures_low"] for row in rows]
    shown = [row["steps_between_failures"] or row["steps_between_failures_low"] for row in rows]
    high = [row["steps_between_failures_high"] or max(value, bound) for row, value, bound in zip(rows, shown, low, strict=True)]
    failures = Curve(_steps(rows), shown, low=low, high=high, colour=2)
    drawn = [chart("failures", [failures], x="environment steps", y="steps", title="Steps between failures in training, 95 % sure", log_y=True)]
    if run.endurance:
        latest = run.endurance[-1]
        ages = [1, *(int(age) for age in latest["alive_at"]), latest["horizon"]]
        alive = [1.0, *latest["alive_at"].values(), latest["alive"]]
        title = f"Alive, {latest['num_envs']} agents"
        drawn.append(chart("survival", [Curve(ages, alive, colour=2, steps=True)], x="age in steps", y="share", title=title, log_x=True, low=0.0))
    yield page.charts(drawn)
    if not run.endurance:
        yield page.paragraph(f"Not examined yet: python -m jaxrl_long.evaluate run={run.folder} horizon={run.settings.horizon}", soft=True)
        return
    decades = list(dict.fromkeys(ages for result in run.endurance for ages in result["reward_per_step_by_age"]))
    header = ["examined", "update", "agents", "for steps", "alive", "steps between failures (95 % sure)", *(f"reward per step, {ages}" for ages in decades)]
    yield page.table(header, [_examined(result, decades) for result in run.endurance])


def _examined(result: Row, decades: list[str]) -> list[page.Cell]:
    low, high = result["steps_between_failures_interval"]
    failing = result["steps_between_failures"]
    between = f"> {low:,.0f}" if failing is None else f"{failing:,.0f} ({low:,.0f} to {high:,.0f})"
    rates = [result["reward_per_step_by_age"].get(ages) for ages in decades]
    return [result["date"][:16], result["update"], result["num_envs"], result["horizon"], f"{result['alive']:.1%}", between, *rates]


def _coverage(run: Run) -> Iterator[str]:
    rows, horizon = run.rows, run.settings.horizon
    seen = run.last.get("horizon_seen") or 0.0
    yield page.heading("What of the horizon was lived through")
    oldest = f"The oldest training episode reached {seen * horizon:,.0f} of {horizon:,} steps ({seen:.1%})"
    yield page.paragraph(f"{oldest}; the median one is {run.last['age_median']:,.0f} steps old.")
    ages = [Curve(_steps(rows), [row["age_max"] for row in rows], "oldest"), Curve(_steps(rows), [row["age_median"] for row in rows], "median", colour=1)]
    yield page.charts([chart("ages", ages, x="environment steps", y="age in steps", title="Ages in training", log_y=True)])


def _time(run: Run) -> Iterator[str]:
    last = run.last
    compile_s, train_s, eval_s = (last.get(name) or 0.0 for name in ("compile_s", "train_s", "eval_s"))
    shares = {name: last.get(f"{name}_share") for name in ("simulate", "infer", "learn")}
    parts = [("compile", compile_s)]
    parts += [(name, train_s * share) for name, share in shares.items() if share] if any(shares.values()) else [("train", train_s)]
    parts += [("evaluate", eval_s), ("start, save and wait", max(0.0, run.wall_s - compile_s - train_s - eval_s))]
    yield page.heading("Where the time went")
    yield page.bar([(name, seconds, duration(seconds)) for name, seconds in parts if seconds > 0])
    if (known := cache.load(run.settings)) is not None and run.status == "finished":
        planned = predict(run.settings, known.measured).wall_s
        yield page.paragraph(f"{compared(planned, run.wall_s).capitalize()}.")
    rates = [row.get("steps_per_s") for row in run.rows]
    yield page.charts([chart("speed", [Curve(_steps(run.rows), rates, colour=6)], x="environment steps", y="steps/s", title="Training speed", low=0.0)])


def _memory(run: Run) -> Iterator[str]:
    if (known := cache.load(run.settings)) is None:
        return
    need = known.need
    parts = [("networks and optimiser", need.parameters), ("environments", need.environments), ("ring", need.ring)]
    yield page.heading("Memory of the state") + page.bar([(name, float(size), gigabytes(size)) for name, size in parts if size])


def _history(run: Run) -> Iterator[str]:
    """Processes, faults and limits, in order of time."""
    yield page.heading("What happened")
    events: list[tuple[str, str]] = []
    for number, process in enumerate(run.processes):
        device = process.get("device") or {}
        what = "began" if number == 0 else "resumed"
        events.append(
            (process["started"][:19].replace("T", " "), f"{what} on {device.get('used', '?')} x {device.get('kind', '?')}, host {process.get('host', '?')}")
        )
    faults = sum(row.get("faults") or 0 for row in run.rows)
    if faults:
        first = next(row for row in run.rows if row.get("faults"))
        events.append((_at(run, first), f"first of {faults:,} physics faults, at step {first['env_steps']:,}"))
    skipped = sum(row.get("skipped_minibatches") or 0 for row in run.rows)
    if skipped:
        first = next(row for row in run.rows if row.get("skipped_minibatches"))
        events.append((_at(run, first), f"first of {skipped:,} gradient steps left out, at step {first['env_steps']:,}"))
    if run.summary.get("stopped_by"):
        events.append((_at(run, run.last), f"stopped by {run.summary['stopped_by']}"))
    elif run.summary:
        events.append((_at(run, run.last), "finished"))
    yield page.table(["when (UTC)", "what"], sorted(events))


def _at(run: Run, row: Row) -> str:
    """Roughly when a row was written: wall time counts from the first process on, pauses left out."""
    if not run.processes:
        return "?"
    begun = datetime.datetime.fromisoformat(run.processes[0]["started"])
    return (begun + datetime.timedelta(seconds=row["wall_s"])).isoformat(sep=" ", timespec="seconds")[:19]


def _settings(run: Run) -> Iterator[str]:
    plain, mine = flat(Settings()), flat(run.settings)
    changed = [[name, show(value), show(plain[name])] for name, value in mine.items() if value != plain[name] and name != "run_dir"]
    yield page.heading("Settings") + page.table(["setting", "here", "by default"], changed)
    yield page.folded("all settings", page.table(["setting", "value"], [[name, show(value)] for name, value in mine.items()]))


def _versions(run: Run) -> Iterator[str]:
    if not run.processes:
        return
    process = run.processes[-1]
    rows: list[list[page.Cell]] = [["python", process.get("python")], ["platform", process.get("platform")]]
    rows += [[name, version] for name, version in (process.get("packages") or {}).items()]
    source = process.get("source") or {}
    if source:
        rows.append(["source", f"{source.get('commit')}{' and changes' if source.get('dirty') else ''}"])
    rows.append(["command", " ".join(process.get("command") or [])])
    yield page.folded("versions", page.table(["what", "which"], rows))


def several(runs: list[Run]) -> str:
    """The page of several runs."""
    names = differing(runs)
    groups: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.kind].append(run)
    labels = {kind: _label(members, names) for kind, members in groups.items()}
    body = [
        "<h1>Runs compared</h1>\n",
        page.paragraph(f"{len(runs)} runs of {len(groups)} kinds of settings. Runs that differ in their seed only are taken together."),
    ]
    body.append(page.charts(_compared(groups, labels)))
    body.append(page.heading("Results") + page.table(*_results(groups, labels)))
    body.append(page.heading("Runs") + page.table(*_listed(runs, names)))
    return page.page("Runs compared", body)


def _label(members: list[Run], names: list[str]) -> str:
    values = flat(members[0].settings)
    return ", ".join(f"{name.rsplit('.', 1)[-1]}={show(values[name])}" for name in names if name.split(".")[0] not in ("seed",)) or members[0].settings.env.name


def _compared(groups: dict[Any, list[Run]], labels: dict[Any, str]) -> Iterator[str]:
    for name, axis, x in (("steps", _steps, "environment steps"), ("minutes", _minutes, "minutes")):
        curves = []
        for colour, (kind, members) in enumerate(groups.items()):
            known = [run for run in members if run.evaluations]
            lines = [(np.array(axis(run.evaluations)), np.array([row["window_return"] for row in run.evaluations])) for run in known]
            if len(lines) == 1:
                curves.append(Curve(lines[0][0].tolist(), lines[0][1].tolist(), labels[kind], colour=colour))
            elif lines:
                at, values = aligned(lines)
                if not at.size:
                    continue
                low, high = interval(values)
                curves.append(
                    Curve(at.tolist(), interquartile_mean(values).tolist(), f"{labels[kind]} ({len(lines)} seeds)", low.tolist(), high.tolist(), colour)
                )
                curves += [Curve(xs.tolist(), ys.tolist(), colour=colour, faint=True) for xs, ys in lines]
        yield chart(f"compared-{name}", curves, x=x, y="return", title="Return: mean of the middle half of the seeds, 95 % interval")


def _results(groups: dict[Any, list[Run]], labels: dict[Any, str]) -> tuple[list[str], list[list[page.Cell]]]:
    rows: list[list[page.Cell]] = []
    for kind, members in groups.items():
        returns = np.array([run.evaluations[-1]["window_return"] for run in members if run.evaluations])
        examined = [run.endurance[-1] for run in members if run.endurance]
        middle, around = None, None
        if returns.size:
            middle = float(interquartile_mean(returns))
        if returns.size > 1:
            low, high = interval(returns)
            around = f"{low:,.1f} to {high:,.1f}"
        steps, failures = sum(one["env_steps"] for one in examined), sum(one["failures"] for one in examined)
        # A bound of so many steps without a failure is a share of them: bounds add up as steps do.
        bound = sum(one["steps_between_failures_interval"][0] for one in examined)
        lasting = None if not examined else f"{steps / failures:,.0f}" if failures else f"> {bound:,.0f}"
        alive = f"{min(one['alive'] for one in examined):.0%}" if examined else None
        speed = float(np.median([np.median([row["steps_per_s"] or math.nan for row in run.rows]) for run in members if run.rows] or [math.nan]))
        rows.append([labels[kind], len(members), middle, around, alive, lasting, None if math.isnan(speed) else speed])
    return ["settings", "runs", "return at the end", "95 % sure", "alive, worst seed", "steps between failures, all seeds together", "training steps/s"], rows


def _listed(runs: list[Run], names: list[str]) -> tuple[list[str], list[list[page.Cell]]]:
    rows: list[list[page.Cell]] = []
    for run in runs:
        values = flat(run.settings)
        result = run.evaluations[-1]["window_return"] if run.evaluations else None
        rows.append([run.name, run.status, f"{run.progress:.0%}", result, *(show(values[name]) for name in names)])
    return ["run", "status", "done", "return", *names], rows


def _steps(rows: Sequence[Row]) -> list[float]:
    return [row["env_steps"] for row in rows]


def _minutes(rows: Sequence[Row]) -> list[float]:
    return [row["wall_s"] / 60 for row in rows]
