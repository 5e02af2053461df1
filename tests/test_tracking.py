"""The local file is complete whatever a tracker does; a real wandb run is written offline and read back."""

import importlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_long.config import Settings
from jaxrl_long.runtime import tracking
from jaxrl_long.runtime.tracking import Background, MetricsFile, make_trackers, read_rows
from jaxrl_long.runtime.tracking.wandb import find_mode, steps_of


def row(update: int, **more: Any) -> dict[str, Any]:
    return {"update": update, "env_steps": update * 2048, **more}


def test_rows_are_json_without_nan_or_infinity(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(row(1, a=float("nan"), b=np.float32("inf"), c=np.float32(0.5), d=[np.int64(3), -np.inf], e=None, f=np.bool_(True)))
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"update": 1, "env_steps": 2048, "a": null, "b": null, "c": 0.5, "d": [3, null], "e": null, "f": true}\n'


def test_env_steps_beyond_2_31_are_written_exactly(tmp_path: Path) -> None:
    MetricsFile(tmp_path / "m").append({"update": 9, "env_steps": 2147482624 + 2048})
    assert read_rows(tmp_path / "m")[0]["env_steps"] == 2147484672


def test_a_run_killed_at_update_5_and_resumed_from_4_leaves_no_duplicate(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path)
    for update in range(1, 6):
        first.append(row(update))
    second = MetricsFile(path)
    assert second.truncate_after(4) == 1
    for update in range(5, 8):
        second.append(row(update))
    assert [entry["env_steps"] for entry in read_rows(path)] == [2048, 4096, 6144, 8192, 10240, 12288, 14336]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_torn_last_line_is_tolerated_cut_away_and_never_glued_to_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).append(row(1))
    with path.open("a") as file:
        file.write('{"update": 2, "env_st')
    assert read_rows(path) == [row(1)]
    file = MetricsFile(path)
    assert file.truncate_after(1) == 1
    file.append(row(2))
    assert path.read_text().splitlines() == [json.dumps(row(1)), json.dumps(row(2))]


def test_resuming_before_the_first_row_empties_the_file_and_a_missing_file_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert MetricsFile(path).truncate_after(0) == 0
    file = MetricsFile(path)
    file.append(row(1))
    assert file.truncate_after(0) == 1
    assert path.read_text() == ""
    file.append(row(1))


def test_env_steps_that_do_not_grow_are_refused(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m")
    file.append(row(2))
    with pytest.raises(ValueError, match="4096 env steps can't follow one of 4096"):
        MetricsFile(tmp_path / "m").append(row(2))


class Recorder:
    """A tracker that remembers, and sleeps or raises on demand."""

    def __init__(self, sleep_s: float = 0.0, fails: tuple[str, ...] = (), quick: tuple[str, ...] = ()) -> None:
        self.sleep_s, self.fails, self.quick = sleep_s, fails, quick
        self.calls: list[tuple] = []

    def _call(self, what: str, *details: Any) -> None:
        self.calls.append((what, *details))
        time.sleep(0.0 if what in self.quick else self.sleep_s)
        if what in self.fails:
            raise RuntimeError(f"no {what}")

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[dict[str, Any]]) -> str:
        self._call("start", run_name, config, folder, resume_id, *past)
        return str(resume_id)

    def log(self, row: dict[str, Any], step: int) -> None:
        self._call("log", row, step)

    def show(self, video: Path, step: int) -> None:
        self._call("show", video, step)

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        self._call("finish", summary, *files)

    def abandon(self) -> None:
        self.calls.append(("abandon",))


def drive(tracker: Recorder, folder: Path, **options: Any) -> tuple[float, list[str], str]:
    """Five reports through a tracker and into the file; returns the seconds it took, what was said, and the id."""
    said: list[str] = []
    file = MetricsFile(folder / "metrics.jsonl")
    began = time.monotonic()
    background = Background("slowpoke", tracker, said.append, **options)
    identity = background.start("run", {"seed": 0}, folder, None)
    for update in range(1, 6):
        file.append(row(update))
        background.log(row(update), update * 2048)
    background.finish({"return": 1.0})
    return time.monotonic() - began, said, identity


def test_a_good_tracker_gets_everything_in_order_and_its_id_survives(tmp_path: Path) -> None:
    tracker = Recorder()
    _, said, identity = drive(tracker, tmp_path)
    assert said == []
    assert tracker.calls[0] == ("start", "run", {"seed": 0}, tmp_path, identity)
    assert tracker.calls[1:] == [*(("log", row(update), update * 2048) for update in range(1, 6)), ("finish", {"return": 1.0})]
    assert Background("x", Recorder(), said.append).start("run", {}, tmp_path, "abc123") == "abc123"


