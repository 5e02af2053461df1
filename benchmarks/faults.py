"""Does a run that is killed again and again become the run that was not, and what do its checkpoints cost?

    python -m benchmarks.faults kills=20      # SIGKILL in compilation, rollout, evaluation and in the middle of a save
    python -m benchmarks.faults overhead      # wall time with many saves against none, as a share at the default interval

Real processes on a real task. The number of updates between reports is fixed (`chunk=`), so that both runs report at the same ones.
"""

import functools
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours, processes
from benchmarks.harness import ROOT, Row, jsonl, once, parse

PHASES = ("compile", "rollout", "evaluation", "save")
CHUNK = 4
POLL_S = 0.002
DEFAULT_EVERY_S = 300.0
"""The default of `checkpoint.every`."""


@dataclass(frozen=True)
class Options:
    """What is run, and how often it is killed."""

    env: str = "inverted_pendulum"
    steps: int = 8_000_000
    """Environment steps of the run; enough for every kill to find it running."""
    kills: int = 20
    seed: int = 0
    """Of the moments."""
    overhead_env: str = "ant"
    overhead_steps: int = 1_200_000
    overhead_every_s: float = 5.0
    """Seconds between saves on the side that saves."""
    repeats: int = 3
    refresh: bool = False


@dataclass(frozen=True)
class Pace:
    """Median seconds of the parts between two evaluations, from the run that is not killed."""

    chunk_s: float
    evaluation_s: float


def words(options: Options, folder: Path) -> list[str]:
    """The command line of a run in `folder`, evaluated after every second report and saved as often as a save takes."""
    asked = {"env": options.env, "steps": options.steps, "chunk": CHUNK, "eval__every": 2 * CHUNK, "checkpoint__every": 0.1}
    return [*ours.words(**asked), f"compilation_cache={folder.parent / 'cache'}", f"run_dir={folder}"]


def pace(rows: list[Row]) -> Pace:
    """How long chunks and evaluations take."""
    pairs = list(itertools.pairwise(rows))
    chunks = [late["train_s"] - early["train_s"] for early, late in pairs]
    evaluations = [late["eval_s"] - early["eval_s"] for early, late in pairs if late["window_return"] is not None]
    return Pace(statistics.median(chunks), statistics.median(evaluations))


def checkpoints(folder: Path) -> set[str]:
    """The names in a run's folder of checkpoints; those that are being written begin with a dot."""
    return set(os.listdir(folder / "checkpoints")) if (folder / "checkpoints").exists() else set()


def moment(phase: str, folder: Path, before: set[str], known: Pace, chance: random.Random) -> float | None:
    """Seconds to wait before killing a process in `phase`; None: it is not there yet. `before`: checkpoints that were there when it started."""
    if phase == "compile":
        return chance.uniform(0.0, 3.0) if "run " in (folder.parent / "log").read_text() else None
    new = checkpoints(folder) - before
    # Every process gets somewhere: it is killed after its first whole save.
    if not any(not name.startswith(".") for name in new):
        return None
    if phase == "save":
        return chance.uniform(0.0, 0.05) if any(name.startswith(".writing-") for name in new) else None
    rows = jsonl(folder / ours.METRICS)
    if rows[-1]["window_return"] is not None:
        return None
    # This row was written while the next chunk was under way, after which there is an evaluation.
    return chance.uniform(0.0, known.chunk_s) if phase == "rollout" else known.chunk_s + chance.uniform(0.0, known.evaluation_s)


def kill_once(phase: str, options: Options, folder: Path, known: Pace, chance: random.Random) -> None:
    """Start or resume the run and kill it in `phase`. Raises RuntimeError if it ended by itself."""
    before = checkpoints(folder)
    log = folder.parent / "log"
    command = processes.module("jaxrl_long.train", *words(options, folder))
    with log.open("w") as out, (folder.parent / "errors").open("w") as err:
        process = subprocess.Popen(command.words, cwd=ROOT, stdout=out, stderr=err)
        wait_s = None
        while wait_s is None and process.poll() is None:
            wait_s = moment(phase, folder, before, known, chance)
            time.sleep(POLL_S)
        time.sleep(wait_s or 0.0)
        ended = process.poll() is not None
        process.kill()
        process.wait()
    if ended:
        said = (folder.parent / "errors").read_text()[-500:]
        message = f"the run ended by itself ({process.returncode}) before it was killed in {phase}: {said} Raise steps=."
        raise RuntimeError(message)


