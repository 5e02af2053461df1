"""The table of runs: what it says is what the folders say, and nothing is deleted without a yes."""

import io
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from test_report import RESULT, made

from jaxrl_long import cli, runs
from jaxrl_long.reporting import index
from jaxrl_long.runtime.folder import Lock


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(runs.COMMAND, list(words))
    return code, *capsys.readouterr()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs: ant of two seeds, the second with other settings and examined, and an interrupted hopper."""
    made(tmp_path / "a", seed=1)
    (made(tmp_path / "b", seed=2, rollout_length=64) / "endurance.jsonl").write_text(json.dumps(RESULT) + "\n")
    made(tmp_path / "c", name="hopper")
    (tmp_path / "c" / "summary.json").write_text(json.dumps({"update": 20, "finished": False, "stopped_by": "SIGTERM"}))
    return tmp_path


def test_every_run_is_a_line_with_its_numbers_and_the_settings_that_differ(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = called(capsys, str(folder))
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    # Whatever stands above a column can be asked for.
    assert set(lines[0][:-1]) <= set(index.COLUMNS)
    assert lines[0][-1] == "rollout_length"
    assert lines[1] == ["a", "finished", "100%", "ant", "1,000", "1", "164.8", "–", "500", "1,000", "2.0", "min", "32"]
    # Examined: one failure every 25,000 steps.
    assert lines[2] == ["b", "finished", "100%", "ant", "1,000", "2", "165.8", "50%", "25,000", "1,000", "2.0", "min", "64"]
    assert lines[3][:4] == ["c", "interrupted", "100%", "hopper"]


def test_where_no_failure_was_seen_a_bound_is_shown_and_named_so(folder, capsys):
    free = {"steps_between_failures": None, "steps_between_failures_at_least": 4000.0, "steps_between_failures_interval": [4000.0, None], "failures": 0}
    (folder / "a" / "endurance.jsonl").write_text(json.dumps(RESULT | free) + "\n")
    assert " > 4,000 " in called(capsys, str(folder))[1].splitlines()[1]
    assert [(row["lasting"], row["failed"]) for row in index.chosen(folder)] == [(4000.0, 0), (25000.0, 1), (500.0, 1)]


def test_a_pipe_gets_whole_lines_and_a_narrow_terminal_what_fits(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = called(capsys, str(folder))[1].splitlines()
    assert len(lines) == 4
    assert max(len(line) for line in lines) > 80
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, err = called(capsys, str(folder))
    assert len(out.splitlines()) == 4
    assert "too narrow for wall_s, steps_per_s, horizon" in err
    assert all(name in out.splitlines()[0] for name in ("name", "status", "return", "lasting"))


def test_runs_are_chosen_and_sorted(folder, capsys):
    def names(*words: str) -> list[str]:
        return [json.loads(line)["name"] for line in called(capsys, str(folder), "json=true", *words)[1].splitlines()]

    assert names("sort=-seed") == ["b", "a", "c"]
    assert names("where=env = 'ant' and \"return\" > 165") == ["b"]
    assert names("where=status = 'interrupted'") == ["c"]
    assert names("sort=seed", "limit=2") == ["c", "a"]
    code, _, err = called(capsys, str(folder), "sort=colour")
    assert code == 2
    assert "sort=colour: no such column. There are: name, status" in err
    code, _, err = called(capsys, str(folder), "where=colour = 3")
    assert code == 2
    assert "where=colour = 3: no such column: colour" in err
    code, _, err = called(capsys, str(folder), "where=1; DELETE FROM runs")
    assert code == 2
    assert len(names()) == 3


def test_what_has_changed_is_read_again_and_what_is_gone_forgotten(folder):
    assert [row["status"] for row in index.chosen(folder)] == ["finished", "finished", "interrupted"]
    shutil.rmtree(folder / "a")
    with Lock(folder / "b" / "lock"):
        assert [row["status"] for row in index.chosen(folder)] == ["running", "interrupted"]
    assert [row["status"] for row in index.chosen(folder)] == ["finished", "interrupted"]


def test_a_run_that_can_not_be_read_is_listed_as_such(folder, capsys):
    (folder / "c" / "settings.yaml").write_text("colour: blue\n")
    assert [row["status"] for row in index.chosen(folder, sort="name")] == ["finished", "finished", "unreadable"]
    assert called(capsys, str(folder))[0] == 0


def test_an_index_of_another_version_or_broken_is_made_anew(folder):
    index.chosen(folder)
    (folder / index.FILE).write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    assert len(index.chosen(folder)) == 3
    (folder / index.FILE).unlink()
    with sqlite3.connect(folder / index.FILE) as database:
        database.execute("CREATE TABLE runs (other TEXT)")
    database.close()
    assert len(index.chosen(folder)) == 3


def test_nothing_is_deleted_without_a_yes(folder, capsys, monkeypatch):
    code, _, err = called(capsys, "delete", str(folder))
    assert code == 2
    assert "delete needs where=" in err
    code, out, err = called(capsys, "delete", str(folder), "where=name = 'a'")
    assert code == 1
    assert "nothing was deleted" in out
    assert "confirm=true deletes them" in err
    assert (folder / "a").exists()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    assert called(capsys, "delete", str(folder), "where=name = 'a'")[0] == 1
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert called(capsys, "delete", str(folder), "where=name = 'a'")[0] == 0
    assert not (folder / "a").exists()
    assert called(capsys, "delete", str(folder), "where=seed = 2", "confirm=true")[1].endswith("1 deleted\n")
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["c"]


def test_a_running_run_is_not_deleted(folder, capsys):
    with Lock(folder / "a" / "lock"):
        code, _, err = called(capsys, "delete", str(folder), "where=name = 'a'", "confirm=true")
    assert code == 2
    assert "a is running: stop it first." in err
    assert (folder / "a").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = called(capsys)
    assert code == 2
    assert "runs: no such folder." in err
