"""`evaluate`: a finished or running run's policy, continued for as long as asked."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long.config import EvaluateSettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import assemble, endurance
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.evaluation import Snapshot, make_evaluator, snapshot
from jaxrl_long.runtime.experiment import EVAL_SEED
from jaxrl_long.runtime.folder import RunFolder
from jaxrl_long.runtime.progress import steps_bar
from jaxrl_long.trainer import Program, TrainState, state_shapes

DISPATCH_S = 2.0
"""Seconds between two looks of the host at a long evaluation."""
FIRST_STEPS = 100


def assess(settings: EvaluateSettings, stored: Settings) -> dict[str, Any]:
    """Evaluate the policy of a run; needs nothing but its folder. Returns the numbers that `json=true` prints.

    Raises:
        ConfigError: the run has no such checkpoint.
    """
    folder = RunFolder(Path(settings.run or ""))
    checkpoints = Checkpoints(folder.checkpoints)
    update = _update(settings.checkpoint, checkpoints, folder)
    trained = replace(stored, devices=settings.devices, block=0, env=settings.env)
    program = assemble.program(trained)
    shapes = state_shapes(program)
    # Only the learner's leaves are read: the ring may be large, and another number of environments doesn't matter.
    nothing: Any = None
    wanted = TrainState(shapes.learner, env=nothing, starts=nothing, memory=nothing, replay=nothing, key=nothing, update=nothing)
    learner = checkpoints.restore(update, wanted, partial=True)[0].learner
    program = replace(program, vector=replace(program.vector, horizon=settings.horizon))
    begin = time.perf_counter()
    at_marks, last = _continue(program, learner, settings)
    result = endurance.report(settings.horizon, at_marks, last, min(settings.window, settings.horizon))
    return {"run": str(folder.path), "update": update, **result, "wall_s": time.perf_counter() - begin}


def _update(asked: str, checkpoints: Checkpoints, folder: RunFolder) -> int:
    """The update whose checkpoint is meant."""
    if asked == "latest":
        latest = checkpoints.latest()
        if latest is None:
            raise ConfigError([f"run={folder.path} has no intact checkpoint yet: train it further first."])
        return latest
    if not asked.isdigit() or int(asked) not in checkpoints.all():
        known = ", ".join(map(str, checkpoints.all())) or "none"
        raise ConfigError([f"checkpoint={asked}: the run has no checkpoint of that update. It has: {known}."])
    return int(asked)


def _continue(program: Program, learner: Any, settings: EvaluateSettings) -> tuple[dict[int, Snapshot], Snapshot]:
    """Step the environments to the horizon in bounded memory; a snapshot at each age that is reported, and the last one."""
    evaluator = make_evaluator(program, settings.num_envs)
    state = evaluator.start(jax.random.key(EVAL_SEED + settings.seed))
    horizon = settings.horizon
    stops = sorted({*endurance.marks(horizon), min(settings.window, horizon), horizon})
    seen: dict[int, Snapshot] = {}
    done, length, now = 0, FIRST_STEPS, snapshot(state)
    with steps_bar("evaluate", horizon) as bar:
        while done < horizon:
            begin = time.perf_counter()
            end = min(done + length, *(mark for mark in stops if mark > done)) if len(stops) else horizon
            state = evaluator.advance(learner, state, jnp.int32(end - done))
            now = snapshot(state)
            per_step = (time.perf_counter() - begin) / (end - done)
            length = max(1, min(2 * length, int(DISPATCH_S / per_step)))
            done = end
            if done in stops:
                seen[done] = now
            bar.at(done, f"{now.going.mean():.1%} going on")
            if not now.going.any():
                break
    return seen | {mark: now for mark in stops if mark > done}, now


def as_line(result: dict[str, Any]) -> str:
    """The result as one line of JSON."""
    return json.dumps(result, allow_nan=False)


def as_text(result: dict[str, Any]) -> str:
    """The result for people."""
    alive = ", ".join(f"{share:.1%} at {int(age):,}" for age, share in result["alive_at"].items()) or f"{result['alive']:.1%}"
    failing = result["steps_between_failures"]
    seldom = f"{failing:,.0f}" if failing is not None else f"more than {result['steps_between_failures_at_least']:,.0f} (none seen; 95 % sure)"
    rates = ", ".join(f"{rate:.4g} in {ages}" for ages, rate in result["reward_per_step_by_age"].items() if rate is not None)
    life = result["median_life"]
    lines = {
        "window return": f"{result['window_return']:,.1f}",
        "reward per step": f"{result['reward_per_step']:.4g} ({rates})",
        "alive": alive,
        "median life": f"{life:,} steps" if life is not None else f"more than {result['horizon']:,} steps",
        "steps between failures": seldom,
        "faults": str(result["faults"]),
    }
    return "\n".join(f"{name:>24}  {text}" for name, text in lines.items())
