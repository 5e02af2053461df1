"""Whole runs in this process: what they write, and that a resumed one is the same run."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from worlds import assert_bit_equal

from jaxrl_long.config import AlgorithmSettings, CheckpointSettings, DisturbSettings, EnvSettings, EvalSettings, EvaluateSettings, Settings, StopSettings
from jaxrl_long.envs import registry
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.launch import state_shapes
from jaxrl_long.runtime import assemble, assessment, experiment, faults
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.evaluation import Snapshot
from jaxrl_long.runtime.progress import View
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.runtime.tracking import read_rows
from jaxrl_long.stored import load_settings

PROBES = "jaxrl_long.envs.probes"


def settings(run_dir: Path, world: str = "RandomStart", updates: int = 4, **changes) -> Settings:
    """A run of `updates` updates of 8 environments x 4 steps."""
    small = Settings(
        env=EnvSettings(name=f"{PROBES}:{world}"),
        steps=updates * 32,
        num_envs=8,
        rollout_length=4,
        devices=1,
        chunk=1,
        algorithm=AlgorithmSettings(policy_layers=(8,), value_layers=(8,), minibatches=2, epochs=2),
        eval=EvalSettings(every=0, num_envs=4, window=10),
        checkpoint=CheckpointSettings(every=0),
        run_dir=str(run_dir),
    )
    return replace(small, **changes)


def run(asked: Settings, stop: Stop | None = None) -> str:
    """Train; returns what was printed."""
    out = io.StringIO()
    assert experiment.train(asked, stop or Stop(), View(out), time.time()) == 0
    return out.getvalue()


def final_state(asked: Settings):
    checkpoints = Checkpoints(Path(asked.run_dir or "") / "checkpoints")
    return checkpoints.restore(checkpoints.latest() or 0, state_shapes(assemble.program(asked)))[0]


def stopped_after(reports: int) -> Stop:
    """A stop that is asked for once that many chunks were dispatched."""

    class Counting(Stop):
        polled = 0

        def poll(self) -> bool:
            self.polled += 1
            if self.polled > reports:
                self.ask("enough")
            return super().poll()

    return Counting()


def without_times(rows: list[dict]) -> list[dict]:
    clocks = ("_s", "_share")
    return [{name: value for name, value in row.items() if not name.endswith(clocks)} for row in rows]


def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(tmp_path):
    whole, cut = settings(tmp_path / "whole"), settings(tmp_path / "cut")
    run(whole)
    run(cut, stopped_after(2))
    assert len(read_rows(tmp_path / "cut" / "metrics.jsonl")) == 2
    assert "goes on from update 2" in run(cut)
    assert_bit_equal(final_state(whole), final_state(cut))
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    assert without_times(rows[0]) == without_times(rows[1])


def test_steps_is_a_total_that_a_resumed_run_does_not_exceed(tmp_path):
    asked = settings(tmp_path / "run", updates=10)
    run(asked, stopped_after(5))
    run(asked)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["update"] for row in rows] == list(range(1, 11))
    # The rate of update 5 (the sixth): 1e-3 * (1 - 5/10).
    assert rows[5]["learning_rate"] == pytest.approx(5e-4, rel=1e-5)
    assert "10 updates, 320 steps" in run(asked)
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl")) == 10


def test_rows_after_the_checkpoint_are_written_once(tmp_path):
    asked = settings(tmp_path / "run")
    run(asked, stopped_after(2))
    metrics = tmp_path / "run" / "metrics.jsonl"
    # As a process leaves it that was killed at update 4, its last row torn.
    late = {**read_rows(metrics)[-1], "update": 3, "env_steps": 96}
    with metrics.open("a") as file:
        file.write(json.dumps(late) + '\n{"update": 4, "env_st')
    run(asked)
    steps = [row["env_steps"] for row in read_rows(metrics)]
    assert steps == [32, 64, 96, 128]


def test_a_damaged_last_checkpoint_is_computed_and_saved_again(tmp_path):
    asked = settings(tmp_path / "run")
    run(asked, stopped_after(2))
    run(asked)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    [last] = [path for path in checkpoints.folder.iterdir() if path.name.startswith("00000004")]
    (last / "checkpoint.json").write_text("")
    assert "goes on from update 2" in run(asked)
    assert Checkpoints(checkpoints.folder).latest() == 4


def test_every_chunk_is_one_line_and_one_row_without_nan(tmp_path):
    printed = run(settings(tmp_path / "run", "CountEnv", updates=5, horizon=10_000, restart=replace(Settings().restart, every=0)))
    assert sum(line.startswith("update ") for line in printed.splitlines()) == 5
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "NaN" not in text
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 5
    assert all(row["reward_per_step"] == 1.0 for row in rows)
    for name in ("env_steps", "wall_s", "steps_per_s", "reward_per_step", "window_return", "steps_between_failures"):
        assert name in rows[0]


def test_the_shares_of_an_update_add_up_and_the_summary_has_the_whole_time(tmp_path):
    run(settings(tmp_path / "run", "CountEnv", updates=4, eval=EvalSettings(every=2, num_envs=2)))
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    # A world that does almost nothing: its pieces alone take longer than the fused update, and are shares of it all the same.
    shares = [rows[-1][f"{name}_share"] for name in ("simulate", "infer", "learn")]
    assert sum(shares) == pytest.approx(1.0)
    assert all(0 <= share <= 1 for share in shares)
    # The whole of it, with the final save.
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["wall_s"] > rows[-1]["wall_s"]


def test_a_long_horizon_that_nothing_reaches_reports_no_episodes(tmp_path):
    asked = settings(tmp_path / "run", "CountEnv", updates=4, horizon=10_000, restart=replace(Settings().restart, every=0, stagger=False))
    run(asked)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["episodes"] for row in rows] == [0] * 4
    assert [row["episode_return"] for row in rows] == [None] * 4
    assert [row["steps_between_failures"] for row in rows] == [None] * 4
    # A failure that does not come is waited for over all of them.
    assert [row["failure_free_steps"] for row in rows] == [row["env_steps"] for row in rows]
    assert rows[-1]["steps_between_failures_low"] == pytest.approx(rows[-1]["env_steps"] / 2.9957, rel=1e-4)


def test_a_million_steps_asked_are_eight_whole_updates_of_4096_times_32():
    asked = Settings(num_envs=4096, rollout_length=32, steps=1_000_000)
    assert (asked.updates, asked.total_steps) == (8, 1_048_576)


def test_the_run_folder_says_what_made_it(tmp_path):
    asked = settings(tmp_path / "run", updates=1)
    run(asked)
    assert load_settings(tmp_path / "run") == asked
    origin = json.loads((tmp_path / "run" / "provenance.jsonl").read_text().splitlines()[0])
    assert origin["packages"]["jax"]
    assert origin["device"]["platform"] == "cpu"
    assert origin["seed"] == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["finished"], summary["env_steps"]) == (True, 32)
    assert summary["window_return"] == 10.0


def test_evaluating_a_checkpoint_gives_the_number_that_the_run_reported(tmp_path):
    asked = settings(tmp_path / "run", updates=2)
    run(asked)
    reported = read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["window_return"]
    again = assessment.assess(EvaluateSettings(run=str(tmp_path / "run"), horizon=1000, num_envs=4, window=10, devices=1, env=asked.env), asked)
    assert again is not None
    assert again["window_return"] == reported
    assert again["alive"] == 1.0
    json.loads(assessment.as_line(again))
    assert "window return" in assessment.as_text(again)
    [kept] = map(json.loads, (tmp_path / "run" / "endurance.jsonl").read_text().splitlines())
    assert {name: again[name] for name in again if name != "run"} == {name: kept[name] for name in kept if name != "date"}


def test_evaluation_counts_in_the_schedule_of_updates(tmp_path):
    run(settings(tmp_path / "run", updates=5, chunk=3, eval=EvalSettings(every=2, num_envs=4, window=10)))
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["update"] for row in rows] == [2, 3, 4, 5]
    assert [row["window_return"] is not None for row in rows] == [True, False, True, True]


def test_a_chunk_size_that_was_measured_is_kept_by_the_resumed_run(tmp_path):
    asked = settings(tmp_path / "run", updates=60, chunk=0)
    run(asked, stopped_after(2))
    first = Checkpoints(tmp_path / "run" / "checkpoints")
    measured = first.record(first.latest() or 0)["host"]["chunk"]
    assert measured > 0
    run(asked)
    assert first.record(first.latest() or 0)["host"]["chunk"] == measured


def test_a_broken_environment_is_dumped_once_with_what_is_needed_to_step_it_again(tmp_path):
    asked = settings(tmp_path / "run", "BreakAt", updates=4)
    asked.env.options = {"age": 5, "share": 1.0}
    printed = run(asked)
    files = list((tmp_path / "run" / "faults").iterdir())
    assert [file.name for file in files] == ["update-1-environment-0.npz"]
    assert printed.count("non-finite") == 1
    with np.load(files[0], allow_pickle=False) as dumped:
        assert int(dumped["sim.t"]) == 4
        assert dumped["action"].shape == (1,)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    # Every copy breaks on its fifth step, the first of update 1.
    assert [row["faults"] for row in rows] == [0, 8, 8, 8]


@pytest.mark.parametrize("disturb", [DisturbSettings(), DisturbSettings(observation=0.1, action=0.1)])
def test_the_dumped_step_can_be_taken_again_and_breaks_again(disturb, tmp_path):
    asked = settings(tmp_path / "run", "BreakAt", updates=2, disturb=disturb)
    asked.env.options = {"age": 5, "share": 1.0}
    run(asked)
    [file] = (tmp_path / "run" / "faults").iterdir()
    result = faults.replay(file, assemble.simulator(asked))
    assert result.before == {}
    cracked = "state.world.cracked" if disturb.observation else "state.cracked"
    assert result.after == {cracked: "1 of 1", "obs": "1 of 1", "reward": "1 of 1"}
    # An unbroken world takes the same step well.
    asked.env.options = {"age": 50, "share": 1.0}
    assert faults.replay(file, assemble.simulator(asked)).after == {}


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip"])
def test_a_dump_that_cannot_be_read_is_a_settings_error(tmp_path, content):
    file = tmp_path / "update-1-environment-0.npz"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="can't be read"):
        faults.replay(file, registry.make(EnvSettings(name=f"{PROBES}:BreakAt")))


def test_the_dump_of_another_world_is_a_settings_error(tmp_path):
    asked = settings(tmp_path / "run", "BreakAt", updates=2)
    asked.env.options = {"age": 5, "share": 1.0}
    run(asked)
    [file] = (tmp_path / "run" / "faults").iterdir()
    with pytest.raises(ConfigError, match="another world"):
        faults.replay(file, registry.make(EnvSettings(name=f"{PROBES}:RandomStart")))


def test_a_run_of_nothing_but_broken_numbers_is_stopped_and_saved(tmp_path):
    asked = settings(tmp_path / "run", "BreakAt", updates=20, stop=StopSettings(broken=3))
    asked.env.options = {"age": 5, "share": 1.0}
    out = io.StringIO()
    assert experiment.train(asked, Stop(), View(out), time.time()) == 1
    # Broken from update 2 on: three reports in a row are updates 2 to 4, and update 5 was in flight.
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() == 5
    assert "stop.broken=3 reports in a row with non-finite numbers (8 of 32 environment steps" in out.getvalue()
    assert "stop.broken=3" in json.loads((tmp_path / "run" / "summary.json").read_text())["stopped_by"]


def test_a_time_budget_ends_a_run_with_0_and_a_larger_one_goes_on(tmp_path):
    asked = settings(tmp_path / "run", updates=6, stop=StopSettings(after=1e-3))
    assert "stopped by stop.after" in run(asked)
    assert 0 < len(read_rows(tmp_path / "run" / "metrics.jsonl")) < 6
    run(replace(asked, stop=StopSettings(after=1e6)))
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl")) == 6


def test_the_best_evaluated_agent_is_kept_beside_the_latest(tmp_path, monkeypatch):
    class Scripted:
        returns = iter([5.0, 9.0, 7.0, 9.0, 8.0, 1.0])

        def window(self, learner, seed, steps):
            no = np.zeros(1, bool)
            return Snapshot(np.array([10]), ~no, no, no, no, np.array([next(self.returns)]))

    monkeypatch.setattr(experiment, "make_evaluator", lambda *_: Scripted())
    asked = settings(tmp_path / "run", updates=6, eval=EvalSettings(every=1, num_envs=4, window=10), checkpoint=CheckpointSettings(every=0, keep=1))
    run(asked)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    # Updates 1 and 2 were the best so far; 4 was only as good. The last one is always saved.
    assert checkpoints.all() == [2, 6]
    assert checkpoints.best() == 2


def test_a_save_that_fails_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jaxrl_long.runtime.checkpoint._write_arrays", full)
    with pytest.raises(RunError, match=r"saving the checkpoint of update \d+ in .* failed: .*No space left on device"):
        run(settings(tmp_path / "run"))


def test_a_folder_that_cannot_be_written_any_more_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    def read_only(self, row):
        raise OSError(30, "Read-only file system", str(self.path))

    monkeypatch.setattr("jaxrl_long.runtime.tracking.MetricsFile.append", read_only)
    with pytest.raises(RunError, match=r"metrics.jsonl can't be written: Read-only file system"):
        run(settings(tmp_path / "run"))


def test_memory_that_a_program_needs_beside_its_state_and_does_not_get_is_told_in_a_sentence(tmp_path, monkeypatch):
    def exhausted(self, foretold):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 35588764752 bytes.\nmore")

    monkeypatch.setattr(experiment.Experiment, "run", exhausted)
    with pytest.raises(
        RunError, match=r"^memory ran out with num_envs=8 and rollout_length=4: RESOURCE_EXHAUSTED: Out of memory allocating 35588764752 bytes. Fewer"
    ):
        run(settings(tmp_path / "run"))


def test_a_world_may_keep_keys_in_its_state(tmp_path):
    run(settings(tmp_path / "run", "Keyed"))
    assert read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["env_steps"] == 128


def test_two_devices_run_one_seed_as_one_device_starts_it(tmp_path):
    for devices in (1, 2):
        run(settings(tmp_path / str(devices), devices=devices, updates=2, algorithm=replace(settings(tmp_path).algorithm, minibatches=1)))
    one, two = (read_rows(tmp_path / str(devices) / "metrics.jsonl") for devices in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert a["value_loss"] == pytest.approx(b["value_loss"], rel=1e-4, abs=1e-5)
        assert a["policy_loss"] == pytest.approx(b["policy_loss"], rel=1e-4, abs=1e-5)
