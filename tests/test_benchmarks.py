"""The benchmarks' own arithmetic, rows and tables; no training."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import endurance, harness, learning, ours, peers, processes, rollout, time_to_return, train


def test_a_row_carries_what_it_was_measured_on_and_is_found_again(tmp_path: Path) -> None:
    harness.record("speed", {"side": "ours", "steps_per_s": 12.0}, results=tmp_path)
    harness.record("speed", {"side": "theirs", "jax": "0.1"}, results=tmp_path)
    (row,) = harness.rows("speed", results=tmp_path, side="ours")
    assert {"kind", "device", "cpus", "python", "jax", "brax", "commit", "date"} < row.keys()
    assert row["steps_per_s"] == 12.0
    # A peer runs on versions of its own, which win over ours.
    assert harness.rows("speed", results=tmp_path, side="theirs")[0]["jax"] == "0.1"


def test_once_measures_only_what_is_missing(tmp_path: Path) -> None:
    calls = []

    def measure() -> harness.Row:
        calls.append(1)
        return {"value": len(calls)}

    for refresh in (False, False, True):
        harness.once("q", {"seed": 3}, measure, refresh=refresh, results=tmp_path)
    harness.once("q", {"seed": 4}, measure, results=tmp_path)
    # seed 3: measured, known, refreshed; seed 4: measured.
    assert len(calls) == 3
    assert [row["value"] for row in harness.latest("q", "seed", results=tmp_path)] == [2, 3]


def test_a_row_of_another_kind_of_device_does_not_answer(tmp_path: Path) -> None:
    harness.record("q", {"seed": 0, "kind": "a quantum computer", "value": 1}, results=tmp_path)
    assert harness.once("q", {"seed": 0}, lambda: {"value": 2}, results=tmp_path)["value"] == 2


def test_a_half_written_last_line_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"a": 1}\nnoise\n{"a": 2}\n{"a"')
    assert harness.jsonl(tmp_path / "m.jsonl") == [{"a": 1}, {"a": 2}]


def test_quartiles_are_linear_between_ranks() -> None:
    assert harness.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert harness.quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_timing_feeds_the_result_back_and_tells_the_first_call_apart() -> None:
    timing, last = harness.timed(lambda x: x + 1, 0, repeats=5, warmup=1)
    # 1 first call, 1 warm-up, 5 repeats.
    assert last == 7
    assert timing.repeats == 5
    assert 0 < timing.low_s <= timing.median_s <= timing.high_s
    with pytest.raises(ValueError, match="repeats=5"):
        harness.timed(lambda x: x, 0, repeats=4)


def test_options_are_read_as_verb_and_key_value_pairs() -> None:
    verb, options = harness.parse(time_to_return.Options, ["table", "steps=5e6", "seeds=0-3", "refresh=true"], verbs=("table",))
    assert (verb, options.steps, options.seeds, options.refresh) == ("table", 5_000_000, "0-3", True)
    assert harness.numbers("0-3,7") == [0, 1, 2, 3, 7]


@pytest.mark.parametrize("argument", ["stpes=3", "steps=many", "steps=0.5", "refresh=yes", "walk"])
def test_a_wrong_option_exits_with_2_and_names_what_fits(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        harness.parse(time_to_return.Options, [argument], verbs=("table",))
    assert stopped.value.code == 2
    assert f"'{argument}' does not fit. Accepted: [table] env=" in capsys.readouterr().err


def test_a_threshold_is_crossed_between_the_evaluations_around_it() -> None:
    curve = [(0, 10.0, -100.0), (100, 50.0, 2000.0), (200, 90.0, 4000.0)]
    # 50 + (90 - 50) * (3000 - 2000) / (4000 - 2000) = 70
    assert time_to_return.crossing(curve, 3000) == 70.0
    assert time_to_return.crossing(curve, 4000) == 90.0
    assert time_to_return.crossing(curve, 4001) is None
    assert time_to_return.crossing(curve[1:], 1500) == 50.0


def test_a_return_that_falls_again_counts_where_it_was_first_reached() -> None:
    curve = [(100, 50.0, 0.0), (200, 60.0, 10.0), (300, 70.0, 0.0), (400, 80.0, 20.0)]
    assert time_to_return.crossing(curve, 5) == 55.0


def test_evaluations_at_other_steps_than_asked_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"\[150\].*spacing=100"):
        time_to_return.summary([(150, 1.0, 2.0), (300, 2.0, 3.0)], [1], 100)
    # The last evaluation is the end of the run, wherever that is.
    assert time_to_return.summary([(100, 1.0, 2.0), (150, 2.0, 4.0)], [3], 100)["seconds"] == {"3": 1.5}


def test_median_times_count_a_run_that_never_got_there_as_endless() -> None:
    rows = [{"side": "ours", "seconds": {"9": seconds}} for seconds in (10.0, 30.0, 20.0)]
    rows += [{"side": "brax", "seconds": {"9": seconds}} for seconds in (80.0, None, 60.0)]
    assert time_to_return.medians(rows, "9") == {"ours": (20.0, 3), "brax": (80.0, 3)}
    # 80 / 20 = 4
    assert time_to_return.table(rows).splitlines()[-1] == "| 9 | 20 (3) | brax | 80 (3) | 4.00 |"
    rows += [{"side": "brax", "seconds": {"9": None}}] * 2
    assert math.isinf(time_to_return.medians(rows, "9")["brax"][0])
    assert time_to_return.table(rows).splitlines()[-1] == "| 9 | 20 (3) | brax | not reached (5) | – |"


def test_reports_without_an_evaluation_are_no_point_of_the_curve(tmp_path: Path) -> None:
    lines = [{"env_steps": steps, "window_return": value} for steps, value in ((1, None), (2, 5.0), (3, None), (4, 5.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [row["env_steps"] for row in ours.evaluations(tmp_path / "metrics.jsonl")] == [2, 4]


def test_the_steady_rate_leaves_the_warm_up_out() -> None:
    assert ours.steady([1.0, 10.0, 12.0, 11.0]) == 11.0
    assert ours.steady([1.0, 5.0, 12.0, 11.0, 13.0], warmup=2) == 12.0
    with pytest.raises(ValueError, match="more steps"):
        ours.steady([1.0])


def test_our_update_does_the_work_of_brax_update() -> None:
    options = peers.BraxOptions(num_envs=256, unroll=5, batch=128, minibatches=32)
    # 128 * 5 * 32 = 20480 = 256 * 80
    assert options.env_steps_per_update == 20480
    same = train.same_as_brax(options)
    assert (same["num_envs"], same["rollout_length"]) == (256, 80)
    # Samples in a gradient step: 20480 / 32 = 128 * 5
    assert 256 * 80 // int(same["algorithm__minibatches"]) == 640
    assert "algorithm.policy_layers=[32,32,32,32]" in ours.words(**same)


def test_the_peer_is_started_with_its_source_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BRAX_SOURCE", str(tmp_path))
    monkeypatch.setenv("BRAX_PYTHON", "python-of-brax")
    (tmp_path / "COMMIT").write_text("0123456789abcdef\n")
    command = peers.brax_command(peers.BraxOptions(seed=4, num_envs=8), evaluate=False)
    assert command.words[0] == "python-of-brax"
    assert {"--seed=4", "--num-envs=8", "--no-eval"} <= set(command.words)
    assert command.environment["PYTHONPATH"].startswith(str(tmp_path))
    assert peers.brax_identity() == {"peer": "brax main 0123456789ab"}


def test_a_missing_peer_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: list[str]) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    monkeypatch.delenv("BRAX_SOURCE", raising=False)
    monkeypatch.delenv("BRAX_PYTHON", raising=False)
    for begin in (lambda: time_to_return.measure(time_to_return.Options()), lambda: train.peer(train.Options())):
        with pytest.raises(SystemExit, match=r"benchmarks\.peers setup"):
            begin()
    assert fake == []


def test_block_sizes_divide_the_environments_of_a_device() -> None:
    assert rollout.block_sizes("32,64,128,0", 128) == [32, 64, 128]
    assert rollout.block_sizes("32,48,0", 128) == [32, 128]
    assert rollout.block_sizes("256", 128) == [128]
    # No more than a backend may step at once: 72 on ant's.
    assert rollout.block_sizes("32,64,128,0", 128, 72) == [32, 64]
    assert rollout.block_sizes("128,0", 128, 72) == [64]


def test_a_command_reports_its_rows_and_its_memory(tmp_path: Path) -> None:
    code = "x = bytearray(64 * 2**20); print('noise'); print('{\"a\": 1}')"
    finished = processes.run(processes.Command([sys.executable, "-c", code]), tmp_path / "log", poll_s=0.01)
    assert finished.rows == [{"a": 1}]
    assert finished.peak_bytes > 64 * 2**20


def test_a_failing_command_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3:\n(.|\n)*the reason"):
        processes.run(processes.Command([sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"]), tmp_path / "log", poll_s=0.01)


def test_a_command_that_has_shown_enough_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import time; print('{\"done\": 1}', flush=True); time.sleep(60)"
    finished = processes.run(processes.Command([sys.executable, "-c", code]), log, until=lambda: bool(harness.jsonl(log)), poll_s=0.01)
    # Ended by SIGTERM, which is no failure here.
    assert finished.returncode == -15
    assert finished.wall_s < 30


def test_sides_are_measured_in_alternation() -> None:
    calls = []

    def side(name: str) -> Callable[[int], harness.Row]:
        def of_turn(turn: int) -> harness.Row:
            calls.append((name, turn))
            return {"turn": turn}

        return of_turn

    found = processes.alternate({name: side(name) for name in ("a", "b")}, 2)
    assert calls == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert found["b"] == [{"turn": 0}, {"turn": 1}]


FAKE = """
import json, sys, time
name, *words = sys.argv[1:]
asked = dict(word.split("=", 1) for word in words)
if name == "jaxrl_long.evaluate":
    print("a progress bar")
    print(json.dumps({"horizon": int(asked["horizon"]), "alive": 1.0, "alive_at": {"1000": 1.0}, "reward_per_step": 5.7, "median_life": None,
                      "reward_per_step_by_age": {"0-1000": 6.0, "1000-10000": 5.8, "10000-16000": 5.6, "16000-20000": None}, "steps_between_failures": None, "steps_between_failures_at_least": 341333.3}))
    sys.exit()
