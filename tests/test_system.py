"""What only a real system can do: a disk that is full, and one that turns read-only. `make test-system` runs them in a mount namespace."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.tracking import read_rows

pytestmark = pytest.mark.system

TRAIN = ["jaxrl_long.train", "env=cartpole", "steps=40960", "chunk=2", "eval.every=0", "checkpoint.every=0.01"]
"""20 updates, saved after nearly every chunk."""


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=300, check=False)


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}This test needs a mount namespace of its own: make test-system."


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def assert_told(done: subprocess.CompletedProcess[str], why: str) -> None:
    assert done.returncode == 1, done.stderr
    # Threads of TensorStore may write tracebacks of their own beside it, and end a line of theirs with the beginning of ours.
    told = re.findall(r"(?:CheckpointError|RunError): .*", done.stderr)
    assert len(told) == 1, done.stderr
    assert why in told[0]


def test_a_full_disk_ends_the_run_with_a_sentence_and_with_room_it_goes_on(disk):
    run = f"run_dir={disk / 'run'}"
    assert call(*TRAIN, "steps=20480", run).returncode == 0
    saved = Checkpoints(disk / "run" / "checkpoints").latest()
    assert saved == 10
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(17 << 20))
    assert_told(call(*TRAIN, run), "No space left on device")
    assert Checkpoints(disk / "run" / "checkpoints").latest() == saved
    filler.unlink()
    done = call(*TRAIN, run)
    assert done.returncode == 0, done.stderr
    steps = [row["env_steps"] for row in read_rows(disk / "run" / "metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 40960


def test_a_disk_that_fills_up_in_the_middle_ends_the_run_and_keeps_what_was_saved(disk):
    # Room for settings and metrics and a few checkpoints: 500 are kept, which 16 MB can't hold.
    done = call(*TRAIN, "steps=20480000", "checkpoint.keep=500", f"run_dir={disk / 'run'}")
    assert_told(done, "No space left on device")
    saved = Checkpoints(disk / "run" / "checkpoints", say=print).latest()
    assert saved
    rows = read_rows(disk / "run" / "metrics.jsonl")
    assert rows[-1]["update"] >= saved


def test_a_folder_that_turned_read_only_is_refused_and_can_still_be_evaluated(disk):
    run = disk / "run"
    assert call(*TRAIN, "steps=20480", f"run_dir={run}").returncode == 0
    words = ["jaxrl_long.evaluate", f"run={run}", "horizon=100", "num_envs=4", "json=true"]
    before = json.loads(call(*words).stdout)
    mount("-o", "remount,ro", str(disk))
    done = call(*TRAIN, f"run_dir={run}")
    assert done.returncode in (1, 2)
    assert "Read-only file system" in done.stderr or "can't be written" in done.stderr
    assert "Traceback" not in done.stderr
    judged = call(*words)
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout) | {"wall_s": 0} == before | {"wall_s": 0}
    assert "begins again" in judged.stderr
