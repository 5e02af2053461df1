"""A lasting evaluation in whole runs: its numbers, a resume, and the checkpoint that is chosen by it."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_experiment import run, settings, stopped_after, without_times
from worlds import assert_bit_equal

from jaxrl_long.config import CheckpointSettings, EvalSettings, Settings
from jaxrl_long.launch import state_shapes
from jaxrl_long.runtime import assemble
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.tracking import read_rows
from jaxrl_long.trainer import TrainState

LASTING = EvalSettings(every=1, num_envs=4, window=10, lasting=True)


def dying(run_dir: Path, **changes) -> Settings:
    """Six updates in a world that dies at age 15, examined for ten steps after each."""
    asked = settings(run_dir, "CountEnv", updates=6, eval=LASTING, horizon=100, **changes)
    return replace(asked, env=replace(asked.env, options={"die_at": 15}))


def rows_of(asked: Settings) -> list[dict]:
    return read_rows(Path(asked.run_dir or "") / "metrics.jsonl")


def trained_state(asked: Settings) -> TrainState:
    """The last checkpoint's state of training."""
    checkpoints = Checkpoints(Path(asked.run_dir or "") / "checkpoints")
    return checkpoints.restore(6, state_shapes(assemble.program(asked)), partial=True)[0]


def test_failures_at_ages_beyond_the_window_are_seen(tmp_path):
    asked = dying(tmp_path / "run")
    run(asked)
    rows = rows_of(asked)
    # The window is survived each time; who lives on dies at 15, in every other evaluation.
    assert [row["eval_alive"] for row in rows] == [1.0] * 6
    assert [row["lasting_failures"] for row in rows] == [0, 4, 0, 4, 0, 4]
    assert [row["lasting_age_median"] for row in rows] == [10, 15] * 3
    # None in 4 x 10 steps: 40 / 3.0. Four in 4 x 5: 2 * 20 / 20.48 and 2 * 20 / 2.18 (chi-square of 10 and 8 degrees).
    assert rows[0]["lasting_between_failures_low"] == pytest.approx(13.35, abs=0.01)
    assert rows[0]["lasting_between_failures_high"] is None
    assert rows[1]["lasting_between_failures_low"] == pytest.approx(20 / 20.483 * 2, abs=0.01)
    assert rows[1]["lasting_between_failures_high"] == pytest.approx(40 / 2.18, abs=0.05)


def test_a_resumed_run_goes_on_examining_the_same_environments(tmp_path):
    whole, cut = dying(tmp_path / "whole"), dying(tmp_path / "cut")
    run(whole)
    run(cut, stopped_after(3))
    run(cut)
    assert without_times(rows_of(whole)) == without_times(rows_of(cut))
    assert_bit_equal(trained_state(whole), trained_state(cut))


def test_other_settings_of_the_evaluation_let_it_start_anew(tmp_path):
    asked = dying(tmp_path / "run")
    run(asked, stopped_after(3))
    assert "environments start anew" in run(replace(asked, eval=replace(LASTING, num_envs=6)))
    assert rows_of(asked)[3]["lasting_age_median"] == 10


def test_of_agents_that_last_alike_the_latest_is_the_best_and_of_others_the_one_that_lasts(tmp_path):
    for world, best in (("RandomStart", 4), ("CountEnv", 3)):
        asked = settings(tmp_path / world, world, eval=LASTING, horizon=100, checkpoint=CheckpointSettings(every=0, best="endurance"))
        run(replace(asked, env=replace(asked.env, options={"die_at": 15} if world == "CountEnv" else {})))
        # CountEnv: none dies in evaluations 1 and 3, all in 2 and 4.
        assert Checkpoints(tmp_path / world / "checkpoints").best() == best


def test_training_does_not_depend_on_who_is_examined(tmp_path):
    lasting, plain = dying(tmp_path / "lasting"), replace(dying(tmp_path / "plain"), eval=replace(LASTING, lasting=False))
    run(lasting)
    run(plain)
    named = [{name: value for name, value in row.items() if not name.startswith("lasting")} for row in without_times(rows_of(lasting))]
    assert named == without_times(rows_of(plain))
