"""The archive on disk: what is written is read back, whatever happens in between."""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.runtime import disk
from jaxrl_long.runtime.disk import BLOCK, TERMINATED, TRUNCATED, DiskError, Reader
from jaxrl_long.runtime.disk_writer import Writer

ENVS = 3


def history(rows: int, seed: int = 0, often: float = 0.01) -> tuple[disk.Rows, np.ndarray]:
    """Observations that name their row and environment, rewards, and ends."""
    rng = np.random.default_rng(seed)
    row, env = np.meshgrid(np.arange(rows), np.arange(ENVS), indexing="ij")
    end = (rng.uniform(size=(rows, ENVS)) < often) * rng.integers(1, 3, (rows, ENVS))
    return {"obs": np.stack([row, env], axis=-1).astype(np.float32), "reward": rng.normal(size=(rows, ENVS)).astype(np.float32)}, end.astype(np.uint8)


def standing(end: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Episode number and age of each environment before a row."""
    before = end[:row] > 0
    ages = [row - 1 - int(np.flatnonzero(column)[-1]) if column.any() else row for column in before.T]
    return before.sum(axis=0), np.array(ages)


def add(writer: Writer, fields: disk.Rows, end: np.ndarray, first: int, last: int) -> None:
    """Rows [first, last) of a history; a truncated episode led to minus its last observation."""
    at = np.argwhere(end[first:last] == TRUNCATED)
    obs = -fields["obs"][first:last][at[:, 0], at[:, 1]]
    writer.append({name: array[first:last] for name, array in fields.items()}, end[first:last], *standing(end, first), (at, {"obs": obs}))


def written(folder: Path, fields: disk.Rows, end: np.ndarray, cuts: list[int], **options) -> Writer:
    """An archive of a history that arrived in pieces."""
    writer = Writer(folder, ENVS, {name: array[:1] for name, array in fields.items()}, 0, {"task": "test"}, **options)
    bounds = [0, *sorted(cuts), end.shape[0]]
    for first, last in itertools.pairwise(bounds):
        add(writer, fields, end, first, last)
    writer.flush()
    return writer


def expected(end: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """Environment, number, first row, row after the last, and end of each episode."""
    found = []
    for env in range(ENVS):
        first, number = 0, 0
        for row in np.flatnonzero(end[:, env]).tolist():
            found.append((env, number, first, row + 1, int(end[row, env])))
            first, number = row + 1, number + 1
        if first < end.shape[0]:
            found.append((env, number, first, end.shape[0], 0))
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3 * BLOCK), st.lists(st.integers(0, 3 * BLOCK), max_size=5), st.integers(0, 9))
def test_episodes_are_read_back_as_they_were(tmp_path_factory, rows, cuts, seed):
    fields, end = history(rows, seed)
    folder = tmp_path_factory.mktemp("archive")
    written(folder, fields, end, [cut for cut in cuts if cut < rows])
    reader = Reader(folder)
    found = reader.episodes()
    assert [(one.env, one.number, one.first, one.end, one.ended) for one in found] == expected(end)
    for one in found:
        read = reader.read(one)
        np.testing.assert_array_equal(read["obs"], fields["obs"][one.first : one.end, one.env])
        np.testing.assert_array_equal(read["reward"], fields["reward"][one.first : one.end, one.env])
        assert one.age == 0
        assert one.whole == (one.ended > 0)
        final = reader.final(one)
        assert (final is not None) == (one.ended == TRUNCATED)
        if final is not None:
            np.testing.assert_array_equal(final["obs"], -fields["obs"][one.end - 1, one.env])
    assert not list(reader.verify())


def test_some_steps_of_an_episode_of_many_blocks(tmp_path):
    fields, end = history(5 * BLOCK, often=0.0)
    written(tmp_path, fields, end, [700])
    reader = Reader(tmp_path)
    one = reader.episodes()[1]
    np.testing.assert_array_equal(reader.read(one, 1000, 1100)["obs"], fields["obs"][1000:1100, 1])
    with pytest.raises(DiskError, match=r"Of episode 0 of environment 1 steps 0 to 2560 are stored, not 2500 to 2600"):
        reader.read(one, 2500, 2600)


@pytest.mark.parametrize("back", [0, 100, BLOCK, BLOCK + 100])
def test_a_run_that_goes_back_writes_the_same_again(tmp_path, back):
    fields, end = history(2 * BLOCK + 300, seed=3)
    written(tmp_path, fields, end, [])
    row = end.shape[0] - back
    writer = Writer(tmp_path, ENVS, {name: array[:1] for name, array in fields.items()}, row, {"task": "test"})
    other, other_end = history(end.shape[0] + 400, seed=3)
    add(writer, other, np.concatenate([end[:row], other_end[row:]]), row, other_end.shape[0])
    writer.flush()
    reader = Reader(tmp_path)
    np.testing.assert_array_equal(np.concatenate([reader.rows("reward", *block) for block in reader.blocks()])[:row], fields["reward"][:row])
    np.testing.assert_array_equal(reader.rows("obs", 0, other_end.shape[0]), other["obs"])
    assert reader.manifest.spans == ((0, other_end.shape[0]),)
    finals = sum(len(reader.finals(number)[0]) for number in range(5))
    assert finals == int((np.concatenate([end[:row], other_end[row:]]) == TRUNCATED).sum())


def test_rows_that_are_missing_are_not_made_up(tmp_path):
    fields, end = history(4 * BLOCK, often=0.002)
    shapes = {name: array[:1] for name, array in fields.items()}
    first = Writer(tmp_path, ENVS, shapes, 0, {})
    add(first, fields, end, 0, 700)
    first.flush()
    second = Writer(tmp_path, ENVS, shapes, 900, {})
    add(second, fields, end, 900, 1600)
    second.flush()
    reader = Reader(tmp_path)
    # The second piece begins with a block of its own.
    assert reader.manifest.spans == ((0, 700), (1024, 1600))
    for one in reader.episodes():
        np.testing.assert_array_equal(reader.read(one)["obs"], fields["obs"][one.first : one.end, one.env])
        numbers, ages = standing(end, one.first)
        assert (one.number, one.age) == (numbers[one.env], ages[one.env])
        assert not (one.first < 700 < one.end)


def test_the_oldest_goes_first_when_there_is_too_much(tmp_path):
    fields, end = history(20 * BLOCK, often=0.001)
    writer = written(tmp_path, fields, end, list(range(300, 20 * BLOCK, 300)), limit=100_000)
    reader = Reader(tmp_path)
    held = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert held <= 100_000 + 20_000  # Descriptions of arrays, and the block that is being filled.
    assert writer.bytes == pytest.approx(held, abs=3000)
    ((first, last),) = reader.manifest.spans
    assert first > 0
    assert last == 20 * BLOCK
    assert not list(reader.verify())
    cut = [one for one in reader.episodes() if one.first == first]
    assert len(cut) == ENVS
    for one in cut:
        numbers, ages = standing(end, first)
        assert (one.number, one.age, one.whole) == (numbers[one.env], ages[one.env], False)
        read = reader.read(one)
        np.testing.assert_array_equal(read["obs"], fields["obs"][one.first : one.end, one.env])


def test_a_flipped_bit_is_found_and_said(tmp_path):
    fields, end = history(2 * BLOCK)
    written(tmp_path, fields, end, [])
    assert not list(Reader(tmp_path).verify())
    path = next((tmp_path / "reward" / "c" / "1").rglob("0"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    problems = list(Reader(tmp_path).verify())
    assert len(problems) == 1
    assert problems[0].startswith("reward, rows 512 to 1024, in ")
    path.unlink()
    assert "damaged or missing" in next(Reader(tmp_path).verify())


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_damaged_final_observations_are_found(tmp_path, damage):
    fields, end = history(2 * BLOCK, often=0.02)
    written(tmp_path, fields, end, [])
    path = tmp_path / "finals" / "1.crc_npz"
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    assert len(list(Reader(tmp_path).verify())) == 1


def test_what_belongs_to_a_whole_block_is_verified_too(tmp_path):
    fields, end = history(3 * BLOCK)
    written(tmp_path, fields, end, [])
    next(path for path in (tmp_path / "heads" / "age" / "c" / "1").rglob("*") if path.is_file()).unlink()
    (problem,) = Reader(tmp_path).verify()
    assert problem.startswith("heads/age, block 1")


def test_an_archive_of_other_steps_is_not_written_over(tmp_path):
    fields, end = history(BLOCK)
    written(tmp_path, fields, end, [])
    with pytest.raises(DiskError, match=r"holds steps of another kind \(3 environments of obs, reward\)"):
        Writer(tmp_path, ENVS, {"obs": np.zeros((1, ENVS, 5), np.float32)}, 0, {})
    with pytest.raises(DiskError, match="is not an archive"):
        Reader(tmp_path / "nowhere")


CHILD = """
import sys, pathlib
sys.path.insert(0, sys.argv[2])
from test_disk import history, standing, add, ENVS
from jaxrl_long.runtime.disk_writer import Writer
fields, end = history(40_000, seed=5)
writer = Writer(pathlib.Path(sys.argv[1]), ENVS, {name: array[:1] for name, array in fields.items()}, 0, {})
for first in range(0, 40_000, 100):
    add(writer, fields, end, first, first + 100)
    print(writer.row, flush=True)
"""


@pytest.mark.slow
def test_what_was_committed_survives_a_kill_at_any_moment(tmp_path):
    fields, end = history(40_000, seed=5)
    for turn in range(4):
        folder = tmp_path / str(turn)
        words = [sys.executable, "-c", textwrap.dedent(CHILD), str(folder), str(Path(__file__).parent)]
        last, stop = 0, random.Random(turn).randint(20, 150)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            for number, line in enumerate(child.stdout or ()):
                last = int(line)
                if number == stop:
                    os.kill(child.pid, signal.SIGKILL)
                    break
        reader = Reader(folder)
        assert not list(reader.verify())
        # No more than what had not filled a block is lost; the child may have been further than what was read of it.
        assert reader.num_rows >= last // BLOCK * BLOCK
        np.testing.assert_array_equal(reader.rows("obs", 0, reader.num_rows), fields["obs"][: reader.num_rows])
        found = [(one.env, one.number, one.first, one.end, one.ended) for one in reader.episodes()]
        assert found == expected(end[: reader.num_rows])
        assert TERMINATED in {one[4] for one in found}
