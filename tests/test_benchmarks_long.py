"""The benchmarks of long walks and of plans: their arithmetic on rows made by hand, and one real, short walk."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness, horizon, plan_accuracy, tables, walk


def walked(floating: bool, **changes) -> harness.Row:
    """A walk as `benchmarks/horizon.py` records it: 4 copies, 2 points of reward a step, one copy lost after step 1000 without a floating origin."""
    lost = not floating
    kept: dict[str, Any] = {
        "env": "ant",
        "backend": "spring",
        "floating_origin": floating,
        "steps": 10_000,
        "num_envs": 4,
        "step": [100, 1000, 10_000],
        "going": [4, 4, 4 - lost],
        "faulted": [0, 0, 0],
        "lived": [400, 4000, 31_000 if lost else 40_000],
        "score": [800.0, 8000.0, 48_500.0 if lost else 80_000.0],
        "distance_m": [40.0, 400.0, 4000.0],
        "reward_error_rms": [1e-6, 2e-6, 0.5 if lost else 3e-6],
        "displacement_error_mean_m": [0.0, 0.0, 0.002],
        "energy_j": [10.0, 11.0, None],
        "kind": "cpu",
    }
    return {**kept, **changes}


def test_marks_are_four_a_decade_and_the_end():
    assert walk.marks(2000) == [100, 178, 316, 562, 1000, 1778, 2000]
    assert walk.marks(1_000_000)[-5:] == [100_000, 177_828, 316_228, 562_341, 1_000_000]


def test_rates_between_marks():
    row = walked(False)
    # 40,500 points in 27,000 steps.
    assert horizon.rate(row, 1, 2) == 1.5
    assert horizon.rate(row, -1, 1) == 2.0
    assert horizon.rate({"lived": [5, 5], "score": [1.0, 1.0]}, 0, 1) is None
    assert horizon.at(row, 5000) == 1


def test_the_table_of_walks_sets_both_origins_side_by_side(tmp_path: Path) -> None:
    for floating in (False, True):
        harness.record("horizon", walked(floating), results=tmp_path)
    text = tables.walks(tmp_path)
    # 1.5 of 2.0 is 75 %.
    assert "| ant | spring | no | 10,000 | 4 km | 3 of 4 | 75.0% | 2.0e-06 | 5.0e-01 | -2 mm | 0 |" in text
    assert "| ant | spring | yes | 10,000 | 4 km | 4 of 4 | 100.0% | 2.0e-06 | 3.0e-06 | -2 mm | 0 |" in text
    assert text.index("| yes |") < text.index("| no |")


def test_the_longest_walk_counts(tmp_path: Path) -> None:
    for steps in (10_000, 1_000_000, 100_000):
        harness.record("horizon", walked(True, steps=steps), results=tmp_path)
    assert [row["steps"] for row in horizon.newest(tmp_path)] == [1_000_000]


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    for floating in (False, True):
        harness.record("horizon", walked(floating), results=tmp_path)
    assert horizon.plot(tmp_path, tmp_path / "plots").read_bytes().startswith(b"\x89PNG")


def planned(case: str, planned_s: float, took_s: float) -> harness.Row:
    names = {"planned_wall_low_s": planned_s - 5, "planned_wall_high_s": planned_s + 5, "planned_steps_per_s": 30_000.0, "steps_per_s": 29_000.0}
    return {"case": case, "planned_wall_s": planned_s, "wall_s": took_s, "error": took_s / planned_s - 1, "plan_s": 40.0, "kind": "cpu", **names}


def test_the_table_of_plans_tells_the_median_and_the_worst_error(tmp_path: Path) -> None:
    for case, took_s in (("a", 204.0), ("b", 190.0), ("c", 220.0)):
        harness.record("plan_accuracy", planned(case, 200.0, took_s), results=tmp_path)
    text = tables.plans(tmp_path)
    assert "| `b` | 200 s (195 to 205) | 190 s | -5.0% | 30,000 | 29,000 | 40 s |" in text
    # 2 %, 5 % and 10 % off.
    assert "3 runs: median error 5.0%, worst 10.0%" in text
    assert plan_accuracy.summary([]) == "No runs yet."


def test_the_table_of_others_divides_medians(tmp_path: Path) -> None:
    for turn, (mine, other) in enumerate([(30_000.0, 10_000.0), (33_000.0, 11_000.0), (60_000.0, 9000.0)]):
        harness.record(
            "others", {"side": "ours", "turn": turn, "steps_per_s": mine, "startup_s": 9.0 + turn, "peak_bytes": 2**30, "kind": "cpu"}, results=tmp_path
        )
        harness.record("others", {"side": "rejax", "turn": turn, "steps_per_s": other, "peak_bytes": 2**30, "kind": "cpu"}, results=tmp_path)
    # Medians 33,000 and 10,000.
    assert "| rejax | the same | 10,000 steps/s | 3.3 | – | 1,024 MiB | 3 |" in tables.others(tmp_path)


@pytest.mark.slow
def test_a_real_walk_is_taken_again_in_float64(tmp_path: Path) -> None:
    words = ["env=halfcheetah", "num_envs=8", "rollout_length=8", "algorithm.minibatches=2", "steps=128", "devices=1", "eval.every=0", "eval.window=10"]
    command = [sys.executable, "-m", "jaxrl_long.train", *words, f"run_dir={tmp_path / 'run'}"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)

    def taken(*more: str, **environment: str) -> harness.Row:
        asked = ["env=halfcheetah", "backend=spring", f"out={tmp_path / 'out'}", *more]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.walk", *asked],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=harness.ROOT,
            env=os.environ | environment,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    curve = taken(f"run={tmp_path / 'run'}", "steps=200", "num_envs=4", "floating_origin=true")
    assert curve["step"] == [100, 178, 200]
    assert curve["lived"] == [400, 712, 800]
    again = taken("reference", JAX_ENABLE_X64="1")
    # Near home float32 pays nearly what float64 does, and never exactly.
    assert all(0 < error < 1e-3 for error in again["reward_error_rms"])
    assert all(energy > 0 for energy in again["energy_j"])