def test_a_tracker_that_sleeps_5_s_at_each_call_adds_less_than_1_s(tmp_path: Path) -> None:
    tracker = Recorder(sleep_s=5.0)
    took, said, _ = drive(tracker, tmp_path)
    assert took < 1.0
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 5
    assert said == ["slowpoke is too slow and is left behind with 5 rows not handed over; metrics.jsonl has all of them."]
    assert tracker.calls[-1] == ("abandon",)


def test_a_slow_log_is_not_waited_for_even_by_the_patient(tmp_path: Path) -> None:
    tracker = Recorder(sleep_s=5.0, quick=("start",))
    took, _, _ = drive(tracker, tmp_path, patience_s=15.0)
    assert took < 1.0


@pytest.mark.parametrize("fails", [("start", "log", "finish"), ("log",), ("finish",)])
def test_a_tracker_that_raises_at_each_call_is_told_about_once_and_the_file_is_complete(tmp_path: Path, fails: tuple[str, ...]) -> None:
    took, said, _ = drive(Recorder(fails=fails), tmp_path)
    assert took < 1.0
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 5
    assert said[0].startswith(f"slowpoke failed to {fails[0]}: RuntimeError: no {fails[0]}. The run goes on")
    assert len(said) <= 2


def test_a_full_queue_drops_rows_instead_of_blocking(tmp_path: Path) -> None:
    took, said, _ = drive(Recorder(sleep_s=5.0), tmp_path, capacity=2)
    assert took < 1.0
    assert "left behind" in said[0]


