"""`plan`, as people call it."""

import json
import subprocess
import sys

import pytest
from commandline import problems

from jaxrl_long import plan


def run(*words: str, folder) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jaxrl_long.plan", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


def test_the_calculator_prints_the_worked_example(tmp_path):
    done = run("calculator", "t=100", "n=100", "s=1000", folder=tmp_path)
    assert done.returncode == 0
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert said == ["total environment steps 0.10 billion", "throughput 20,000 steps/s", "wall time 1.4 h"]
    line = json.loads(run("calculator", "json=true", folder=tmp_path).stdout)
    assert line["steps_per_s"] == 20_000
    assert round(line["hours"], 2) == 1.39


@pytest.mark.parametrize(("word", "near"), [("t=1001", "1000"), ("t=0", "1"), ("n=0", "1"), ("n=10001", "10000"), ("s=100001", "100000"), ("s=0", "1")])
def test_a_value_outside_its_range_is_one_error(word, near):
    assert problems(word, command=plan.CALCULATOR) == [f"{word} is {'above' if near != '1' else 'below'} {near}. Nearest: {near}."]


def test_a_calculator_anywhere_among_the_words_is_meant(tmp_path):
    done = run("json=true", "calculator", "t=100", folder=tmp_path)
    assert json.loads(done.stdout)["steps_per_s"] == 20_000
    several = run("-m", "calculator", "n=10,100", folder=tmp_path)
    assert several.returncode == 0, several.stderr
    assert several.stdout.count("steps/s") == 2


def test_prices_that_are_none_are_refused_before_anything_is_measured(tmp_path):
    done = run("env=cartpole", "prices=nowhere.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "prices=nowhere.yaml: no such file." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_calculator(tmp_path):
    done = run("--help", folder=tmp_path)
    assert done.returncode == 0
    assert "Verbs: calculator" in done.stdout
    assert "target.hours" in done.stdout
    assert "t=100" in run("calculator", "--help", folder=tmp_path).stdout


def test_a_plan_is_measured_once_kept_and_what_train_then_says(tmp_path):
    words = ["env=cartpole", "steps=40_000", "num_envs=16", f"compilation_cache={tmp_path / 'compiled'}", "eval.every=0"]
    first = run(*words, "json=true", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    [line] = first.stdout.splitlines()
    measured = json.loads(line)
    assert not measured["cached"]
    assert set(measured["rates"]) == {"8", "16", "32"}
    assert measured["wall_s"] > measured["times"]["train_s"] > 0
    # No run's folder was made, and nothing beside the cache.
    assert [path.name for path in tmp_path.iterdir()] == ["compiled"]
    again = run(*words, "json=true", "price=2", "steps=80_000", folder=tmp_path)
    kept = json.loads(again.stdout)
    assert kept["cached"]
    assert kept["steps_per_s"] == measured["steps_per_s"]
    assert kept["cost_usd"] == pytest.approx(kept["wall_s"] / 1800)
    text = run(*words, folder=tmp_path).stdout
    assert "wall time" in text
    trained = subprocess.run(
        [sys.executable, "-m", "jaxrl_long.train", *words, f"run_dir={tmp_path / 'run'}"], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert trained.returncode == 0, trained.stderr
    assert "plan: " in trained.stdout
    assert "planned " in trained.stdout


def test_a_ring_larger_than_the_memory_is_refused_before_it_is_made(tmp_path):
    words = ["env=cartpole", "num_envs=1000", "rollout_length=20", "algorithm.minibatches=4", "devices=1", "replay.capacity=2_000_000_000"]
    done = run(*words, "compilation_cache=none", folder=tmp_path)
    assert done.returncode == 2
    assert "replay.capacity=2000000000" in done.stderr
    assert "GB" in done.stderr
    assert "Nearest: replay.capacity=" in done.stderr
    assert "Traceback" not in done.stderr