import pathlib
folder = pathlib.Path(asked["run_dir"])
folder.mkdir()
for report in range(1, 5):
    row = {"env_steps": 409600 * report, "wall_s": 10.0 * report, "steps_per_s": 1.0 if report == 1 else 1000.0 * report,
           "window_return": 1500.0 * report, "steps_between_failures": 99.0}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\\n")
if "compilation_cache" in asked:
    time.sleep(60)
"""
"""Stands for our commands: four reports, 10 s and 1500 points of return apart, and then a wait where it is the benchmark that stops."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Our commands replaced by FAKE; the list collects their command lines."""
    script, lines = tmp_path / "fake.py", []
    script.write_text(FAKE)

    def module(name: str, *arguments: str) -> processes.Command:
        lines.append(" ".join([name, *arguments]))
        return processes.Command([sys.executable, str(script), name, *arguments])

    monkeypatch.setattr(processes, "module", module)
    return lines


def test_our_rate_is_the_median_of_the_reports_after_the_first(fake: list[str], tmp_path: Path) -> None:
    row = train.our_rate(tmp_path, options=train.Options(steps=5), num_envs=8)
    assert row["steps_per_s"] == 3000.0
    assert row["peak_bytes"] > 0
    assert "env=ant env.backend=spring steps=5 eval.every=0 num_envs=8 run_dir=" in fake[0]


