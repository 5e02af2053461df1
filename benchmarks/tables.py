"""The tables of the README and of docs/, made from the recorded rows: never typed.

    python -m benchmarks.tables            # rewrites what stands between the markers in README.md and docs/*.md
    python -m benchmarks.tables --check    # changes nothing; exit code 1 when a table does not match its rows

A table stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`; the names are those in TABLES.
"""

import functools
import math
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import archive, horizon, plan_accuracy, plan_time, replay, sac, time_to_return
from benchmarks import endurance as study
from benchmarks import floating_origin as distance
from benchmarks.harness import RESULTS, ROOT, Row, latest

MARKED = re.compile(r"(<!-- table:(?P<name>[a-z_]+) -->\n)(?P<body>.*?)(<!-- /table:(?P=name) -->)", re.DOTALL)


def markdown(header: list[str], cells: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: list[float], digits: int = 0) -> str:
    """Mean ± sample standard deviation; the mean alone for one value."""
    text = f"{statistics.mean(values):,.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):,.{digits}f}"


def by(rows: list[Row], *keys: str) -> dict[tuple, list[Row]]:
    """Rows grouped by the values of `keys`, groups in order of appearance."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def machine(rows: list[Row]) -> str:
    """One line that says on what the rows were measured, and when."""
    if not rows:
        return "No rows yet."
    machines = sorted({f"{row['cpus']} core{'s' if row['cpus'] > 1 else ''} of {row['device']}" if row["kind"] == "cpu" else row["device"] for row in rows})
    days = sorted({row["date"][:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    versions = sorted({f"jax {row['jax']}" for row in rows})
    return f"Measured on {' and '.join(machines)}, {', '.join(versions)}, {span}."


TRAINED = ("env", "seed", "asked_steps", "asked_horizon", "settings")
"""What an agent of the study of learning is known by."""
LONG = 100_000
"""Steps from which on an examination is a long one."""


def environments(results: Path) -> str:
    """Window return over seeds, with steps and time, for every task and settings that were trained."""
    # Longer examinations are a table of their own, and so are worlds with goals.
    rows = [row for row in latest("learning", *TRAINED, "endurance", results=results, kind="cpu") if row["endurance"] < LONG]
    rows = [row for row in rows if row.get("eval_success_rate") is None]
    chance = {row["env"]: row["window_return"] for row in latest("random_policy", "env", results=results, kind="cpu")}
    cells = []
    for (env, length, settings), group in sorted(by(rows, "env", "asked_horizon", "settings").items(), key=str):
        returns = [row["window_return"] for row in group]
        digits = 0 if max(map(abs, returns)) >= 100 else 1
        asked = " ".join(filter(None, [f"horizon={length}" if length else "", settings])) or "defaults"
        minutes = statistics.median(row["wall_s"] for row in group) / 60
        random = f"{chance[env]:,.{digits}f}" if env in chance else "–"
        steps = f"{statistics.median(row['steps'] for row in group) / 1e6:.1f}M"
        alive = [row["alive"] for row in group]
        lasting = f"{statistics.mean(alive):.0%} ({min(alive):.0%})"
        cells.append([env, f"`{asked}`", str(len(group)), spread(returns, digits), f"{min(returns):,.{digits}f}", random, lasting, steps, f"{minutes:.1f}"])
    ages = " or ".join(sorted({f"{row['endurance']:,}" for row in rows}))
    header = [
        "env",
        "settings",
        "seeds",
        "window return, mean ± s.d.",
        "lowest",
        "random actions",
        f"alive after {ages} steps (worst seed)",
        "steps",
        "minutes",
    ]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def endurance(results: Path) -> str:
    """How long each agent of the long-horizon task lasts, of those whose examination was a long one."""
    rows = latest("learning", *TRAINED, "endurance", results=results, kind="cpu")
    rows = [row for row in rows if row["env"] == "ant" and row["endurance"] >= LONG]
    cells = []
    for row in sorted(rows, key=lambda row: (row["endurance"], row["asked_horizon"], row["settings"], row["seed"])):
        kept = row.get("last_reward_per_step", row["reward_per_step"]) / row["first_reward_per_step"] if row["first_reward_per_step"] else math.nan
        failing, at_least = row["steps_between_failures"], row["steps_between_failures_at_least"]
        between = f"{failing:,.0f}" if failing else f"none failed: > {at_least:,.0f}"
        lasting = [f"{row['alive']:.0%} of {row['copies']} at {row['endurance']:,}", f"{row['reward_per_step']:.2f}", f"{kept:.0%}", between]
        cells.append([row["env"], row["settings"] and f"`{row['settings']}`", str(row["seed"]), f"{row['steps']:,}", f"{row['window_return']:,.0f}", *lasting])
    header = [
        "env",
        "with",
        "seed",
        "steps",
        "window return",
        "alive",
        "reward per step",
        "in the last decade, of the first 1000 steps'",
        "steps between failures",
    ]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


COMPARED = (
    ("share", "ours", "ceiling", "steps_per_s", "training, default ant, as a share of the environment alone"),
    ("peer", "ours", "brax", "steps_per_s", "training, against Brax's PPO with equal networks and updates"),
    ("peer", "ours", "brax on 2 devices", "steps_per_s", "the same, the peer on both cores as devices"),
    ("horizon", "1000000", "1000", "steps_per_s", "training, horizon 1e6 against 1e3"),
    ("horizon", "1000000", "1000", "peak_bytes", "peak memory, horizon 1e6 against 1e3"),
    ("envs", "4096", "256", "steps_per_s", "training, 4096 environments against 256"),
    ("scaling", "2", "1", "steps_per_s", "training on 2 devices against 1"),
)
"""Measure, side, side it is compared with, column, what it says."""


def amount(value: float, column: str) -> str:
    """A number with its unit."""
    return f"{value / 2**20:,.0f} MiB" if column == "peak_bytes" else f"{value:,.0f} steps/s"


def speed(results: Path) -> str:
    """Every comparison of `benchmarks/train.py`: medians and their ratio, then the start-up times."""
    rows = latest("train", "measure", "side", "turn", "env", "backend", results=results, kind="cpu")
    groups = by(rows, "measure", "side")
    cells = []
    for measure, side, against, column, text in COMPARED:
        mine, other = groups.get((measure, side), []), groups.get((measure, against), [])
        if not mine or not other:
            continue
        value, base = (statistics.median(row[column] for row in group) for group in (mine, other))
        cells.append([text, amount(value, column), amount(base, column), f"{value / base:.2f}", f"{len(mine)} / {len(other)}"])
    for cache in ("empty cache", "warm cache"):
        group = groups.get(("startup", cache), [])
        if group:
            seconds, imports = (statistics.median(values) for values in ([row["first_report_s"] for row in group], [_imports(row) for row in group]))
            cells.append([f"process start to the first report, {cache}", f"{seconds:.1f} s", f"{imports:.1f} s of it imports", "–", str(len(group))])
    return f"{markdown(['what', 'ours', 'against', 'ratio', 'runs'], cells)}\n\n{machine(rows)}"


def _imports(row: Row) -> float:
    return row["other_imports_s"] + row["brax_import_s"]


def gpu(results: Path) -> str:
    """What `gpu.sh` measured."""
    rows = latest("train", "side", results=results, kind="gpu", measure="gpu")
    cells = [[row["side"], f"{row['steps_per_s']:,.0f}"] for row in rows]
    return f"{markdown(['what, environments', 'steps/s'], cells)}\n\n{machine(rows)}"


def floating_origin(results: Path) -> str:
    """Reward errors far from the origin."""
    rows = sorted(distance.newest(results), key=lambda row: (row["env"], row["backend"], row["offset"]))
    cells = [[row["env"], row["backend"], f"{row['offset'] / 1000:,.0f} km", f"{row['floating_rms']:.1e}", f"{row['plain_rms']:.1e}"] for row in rows]
    header = ["env", "backend", "distance", "reward error with a floating origin, rms", "without"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def walks(results: Path) -> str:
    """What distance does to trained agents' worlds, with a floating origin and without."""
    rows = horizon.newest(results)
    cells = []
    for row in rows:
        last = len(row["step"]) - 1
        decade = horizon.at(row, row["step"][last] // 10)
        early, late = horizon.rate(row, -1, horizon.at(row, 1000)), horizon.rate(row, decade, last)
        kept = f"{late / early:.1%}" if early and late is not None else "–"
        alive = f"{row['going'][last]} of {row['num_envs']}"
        errors = [_scientific(row["reward_error_rms"][mark]) for mark in (horizon.at(row, 1000), last)]
        drift, far = row["displacement_error_mean_m"][last], row["distance_m"][last]
        where = [row["backend"], "yes" if row["floating_origin"] else "no", f"{row['step'][last]:,}", "–" if far is None else f"{far / 1000:,.0f} km"]
        cells.append([row["env"], *where, alive, kept, *errors, "–" if drift is None else f"{-drift * 1000:.2g} mm", str(row["faulted"][last])])
    header = ["env", "backend", "floating origin", "steps", "distance", "alive", "reward rate of the last 90 % against the first 1000 steps"]
    header += ["reward error of a step at 1000, rms", "at the end", "position lost per step at the end", "non-finite"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def _scientific(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def plans(results: Path, kind: str = "cpu") -> str:
    """Planned against real wall times."""
    rows = plan_accuracy.newest(results, kind)
    cells = []
    for row in rows:
        within = f"{row['planned_wall_low_s']:.0f} to {row['planned_wall_high_s']:.0f}"
        walls = [f"{row['planned_wall_s']:.0f} s ({within})", f"{row['wall_s']:.0f} s", f"{row['error']:+.1%}"]
        cells.append([f"`{row['case']}`", *walls, f"{row['planned_steps_per_s']:,.0f}", f"{row['steps_per_s']:,.0f}", f"{row['plan_s']:.0f} s"])
    header = ["run", "planned", "took", "error", "planned steps/s", "steps/s", "the plan took"]
    return f"{markdown(header, cells)}\n\n{plan_accuracy.summary(rows)} {machine(rows)}"


def plan_times(results: Path) -> str:
    """How long a plan takes, by what was kept from before."""
    rows = plan_time.newest(results)
    ways = {"nothing": "empty_s", "compiled programs": "compiled_s", "the measurement": "measured_s"}
    cells = []
    for (env,), group in by(rows, "env").items():
        cells += [[env, kept, f"{statistics.median(row[column] for row in group):.1f} s", str(len(group))] for kept, column in ways.items()]
    return f"{markdown(['env', 'kept from before', 'the plan takes', 'runs'], cells)}\n\n{machine(rows)}"


def options(results: Path) -> str:
    """What makes agents last: each task's options, those that last longest first, against the task's base."""
    rows = study.newest(results)
    speeds = {key: statistics.median(row["steps_per_s"] for row in group) for key, group in by(study.prices(results), "env", "option").items()}
    cells = []
    for (env, steps, length), group in by(rows, "env", "asked_steps", "endurance").items():
        groups = by(group, "option")
        base = groups.get((study.BASE,), [])
        asked = f"{env}, {statistics.median(row['steps'] for row in group) / 1e6:.0f}M steps" if steps else env
        ranked = sorted(groups.items(), key=lambda item: _lasting(item[1]), reverse=True)
        for (name,), runs in ranked:
            mine, other = speeds.get((env, name)), speeds.get((env, study.BASE))
            cells.append([asked, name, f"{length:,}", *_compared(runs, base), f"{mine / other:.0%}" if mine and other else "–"])
    header = ["env", "option", "examined for", "seeds", "alive at the end, mean (worst)", "steps between failures, median", "times the base's"]
    return f"{markdown([*header, 'window return (of the base)', 'speed, of the base'], cells)}\n\n{machine(rows)}"


def _lasting(runs: list[Row]) -> float:
    return statistics.median(study.lasting(row) for row in runs)


def _bounded(runs: list[Row]) -> bool:
    """Whether their median is a bound: it may be larger, where a run that saw no failure, for which a bound stands, is not above it."""
    return any(not row["steps_between_failures"] and study.lasting(row) <= _lasting(runs) for row in runs)


def _compared(runs: list[Row], base: list[Row]) -> list[str]:
    """One option's columns. The base counts on the option's seeds: seeds differ more than options do."""
    base = [row for row in base if row["seed"] in {run["seed"] for run in runs}]
    alive, median, more = [row["alive"] for row in runs], _lasting(runs), "> " * _bounded(runs)
    text = f"{more}{median:,.0f}"
    times = f"{more}{median / _lasting(base):.1f}" if base and not _bounded(base) else "–"
    mine, other = (statistics.median(row["window_return"] for row in some) for some in (runs, base or runs))
    return [str(len(runs)), f"{statistics.mean(alive):.0%} ({min(alive):.0%})", text, times, f"{mine:,.0f} ({mine / other:.0%})"]


def ring(results: Path) -> str:
    """Bytes of a transition of ant by codec, of those that an item buffer of float32 with next observations takes."""
    rows = [row for row in replay.newest(results) if row["measure"] == "bytes"]
    cells = [[f"`{row['codec']}`", f"{row['bytes']:.1f}", str(row["item_bytes"]), f"{row['bytes'] / row['item_bytes']:.3f}"] for row in rows]
    header = ["`replay.codec`", "bytes of a transition", "in float32 with the next observation", "share"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def ring_speed(results: Path) -> str:
    """Adding a rollout and drawing a batch of windows, ours beside flashbax's, over capacities; and hindsight over lengths of episodes."""
    rows = [row for row in replay.newest(results) if row["measure"] in ("speed", "hindsight")]
    groups = by(rows, "measure", "rows", "episode", "side")
    cells = []
    for (measure, size, episode, side), group in groups.items():
        if side != "ours":
            continue
        mine = statistics.median(row["turn_s"] for row in group)
        smallest = statistics.median(row["turn_s"] for row in next(found for key, found in groups.items() if key[0] == measure and key[3] == "ours"))
        their = groups.get((measure, size, episode, "flashbax"), [])
        peer = statistics.median(row["turn_s"] for row in their) if their else None
        what = f"add and draw, {size:,} rows" if measure == "speed" else f"hindsight, episodes of {episode:,} steps"
        beside = [f"{peer * 1e6:,.0f} µs", f"{peer / mine:.2f}"] if peer else ["–", "–"]
        cells.append([what, f"{mine * 1e6:,.0f} µs", *beside, f"{mine / smallest:.2f}", str(len(group))])
    header = ["what", "ours", "flashbax", "ours is times as fast", "of our first row's time", "runs"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def archiving(results: Path) -> str:
    """What an archive costs training and what it writes, then how fast it is read."""
    rows = [row for row in archive.newest(results) if row["measure"] != "formats"]
    cells = []
    for (env,), group in by(rows, "env").items():
        sides = {side: found for (side,), found in by([row for row in group if row["measure"] == "training"], "side").items()}
        plain = statistics.median(row["steps_per_s"] for row in sides["without"]) if "without" in sides else math.nan
        for side, found in sides.items():
            rate, written, each = (statistics.median(row[name] for row in found) for name in ("steps_per_s", "bytes_per_s", "bytes_per_step"))
            size = [f"{written / 1e6:.1f} MB/s", f"{each:.0f}"] if each else ["–", "–"]
            cells.append([f"training {env}, {ARCHIVED[side]}", f"{rate:,.0f} steps/s", f"{rate / plain:.1%}", *size, str(len(found))])
        for row in group:
            if row["measure"] == "reading":
                cells.append([f"reading {env}'s episodes", f"{row['episode_steps_per_s']:,.0f} steps/s", *["–"] * 3, "1"])
                cells.append([f"reading single steps of {env}", f"{row['single_steps_per_s']:,.0f} steps/s", *["–"] * 3, "1"])
    header = ["what", "speed", "of that without an archive", "written", "bytes a step", "runs"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


ARCHIVED = {"without": "no archive", "with": "archive", "float16": "archive in float16"}


def formats(results: Path) -> str:
    """Formats that an archive could have."""
    rows = [row for row in archive.newest(results) if row["measure"] == "formats"]
    cells = []
    for (side,), group in by(rows, "side").items():
        write, share, column, single = (
            statistics.median(row[name] for row in group) for name in ("write_mb_per_s", "share", "column_steps_per_s", "single_steps_per_s")
        )
        cells.append([FORMATS[side], f"{write:,.0f} MB/s", f"{share:.0%}", f"{column:,.0f} steps/s", f"{single:,.0f} steps/s", str(len(group))])
    header = ["format", "writing", "size, of what was written", "reading an environment's steps", "reading single steps", "runs"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


FORMATS = {"tensorstore": "Zarr 3 by TensorStore, as the archive has it", "hdf5": "HDF5", "lmdb": "LMDB", "array_record": "ArrayRecord"}


def critics(results: Path) -> str:
    """Soft actor-critic, ours beside Brax's: the return that a budget of steps reaches, and the time of the process."""
    rows = sac.newest(results)
    cells = []
    for (env, steps), runs in by(rows, "env", "asked_steps").items():
        sides = {side: group for (side,), group in by(runs, "side").items()}
        if set(sides) < {"ours", "brax"}:
            continue
        returns = [spread([row["window_return"] for row in sides[side]], 1) for side in ("ours", "brax")]
        mine, peer = (statistics.median(row["wall_s"] for row in sides[side]) for side in ("ours", "brax"))
        seeds = f"{len(sides['ours'])} / {len(sides['brax'])}"
        cells.append([env, f"{steps:,}", *returns, f"{mine:,.0f} s", f"{peer:,.0f} s", f"{peer / mine:.1f}", seeds])
    header = ["env", "steps", "return, ours", "return, Brax's", "wall time, ours", "Brax's", "times as fast", "seeds"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def goals(results: Path) -> str:
    """How often agents reach their goals, with each remedy, over seeds."""
    rows = [row for row in latest("learning", *TRAINED, "endurance", results=results, kind="cpu") if row.get("eval_success_rate") is not None]
    cells = []
    for (env, _, settings), group in sorted(by(rows, "env", "asked_steps", "settings").items()):
        found = [row["eval_success_rate"] for row in group]
        took = f"{statistics.median(row['wall_s'] for row in group) / 60:.1f}"
        cells.append(
            [env, f"`{settings}`" if settings else "", f"{group[0]['steps']:,}", f"{statistics.mean(found):.0%}", f"{min(found):.0%}", took, str(len(group))]
        )
    header = ["env", "with", "steps", "evaluated episodes that get there", "worst seed", "minutes", "seeds"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


def others(results: Path) -> str:
    """Other libraries' trainers beside ours."""
    rows = latest("others", "side", "turn", results=results, kind="cpu")
    groups = {side: group for (side,), group in by(rows, "side").items()}
    cells = []
    for side, group in groups.items():
        rate = statistics.median(row["steps_per_s"] for row in group)
        mine = statistics.median(row["steps_per_s"] for row in groups.get("ours", group))
        peak = statistics.median(row["peak_bytes"] for row in group)
        started = [row["startup_s"] for row in group if "startup_s" in row]
        startup = f"{statistics.median(started):.0f} s" if started else "–"
        cells.append([side, WORK[side], amount(rate, "steps_per_s"), f"{mine / rate:.1f}", startup, amount(peak, "peak_bytes"), str(len(group))])
    header = ["trainer", "what it trains", "training", "ours is times as fast", "start-up", "peak memory of its main process", "runs"]
    return f"{markdown(header, cells)}\n\n{machine(rows)}"


WORK = {
    "ours": "Brax ant, 256 environments x 32 steps, 16 minibatches, 4 epochs, 64x64",
    "rejax": "the same",
    "Stable-Baselines3": "gymnasium Ant-v5 (MuJoCo), 8 processes, its own settings",
    "Sample Factory": "gymnasium Ant-v4 (MuJoCo), 64 environments in a process for each core, its own settings",
    "SBX": "gymnasium Ant-v5 (MuJoCo), 8 processes, its own settings",
}


def times(results: Path) -> str:
    """The table of `benchmarks/time_to_return.py`."""
    rows = time_to_return.newest(results=results)
    return f"{time_to_return.table(rows)}\n\n{machine(rows)}"


TABLES: dict[str, Callable[[Path], str]] = {
    "environments": environments,
    "speed": speed,
    "gpu": gpu,
    "time_to_return": times,
    "endurance": endurance,
    "options": options,
    "ring": ring,
    "ring_speed": ring_speed,
    "archiving": archiving,
    "formats": formats,
    "critics": critics,
    "goals": goals,
    "floating_origin": floating_origin,
    "horizon": walks,
    "plan": plans,
    "plan_time": plan_times,
    "others": others,
}


def _fill(match: re.Match[str], results: Path) -> str:
    name = match["name"]
    if name not in TABLES:
        message = f"no table is called {name!r}; there are {', '.join(TABLES)}."
        raise KeyError(message)
    return f"{match[1]}{TABLES[name](results)}\n{match[4]}"


def fill(text: str, results: Path = RESULTS) -> str:
    """A document with every marked table made anew. Raises KeyError for a marker with an unknown name."""
    return MARKED.sub(functools.partial(_fill, results=results), text)


def main(arguments: list[str]) -> int:
    """Rewrite README.md and the documents in docs/, or only compare them; the exit code."""
    differing = 0
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = document.read_text()
        filled = fill(text)
        if filled == text:
            continue
        if "--check" in arguments:
            print(f"{document.relative_to(ROOT)}'s tables do not match benchmarks/results. Run: make tables", file=sys.stderr)
            differing = 1
        else:
            document.write_text(filled)
    return differing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
