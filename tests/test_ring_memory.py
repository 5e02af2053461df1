"""A ring as large as memory allows, and one that is not saved."""

import io
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_experiment import final_state, run, settings, stopped_after
from worlds import assert_bit_equal

from jaxrl_long.cli.folders import stored_for
from jaxrl_long.config import AlgorithmSettings, ReplaySettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import empty_ring, init_state, state_shapes
from jaxrl_long.rules import broken
from jaxrl_long.runtime import assemble, experiment, footprint, memory
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.progress import View
from jaxrl_long.stored import load_settings

SAC = AlgorithmSettings(name="sac", policy_layers=(8,), value_layers=(8,), batch=8, update_ratio=0.1)


def of_memory(folder: Path, **replay) -> Settings:
    return settings(folder, algorithm=SAC, replay=ReplaySettings(begin=64, **replay))


def held(asked: Settings) -> int:
    program = assemble.program(asked)
    return footprint.needed(program, state_shapes(program)).ring


def test_as_many_transitions_as_fit_into_the_memory_asked_for(tmp_path):
    asked = footprint.settled(of_memory(tmp_path, memory="0.2MB"))
    more = replace(asked, replay=replace(asked.replay, capacity=asked.replay.capacity + asked.samples_per_update))
    assert held(asked) <= 200_000 < held(more)
    assert not broken(asked)


def test_what_does_not_grow_evenly_fits_too(tmp_path):
    # The tree of priorities doubles at powers of two.
    asked = footprint.settled(of_memory(tmp_path, memory="0.4MB", prioritise=0.6))
    more = replace(asked, replay=replace(asked.replay, capacity=asked.replay.capacity + asked.samples_per_update))
    assert held(asked) <= 400_000 < held(more)


def test_auto_takes_half_of_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 1_000_000)
    asked = footprint.settled(of_memory(tmp_path, memory="auto"))
    program = assemble.program(asked)
    assert footprint.needed(program, state_shapes(program)).state == pytest.approx(500_000, rel=0.01)


def test_a_capacity_in_transitions_is_kept(tmp_path):
    asked = of_memory(tmp_path, capacity=320, memory="1GB")
    assert footprint.settled(asked) is asked
    assert footprint.settled(of_memory(tmp_path)).replay.capacity == 0


def test_too_little_memory_is_refused_with_enough(tmp_path):
    with pytest.raises(ConfigError, match=r"replay\.memory=1kB: the least ring takes .* Nearest: replay\.memory=1MB"):
        footprint.settled(of_memory(tmp_path, memory="1kB"))


@pytest.mark.parametrize("text", ["4", "4 Gb", "lots", "-1GB", "0MB", "infGB", "nanMB"])
def test_what_is_no_size_is_refused(text: str):
    problems = broken(Settings(replay=ReplaySettings(memory=text)))
    assert problems == [f"replay.memory={text} is no size. Write it as 500MB or 4GB (kB, MB, GB, TB), or auto."]


def test_a_run_that_goes_on_keeps_the_size_it_has_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 1_000_000)
    asked = of_memory(tmp_path, memory="auto")
    run(replace(asked, steps=64))
    chosen = load_settings(tmp_path).replay.capacity
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 3_000_000)
    again = of_memory(tmp_path, memory="auto")
    assert stored_for(again, None) is not None
    assert again.replay.capacity == chosen
    run(again)
    assert load_settings(tmp_path).replay.capacity == chosen
    other = of_memory(tmp_path, memory="2MB")
    with pytest.raises(ConfigError, match=r"replay\.memory=2MB"):
        stored_for(other, None)


def test_a_ring_that_is_not_saved_is_filled_anew_and_that_is_said(tmp_path):
    asked = of_memory(tmp_path, capacity=320, save=False)
    experiment.train(asked, stopped_after(2), View(io.StringIO()), time.time())
    saved = next((tmp_path / "checkpoints").iterdir())
    whole = of_memory(tmp_path / "whole", capacity=320)
    experiment.train(whole, stopped_after(2), View(io.StringIO()), time.time())
    other = next((tmp_path / "whole" / "checkpoints").iterdir())
    assert size(saved) < size(other)
    said = run(asked)
    assert "the ring was not saved (replay.save=false): it is filled anew, and this is not exactly the run that was interrupted." in said
    assert load_settings(tmp_path).replay.save is False


def test_a_ring_is_saved_less_often_than_the_rest_and_always_at_an_end(tmp_path):
    asked = of_memory(tmp_path, capacity=320, save_every=3600.0)
    asked = replace(asked, checkpoint=replace(asked.checkpoint, every=1e-9, keep=10))
    run(asked)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    *between, last = checkpoints.all()
    assert len(between) >= 2
    assert {update: has_ring(checkpoints, update) for update in (*between, last)} == {**dict.fromkeys(between, False), last: True}
    # Killed before the end, it would have found this.
    shutil.rmtree(next((tmp_path / "checkpoints").glob(f"{last:08d}-*")))
    assert "the ring was not saved (replay.save_every=3600): it is filled anew, and this is not exactly the run that was interrupted." in run(asked)
    assert has_ring(checkpoints, last)


def test_a_stop_right_after_a_save_without_the_ring_saves_it_still(tmp_path):
    asked = of_memory(tmp_path, capacity=64, save_every=3600.0)
    asked = replace(asked, checkpoint=replace(asked.checkpoint, every=1e-9, keep=10))
    experiment.train(asked, stopped_after(2), View(io.StringIO()), time.time())
    whole = of_memory(tmp_path / "whole", capacity=64)
    run(whole)
    assert "goes on from" in (said := run(asked))
    assert "not saved" not in said
    assert_bit_equal(final_state(asked), final_state(whole))


def has_ring(checkpoints: Checkpoints, update: int) -> bool:
    return any(name.startswith(".replay") for name in checkpoints.record(update)["leaves"])


def test_an_empty_ring_is_the_one_that_a_run_begins_with(tmp_path):
    program = assemble.program(of_memory(tmp_path, capacity=320))
    assert_bit_equal(empty_ring(program), init_state(program, 3).replay)


def test_with_its_ring_a_resumed_run_is_the_same_run(tmp_path):
    asked = of_memory(tmp_path / "one", capacity=64)
    run(asked)
    halves = of_memory(tmp_path / "two", capacity=64)
    experiment.train(halves, stopped_after(2), View(io.StringIO()), time.time())
    run(halves)
    assert_bit_equal(final_state(asked), final_state(halves))
    assert np.asarray(final_state(asked).replay.filled) == 8


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
