"""The report: one page from the files of runs, right numbers on it, and nothing that another place must deliver."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_experiment import run, settings, stopped_after

from jaxrl_long import cli, report
from jaxrl_long.config import EvalSettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.reporting import charts, page, runs
from jaxrl_long.reporting import report as pages
from jaxrl_long.reporting.statistics import aligned, interquartile_mean, interval
from jaxrl_long.runtime.folder import Lock
from jaxrl_long.stored import save_settings

RESULT = {
    "date": "2026-01-02T03:04:05+00:00", "horizon": 16000, "num_envs": 64, "alive": 0.5, "alive_at": {"1000": 1.0, "10000": 0.75}, "reward_per_step": 2.0,
    "reward_per_step_by_age": {"0-1000": 1.5, "1000-10000": 2.0, "10000-16000": None}, "window_return": 1500.0, "median_life": None,
    "steps_between_failures": 25000.0, "steps_between_failures_at_least": None, "steps_between_failures_interval": [18000.0, 36000.0], "failures": 32,
    "faults": 0, "env_steps": 800000, "update": 10, "seed": 0, "wall_s": 3.0,
}  # fmt: skip


def made(folder: Path, rows: int = 20, seed: int = 0, name: str = "ant", **changes: Any) -> Path:
    """The files of a run whose return is its step over a thousand, plus its seed."""
    folder.mkdir(parents=True)
    asked = Settings(seed=seed, steps=rows * 8192, **changes)
    asked.env.name = name
    save_settings(asked, folder)
    lines = []
    for update in range(1, rows + 1):
        steps = update * 8192
        row: dict[str, Any] = {
            "update": update,
            "env_steps": steps,
            "steps_per_s": 1000.0,
            "reward_per_step": 1.0,
            "steps_between_failures": 500.0,
            "faults": 0,
        }
        row |= {"steps_between_failures_low": 400.0, "steps_between_failures_high": 600.0, "age_median": 100.0, "age_max": 900.0, "horizon_seen": 0.9}
        row |= {"wall_s": 6.0 * update, "compile_s": 5.0, "train_s": 4.0 * update, "eval_s": 1.0, "skipped_minibatches": 0}
        row |= {"simulate_share": 0.5, "infer_share": 0.1, "learn_share": 0.4, "window_return": steps / 1000 + seed if update % 2 == 0 else None}
        lines.append(json.dumps(row))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "provenance.jsonl").write_text(
        json.dumps({"started": "2026-01-02T03:00:00+00:00", "host": "here", "device": {"used": 2, "kind": "cpu"}, "packages": {"jax": "9.9"}}) + "\n"
    )
    (folder / "summary.json").write_text(json.dumps({"update": rows, "finished": True, "stopped_by": None}))
    return folder


def text(document: str) -> str:
    """What is read on a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<(style|svg).*?</\1>", "", document, flags=re.DOTALL)).split())


def test_a_run_is_told_in_a_sentence_and_in_numbers(tmp_path):
    folder = made(tmp_path / "ant-s3", seed=3)
    (folder / "endurance.jsonl").write_text(json.dumps(RESULT) + "\n")
    said = text(pages.one(runs.read(folder)))
    assert (
        "ant with a horizon of 1,000 steps, seed 3: finished; 163,840 of 163,840 environment steps in 2.0 min, a return of 166.8 in the first 1,000 steps"
        in said
    )
    assert "50% of 64 agents alive after 16,000 steps (one failed every 25,000 steps)" in said
    assert "25,000 (18,000 to 36,000)" in said
    assert "reward per step, 10000-16000" in said
    # 80 s of training: half of them simulation.
    assert "simulate 40 s" in said
    assert "start, save and wait 34 s" in said
    assert "The oldest training episode reached 900 of 1,000 steps (90.0%)" in said
    assert "2026-01-02 03:00:00 began on 2 x cpu, host here" in said
    assert "2026-01-02 03:02:00 finished" in said
    assert "seed 3 0" in said


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_users_chose(tmp_path):
    folder = made(tmp_path / "<b>&run", name="my_worlds:<script>alert(1)</script>")
    document = pages.one(runs.read(folder))
    assert "<script" not in document
    assert "&lt;b&gt;&amp;run" in document
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", document)
    assert not re.search(r"url\((?!#)", document)
    assert "@import" not in document
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", document)
    assert "prefers-color-scheme: dark" in document


def test_names_within_pictures_are_unique(tmp_path):
    document = pages.one(runs.read(made(tmp_path / "run")))
    names = re.findall(r'\bid="([^"]*)"', document)
    assert len(names) == len(set(names))
    for name in re.findall(r"url\(#([^)]*)\)", document) + re.findall(r'href="#([^"]*)"', document):
        assert name in names


def test_a_long_run_is_drawn_quickly_and_small(tmp_path):
    folder = made(tmp_path / "run", rows=10_000)
    begin = time.perf_counter()
    target = pages.write([runs.read(folder)], tmp_path / "page.html")
    assert time.perf_counter() - begin < 60
    assert target.stat().st_size < 2_000_000


