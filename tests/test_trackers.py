"""Real runs with the trackers, killed and resumed, and read back with the libraries' own readers: each step is there once."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_experiment import run, settings

from jaxrl_long.runtime import experiment, tracking
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.tracking import Background, Trackers, read_rows
from jaxrl_long.runtime.tracking.mlflow import address
from jaxrl_long.runtime.tracking.tensorboard import TensorboardTracker, steps_in
from jaxrl_long.runtime.tracking.wandb import steps_of

PASSWORD = "hunter2"
SOURCE = Path(tracking.__file__).parents[3]

# In processes of their own: these libraries warn a lot when they are imported.
READ_MLFLOW = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name('jaxrl_long')
runs = client.search_runs([experiment.experiment_id])
print(json.dumps([{
    'status': run.info.status, 'params': run.data.params, 'tags': run.data.tags, 'name': run.info.run_name, 'artifacts': run.info.artifact_uri,
    'files': sorted(file.path for file in client.list_artifacts(run.info.run_id)),
    'history': {name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)) for name in ('env_steps', 'reward_per_step')},
} for run in runs]))
"""
READ_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
seen = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0}).Reload()
print(json.dumps({name: [(event.step, event.value) for event in seen.Scalars(name)] for name in seen.Tags()['scalars']} | {'texts': seen.Tags()['tensors']}))
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A home with nothing in it, where nobody is logged in."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_", "PYTEST_")) and name != "CI"}
    return kept | {"HOME": str(home), "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "ignore"} | more


def reading(script: str, *words: str) -> Any:
    quiet = os.environ | {"PYTHONWARNINGS": "ignore", "MLFLOW_DISABLE_TELEMETRY": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", script, *words], env=quiet, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def training(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jaxrl_long.train", "env=cartpole", "eval.every=0", "checkpoint.every=3", "chunk=10", *words]
    return subprocess.Popen(command, env=environment(folder), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def killed_beyond_its_checkpoint(process: subprocess.Popen[str], run: Path, reached: Callable[[], int]) -> None:
    """Kill it once a checkpoint is there and a tracker has rows of more steps than that."""
    deadline, found = time.monotonic() + 150, False
    try:
        while not found and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
            saved = Checkpoints(run / "checkpoints").latest() if (run / "checkpoints").exists() else None
            found = bool(saved) and reached() > saved * 2048
    finally:
        process.kill()
        said, _ = process.communicate(timeout=60)
    assert found, said


def in_the_database(file: Path) -> int:
    if not file.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return database.execute("SELECT max(step) FROM metrics").fetchone()[0] or 0
    except sqlite3.OperationalError:
        return 0


def steps_and_rewards(run: Path) -> dict[int, float]:
    return {row["env_steps"]: row["reward_per_step"] for row in read_rows(run / "metrics.jsonl")}


@pytest.mark.faults
@pytest.mark.slow
def test_a_killed_run_goes_on_in_all_trackers_and_each_step_is_seen_once(tmp_path):
    run = tmp_path / "runs" / "killed"
    words = ("tracker=[wandb,mlflow,tensorboard]", "wandb.mode=offline", f"run_dir={run}")
    killed_beyond_its_checkpoint(training(tmp_path, *words, "steps=1e9"), run, lambda: in_the_database(run.parent / "mlflow.db"))
    ids = json.loads((run / "trackers.json").read_text())
    resumed = training(tmp_path, *words, f"steps={max(steps_and_rewards(run)) + 20 * 2048}")
    said, _ = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, said
    assert "lost" not in said
    assert "left behind" not in said
    assert json.loads((run / "trackers.json").read_text()) == ids
    expected = sorted(steps_and_rewards(run))
    assert len(expected) > 3

    (kept,) = reading(READ_MLFLOW, f"sqlite:///{run.parent / 'mlflow.db'}")
    assert [step for step, _ in kept["history"]["env_steps"]] == expected
    assert [value for _, value in kept["history"]["env_steps"]] == expected
    assert len(kept["history"]["reward_per_step"]) == len(expected)
    assert (kept["status"], kept["name"], kept["tags"]["jaxrl_long.id"]) == ("FINISHED", "killed", ids["mlflow"])
    assert (kept["params"]["env.name"], kept["params"]["steps"]) == ("cartpole", "1000000000")
    assert kept["tags"]["resumed.steps"] == str(expected[-1])
    assert kept["files"] == ["report.html", "summary.json"]

    seen = reading(READ_TENSORBOARD, str(run / "tensorboard"))
    assert len(list((run / "tensorboard").iterdir())) == 2
    assert [step for step, _ in seen["env_steps"]] == expected
    rewards = steps_and_rewards(run)
    assert seen["reward_per_step"] == [[step, pytest.approx(rewards[step], rel=1e-6)] for step in expected]
    assert len(seen["texts"]) == 1

    segments = [list(steps_of(file)) for file in sorted(run.glob(f"wandb/offline-run-*-{ids['wandb']}/*.wandb"))]
    assert len(segments) == 2
    assert [step for steps in segments for step in steps] == expected
    # Nothing lies where nobody asked for it.
    assert {path.name for path in tmp_path.iterdir()} == {"home", "runs"}
    assert {path.name for path in run.parent.iterdir()} == {"killed", "mlflow.db", "mlartifacts"}
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


def row(update: int, **more: Any) -> dict[str, Any]:
    return {"update": update, "env_steps": update * 2048, "wall_s": float(update), "window_return": None, **more}


def board(folder: Path, past: list[dict[str, Any]], *fresh: dict[str, Any], closes: bool = True) -> list[str]:
    """One process's part of a run; returns what it said."""
    said: list[str] = []
    tracker = TensorboardTracker(said.append)
    tracker.start("run", {"seed": 0}, folder, None, past)
    for each in fresh:
        tracker.log(each, each["env_steps"])
    if closes:
        tracker.finish({}, [])
    return said


def test_tensorboard_shows_what_metrics_jsonl_holds_after_a_kill_between_two_rows(tmp_path):
    assert board(tmp_path, [], row(1), row(2), row(3), row(4)) == [f"tensorboard --logdir {tmp_path.parent}"]
    (segment,) = (tmp_path / "tensorboard").iterdir()
    whole = segment.read_bytes()
    # The checkpoint is of row 3, and of that row only a part reached the disk.
    torn = whole[: len(whole) - 150]
    assert steps_in([segment]) == {2048, 4096, 6144, 8192}
    segment.write_bytes(torn)
    assert steps_in([segment]) == {2048, 4096}
    board(tmp_path, [row(1), row(2), row(3)], row(5, wall_s=9.0))
    # Killed again, and resumed from row 2: the other rows are hidden, though they lie there.
    board(tmp_path, [row(1), row(2)], row(3, wall_s=7.5))
    seen = reading(READ_TENSORBOARD, str(tmp_path / "tensorboard"))
    assert seen["wall_s"] == [[2048, 1.0], [4096, 2.0], [6144, 7.5]]
    assert seen["env_steps"] == [[2048, 2048.0], [4096, 4096.0], [6144, 6144.0]]
    assert "window_return" not in seen


def test_tensorboard_keeps_steps_beyond_2_31(tmp_path):
    board(tmp_path, [], {"update": 9, "env_steps": 2147484672})
    assert steps_in(list((tmp_path / "tensorboard").iterdir())) == {2147484672}


def test_the_database_lies_beside_the_run_unless_another_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert address("auto", Path("/data/runs/ant")) == "sqlite:////data/runs/mlflow.db"
    assert address("http://host:5000", Path("/data/runs/ant")) == "http://host:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me@host/name")
    assert address("auto", Path("/data/runs/ant")) == "postgresql+psycopg://me@host/name"


UNREACHABLE = """
import sys, time
from pathlib import Path
from jaxrl_long.config import MlflowSettings, Settings
from jaxrl_long.runtime.tracking import make_trackers
from jaxrl_long.stored import shareable
settings = Settings(tracker=['mlflow'], mlflow=MlflowSettings(uri=sys.argv[2]))
trackers = make_trackers(settings, lambda text: print(text, flush=True))
trackers.start('run', shareable(settings), Path(sys.argv[1]), {})
trackers.log({'update': 1, 'env_steps': 2048}, 2048)
began = time.monotonic()
trackers.finish({})
print(time.monotonic() - began < 17.0, flush=True)
"""


@pytest.mark.faults
@pytest.mark.parametrize("scheme", ["http://me:hunter2@127.0.0.1:9", "postgresql://me:hunter2@127.0.0.1:9/name", "sqlite:////proc/nowhere/at.db"])
def test_a_database_that_can_not_be_reached_is_told_in_a_sentence_without_its_password(tmp_path, scheme):
    words = [sys.executable, "-c", UNREACHABLE, str(tmp_path), scheme]
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, timeout=120, cwd=tmp_path, check=True)
    told, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert told.startswith("mlflow does not take it: ")
    assert told.endswith("It is tried again; metrics.jsonl has everything.")
    assert last == "True"
    assert PASSWORD not in done.stdout + done.stderr
    assert done.stderr == ""
    assert {path.name for path in tmp_path.iterdir()} == {"home"}


def test_trackers_that_are_slow_or_raise_neither_stop_nor_slow_a_run(tmp_path, monkeypatch):
    never, returned = threading.Event(), []

    class Slow:
        def start(self, run_name, config, folder, resume_id, past):
            return "slow"

        def log(self, row, step):
            # The run ends although this does not.
            never.wait(300)
            returned.append(step)

        def show(self, video, step):
            returned.append("show")

        def finish(self, summary, files):
            returned.append("finish")

        def abandon(self):
            pass

    class Broken(Slow):
        def start(self, run_name, config, folder, resume_id, past):
            raise RuntimeError("no")

        def log(self, row, step):
            raise RuntimeError("no")

    asked = settings(tmp_path / "plain")
    for name, tracker in (("slow", Slow()), ("broken", Broken())):
        monkeypatch.setattr(experiment, "make_trackers", lambda *_, n=name, t=tracker: Trackers({n: Background(n, t, print, patience_s=0.5)}))
        run(replace(asked, run_dir=str(tmp_path / name)))
        assert len(read_rows(tmp_path / name / "metrics.jsonl")) == 4
        assert returned == []
    never.set()
