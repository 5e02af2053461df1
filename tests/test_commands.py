"""The commands as people type them, in processes of their own."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import faults
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.tracking import read_rows

ROOT = Path(__file__).parent.parent
PROBES = "jaxrl_long.envs.probes"
TINY = ["num_envs=8", "rollout_length=4", "algorithm.minibatches=2", "eval.num_envs=4", "eval.window=20", "devices=2"]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-u", "-m", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def left_after(lines: int, *words: str, cwd: Path) -> tuple[int, str]:
    """Exit code and errors of a command whose reader leaves after so many lines."""
    with start(*words, cwd=cwd) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        for _ in range(lines):
            running.stdout.readline()
        running.stdout.close()
        errors = running.stderr.read()
    return running.returncode, errors


def test_a_run_goes_on_without_whoever_read_its_lines(tmp_path):
    words = ["jaxrl_long.train", f"env={PROBES}:CountEnv", "steps=640", "chunk=1", "run_dir=run", *TINY]
    assert left_after(1, *words, cwd=tmp_path) == (0, "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]


def test_help_may_be_cut_off_by_its_reader(tmp_path):
    assert left_after(0, "jaxrl_long.train", "--help", cwd=tmp_path) == (1, "")


@pytest.mark.slow
def test_the_readmes_command_trains_an_ant_that_can_be_evaluated_from_its_folder_alone(tmp_path):
    trained = call("jaxrl_long.train", "env=ant", "horizon=1000000", "steps=64", *TINY, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert any(line.startswith("run ant horizon=1000000") for line in trained.stdout.splitlines())
    [folder] = (tmp_path / "runs").iterdir()
    rows = read_rows(folder / "metrics.jsonl")
    assert rows[-1]["env_steps"] == 64
    assert rows[-1]["window_return"] is not None
    # Nothing but the run's folder was written.
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    judged = call("jaxrl_long.evaluate", f"run={folder}", "horizon=30", "num_envs=4", "json=true", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    result = json.loads(judged.stdout)
    assert {"alive", "alive_at", "reward_per_step", "median_life"} <= result.keys()


def test_the_readmes_example_of_an_own_world_trains(tmp_path):
    [source] = re.findall(r"```python\n(# my_worlds\.py.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "my_worlds.py").write_text(source)
    done = call("jaxrl_long.train", "env=my_worlds:PointMass", "steps=64", *TINY, "run_dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["env_steps"] == 64


def test_an_inner_time_limit_below_the_horizon_is_an_error_that_names_it(tmp_path):
    done = call("jaxrl_long.train", "env=jaxrl_long.envs.probes:CountEnv", "env.options={max_steps: 1000}", "horizon=2500", *TINY, cwd=tmp_path)
    assert done.returncode == 2
    assert "1000" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_do_not_fit_are_refused_within_two_seconds_of_process_time(tmp_path):
    words = ["num_envs=100", "rollout_length=1", "algorithm.minibatches=32"]
    program = f"""
import resource, sys
from jaxrl_long.train import COMMAND, cli
code = cli.run(COMMAND, {words!r})
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, *[name for name in ("jax", "brax") if name in sys.modules])
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "96" in done.stderr
    assert "128" in done.stderr
    seconds, *imported = done.stdout.split()
    assert imported == []
    assert float(seconds) <= 2.0


@pytest.mark.faults
def test_sigterm_saves_the_last_logged_step_and_the_same_command_goes_on(tmp_path):
    words = ["jaxrl_long.train", "env=cartpole", "steps=2e7", "chunk=20", "eval.every=0", "run_dir=run"]
    process = start(*words, cwd=tmp_path)
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.startswith("update ")
        if seen == 3:
            process.send_signal(signal.SIGTERM)
            break
    process.communicate(timeout=120)
    assert process.returncode == 75
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    assert checkpoints.latest() == rows[-1]["update"]
    assert checkpoints.record(rows[-1]["update"])["env_steps"] == rows[-1]["env_steps"]
    steps = rows[-1]["env_steps"] + 2048 * 20
    done = call(*words[:2], f"steps={steps}", *words[3:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    all_steps = [row["env_steps"] for row in read_rows(tmp_path / "run" / "metrics.jsonl")]
    assert all_steps == sorted(set(all_steps))
    assert all_steps[-1] == steps


@pytest.mark.faults
def test_a_second_signal_ends_the_process_at_once(tmp_path):
    process = start("jaxrl_long.train", "env=cartpole", "steps=1e9", "chunk=500", "eval.every=0", "run_dir=run", cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("update "):
            break
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    begin = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert time.perf_counter() - begin < 2.0
    assert process.returncode == -signal.SIGTERM


@pytest.mark.faults
@pytest.mark.slow
def test_a_run_that_is_killed_in_every_phase_becomes_the_run_that_was_not():
    row = faults.killed_often(faults.Options(env="cartpole", steps=1_500_000, kills=4))
    assert row["killed_in"] == {"compile": 1, "rollout": 1, "evaluation": 1, "save": 1}
    assert row["resumed"]
    assert (row["state_equal"], row["metrics_equal"], row["evaluation_equal"]) == (True, True, True)


@pytest.mark.faults
def test_an_evaluation_that_is_stopped_saves_and_goes_on(tmp_path):
    assert call("jaxrl_long.train", f"env={PROBES}:CountEnv", "steps=64", *TINY, "run_dir=run", cwd=tmp_path).returncode == 0
    words = ["jaxrl_long.evaluate", "run=run", "horizon=500000", "num_envs=4", "json=true"]
    process = start(*words, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("evaluate "):
            process.send_signal(signal.SIGTERM)
            break
    _, told = process.communicate(timeout=120)
    assert process.returncode == 75, told
    assert "stopped by SIGTERM, saved; the same command goes on." in told
    [saved] = (tmp_path / "run" / "evaluations").iterdir()
    assert 0 < (Checkpoints(saved).latest() or 0) < 500_000
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # One a step, for all of the 4 x 500,000 steps, wherever it was cut.
    result = json.loads(done.stdout)
    assert (result["reward_per_step"], result["env_steps"], result["alive"]) == (1.0, 2_000_000, 1.0)
    assert list((tmp_path / "run" / "evaluations").iterdir()) == []


def test_a_broken_step_is_taken_again_by_its_file_alone(tmp_path):
    broken = [f"env={PROBES}:BreakAt", "env.options={age: 5, share: 1.0}"]
    assert call("jaxrl_long.train", *broken, "steps=64", *TINY, "run_dir=run", cwd=tmp_path).returncode == 0
    [file] = (tmp_path / "run" / "faults").iterdir()
    done = call("jaxrl_long.replay_fault", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "before the step: all numbers are finite",
        "after the step: state.cracked (1 of 1), obs (1 of 1), reward (1 of 1)",
    ]
    nothing = call("jaxrl_long.replay_fault", "run/no.npz", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "run/no.npz: no such file." in nothing.stderr
