"""The benchmarks' plots, and the questions behind them: from rows made by hand."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from benchmarks import harness, horizon, plots, rollout

mpl.use("agg")
from matplotlib import pyplot


def test_the_survey_measures_each_world_once():
    worlds = [(world["env"], world["backend"], world["num_envs"]) for world in rollout.worlds()]
    assert len(worlds) == len(set(worlds))
    # Four numbers of environments, eight other tasks, three other backends.
    assert len(worlds) == 4 + 8 + 3


def test_medians_are_of_the_rows_of_each_side_in_order_of_appearance():
    rows = [{"side": side, "rate": rate} for side, rate in (("b", 1.0), ("a", 7.0), ("b", 3.0), ("b", 100.0))]
    assert list(plots.medians(rows, "side", "rate").items()) == [("b", 3.0), ("a", 7.0)]


def spans(panel: Any) -> list[tuple[float, float]]:
    """Where each bar begins, and how long it is."""
    return [(round(bar.get_x(), 9), round(bar.get_width(), 9)) for bar in panel.patches]


def test_bars_are_as_long_as_their_values():
    panel = pyplot.figure().subplots()
    plots.bars(panel, {"one": 1.0, "three": 3.0}, "steps/s")
    assert spans(panel) == [(0.0, 1.0), (0.0, 3.0)]
    pyplot.close()


def test_shares_are_stacked_from_left_to_right():
    figure = pyplot.figure()
    plots.where_time_goes([{"case": "env=ant", "shares": {"simulate": 0.5, "infer": 0.2, "learn": 0.3}}], figure)
    assert spans(figure.axes[0]) == [(0.0, 0.5), (0.5, 0.2), (0.7, 0.3)]
    pyplot.close()


def test_options_are_ranked_by_how_long_agents_last_and_bounds_are_hollow():
    found = {"base": [900.0, None, 800.0], "rewind": [None, None, 700.0]}
    rows = [
        {"env": "ant", "option": option, "steps_between_failures": seen, "steps_between_failures_at_least": None if seen else 5000.0}
        for option, runs in found.items()
        for seen in runs
    ]
    figure = pyplot.figure()
    plots.lasting(rows, figure)
    panel = figure.axes[0]
    # Medians 900 and 5000: the base below.
    assert [label.get_text() for label in panel.get_yticklabels()] == ["base", "rewind"]
    hollow = [float(np.asarray(line.get_xdata())[0]) for line in panel.lines if line.get_markerfacecolor() == "none"]
    assert hollow == [5000.0, 5000.0, 5000.0]
    pyplot.close(figure)


@pytest.mark.parametrize("question", sorted(plots.QUESTIONS))
def test_a_question_without_rows_has_no_plot(question: str, tmp_path: Path):
    rows_of, _ = plots.QUESTIONS[question]
    assert rows_of(tmp_path) == []


def test_what_was_measured_is_drawn(tmp_path: Path):
    for turn in range(3):
        for devices, rate in ((1, 100.0), (2, 150.0)):
            harness.record("train", {"measure": "scaling", "side": str(devices), "turn": turn, "steps_per_s": rate, "kind": "cpu"}, results=tmp_path)
    harness.record("compile_time", {"env": "ant", "backend": "spring", "compile_s": 20.0, "kind": "cpu"}, results=tmp_path)
    found = plots.draw(tmp_path, tmp_path / "plots")
    assert [file.name for file in found] == ["scaling.png", "compile_time.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in found)


def test_the_committed_rows_can_be_drawn(tmp_path: Path):
    found = {file.name for file in plots.draw(harness.RESULTS, tmp_path)}
    assert {"others.png", "time_to_return.png", "horizon.png"} <= found
    assert horizon.newest()