def killed_often(options: Options) -> Row:
    """One run undisturbed, one killed `kills` times; are they the same?"""
    chance = random.Random(options.seed)
    with ours.scratch() as scratch:
        whole, cut = Path(scratch) / "whole", Path(scratch) / "cut"
        processes.run(processes.module("jaxrl_long.train", *words(options, whole)), Path(scratch) / "whole.log")
        known = pace(jsonl(whole / ours.METRICS))
        phases = list(itertools.islice(itertools.cycle(PHASES), options.kills))
        for number, phase in enumerate(phases):
            kill_once(phase, options, cut, known, chance)
            print(f"killed {number + 1} of {options.kills} in {phase}, at {len(jsonl(cut / ours.METRICS))} rows", flush=True)
        processes.run(processes.module("jaxrl_long.train", *words(options, cut)), Path(scratch) / "cut.log")
        resumed = sum("goes on from" in line for line in (Path(scratch) / "cut.log").read_text().splitlines())
        found = {"killed_in": dict(Counter(phases)), "resumed": bool(resumed), "rows": len(jsonl(cut / ours.METRICS)), **compare(whole, cut)}
    return found


def compare(whole: Path, cut: Path) -> Row:
    """Train state, metrics and a later evaluation of two runs: equal to the last bit?"""
    rows = [without_times(jsonl(folder / ours.METRICS)) for folder in (whole, cut)]
    judged = [ours.evaluate(folder, horizon=2000, num_envs=64) for folder in (whole, cut)]
    for result in judged:
        del result["run"], result["wall_s"]
    return {"state_equal": digests(whole) == digests(cut), "metrics_equal": rows[0] == rows[1], "evaluation_equal": judged[0] == judged[1]}


def without_times(rows: list[Row]) -> list[Row]:
    """Rows without what a clock has measured."""
    return [{name: value for name, value in row.items() if not name.endswith(("_s", "_share"))} for row in rows]


def digests(folder: Path) -> dict[str, str]:
    """A digest of every leaf of a run's last train state, by name; read in a process of its own, which has the devices that the run had."""
    script = f"""
import hashlib, json, sys
from jaxrl_long.stored import load_settings
from jaxrl_long.runtime import devices
settings = load_settings({str(folder)!r})
devices.prepare("cpu", settings.devices, settings.precision, settings.compilation_cache)
import jax, numpy as np
from jaxrl_long.runtime import assemble
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.launch import state_shapes
checkpoints = Checkpoints({str(folder / "checkpoints")!r})
state, _ = checkpoints.restore(checkpoints.latest(), state_shapes(assemble.program(settings)))
def digest(leaf):
    plain = jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return hashlib.sha256(np.asarray(plain).tobytes()).hexdigest()
print(json.dumps({{jax.tree_util.keystr(where): digest(leaf) for where, leaf in jax.tree_util.tree_leaves_with_path(state)}}))
"""
    done = processes.run(processes.Command([sys.executable, "-W", "ignore", "-c", script]), folder.parent / f"{folder.name}.state")
    return done.rows[-1]


def saving(options: Options, every_s: float) -> Row:
    """Seconds between the first and the last report of one run, and how often it saved meanwhile."""
    with ours.scratch() as scratch:
        folder = Path(scratch) / "run"
        asked = {"env": options.overhead_env, "steps": options.overhead_steps, "eval__every": 0, "checkpoint__every": every_s, "checkpoint__keep": 1000}
        reports = ours.train(folder, ours.words(**asked)).reports
        # The last one is saved at the end, after the last report.
        saves = len(list((folder / "checkpoints").glob("0*"))) - 1
    return {"seconds": reports[-1]["wall_s"] - reports[1]["wall_s"], "updates": reports[-1]["update"] - reports[1]["update"], "saves": saves}


def overhead(options: Options) -> None:
    """What a save costs in wall time, and what share that is at the default interval."""

    def side(every_s: float, turn: int) -> Row:
        key = {"measure": "overhead", "every_s": every_s, "turn": turn, "env": options.overhead_env}
        return once("faults", key, lambda: saving(options, every_s), refresh=options.refresh)

    intervals = {f"{every_s:g}": functools.partial(side, every_s) for every_s in (0.0, options.overhead_every_s)}
    never, often = processes.alternate(intervals, options.repeats).values()
    per_update = [statistics.median(row["seconds"] / row["updates"] for row in rows) for rows in (never, often)]
    updates, saves = often[0]["updates"], statistics.median(row["saves"] for row in often)
    save_s = (per_update[1] - per_update[0]) * updates / saves
    print(f"a save costs {save_s:.2f} s of wall time: {save_s / DEFAULT_EVERY_S:.2%} at one in {DEFAULT_EVERY_S:g} s")


def main() -> None:
    """The kills, or what saving costs."""
    verb, options = parse(Options, verbs=("kill", "overhead"))
    if verb == "overhead":
        overhead(options)
        return
    key = {"measure": "kills", "env": options.env, "steps": options.steps, "kills": options.kills, "seed": options.seed}
    row = once("faults", key, lambda: killed_often(options), refresh=options.refresh)
    print(json.dumps(row))
    if not (row["state_equal"] and row["metrics_equal"] and row["evaluation_equal"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
