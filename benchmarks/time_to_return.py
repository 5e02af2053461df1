"""How long until an ant runs: ours against Brax's PPO and rejax's, imports, compilation and evaluation included.

    python -m benchmarks.time_to_return seeds=0-2     # one set of runs after the other; stop it and start it again at will
    python -m benchmarks.time_to_return only=rejax    # only that side
    python -m benchmarks.time_to_return table         # the medians of what has been measured

Both sides are evaluated after the same numbers of environment steps on 64 deterministic copies over 1000 steps, and a threshold's time is
interpolated linearly between the two evaluations around it. A run is ended once it has passed the highest threshold.
"""

import functools
import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import others, ours, peers, processes
from benchmarks.harness import RESULTS, Row, jsonl, latest, numbers, once, parse

Curve = list[tuple[int, float, float]]
"""Evaluations in time order: environment steps, seconds since process start, window return."""
QUESTION = "time_to_return"


@dataclass(frozen=True)
class Options:
    """What is run, and how far."""

    env: str = "ant"
    backend: str = "spring"
    horizon: int = 1_000_000
    seeds: str = "0-2"
    thresholds: str = "3270,4350"
    spacing: int = 409_600
    """Environment steps between evaluations: a multiple of an update's on both sides (8192 and 20480 with the defaults)."""
    update_steps: int = 8_192
    """Environment steps of one of our updates: num_envs x rollout_length."""
    steps: int = 4_000_000
    """Our run's total, which also sets the slope of its learning rate."""
    peer_steps: int = 8_192_000
    """The peer's limit; its learning rate is constant, so it does not matter where it is passed early."""
    num_eval_envs: int = 64
    peer_devices: int = 1
    only: str = ""
    """Only the side of this name."""
    refresh: bool = False


def crossing(curve: Curve, threshold: float) -> float | None:
    """Seconds at which the return first reaches `threshold`, between the evaluations around it; None where it never does.

    t = t₀ + (t₁ − t₀) (threshold − r₀) / (r₁ − r₀); the first evaluation has no earlier one and counts at its own time.
    """
    for i, (_, wall_s, reached) in enumerate(curve):
        if reached < threshold:
            continue
        if i == 0:
            return wall_s
        _, before_s, before = curve[i - 1]
        return before_s + (wall_s - before_s) * (threshold - before) / (reached - before)
    return None


def passed(metrics: Path, threshold: float) -> bool:
    """Whether the newest evaluation in a metrics file has reached the threshold."""
    return any(row["window_return"] >= threshold for row in ours.evaluations(metrics))


def curve_of(rows: list[Row]) -> Curve:
    """The evaluations among a run's reports."""
    return [(row["env_steps"], row["wall_s"], row["window_return"]) for row in rows]


def summary(curve: Curve, thresholds: list[int], spacing: int) -> Row:
    """A row's measured part. Raises RuntimeError where the evaluations are not `spacing` apart: the sides would not be comparable."""
    off = [steps for steps, _, _ in curve[:-1] if steps % spacing]
    if off or not curve:
        message = f"evaluations at {off or 'no'} steps are not multiples of spacing={spacing}. Set update_steps to num_envs x rollout_length of the settings."
        raise RuntimeError(message)
    seconds = {str(threshold): crossing(curve, threshold) for threshold in thresholds}
    return {"seconds": {name: value if value is None else round(value, 1) for name, value in seconds.items()}, "curve": curve}