def test_our_time_to_a_return_ends_the_run_once_it_is_passed(fake: list[str]) -> None:
    row = time_to_return.run_ours(3, time_to_return.Options())
    # 4350 lies between 3000 (20 s) and 4500 (30 s): 20 + 10 * 1350 / 1500 = 29
    assert row["seconds"] == {"3270": 21.8, "4350": 29.0}
    assert "seed=3 steps=4000000 eval.every=50 eval.num_envs=64" in fake[0]
    assert "compilation_cache=" in fake[0]


def test_learning_trains_and_examines_what_it_trained(fake: list[str]) -> None:
    row = learning.run(2, learning.Options(steps=4_000_000, horizon=1_000_000, settings="algorithm.epochs=2"))
    assert (row["steps"], row["wall_s"], row["window_return"]) == (1_638_400, 40.0, 6000.0)
    assert row["last_reward_per_step"] == 5.6
    assert (row["alive"], row["reward_per_step"], row["first_reward_per_step"], row["training_steps_between_failures"]) == (1.0, 5.7, 6.0, 99.0)
    assert "env=ant seed=2 steps=4000000 horizon=1000000 algorithm.epochs=2 run_dir=" in fake[0]
    assert fake[1].endswith("horizon=16000 num_envs=64 json=true")


def test_an_option_is_trained_and_examined_beside_the_tasks_own_settings(fake: list[str]) -> None:
    row = endurance.run("rewind", 1, endurance.Options(env="walker2d", steps=4_000_000))
    assert "env=walker2d seed=1 steps=4000000 algorithm.lookahead=100 algorithm.lookahead_end=0 restart.source=rewind run_dir=" in fake[0]
    assert "horizon=20000 num_envs=64" in fake[1]
    assert (row["window_return"], row["steps"], row["alive"]) == (6000.0, 1_638_400, 1.0)
    # None failed: the bound.
    assert endurance.lasting(row) == 341333.3