def test_every_peak_of_a_curve_is_kept():
    values = np.zeros(100_000)
    values[[17, 50_000, 99_998]] = 1.0, -5.0, 7.0
    kept = charts.thinned(values, 600)
    assert len(kept) <= 600
    assert {17, 50_000, 99_998, 0, 99_999} <= set(kept.tolist())
    np.testing.assert_array_equal(charts.thinned(np.arange(5.0)), np.arange(5))


def test_runs_are_compared_over_seeds_and_over_settings(tmp_path):
    folders = [made(tmp_path / f"run-{rate}-{seed}", seed=seed, rollout_length=rate) for rate in (32, 64) for seed in (0, 10, 20)]
    said = text(pages.several([runs.read(folder) for folder in folders]))
    assert "6 runs of 2 kinds of settings." in said
    # Returns 163.84, 173.84 and 183.84: of three runs the middle half weighs them 1 : 2 : 1 to 1/4, 1/2 and 1/4 of a rank each.
    assert "rollout_length=32 3 173.8 163.8 to 183.8" in said
    assert "run-64-20 finished" in said
    assert runs.differing([runs.read(folder) for folder in folders]) == ["rollout_length", "seed"]


def test_the_mean_of_the_middle_half_leaves_out_the_worst_and_the_best_quarter():
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0])) == pytest.approx(1.5)
    # Ranks 1.25 to 3.75 of five: three quarters of the second and of the fourth.
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 4.0, 100.0])) == pytest.approx((0.75 * 1 + 2 + 0.75 * 4) / 2.5)
    assert interquartile_mean(np.array([1.0, 5.0])) == 3.0
    low, high = interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert 1.0 <= low < 2.5 < high <= 4.0


def test_curves_are_compared_only_where_all_of_them_are():
    at, values = aligned([(np.array([0.0, 10.0]), np.array([0.0, 10.0])), (np.array([5.0, 20.0]), np.array([1.0, 4.0]))], 3)
    np.testing.assert_allclose(at, [5.0, 7.5, 10.0])
    np.testing.assert_allclose(values, [[5.0, 7.5, 10.0], [1.0, 1.5, 2.0]])
    assert aligned([(np.array([0.0, 1.0]), np.zeros(2)), (np.array([2.0, 3.0]), np.zeros(2))])[0].size == 0


def test_a_run_is_running_interrupted_or_failed(tmp_path):
    folder = made(tmp_path / "run")
    assert runs.read(folder).status == "finished"
    (folder / "summary.json").write_text(json.dumps({"update": 20, "finished": False, "stopped_by": "SIGTERM"}))
    assert runs.read(folder).status == "interrupted"
    assert "stopped by SIGTERM" in text(pages.one(runs.read(folder)))
    (folder / "summary.json").write_text(json.dumps({"update": 10, "finished": True}))
    # It went on since, and ended without a word.
    assert runs.read(folder).status == "failed"
    with Lock(folder / "lock"):
        assert runs.read(folder).status == "running"
    assert runs.read(folder).status == "failed"


def test_what_is_half_written_is_left_out(tmp_path):
    folder = made(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 21, "env_st')
    assert len(runs.read(folder).rows) == 20


def test_a_run_that_has_said_nothing_yet_has_a_page(tmp_path):
    folder = made(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    (folder / "summary.json").unlink()
    assert "nothing was reported yet" in text(pages.one(runs.read(folder)))


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(report.COMMAND, list(words))
    return code, *capsys.readouterr()


def test_the_command_writes_into_the_runs_folder_or_where_it_is_told(tmp_path, capsys, monkeypatch):
    folders = [str(made(tmp_path / name)) for name in ("one", "two")]
    monkeypatch.chdir(tmp_path)
    assert called(capsys, folders[0]) == (0, f"{folders[0]}/report.html\n", "")
    assert called(capsys, *folders) == (0, "report.html\n", "")
    assert called(capsys, *folders, "to=both.html")[1] == "both.html\n"
    assert (tmp_path / "both.html").read_text().startswith("<!doctype html>")
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    called(capsys, folders[0], "open=true")
    assert shown == [f"file://{folders[0]}/report.html"]
    code, _, err = called(capsys, str(tmp_path))
    assert code == 2
    assert "it is not the folder of a run" in err


def test_a_real_run_has_a_page(tmp_path):
    asked = settings(tmp_path / "run", eval=EvalSettings(every=1, num_envs=4, window=10))
    run(asked, stopped_after(2))
    found = runs.read(tmp_path / "run")
    assert found.status == "interrupted"
    assert found.progress == 0.5
    run(asked)
    found = runs.read(tmp_path / "run")
    assert (found.status, found.progress, len(found.processes)) == ("finished", 1.0, 2)
    said = text(pages.one(found))
    assert "resumed on 1 x cpu" in said
    assert "128 of 128 environment steps" in said


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="it is not the folder of a run"):
        runs.read(tmp_path)


def test_numbers_are_shown_for_people():
    assert [page.shown(cell) for cell in (None, 1234567, 0.123456, 12345.6, "a<b")] == ["–", "1,234,567", "0.1235", "12,346", "a<b"]