def run_ours(seed: int, options: Options) -> Row:
    """One training of ours."""
    thresholds = numbers(options.thresholds)
    common = {"env": options.env, "env__backend": options.backend, "horizon": options.horizon, "seed": seed, "steps": options.steps}
    asked = ours.words(**common, eval__every=options.spacing // options.update_steps, eval__num_envs=options.num_eval_envs)
    with ours.scratch() as folder:
        run_dir = Path(folder) / "run"
        # The peer has no compilation cache: ours starts empty.
        cache = f"compilation_cache={Path(folder) / 'cache'}"
        ours.train(run_dir, [*asked, cache], until=functools.partial(passed, threshold=max(thresholds)))
        curve = curve_of(ours.evaluations(run_dir / ours.METRICS))
    return {**summary(curve, thresholds, options.spacing), "settings": asked}


def run_brax(seed: int, options: Options) -> Row:
    """One training of the peer."""
    thresholds = numbers(options.thresholds)
    brax = peers.BraxOptions(env=options.env, backend=options.backend, seed=seed, num_eval_envs=options.num_eval_envs, devices=options.peer_devices)
    brax = replace(brax, steps=options.peer_steps, evals=1 + options.peer_steps // options.spacing)
    with ours.scratch() as folder:
        log = Path(folder) / "brax.jsonl"
        processes.run(peers.brax_command(brax), log, until=lambda: passed(log, max(thresholds)), timeout_s=7200.0)
        start, *rows = jsonl(log)
    versions = {"brax": start["brax"], "jax": start["jax"]}
    return {**summary(curve_of(rows), thresholds, options.spacing), **peers.brax_identity(), **versions, "settings": start["settings"]}


def run_rejax(seed: int, options: Options) -> Row:
    """One training of rejax's PPO, with networks and updates like ours and its own learning rate."""
    thresholds = numbers(options.thresholds)
    words = {"seed": seed, "steps": options.peer_steps, "spacing": options.spacing, "num-eval-envs": options.num_eval_envs}
    asked = ["--curve", *(f"--{name}={value}" for name, value in {"env": options.env, "backend": options.backend, **words}.items())]
    command = processes.Command([str(others.LIBRARIES["rejax"].python), str(others.SCRIPTS / "rejax_ppo.py"), *asked])
    with ours.scratch() as folder:
        log = Path(folder) / "rejax.jsonl"
        processes.run(command, log, until=lambda: passed(log, max(thresholds)), timeout_s=7200.0)
        start, *rows = jsonl(log)
    return {**summary(curve_of(rows), thresholds, options.spacing), "jax": start["jax"], "settings": start["settings"]}


def measure(options: Options) -> None:
    """Every seed: ours, then theirs, one process at a time."""
    if options.only in ("", "brax"):
        peers.require_brax()
    if options.spacing % options.update_steps or options.spacing % peers.BraxOptions().env_steps_per_update or options.peer_steps % options.spacing:
        theirs = peers.BraxOptions().env_steps_per_update
        unit = math.lcm(options.update_steps, theirs)
        message = f"spacing={options.spacing} must be a multiple of {unit} (updates of {options.update_steps} and {theirs} steps) and divide peer_steps."
        raise SystemExit(message)
    sides = {"ours": run_ours, "brax" if options.peer_devices == 1 else f"brax on {options.peer_devices} devices": run_brax}
    # Where it is installed; `benchmarks.others setup` does that.
    sides |= {"rejax": run_rejax} if others.LIBRARIES["rejax"].python.exists() else {}
    sides = {side: run for side, run in sides.items() if options.only in ("", side)}
    for seed in numbers(options.seeds):
        for side, run in sides.items():
            key = {"side": side, "seed": seed, "env": options.env, "backend": options.backend, "spacing": options.spacing, "horizon": options.horizon}
            once(QUESTION, key, functools.partial(run, seed, options), refresh=options.refresh)


def medians(rows: list[Row], threshold: str) -> dict[str, tuple[float, int]]:
    """Per side: median seconds to the threshold (infinite where most runs never reached it) and the number of runs."""
    found: dict[str, list[float]] = {}
    for row in rows:
        seconds = row["seconds"].get(threshold)
        found.setdefault(row["side"], []).append(math.inf if seconds is None else seconds)
    return {side: (statistics.median(values), len(values)) for side, values in found.items()}


def newest(env: str = "ant", backend: str = "spring", results: Path = RESULTS) -> list[Row]:
    """The rows that a table is made of: for every side and seed the last one."""
    return latest(QUESTION, "side", "seed", results=results, env=env, backend=backend, kind="cpu")


def table(rows: list[Row]) -> str:
    """A Markdown table: medians, and how many times faster we are than each peer."""
    lines = ["| window return | ours, s (runs) | peer | peer, s (runs) | times faster |", "|---|---|---|---|---|"]
    thresholds = sorted({name for row in rows for name in row["seconds"]}, key=int)
    for threshold in thresholds:
        found = medians(rows, threshold)
        if "ours" not in found:
            continue
        ours_s, runs = found.pop("ours")
        for side, (peer_s, peer_runs) in sorted(found.items()):
            times = f"{peer_s / ours_s:.2f}" if math.isfinite(peer_s) and math.isfinite(ours_s) else "–"
            cells = [f"{int(threshold):,}", f"{_seconds(ours_s)} ({runs})", side, f"{_seconds(peer_s)} ({peer_runs})", times]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "not reached"


def main() -> None:
    """Measure what is missing, or print the table."""
    verb, options = parse(Options, verbs=("run", "table"))
    if verb != "table":
        measure(options)
    print(table(newest(options.env, options.backend)))


if __name__ == "__main__":
    main()
