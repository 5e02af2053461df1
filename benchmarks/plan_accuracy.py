"""Is the plan right? Predicted wall time against what the run then took, on settings that were not measured before.

    python -m benchmarks.plan_accuracy            # eight runs of over two minutes, each planned first; stop and go on at will
    python -m benchmarks.plan_accuracy table      # what has been measured
    python -m benchmarks.plan_accuracy gpu        # a run that takes minutes on a GPU

A plan and its run share a compilation cache that is empty before the plan. `wall_s` is from the start of the process to its exit.
"""

import functools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, Row, latest, once, parse

CASES: tuple[str, ...] = (
    "env=ant steps=3.5e6",
    "env=ant num_envs=512 steps=3.5e6 eval.every=0",
    "env=ant rollout_length=64 algorithm.epochs=2 steps=4e6",
    "env=halfcheetah steps=3e6",
    "env=hopper steps=10e6",
    "env=walker2d num_envs=128 steps=6e6",
    "env=reacher steps=12e6",
    "env=ant env.backend=positional steps=2e6",
)

GPU_CASES: tuple[str, ...] = ("env=ant num_envs=4096 steps=50e6",)


@dataclass(frozen=True)
class Options:
    """Which of the cases."""

    cases: str = ""
    """Only those that hold this text."""
    refresh: bool = False


def planned_and_done(case: str) -> Row:
    """Plan a run, make it, and compare."""
    words = case.split()
    with ours.scratch() as scratch:
        folder = Path(scratch)
        cache = f"compilation_cache={folder / 'compiled'}"
        begin = time.perf_counter()
        plan = processes.run(processes.module("jaxrl_long.plan", *words, cache, "json=true"), folder / "plan.log").rows[-1]
        plan_s = time.perf_counter() - begin
        run = processes.run(processes.module("jaxrl_long.train", *words, cache, f"run_dir={folder / 'run'}"), folder / "run.log")
        reports = [row for row in ours.jsonl(folder / "run" / ours.METRICS) if row.get("steps_per_s")]
    names = ("wall_low_s", "wall_high_s", "steps_per_s", "times", "env_steps", "device_bytes", "host_bytes", "bottleneck")
    planned = {f"planned_{name}": plan[name] for name in names}
    took: Row = {"wall_s": run.wall_s, "peak_bytes": run.peak_bytes, "steps_per_s": ours.steady([row["steps_per_s"] for row in reports])}
    took["shares"] = {name.removesuffix("_share"): share for name, share in reports[-1].items() if name.endswith("_share")}
    return {"planned_wall_s": plan["wall_s"], "error": run.wall_s / plan["wall_s"] - 1, "plan_s": plan_s, **planned, **took}


def newest(results: Path = RESULTS, kind: str = "cpu") -> list[Row]:
    """The latest row of each case."""
    return latest("plan_accuracy", "case", results=results, kind=kind)


def summary(rows: list[Row]) -> str:
    """Median and worst error."""
    errors = [abs(row["error"]) for row in rows]
    return f"{len(rows)} runs: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}." if rows else "No runs yet."


def main() -> None:
    """Every case that is missing, one after the other."""
    verb, options = parse(Options, verbs=("table", "gpu"))
    for case in GPU_CASES if verb == "gpu" else CASES:
        if verb != "table" and options.cases in case:
            row = once("plan_accuracy", {"case": case}, functools.partial(planned_and_done, case), refresh=options.refresh)
            print(f"{case}: planned {row['planned_wall_s']:.0f} s, took {row['wall_s']:.0f} s ({row['error']:+.1%})", flush=True)
    print(summary(newest(kind="gpu" if verb == "gpu" else "cpu")))


if __name__ == "__main__":
    main()