def test_options_are_chosen_by_name_or_by_what_their_names_hold_and_the_base_is_among_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert endurance.chosen(endurance.Options(options="rewind,no entropy bonus")) == ["base", "no entropy bonus", "rewind"]
    assert endurance.chosen(endurance.Options(options="masses")) == ["base", "other masses and frictions"]
    assert "own settings" in endurance.chosen(endurance.Options(env="walker2d"))
    assert "own settings" not in endurance.chosen(endurance.Options(env="ant"))
    with pytest.raises(SystemExit, match="2"):
        endurance.chosen(endurance.Options(options="rewound"))
    assert capsys.readouterr().err.startswith("options='rewound': env=ant has no option whose name is or holds that. There are: base, lookahead 100, ")


def test_the_price_of_a_tasks_own_settings_is_measured_in_a_short_training(fake: list[str]) -> None:
    row = endurance.speed("own settings", endurance.Options(env="walker2d"))
    assert row == {"steps_per_s": 3000.0}
    assert "env=walker2d steps=1500000 eval.every=0 horizon=1000000 run_dir=" in fake[0]


def test_a_task_without_settings_of_its_own_has_no_price(fake: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        endurance.price(endurance.Options(env="ant"))
    assert "Those that have: hopper, walker2d, humanoid." in capsys.readouterr().err
    assert not fake


def test_startup_is_the_first_report_with_the_cache_filled_before_where_asked(fake: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(train, "IMPORTS", "t, a, b = 0, 2, 5")
    row = train.first_report(tmp_path, options=train.Options(), prepare=True)
    assert row == {"first_report_s": 10.0, "other_imports_s": 2, "brax_import_s": 3}
    assert len(fake) == 2


def test_the_gpu_script_says_what_it_would_measure_where_there_is_none() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHON": "false"}
    finished = subprocess.run(["bash", "benchmarks/gpu.sh"], cwd=harness.ROOT, capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == 0
    assert "4096, 1024 and 16384 environments" in finished.stdout
    assert "nothing is measured" in finished.stdout
