"""Budgets, tripwires and broken numbers end a run, and nothing else does."""

from typing import Any

import pytest

from jaxrl_long.config import StopSettings
from jaxrl_long.runtime.limits import Limits


def row(**changes: Any) -> dict[str, Any]:
    return {"wall_s": 10.0, "reward_per_step": 1.0, "steps_between_failures": 100.0, "faults": 0, "skipped_minibatches": 0} | changes


def looks(limits: Limits, *rows: dict[str, Any]) -> list[int | None]:
    """The exit code after each report of 1000 environment steps and 10 gradient steps; None: go on."""
    verdicts = [limits.look(each, 1000, 10) for each in rows]
    return [verdict[1] if verdict else None for verdict in verdicts]


def test_without_limits_a_run_goes_on():
    assert looks(Limits(StopSettings()), row(wall_s=1e9, reward_per_step=-1e9, steps_between_failures=1.0)) == [None]


def test_a_time_budget_ends_the_run_with_0():
    assert looks(Limits(StopSettings(after=60.0)), row(wall_s=59.9), row(wall_s=60.0)) == [None, 0]


def test_a_cost_budget_counts_hours_at_the_price():
    # 2 hours at 3 USD/h are 6 USD.
    limits = Limits(StopSettings(cost=6.0, price=3.0))
    assert looks(limits, row(wall_s=7199.0), row(wall_s=7200.0)) == [None, 0]
    verdict = limits.look(row(wall_s=7200.0), 1000, 10)
    assert verdict is not None
    assert verdict[0] == "stop.cost=6 USD (6.00 spent)"


def test_a_reward_tripwire_waits_until_it_was_passed_and_then_for_patience_reports_in_a_row():
    limits = Limits(StopSettings(reward_per_step=2.0, patience=2))
    low, high = row(reward_per_step=1.0), row(reward_per_step=2.0)
    assert looks(limits, low, low, low, high, low, high, low, low) == [None] * 7 + [1]


def test_a_failure_tripwire_takes_no_failure_at_all_for_the_best():
    limits = Limits(StopSettings(steps_between_failures=50.0, patience=1))
    assert looks(limits, row(steps_between_failures=10.0), row(steps_between_failures=None), row(steps_between_failures=49.0)) == [None, None, 1]


def test_a_resumed_run_remembers_that_a_tripwire_was_armed():
    before = Limits(StopSettings(reward_per_step=2.0, patience=2))
    assert looks(before, row(reward_per_step=3.0), row()) == [None, None]
    assert looks(Limits(before.settings, before.memory), row()) == [1]


def test_whoever_goes_on_after_a_tripwire_gets_the_whole_patience_again():
    limits = Limits(StopSettings(reward_per_step=2.0, patience=2))
    assert looks(limits, row(reward_per_step=3.0), row(), row(), row(), row()) == [None, None, 1, None, 1]


@pytest.mark.parametrize(("broken", "fine"), [({"faults": 2}, {"faults": 1}), ({"skipped_minibatches": 6}, {"skipped_minibatches": 5})])
def test_broken_numbers_end_a_run_only_when_there_are_many_in_many_reports_in_a_row(broken, fine):
    # Of 1000 steps more than 1, of 10 gradients more than 5.
    limits = Limits(StopSettings(broken=3))
    assert looks(limits, *[row(**broken)] * 2, row(**fine), *[row(**broken)] * 3) == [None] * 5 + [1]


def test_zero_reports_in_a_row_means_never():
    assert looks(Limits(StopSettings(broken=0)), *[row(faults=1000)] * 20) == [None] * 20