def test_wandb_is_online_only_when_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert find_mode("auto") == ("offline", "not logged in, see `wandb login`")
    assert find_mode("online")[0] == "offline"
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {'k' * 40}\n")
    assert find_mode("auto") == ("online", "logged in")
    assert find_mode("offline") == ("offline", "as set")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert find_mode("auto") == ("offline", "as set")
    monkeypatch.delenv("WANDB_MODE")
    (tmp_path / "netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert find_mode("auto")[0] == "online"


def test_several_trackers_are_waited_for_at_the_same_time(tmp_path: Path) -> None:
    slow = {f"slow{number}": Background(f"slow{number}", Recorder(sleep_s=5.0), print, patience_s=0.6) for number in range(4)}
    trackers = tracking.Trackers(slow)
    assert trackers.start("run", {}, tmp_path, {"gone": "1", "slow0": "2"}).keys() == {"gone", "slow0", "slow1", "slow2", "slow3"}
    began = time.monotonic()
    trackers.finish({})
    assert time.monotonic() - began < 1.5


def test_a_tracker_gets_the_rows_before_it_and_the_files_at_the_end(tmp_path: Path) -> None:
    tracker = Recorder()
    background = Background("x", tracker, print)
    background.start("run", {}, tmp_path, "abc", [row(1), row(2)])
    background.finish({}, [tmp_path / "report.html"])
    assert tracker.calls == [("start", "run", {}, tmp_path, "abc", row(1), row(2)), ("finish", {}, tmp_path / "report.html")]


def test_a_password_in_an_error_is_not_said(tmp_path: Path) -> None:
    class Telltale(Recorder):
        def log(self, row: dict[str, Any], step: int) -> None:
            raise RuntimeError("no answer from postgresql://me:hunter2@host/name?password=hunter3")

    _, said, _ = drive(Telltale(), tmp_path)
    assert "no answer from postgresql://me:***@host/name?password=***. The run goes on" in said[0]
    assert "hunter" not in "".join(said)


def test_no_tracker_is_no_thread_and_no_id(tmp_path: Path) -> None:
    trackers = make_trackers(Settings(), print)
    assert trackers.start("run", {}, tmp_path, {}) == {}
    trackers.log(row(1), 2048)
    trackers.finish({})


OFFLINE = """
import sys
from pathlib import Path
from jaxrl_long.config import Settings, WandbSettings
from jaxrl_long.runtime.tracking import make_trackers
assert 'wandb' not in sys.modules
trackers = make_trackers(Settings(tracker=['wandb'], wandb=WandbSettings(mode='offline')), print)
folder = Path(sys.argv[1])
rows = [{'update': update, 'env_steps': update * 2048, 'reward_per_step': update / 2, 'window_return': None} for update in range(1, 6)]
ids = trackers.start('ant-seed0', {'seed': 7, 'env': {'name': 'ant'}}, folder, {'wandb': 'abc12345'}, rows[:int(sys.argv[2])])
for row in rows[int(sys.argv[2]):int(sys.argv[3])]:
    trackers.log(row, row['env_steps'])
(folder / 'report.html').write_text('<p>done</p>')
trackers.finish({'window_return': 4321.0}, [folder / 'report.html'])
print(ids)
"""


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file: LevelDB's log format after a header of 7 bytes, protocol buffers inside."""
    # The module's messages are made when it is imported.
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        # 1: a whole record, 4: the last part of one.
        if kind in (1, 4):
            yield messages.Record.FromString(parts)
            parts = b""


def test_a_real_offline_run_is_written_inside_the_run_folder_and_read_back(tmp_path: Path) -> None:
    home, run, key = tmp_path / "home", tmp_path / "run", "s3cr3t" * 7
    home.mkdir()
    run.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(home), "WANDB_API_KEY": key, "PYTHONPATH": str(Path(tracking.__file__).parents[3]), "XDG_CACHE_HOME": str(home / "cache")}
    words = [sys.executable, "-c", OFFLINE, str(run), "0", "3", "mlflow.uri=postgresql://me:hunter2@host/name"]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, cwd=home, check=True)
    assert result.stdout == f"wandb is offline (as set): {run}/wandb; `wandb sync` uploads it\n{{'wandb': 'abc12345'}}\n"
    assert result.stderr == ""
    assert [path for path in home.rglob("*") if path.is_file()] == []
    (file,) = run.glob("wandb/offline-run-*-abc12345/run-abc12345.wandb")
    found = list(records(file))
    histories = [r.history.item for r in found if r.HasField("history")]
    rows = [{item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json) for item in items} for items in histories]
    assert [(entry["env_steps"], entry["reward_per_step"]) for entry in rows] == [(2048, 0.5), (4096, 1.0), (6144, 1.5)]
    assert not [entry for entry in rows if "window_return" in entry]
    (opened,) = [r.run for r in found if r.HasField("run")]
    assert (opened.run_id, opened.display_name) == ("abc12345", "ant-seed0")
    assert {item.key: json.loads(item.value_json) for item in opened.config.update if item.key == "seed"} == {"seed": 7}
    assert any("4321" in item.value_json for r in found if r.HasField("summary") for item in r.summary.update)
    (page,) = [r.artifact for r in found if r.HasField("artifact")]
    assert (page.name, page.type, [entry.path for entry in page.manifest.contents]) == ("report-abc12345", "report", ["report.html"])
    assert [path for path in run.rglob("*") if path.is_file() and (key.encode() in path.read_bytes() or b"hunter2" in path.read_bytes())] == []
    # Resumed from the checkpoint of the second row: of those the first segment has none comes again.
    words[4:6] = ["2", "5"]
    subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, cwd=home, check=True)
    segments = [sorted(steps_of(file)) for file in sorted(run.glob("wandb/offline-run-*-abc12345/run-abc12345.wandb"))]
    assert segments == [[2048, 4096, 6144], [8192, 10240]]


STUCK = """
import os, socket, sys, time
from pathlib import Path
from jaxrl_long.config import WandbSettings
from jaxrl_long.runtime.tracking import Background
from jaxrl_long.runtime.tracking.wandb import WandbTracker
server = socket.create_server(('127.0.0.1', 0))
os.environ['WANDB_BASE_URL'] = f'http://127.0.0.1:{server.getsockname()[1]}'
background = Background('wandb', WandbTracker(WandbSettings(mode='online'), print), print)
background.start('run', {}, Path(sys.argv[1]), None)
background.log({'update': 1, 'env_steps': 2048}, 2048)
connection, _ = server.accept()
began = time.monotonic()
background.finish({})
print(time.monotonic() - began < 1.0, flush=True)
"""


def test_a_wandb_server_that_never_answers_holds_up_neither_the_run_nor_the_end_of_the_process(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "WANDB_API_KEY": "k" * 40, "PYTHONPATH": str(Path(tracking.__file__).parents[3])}
    process: Any = subprocess.Popen([sys.executable, "-c", STUCK, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True)
    said = process.stdout.readline()
    assert said == "wandb is too slow and is left behind with 1 rows not handed over; metrics.jsonl has all of them.\n"
    assert process.stdout.readline() == "True\n"
    began = time.monotonic()
    assert process.wait(timeout=60) == 0
    assert time.monotonic() - began < 5.0
    process.stdout.close()
