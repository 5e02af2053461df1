"""A long evaluation can be interrupted anywhere, and gives the same numbers."""

import io
import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from worlds import program

from jaxrl_long.envs.probes import RandomStart
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import init_state
from jaxrl_long.runtime import continuation
from jaxrl_long.runtime.continuation import Store, continued
from jaxrl_long.runtime.evaluation import Evaluator, Snapshot, make_evaluator
from jaxrl_long.runtime.progress import steps_bar
from jaxrl_long.runtime.stop import SAVED, Stop

STOPS = [50, 300, 1000]
PLAN = program(RandomStart(die_at=700), horizon=1000)


@pytest.fixture(scope="module")
def agent() -> tuple[Evaluator, object]:
    return make_evaluator(PLAN, 4), init_state(PLAN, 0).learner


@contextmanager
def store(folder: Path, said: list[str] | None = None):
    with Store(folder, (said if said is not None else []).append) as opened:
        yield opened


def evaluated(agent, opened: Store, stop: Stop | None = None) -> dict[int, Snapshot] | None:
    evaluator, learner = agent
    with steps_bar("evaluate", 1000, io.StringIO()) as bar:
        return continued(evaluator, learner, 3, STOPS, opened, stop or Stop(), bar)


def after(dispatches: int, then: Callable[[Stop], None] = lambda stop: stop.ask("enough", SAVED)) -> Stop:
    class Counting(Stop):
        polled = 0

        def poll(self) -> bool:
            self.polled += 1
            if self.polled == dispatches:
                then(self)
            return super().poll()

    return Counting()


def assert_equal(one: dict[int, Snapshot] | None, other: dict[int, Snapshot] | None) -> None:
    assert one is not None
    assert other is not None
    assert list(one) == list(other) == STOPS
    for mark in STOPS:
        for name in vars(one[mark]):
            np.testing.assert_array_equal(getattr(one[mark], name), getattr(other[mark], name))


@pytest.mark.parametrize("dispatches", [1, 2, 3])
def test_an_interrupted_evaluation_goes_on_to_the_same_numbers(agent, tmp_path, dispatches):
    with store(tmp_path / "whole") as opened:
        whole = evaluated(agent, opened)
    stop = after(dispatches)
    with store(tmp_path / "cut") as opened:
        assert evaluated(agent, opened, stop) is None
    assert stop.exit_code == SAVED
    with store(tmp_path / "cut") as opened:
        assert opened.load(agent[0]) is not None
        assert_equal(whole, evaluated(agent, opened))
    assert whole is not None
    # RandomStart pays 1 a step; each of the copies lives 700 steps at most.
    assert whole[50].score.tolist() == [50.0] * 4


def test_a_killed_evaluation_goes_on_from_its_last_save(agent, tmp_path, monkeypatch):
    def die(_: Stop) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(continuation, "SAVE_S", 0.0)
    with store(tmp_path / "cut") as opened, pytest.raises(KeyboardInterrupt):
        evaluated(agent, opened, after(3, die))
    with store(tmp_path / "cut") as opened:
        loaded = opened.load(agent[0])
        assert loaded is not None
        assert loaded[0] > 0
        cut = evaluated(agent, opened)
    with store(tmp_path / "whole") as opened:
        assert_equal(evaluated(agent, opened), cut)


def test_a_finished_evaluation_leaves_nothing(agent, tmp_path):
    with store(tmp_path / "evaluations") as opened:
        evaluated(agent, opened)
        opened.clear()
    assert list(tmp_path.iterdir()) == []


def test_the_same_evaluation_is_not_made_twice_at_once(tmp_path):
    told = rf"this evaluation is in use by process {os.getpid()} on .*Wait for it, or stop it"
    with store(tmp_path / "one"), pytest.raises(ConfigError, match=told):
        Store(tmp_path / "one", print)


def test_where_nothing_can_be_written_it_is_said_and_the_evaluation_is_made(agent, tmp_path):
    (tmp_path / "file").write_text("")
    said: list[str] = []
    with store(tmp_path / "file" / "evaluations", said) as opened:
        assert evaluated(agent, opened) is not None
    assert said == [f"{tmp_path / 'file' / 'evaluations'} can't be written (Not a directory): an interrupted evaluation begins again."]


def test_a_save_that_fails_is_said_and_the_evaluation_is_made(agent, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(continuation, "SAVE_S", 0.0)
    monkeypatch.setattr("jaxrl_long.runtime.checkpoint._write_arrays", full)
    said: list[str] = []
    with store(tmp_path / "cut", said) as opened:
        assert evaluated(agent, opened) is not None
        opened.clear()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert list(tmp_path.iterdir()) == []
