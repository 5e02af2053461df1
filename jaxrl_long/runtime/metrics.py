"""From a chunk's report to a row of metrics.jsonl."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxrl_long.runtime.endurance import between_failures
from jaxrl_long.runtime.evaluation import Snapshot

PPO = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "explained_variance", "learning_rate", "grad_norm", "value_std")
SAC = ("temperature", "value_mean", "reward_rms")
GOALS = ("goal_reach",)
"""Beside those of PPO's that it has too."""


@dataclass
class Clock:
    """Where this run's wall time went so far, in seconds, over all of its processes."""

    before_s: float = 0.0
    """Wall time of earlier processes, up to the checkpoint that this one goes on from."""
    compile_s: float = 0.0
    train_s: float = 0.0
    eval_s: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    """Of training: simulate, infer, learn."""


def training_row(
    number: dict[str, int | float], update: int, updates: int, steps_per_update: int, train_s: float, has_success: bool, before: Mapping[str, Any]
) -> dict[str, Any]:
    """A row from the numbers of one chunk of `updates` updates that took `train_s` seconds; None where there is nothing to say.

    `before` is the row before it, {} where there is none: a failure that does not come is waited for over many chunks.
    """
    steps = updates * steps_per_update
    failures, ended = number["terminated_count"], number["terminated_count"] + number["truncated_count"]
    free = 0 if failures else before.get("failure_free_steps", 0) + steps
    low, high = between_failures(free or steps, int(failures))
    row = {
        "update": update,
        "env_steps": update * steps_per_update,
        "steps_per_s": steps / train_s if train_s > 0 else None,
        "reward_per_step": number["reward_count"] / steps,
        "steps_between_failures": steps / failures if failures else None,
        "steps_between_failures_low": low,
        "steps_between_failures_high": high,
        "failure_free_steps": free,
        "episodes": ended,
        "episode_return": number["finished_score_count"] / ended if ended else None,
        "episode_length": number["finished_length_count"] / ended if ended else None,
        "terminations": failures,
        "age_median": number["age_median"],
        "age_max": number["age_max"],
        "truncations": number["truncated_count"],
        "rewinds": number["returned_count"],
        "faults": number["fault_count"],
        "skipped_minibatches": int(number.get("skipped_count", 0)),
        **{name: number[name] for name in (*PPO, *SAC, *GOALS) if name in number},
    }
    if has_success:
        row["success_rate"] = number["success_count"] / ended if ended else None
    # What else an algorithm of the user's own reports.
    return row | {name: value for name, value in number.items() if name not in row and not name.endswith("_count")}


def lasting_row(lived: int, result: Snapshot) -> dict[str, Any]:
    """Numbers of environments that live on between evaluations, after `lived` more steps."""
    failures = int(result.died.sum())
    low, high = between_failures(lived, failures)
    age = int(np.median(result.life))
    return {"lasting_failures": failures, "lasting_between_failures_low": low, "lasting_between_failures_high": high, "lasting_age_median": age}


def evaluation_row(result: Snapshot, has_success: bool) -> dict[str, Any]:
    """Numbers of one evaluation."""
    row = {"window_return": result.window_return, "eval_alive": 1.0 - float(result.died.mean()), "eval_length": float(result.life.mean())}
    return row | ({"eval_success_rate": float(result.succeeded.mean())} if has_success else {})
