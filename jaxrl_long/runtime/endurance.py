"""How long agents last: the arithmetic of lives, on the host."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.special import gammaincinv

from jaxrl_long.runtime.evaluation import Snapshot

CONFIDENCE = 0.95


def survival(life: np.ndarray, died: np.ndarray, at: Sequence[int]) -> list[float]:
    """The chance to live longer than each number of steps, from lives [E] of which some were cut before their end.

    Source: Kaplan and Meier 1958. `died` is False for environments that were cut while alive, at the age `life`.

    Of four, one dies at 10 (3/4 live on), one is cut at 20, and of the two that are left one dies at 30:

    >>> survival(np.array([10, 20, 30, 40]), np.array([True, False, True, False]), [10, 20, 30])
    [0.75, 0.75, 0.375]
    """
    ages = np.unique(life[died])
    at_risk = np.array([(life >= age).sum() for age in ages], float)
    deaths = np.array([(died & (life == age)).sum() for age in ages], float)
    curve = np.cumprod(1 - deaths / at_risk) if len(ages) else np.array([])
    return [float(curve[ages <= limit][-1]) if (ages <= limit).any() else 1.0 for limit in at]


def median_life(life: np.ndarray, died: np.ndarray) -> int | None:
    """Steps that half of the agents live; None where more than half outlived the evaluation."""
    ages = np.unique(life[died])
    below = [int(age) for age, alive in zip(ages, survival(life, died, [int(age) for age in ages]), strict=True) if alive <= 0.5]
    return below[0] if below else None


def between_failures(steps: int, failures: int) -> tuple[float, float | None]:
    """A 95 % confidence interval of the mean steps between failures, of which so many were seen in so many steps; None: no upper bound.

        n / Γ⁻¹(k + 1, 0.975)  to  n / Γ⁻¹(k, 0.025)

    with the inverse of the regularised incomplete gamma function. Exact where failures come at a constant rate; without any the
    lower end is one-sided. Source: Garwood 1936.

    >>> [round(end) for end in between_failures(100_000, 10)]
    [5438, 20853]
    >>> low, high = between_failures(300_000, 0)
    >>> round(low), high
    (100142, None)
    """
    tail = (1 - CONFIDENCE) / 2
    if not failures:
        return steps / float(gammaincinv(1, CONFIDENCE)), None
    return steps / float(gammaincinv(failures + 1, 1 - tail)), steps / float(gammaincinv(failures, tail))


def marks(horizon: int) -> list[int]:
    """The ages that are reported: 1e3, 1e4, ... up to the horizon.

    >>> marks(50_000)
    [1000, 10000]
    """
    return [10**power for power in range(3, 10) if 10**power <= horizon]


def report(horizon: int, at_marks: dict[int, Snapshot], last: Snapshot, window: int) -> dict[str, object]:
    """The result of `evaluate`. `at_marks` holds a snapshot at each mark, at the window and at step 0 (all zeros)."""
    lived, deaths = int(last.life.sum(dtype=np.int64)), int(last.died.sum())
    low, high = between_failures(lived, deaths)
    ages = marks(horizon)
    decades = [0, *ages] if ages and ages[-1] == horizon else [0, *ages, horizon]
    rates: dict[str, float | None] = {}
    for before, after in pairwise(decades):
        early, late = at_marks.get(before), at_marks.get(after, last)
        steps = late.life.sum(dtype=np.int64) - (early.life.sum(dtype=np.int64) if early else 0)
        reward = late.score.sum() - (early.score.sum() if early else 0.0)
        rates[f"{before}-{after}"] = float(reward / steps) if steps else None
    return {
        "horizon": horizon,
        "num_envs": len(last.life),
        "alive": survival(last.life, last.died, [horizon])[0],
        "alive_at": dict(zip(map(str, ages), survival(last.life, last.died, ages), strict=True)),
        "reward_per_step": float(last.score.sum() / max(lived, 1)),
        "reward_per_step_by_age": rates,
        "window_return": at_marks[window].window_return if window in at_marks else last.window_return,
        "median_life": median_life(last.life, last.died),
        "steps_between_failures": lived / deaths if deaths else None,
        "steps_between_failures_at_least": low if not deaths else None,
        "steps_between_failures_interval": [low, high],
        "failures": deaths,
        "faults": int(last.faulted.sum()),
        "env_steps": lived,
    }
