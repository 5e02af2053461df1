"""What ends a run early: budgets of time and money, and signs that something has gone wrong."""

from typing import Any

from jaxrl_long.config import StopSettings
from jaxrl_long.fields import show
from jaxrl_long.runtime.stop import DONE

FAILED = 1
"""Exit code of a run that somebody should look at."""
BROKEN_STEPS, BROKEN_GRADIENTS = 1e-3, 0.5
"""Shares of non-finite environment steps and gradient steps from which a report counts as broken."""
Verdict = tuple[str, int]
"""Why a run has to end, and its exit code."""


class Limits:
    """Looks at each report. Its `memory` is JSON and part of a checkpoint, so that a resumed run remembers."""

    def __init__(self, settings: StopSettings, memory: dict[str, dict[str, int]] | None = None) -> None:
        """Begin with what an earlier process remembered, if there was one."""
        self.settings = settings
        self.memory = memory or {"armed": {}, "below": {}}

    def look(self, row: dict[str, Any], steps: int, gradients: int) -> Verdict | None:
        """Judge a row of metrics that covers `steps` environment steps and `gradients` gradient steps; None: go on."""
        verdict = self._budget(row["wall_s"]) or self._broken(row, steps, gradients) or self._tripwire(row)
        if verdict:
            # Whoever goes on with the run wants to see it run.
            self.memory["below"] = {}
        return verdict

    def _budget(self, wall_s: float) -> Verdict | None:
        after, spent = self.settings.after, wall_s / 3600 * self.settings.price
        if after and wall_s >= after:
            return f"stop.after={show(after)} s", DONE
        if self.settings.cost and spent >= self.settings.cost:
            return f"stop.cost={show(self.settings.cost)} USD ({spent:.2f} spent)", DONE
        return None

    def _broken(self, row: dict[str, Any], steps: int, gradients: int) -> Verdict | None:
        bad = row["faults"] > BROKEN_STEPS * steps or row["skipped_minibatches"] > BROKEN_GRADIENTS * gradients
        if self._in_a_row("broken", bad) < self.settings.broken or not self.settings.broken:
            return None
        found = f"{row['faults']} of {steps} environment steps and {row['skipped_minibatches']} of {gradients} gradients in the last one"
        return f"stop.broken={self.settings.broken} reports in a row with non-finite numbers ({found})", FAILED

    def _tripwire(self, row: dict[str, Any]) -> Verdict | None:
        bounds = {"reward_per_step": self.settings.reward_per_step, "steps_between_failures": self.settings.steps_between_failures or None}
        for name, bound in bounds.items():
            if bound is None:
                continue
            # None: no failure at all, which is better than any bound.
            good = row[name] is None or row[name] >= bound
            if good:
                self.memory["armed"][name] = 1
            below = self._in_a_row(name, not good and name in self.memory["armed"])
            if below >= self.settings.patience:
                return f"stop.{name}={show(bound)}: below it in {below} reports in a row, now {row[name]:.4g}", FAILED
        return None

    def _in_a_row(self, name: str, true: bool) -> int:
        self.memory["below"][name] = self.memory["below"].get(name, 0) + 1 if true else 0
        return self.memory["below"][name]
