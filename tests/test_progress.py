"""What a person reads: one greppable line a report, human units, and a bar only where there is a terminal."""

import io

import pytest
from rich.console import Console

from jaxrl_long.runtime import progress
from jaxrl_long.runtime.progress import View, amount, duration, number, steps_bar

ROW = {"update": 12, "env_steps": 98304, "wall_s": 80.0, "steps_per_s": 22400.0, "reward_per_step": 1.2345, "window_return": None} | {
    "steps_between_failures": None,
    "steps_between_failures_low": 32815.0,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (950, "950"),
        (999.7, "1.00k"),
        (22400, "22.4k"),
        (1234567, "1.23M"),
        (999950, "1.00M"),
        (2147484672, "2.15G"),
        (123456789, "123M"),
        (0.5, "0.5"),
        (None, "-"),
    ],
)
def test_counts_are_written_in_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.42, "0.4s"), (9.97, "10s"), (59.6, "1m 00s"), (80, "1m 20s"), (7500, "2h 05m"), (273600, "3d 04h"), (None, "-")]
)
def test_times_are_written_with_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_returns_keep_four_digits() -> None:
    assert (amount(3270.4), amount(-12.3456), amount(0.00123), amount(None)) == ("3,270", "-12.35", "0.00123", "-")


def test_five_chunks_give_five_progress_lines_between_a_header_and_a_summary() -> None:
    out = io.StringIO()
    view = View(out)
    view.header("ant, horizon 1,000,000", "2 cpu devices", updates=60, env_steps=491520)
    for chunk in range(1, 6):
        view.report(ROW | {"update": 12 * chunk, "env_steps": 98304 * chunk, "steps_between_failures_low": 32815.0 * chunk})
    view.summary(ROW | {"update": 60, "env_steps": 491520, "window_return": 3270.4, "steps_between_failures_low": 164077.0}, "/tmp/run")
    lines = out.getvalue().splitlines()
    assert lines[0] == "run ant, horizon 1,000,000 | 2 cpu devices | 60 updates, 491,520 steps (492k)"
    assert len([line for line in lines if line.startswith("update ")]) == 5
    # (491520 - 98304) / 22400 = 17.6 s
    assert lines[1] == "update 12 | 98.3k steps | 22.4k steps/s | reward 1.234/step | fails every > 32.8k | 1m 20s | ETA 18s"
    assert lines[6:] == ["done 60 | 492k steps | 22.4k steps/s | reward 1.234/step | return 3,270 | fails every > 164k | 1m 20s", "run_dir /tmp/run"]
    assert "\x1b" not in out.getvalue()


def test_failures_and_the_parts_of_the_time_are_told() -> None:
    out = io.StringIO()
    view = View(out)
    view.report(ROW | {"steps_between_failures": 3276.8, "compile_s": 14.2, "train_s": 60.0, "eval_s": 5.8, "success_rate": 0.25})
    assert out.getvalue().rstrip().endswith("| reward 1.234/step | success 25% | fails every 3.28k | 1m 20s (compile 14s, train 1m 00s, eval 5.8s)")


def test_brackets_in_a_line_are_text_and_long_lines_are_not_wrapped() -> None:
    out = io.StringIO()
    View(out).say("[bold]x[/] " + "y" * 300)
    assert out.getvalue() == "[bold]x[/] " + "y" * 300 + "\n"


def test_a_terminal_gets_a_bar_that_goes_away_and_the_same_lines() -> None:
    out = Terminal()
    view = View(out)
    view.header("ant", "1 gpu", updates=10, env_steps=1000, done_steps=500)
    view.report(ROW | {"env_steps": 600})
    view.summary(ROW | {"env_steps": 1000}, "/tmp/run")
    assert "500 of them done" in out.getvalue()
    assert "60%" in out.getvalue()
    assert "update 12 | 600 steps" in out.getvalue()


def test_an_evaluation_writes_a_line_each_tenth_of_the_way() -> None:
    out = io.StringIO()
    with steps_bar("evaluating", 1_000_000, out) as bar:
        for step in range(0, 1_000_001, 25_000):
            bar.at(step, "98% alive")
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "evaluating 100k of 1.00M steps 98% alive"
    assert lines[-1] == "evaluating 1.00M of 1.00M steps 98% alive"


def test_an_evaluation_on_a_terminal_shows_a_bar() -> None:
    out = Terminal()
    bar = progress.StepsBar("evaluating", 100, Console(file=out))
    bar.at(50, "half alive")
    bar.close()
    assert "half alive" in out.getvalue()
