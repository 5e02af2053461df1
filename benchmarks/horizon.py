"""A million steps from home: what distance does to a trained agent's world, with a floating origin and without.

    python -m benchmarks.horizon env=ant               # trains the agent if need be (runs/horizon/ant-spring), then walks twice
    python -m benchmarks.horizon plot                  # plots/horizon.png, from the rows

Every now and then each copy's next step is also taken in float64 from the very same state. What differs is the rounding of float32 at that
place: an error of the reward, and a drift of the position. Rows go to results/horizon.jsonl, one a walk.
"""

import functools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, ROOT, Row, latest, once, parse

RUNS = ROOT / "runs" / "horizon"
PLOTS = ROOT / "benchmarks" / "plots"
DAY_S = 86_400.0


@dataclass(frozen=True)
class Options:
    """Whose walk, and how far."""

    env: str = "ant"
    backend: str = "spring"
    steps: int = 1_000_000
    num_envs: int = 16
    seed: int = 0
    settings: str = ""
    """Further settings for its training, separated by spaces."""
    refresh: bool = False


def agent(options: Options) -> Path:
    """The folder of a run with the task's default settings and those asked for; trained now if it is not there, continued if it was interrupted."""
    folder = RUNS / "-".join([options.env, options.backend, *options.settings.split()])
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "summary.json").exists():
        ours.train(folder, [*ours.words(env=options.env, env__backend=options.backend, seed=0), *options.settings.split()])
    return folder


def walked(folder: Path, options: Options, floating: bool) -> Row:
    """One walk and its float64 reference, in processes of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        world = {"env": options.env, "backend": options.backend, "out": scratch}
        far = ours.words(run=folder, floating_origin=str(floating).lower(), steps=options.steps, num_envs=options.num_envs, seed=options.seed, **world)
        curve = processes.run(processes.module("benchmarks.walk", *far), Path(scratch) / "walk.log", timeout_s=DAY_S).rows[-1]
        again = processes.module("benchmarks.walk", "reference", *ours.words(**world), JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu")
        return {**curve, **processes.run(again, Path(scratch) / "reference.log").rows[-1]}


def side(folder: Path, options: Options, floating: bool) -> Row:
    """The recorded walk, or a new one."""
    asked = {name: getattr(options, name) for name in ("env", "backend", "steps", "num_envs", "seed", "settings")}
    key = {**asked, "floating_origin": floating}
    return once("horizon", key, functools.partial(walked, folder, options, floating), refresh=options.refresh)


def newest(results: Path = RESULTS) -> list[Row]:
    """The longest walk of each world, with a floating origin and without."""
    rows = sorted(latest("horizon", "env", "backend", "floating_origin", "steps", results=results, kind="cpu"), key=lambda row: row["steps"])
    longest = {(row["env"], row["backend"], row["floating_origin"]): row for row in rows}
    return [longest[key] for key in sorted(longest, key=lambda key: (key[0], key[1], not key[2]))]


def rate(row: Row, early: int, late: int) -> float | None:
    """Reward per step from one mark to a later one (-1: from the start), over the copies that were going; None where none was."""
    lived, score = ((row[name][late] - (row[name][early] if early >= 0 else 0)) for name in ("lived", "score"))
    return score / lived if lived else None


def at(row: Row, step: int) -> int:
    """The last mark that is not after `step`; the first one if all are."""
    return max((index for index, mark in enumerate(row["step"]) if mark <= step), default=0)


CURVES: tuple[tuple[str, str, Any], ...] = (
    ("alive", "share alive", lambda row, i: row["going"][i] / row["num_envs"]),
    ("rate", "reward per step", lambda row, i: rate(row, i - 1, i)),
    ("error", "reward error of a step, rms", lambda row, i: row["reward_error_rms"][i]),
    ("energy", "energy, J", lambda row, i: row["energy_j"][i]),
)


def plot(results: Path = RESULTS, folder: Path = PLOTS) -> Path:
    """A row of panels for each world, a line with a floating origin and one without; the file."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    rows = newest(results)
    worlds = sorted({(row["env"], row["backend"]) for row in rows})
    figure, panels = pyplot.subplots(len(worlds), len(CURVES), figsize=(4 * len(CURVES), 2.6 * len(worlds)), squeeze=False, sharex=True)
    for row in rows:
        line = panels[worlds.index((row["env"], row["backend"]))]
        for panel, (name, label, value) in zip(line, CURVES, strict=True):
            text = "floating origin" if row["floating_origin"] else "without"
            points = [(step, value(row, i)) for i, step in enumerate(row["step"])]
            known = [(step, height) for step, height in points if height is not None]
            panel.plot([step for step, _ in known], [height for _, height in known], label=text, marker=".")
            panel.set(xscale="log", yscale="log" if name == "error" else "linear", ylabel=label, title=row["env"])
            panel.grid(alpha=0.3)
    for panel in panels[-1]:
        panel.set_xlabel("step")
    panels[0, 0].legend()
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "horizon.png", dpi=80)
    pyplot.close(figure)
    return folder / "horizon.png"


def main() -> None:
    """Both walks at once: each is one core's work, and nothing is timed."""
    verb, options = parse(Options, verbs=("plot",))
    if verb == "plot":
        print(os.path.relpath(plot()))
        return
    folder = agent(options)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(functools.partial(side, folder, options), (True, False)))


if __name__ == "__main__":
    main()
