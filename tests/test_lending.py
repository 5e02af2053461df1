"""What the archive on disk lends to training is what was lived through, and the same whenever it is asked."""

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commandline import train
from test_archiving import archived
from test_experiment import final_state, run, stopped_after
from worlds import assert_bit_equal

from jaxrl_long.algorithms.sac import _exchanged
from jaxrl_long.config import AlgorithmSettings, ArchiveSettings, ReplaySettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import state_shapes
from jaxrl_long.replay.sampling import Standing, Transition
from jaxrl_long.runtime import assemble, disk, disk_writer, experiment, lending
from jaxrl_long.runtime.disk import TERMINATED, TRUNCATED, Reader
from jaxrl_long.runtime.lending import Lender, lent_shapes
from jaxrl_long.runtime.progress import View

SAC = AlgorithmSettings(name="sac", policy_layers=(8,), value_layers=(8,), batch=8, update_ratio=0.1, n_step=3)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 rows, which a short run fills."""
    for module in (disk, disk_writer, lending):
        monkeypatch.setattr(module, "BLOCK", 8)


def lending_run(folder: Path, updates: int = 40, **changes: Any) -> Settings:
    """SAC with a ring of 4 rollouts (16 rows), that draws half of each batch from the archive."""
    asked = archived(folder, updates, "sac", algorithm=SAC, replay=ReplaySettings(capacity=4 * 32, begin=32))
    return replace(replace(asked, archive=ArchiveSettings(enabled=True, share=0.5, lend=64)), **changes)


def test_transitions_are_those_that_were_lived_through(tmp_path, small_blocks):
    asked = lending_run(tmp_path)
    run(asked)
    program, reader = assemble.program(asked), Reader(tmp_path / "archive")
    right = {name: reader.rows(name, 0, 160) for name in ("obs", "reward", "action", "end")}
    age = np.zeros((160, 8), int)
    for row in range(1, 160):
        age[row] = np.where(right["end"][row - 1] > 0, 0, age[row - 1] + 1)
    lender = Lender(tmp_path / "archive", program, asked.seed)
    drawn = lender.draw(40, lent_shapes(program, state_shapes(program)))
    # 160 rows, of which 2 * 16 are held back, and a block besides.
    assert lender.reach(40) == 120
    obs, action, places = np.asarray(drawn.fields["obs"]), np.asarray(drawn.fields["action"]), set()
    for number in range(64):
        alike = (right["obs"] == obs[number]).all(axis=-1) & (right["action"] == action[number]).all(axis=-1)
        ((row, env),) = np.argwhere(alike & (age == drawn.standing.age[number])).tolist()
        assert row < 120
        assert drawn.standing.version[number] == row // 4
        assert drawn.standing.episode[number] == (right["end"][:row, env] > 0).sum()
        last = row
        while last < row + 2 and not right["end"][last, env]:
            last += 1
        kind, steps = right["end"][last, env], last - row + 1
        assert drawn.reward[number] == pytest.approx(sum(lender.discount**k * right["reward"][row + k, env] for k in range(steps)), rel=1e-5)
        assert drawn.weight[number] == pytest.approx(0.0 if kind == TERMINATED else lender.discount**steps)
        if kind == 0:
            np.testing.assert_array_equal(drawn.next_obs[number], right["obs"][last + 1, env])
        if kind == TRUNCATED:
            [episode] = [one for one in reader.episodes() if one.env == env and one.end == last + 1]
            final = reader.final(episode)
            assert final is not None
            np.testing.assert_array_equal(drawn.next_obs[number], final["obs"])
        places.add((row, env, int(kind)))
    assert len(places) > 30
    assert {kind for _, _, kind in places} >= {0, TRUNCATED}
    assert drawn.usable.all()


def test_nothing_is_lent_before_there_is_anything(tmp_path, small_blocks):
    asked = lending_run(tmp_path, 4)
    run(asked)
    program = assemble.program(asked)
    drawn = Lender(tmp_path / "archive", program, 0).draw(4, lent_shapes(program, state_shapes(program)))
    assert not drawn.usable.any()


def test_a_run_that_borrows_is_resumed_exactly_and_differs_from_one_that_does_not(tmp_path, small_blocks):
    whole, cut, alone = (lending_run(tmp_path / name) for name in ("whole", "cut", "alone"))
    run(whole)
    experiment.train(cut, stopped_after(7), View(io.StringIO()), time.time())
    run(cut)
    assert_bit_equal(final_state(whole), final_state(cut))
    alone = replace(alone, archive=ArchiveSettings(enabled=True, share=0.0))
    run(alone)
    ours, theirs = (jax.tree.leaves(final_state(asked).learner.params) for asked in (whole, alone))
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(ours, theirs, strict=True))


def test_chunks_do_not_decide_what_is_lent(tmp_path, small_blocks):
    two, five = lending_run(tmp_path / "two", chunk=2), lending_run(tmp_path / "five", chunk=5)
    run(two)
    run(five)
    assert_bit_equal(final_state(two).learner, final_state(five).learner)


def test_a_run_in_which_nothing_will_be_lent_says_so(tmp_path):
    said = run(lending_run(tmp_path))
    assert "archive.share: this run lends nothing: only what lies more than twice the ring (256 steps) back is lent." in said


def test_what_is_lent_takes_the_place_of_some_of_the_batch_where_it_is_usable():
    def rows(value: float, usable: list[bool]) -> Transition:
        number = len(usable)
        whole = jnp.full((number,), value)
        counts = Standing(*(jnp.zeros(number, jnp.int32) for _ in range(4)))
        return Transition({"obs": jnp.full((number, 2), value)}, whole, whole, jnp.full((number, 2), value), counts, jnp.array(usable))

    batch = _exchanged(rows(1.0, [True] * 5), rows(2.0, [True, False]))
    np.testing.assert_array_equal(batch.reward, [2, 1, 1, 1, 1])
    np.testing.assert_array_equal(batch.next_obs[:, 1], [2, 1, 1, 1, 1])
    assert batch.usable.all()


def test_a_block_that_can_not_be_read_ends_lending_and_not_writing(tmp_path, small_blocks, monkeypatch):
    def broken(*_: Any) -> None:
        raise ValueError("no such block")

    monkeypatch.setattr(Lender, "draw", broken)
    said = run(lending_run(tmp_path))
    assert said.count("the archive can't be read (no such block), and lends nothing") == 1
    assert Reader(tmp_path / "archive").num_rows == 160


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("env=hopper", "algorithm=sac", "archive.share=0.5"), r"archive\.share=0\.5 needs an archive\. Nearest: archive\.enabled=true or archive\.share=0\."),
        (("env=bitflip", "algorithm=sac", "archive.enabled=true", "archive.share=0.5"), r"does not go with replay\.hindsight=0\.8"),
        (("env=hopper", "algorithm=sac", "archive.enabled=true", "archive.share=0.5", "archive.lend=5", "devices=2"), r"archive\.lend=5 can't be split"),
        (("env=hopper", "algorithm=sac", "archive.enabled=true", "archive.share=0.5", "algorithm.n_step=600"), r"algorithm\.n_step=600 does not go with"),
        (
            ("env=hopper", "algorithm=sac", "archive.enabled=true", "archive.share=0.9", "algorithm.batch=4", "devices=1"),
            r"archive\.share=0\.9 of a batch of 4 on each device is 4\. Nearest: archive\.share=0\.25 or 0\.75\.",
        ),
        (("env=hopper", "archive.limit=5"), r"archive\.limit=5 is no size"),
    ],
)
def test_what_can_not_be_lent_is_said_first(words, message):
    with pytest.raises(ConfigError, match=message):
        train(*words)
