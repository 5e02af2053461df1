"""The arithmetic of lives, on histories made by hand."""

from typing import Any

import numpy as np
import pytest

from jaxrl_long.runtime.endurance import between_failures, marks, median_life, report, survival
from jaxrl_long.runtime.evaluation import Snapshot
from jaxrl_long.runtime.metrics import training_row


def snapshot(life, died, reward=1.0, faulted=None) -> Snapshot:
    life, died = np.array(life), np.array(died, bool)
    no = np.zeros(len(life), bool)
    return Snapshot(life, ~died, died, no if faulted is None else np.array(faulted), no, life * float(reward))


def test_survival_without_cuts_is_the_share_alive():
    # Deaths at 10 and 20 of four: 3/4 after 10, 2/4 after 20.
    assert survival(np.array([10, 20, 100, 100]), np.array([1, 1, 0, 0], bool), [9, 10, 20, 100]) == [1.0, 0.75, 0.5, 0.5]


def test_survival_counts_a_cut_life_only_while_it_was_watched():
    # One of four cut at 15: of the two left at 20 one dies: 3/4 * 1/2.
    alive = survival(np.array([10, 15, 20, 100]), np.array([1, 0, 1, 0], bool), [10, 20])
    assert alive == pytest.approx([0.75, 0.375])


def test_median_life_is_unknown_while_most_live():
    assert median_life(np.array([5, 7, 100, 100]), np.array([1, 1, 0, 0], bool)) == 7
    assert median_life(np.array([5, 100, 100, 100]), np.array([1, 0, 0, 0], bool)) is None


def test_marks_reach_to_the_horizon():
    assert marks(1_000_000) == [1000, 10_000, 100_000, 1_000_000]
    assert marks(16_000) == [1000, 10_000]
    assert marks(20) == []


def test_a_report_of_agents_of_which_one_fell():
    early, last = snapshot([1000, 1000, 400, 1000], [0, 0, 1, 0]), snapshot([2000, 2000, 400, 2000], [0, 0, 1, 0])
    result = report(2000, {1000: early}, last, 1000)
    assert result["alive"] == 0.75
    assert result["alive_at"] == {"1000": 0.75}
    assert result["window_return"] == 850.0
    assert result["steps_between_failures"] == 6400
    assert result["steps_between_failures_at_least"] is None
    assert result["reward_per_step_by_age"] == {"0-1000": 1.0, "1000-2000": 1.0}


def test_lives_of_two_billion_steps_add_up_exactly():
    # 64 lives of the longest horizon: 64 * (2**31 - 2) = 137438953344 steps, past int32 and past what float32 counts.
    longest = snapshot([2**31 - 2] * 64, [0] * 64)
    early = snapshot([1000] * 64, [0] * 64)
    result = report(2**31 - 2, {1000: early}, longest, 1000)
    assert result["env_steps"] == 137438953344
    assert result["reward_per_step"] == 1.0
    rates = result["reward_per_step_by_age"]
    assert isinstance(rates, dict)
    assert rates["1000000000-2147483646"] == 1.0


def test_the_interval_of_steps_between_failures_is_garwoods():
    # Known limits of a Poisson count of 10: 4.795 to 18.390.
    low, high = between_failures(1_000_000, 10)
    assert low == pytest.approx(1_000_000 / 18.390, rel=1e-4)
    assert high == pytest.approx(1_000_000 / 4.795, rel=1e-3)
    # Without any: below 2.9957 / n with 95 % confidence.
    assert between_failures(3000, 0) == (pytest.approx(3000 / 2.9957, rel=1e-4), None)


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_the_interval_holds_the_truth_as_often_as_it_says(rate):
    counts = np.random.default_rng(0).poisson(rate * 2000, 2000)
    ends = {int(count): between_failures(2000, int(count)) for count in np.unique(counts)}
    holds = [ends[int(count)][0] <= 1 / rate <= (ends[int(count)][1] or np.inf) for count in counts]
    # Counts are whole numbers, so the interval is a little too wide; 2000 draws are right to half a percent.
    assert np.mean(holds) > 0.94


def test_without_a_failure_a_bound_is_reported_instead():
    result = report(1000, {1000: snapshot([1000] * 3, [0] * 3)}, snapshot([1000] * 3, [0] * 3), 1000)
    assert result["steps_between_failures"] is None
    # 3000 steps without a failure, 0.05 = exp(-2.9957): a third of them, and one number wherever it is told.
    assert result["steps_between_failures_at_least"] == pytest.approx(3000 / 2.9957, rel=1e-4)
    assert result["steps_between_failures_interval"] == [result["steps_between_failures_at_least"], None]


def test_a_failure_that_does_not_come_is_waited_for_over_reports():
    numbers = {"reward_count": 0.0, "truncated_count": 0, "age_median": 1, "age_max": 2, "returned_count": 0, "fault_count": 0}
    numbers |= {"finished_score_count": 0.0, "finished_length_count": 0}
    rows: list[dict[str, Any]] = [{}]
    for update, failures in enumerate((0, 0, 3, 0), start=1):
        rows.append(training_row(numbers | {"terminated_count": failures}, update, 1, 1000, 1.0, False, rows[-1]))
    assert [row["failure_free_steps"] for row in rows[1:]] == [1000, 2000, 0, 1000]
    assert [row["steps_between_failures"] for row in rows[1:]] == [None, None, pytest.approx(1000 / 3), None]
    low = [1000 / 2.9957, 2000 / 2.9957, 1000 / 8.767, 1000 / 2.9957]
    assert [row["steps_between_failures_low"] for row in rows[1:]] == pytest.approx(low, rel=1e-3)
