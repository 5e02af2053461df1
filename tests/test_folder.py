"""One living process writes a run's folder, and says in it what it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import folder
from jaxrl_long.runtime.folder import Lock, RunFolder, append_line, provenance, record, source, write_atomically

ROOT = str(Path(folder.__file__).parents[2])

HOLD = """
import sys
from pathlib import Path
from jaxrl_long.runtime.folder import Lock
lock = Lock(Path(sys.argv[1]))
print('held', flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> Any:
    process: Any = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ROOT}
    )
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: Any) -> None:
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_second_process_is_refused_naming_host_and_process_of_the_first_and_a_dead_ones_lock_is_taken_over(tmp_path: Path) -> None:
    process = holder(tmp_path / "lock")
    with pytest.raises(ConfigError, match=f"run_dir={tmp_path} is in use by process {process.pid} on {os.uname().nodename} "):
        Lock(tmp_path / "lock")
    kill(process)
    with Lock(tmp_path / "lock") as lock:
        assert str(lock.stale).startswith(f"the lock of process {process.pid} on {os.uname().nodename} ")
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    with Lock(tmp_path / "lock") as again:
        assert again.stale is None


def test_a_lock_is_free_again_after_its_release_also_in_the_same_process(tmp_path: Path) -> None:
    first = Lock(tmp_path / "lock")
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} "):
        Lock(tmp_path / "lock")
    first.release()
    first.release()
    with Lock(tmp_path / "lock") as second:
        assert second.stale is None


def test_a_file_system_without_locks_is_told_about_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folder.fcntl, "flock", refuse)
    with Lock(tmp_path / "lock") as lock:
        assert lock.stale == f"{tmp_path} can't be locked (Operation not supported): nothing keeps a second process out."


def test_a_lock_file_of_garbage_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("garbage")
    with Lock(tmp_path / "lock") as lock:
        assert lock.stale == "the lock of another process is taken over: that process is gone."


def test_the_folder_is_made_with_its_parents_and_a_file_in_the_way_is_a_settings_error(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b").create()
    assert run.path.is_dir()
    assert run.metrics == tmp_path / "a" / "b" / "metrics.jsonl"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run_dir=.*/file/run can't be created: Not a directory"):
        RunFolder(tmp_path / "file" / "run").create()


def test_a_file_is_replaced_whole_and_no_temporary_one_stays(tmp_path: Path) -> None:
    write_atomically(tmp_path / "x", "old")
    write_atomically(tmp_path / "x", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "new")]


def test_a_line_appended_after_a_torn_one_starts_on_its_own(tmp_path: Path) -> None:
    for content, expected in (("", "a\n"), ("x\n", "x\na\n"), ("to", "to\na\n")):
        (tmp_path / "x").write_text(content)
        append_line(tmp_path / "x", "a")
        assert (tmp_path / "x").read_text() == expected


def test_provenance_names_versions_device_and_command_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2hunter2")
    monkeypatch.setattr(sys, "argv", ["train", "env=ant", "my.api_key=hunter2hunter2", "mlflow.uri=postgresql://me:hunter2@host/name"])
    device = {"kind": "cpu", "count": 2}
    for _ in range(2):
        record(tmp_path / "provenance.jsonl", provenance(device))
    text = (tmp_path / "provenance.jsonl").read_text()
    first, second = (json.loads(line) for line in text.splitlines())
    assert first["pid"] == second["pid"] == os.getpid()
    assert first["command"][1:] == ["train", "env=ant", "my.api_key=***", "mlflow.uri=postgresql://me:***@host/name"]
    assert first["device"] == device
    assert first["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(first["packages"]) >= {"jax", "jaxlib", "brax", "flax", "optax", "numpy", "orbax-checkpoint", "mujoco", "jaxrl_long"}
    assert first["packages"]["jaxrl_long"] == "0.1.0"
    assert "hunter2" not in text


def git(path: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(path), *identity, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_that_of_the_packages_own_source_with_its_changes_and_none_elsewhere(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert source(package) is None
    git(tmp_path, "init", "-q")
    assert source(package) is None
    git(tmp_path, "add", "package/__init__.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    assert source(package) == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    (package / "__init__.py").write_text("changed = True")
    assert source(package) == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": True}
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "__init__.py").write_text("")
    assert source(installed) is None


def test_videos_are_those_among_the_pictures(tmp_path: Path) -> None:
    for name in ("pictures/a.gif", "pictures/late/b.mp4", "pictures/path.png", "other/c.gif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in RunFolder(tmp_path).videos()] == ["a.gif", "b.mp4"]


def test_who_the_trackers_know_the_run_by_is_read_back_and_may_be_missing(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).tracker_ids() == {}
    (tmp_path / "trackers.json").write_text('{"wandb": "abc"}')
    assert RunFolder(tmp_path).tracker_ids() == {"wandb": "abc"}
