"""Runs that archive their steps: what lies on disk is what was trained on, through stops, kills and full disks."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from minari import MinariDataset
from test_experiment import run, settings, stopped_after
from worlds import assert_bit_equal

from jaxrl_long import archive, cli
from jaxrl_long.config import AlgorithmSettings, ArchiveSettings, ReplaySettings, Settings
from jaxrl_long.fields import RunError
from jaxrl_long.launch import init_state, state_shapes, state_specs
from jaxrl_long.replay.ring import TRUNCATED
from jaxrl_long.runtime import archiving, assemble, disk_writer
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.disk import Reader
from jaxrl_long.runtime.minari import export
from jaxrl_long.runtime.tracking import read_rows
from jaxrl_long.trainer import collect, update

SAC = AlgorithmSettings(name="sac", policy_layers=(8,), value_layers=(8,), batch=8, update_ratio=0.1)


def archived(run_dir: Path, updates: int = 12, kind: str = "ppo", **changes) -> Settings:
    """A run of CountEnv, whose episodes end by themselves, with restarts after 7 steps and an archive."""
    algorithm = {"ppo": settings(run_dir).algorithm, "sac": SAC}[kind]
    restart = replace(settings(run_dir).restart, every=7)
    base = settings(run_dir, updates=updates, algorithm=algorithm, replay=ReplaySettings(begin=32), restart=restart, chunk=3)
    return replace(replace(base, archive=ArchiveSettings(enabled=True)), **changes)


def truth(asked: Settings) -> dict[str, np.ndarray]:
    """What the same run's updates collect, taken by hand; leaves [rows, N, ...]."""
    program = assemble.program(asked)
    state, algorithm, rollouts = init_state(program, asked.seed), cast(Any, program.algorithm), []

    def one(state):
        return collect(program, state)[1], update(program, state)[0]

    specs = state_specs(state_shapes(program))
    stepped = jax.jit(jax.shard_map(one, mesh=program.mesh, in_specs=(specs,), out_specs=(P(None), specs), check_vma=False))
    for _ in range(asked.updates):
        rollout, state = stepped(state)
        rollouts.append(jax.device_get(rollout))
    joined = {
        name: np.concatenate([np.asarray(getattr(one, name)) for one in rollouts]) for name in ("obs", "reward", "terminated", "truncated", "age", "final_obs")
    }
    joined["action"] = np.concatenate([np.asarray(algorithm.distribution.action(jnp.asarray(one.choice))) for one in rollouts])
    return joined


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_what_lies_on_disk_is_what_was_trained_on(tmp_path, kind):
    asked = archived(tmp_path, kind=kind)
    run(asked)
    reader, right = Reader(tmp_path / "archive"), truth(asked)
    assert reader.num_rows == asked.updates * asked.rollout_length == right["reward"].shape[0]
    for name in ("obs", "reward", "action"):
        np.testing.assert_array_equal(reader.rows(name, 0, reader.num_rows), right[name])
    episodes = reader.episodes()
    assert {one.ended for one in episodes} >= {0, TRUNCATED}
    for one in episodes:
        assert one.age == right["age"][one.first, one.env]
        final = reader.final(one)
        if one.ended == TRUNCATED:
            assert final is not None
            np.testing.assert_array_equal(final["obs"], right["final_obs"][one.end - 1, one.env])
    assert not list(reader.verify())


def test_a_run_with_an_archive_is_the_same_run_and_so_is_its_resumption(tmp_path):
    plain = archived(tmp_path / "plain", archive=ArchiveSettings(), replay=ReplaySettings(capacity=16 * 32))
    whole, cut = (archived(tmp_path / name, replay=ReplaySettings(capacity=16 * 32)) for name in ("whole", "cut"))
    run(plain)
    run(whole)
    run(cut, stopped_after(2))
    run(cut)

    def learner(asked: Settings):
        checkpoints = Checkpoints(Path(asked.run_dir or "") / "checkpoints")
        return checkpoints.restore(checkpoints.latest() or 0, state_shapes(assemble.program(asked)))[0].learner

    assert_bit_equal(learner(plain), learner(whole))
    assert_bit_equal(learner(whole), learner(cut))
    readers = [Reader(tmp_path / name / "archive") for name in ("whole", "cut")]
    assert readers[0].manifest.spans == readers[1].manifest.spans == ((0, 48),)
    for name in ("obs", "reward", "action", "end"):
        np.testing.assert_array_equal(readers[0].rows(name, 0, 48), readers[1].rows(name, 0, 48))
    assert readers[0].episodes() == readers[1].episodes()


def test_a_full_disk_ends_archiving_with_one_sentence_and_training_goes_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_writer.Writer, "append", full)
    said = run(archived(tmp_path))
    assert said.count("archiving has stopped, training goes on: [Errno 28] No space left on device") == 1
    assert "12 updates" in said
    assert json.loads((tmp_path / "summary.json").read_text())["finished"]


def test_a_slow_disk_slows_training_and_no_chunk_is_told_to_be_faster_than_it_was(tmp_path, monkeypatch):
    append = disk_writer.Writer.append

    def slow(*given):
        time.sleep(0.15)
        append(*given)

    monkeypatch.setattr(disk_writer.Writer, "append", slow)
    run(archived(tmp_path, updates=40, chunk=2))
    rows = read_rows(tmp_path / "metrics.jsonl")
    # 64 steps a chunk, and a chunk at most every 0.15 s once two are waiting; the last one need not wait.
    rates = sorted(row["steps_per_s"] for row in rows[5:])
    assert rates[-3] < 3 * 64 / 0.15
    assert Reader(tmp_path / "archive").num_rows == 160


def test_rounded_observations_take_less_and_rewards_stay_exact(tmp_path):
    asked = archived(tmp_path, archive=ArchiveSettings(enabled=True, codec="float16"))
    run(asked)
    reader, right = Reader(tmp_path / "archive"), truth(asked)
    assert reader.manifest.fields["obs"]["dtype"] == "float16"
    np.testing.assert_array_equal(reader.rows("obs", 0, reader.num_rows), right["obs"].astype(np.float16))
    np.testing.assert_array_equal(reader.rows("reward", 0, reader.num_rows), right["reward"])


def called(capsys, *words: str) -> tuple[int, str, str]:
    code = cli.run(archive.COMMAND, list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_says_what_is_there_and_checks_it(tmp_path, capsys):
    run(archived(tmp_path))
    code, out, _ = called(capsys, "info", str(tmp_path), "json=true")
    found = json.loads(out)
    assert code == 0
    assert (found["steps"], found["rows"], found["num_envs"], found["spans"]) == (384, 48, 8, [[0, 48]])
    assert found["longest"] == 7
    assert "384: rows 0 to 48 of 8 environments" in called(capsys, "info", str(tmp_path / "archive"))[1]
    assert called(capsys, "verify", str(tmp_path))[:2] == (0, "384 steps, all of them as they were written\n")
    broken = next(path for path in (tmp_path / "archive" / "obs" / "c").rglob("*") if path.is_file())
    content = bytearray(broken.read_bytes())
    content[-9] ^= 1
    broken.write_bytes(content)
    code, out, err = called(capsys, "verify", str(tmp_path))
    assert code == 1
    assert "obs, rows 0 to 48" in err
    assert "1 problems" in out


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_minari_reads_what_was_exported(tmp_path, capsys, kind):
    asked = archived(tmp_path, kind=kind)
    run(asked)
    code, out, _ = called(capsys, "export", str(tmp_path), f"to={tmp_path / 'exported'}")
    assert code == 0
    dataset = MinariDataset(tmp_path / "exported" / "data")
    reader = Reader(tmp_path / "archive")
    whole = [one for one in reader.episodes() if one.whole]
    assert dataset.total_episodes == len(whole) > 0
    assert f"{len(whole)} episodes" in out
    for one, episode in zip(whole, dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.observations[:-1], reader.read(one)["obs"])
        np.testing.assert_array_equal(episode.rewards, reader.read(one)["reward"])
        assert bool(episode.truncations[-1]) == (one.ended == TRUNCATED)
        final = reader.final(one)
        np.testing.assert_array_equal(episode.observations[-1], episode.observations[-2] if final is None else final["obs"])
    code, _, err = called(capsys, "export", str(tmp_path), f"to={tmp_path / 'exported'}")
    assert code == 2
    assert "exists already" in err


def test_exporting_without_minari_says_what_to_install(tmp_path, monkeypatch):
    run(archived(tmp_path))
    monkeypatch.setitem(sys.modules, "minari.data_collector", None)
    with pytest.raises(RunError, match=r"pip install 'jaxrl_long\[minari\]'"):
        export(Reader(tmp_path / "archive"), tmp_path / "exported")


@pytest.mark.slow
def test_a_killed_run_goes_on_and_its_archive_has_every_step_once(tmp_path):
    asked = ["env=cartpole", "steps=400_000", "num_envs=64", "rollout_length=16", "devices=1", "algorithm.minibatches=4", "eval.every=0", "checkpoint.every=1"]
    words = [sys.executable, "-m", "jaxrl_long.train", *asked, "archive.enabled=true", f"run_dir={tmp_path / 'run'}", "chunk=10"]
    for _ in range(2):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            before = len(list((tmp_path / "run" / "checkpoints").glob("*")))
            while child.poll() is None and len(list((tmp_path / "run" / "checkpoints").glob("*"))) <= before:
                time.sleep(0.05)
            time.sleep(0.7)
            os.kill(child.pid, signal.SIGKILL)
        reader = Reader(tmp_path / "run" / "archive")
        assert not list(reader.verify())
    subprocess.run(words, check=True, capture_output=True)
    once = [word.replace("/run", "/once") if word.startswith("run_dir") else word for word in words]
    subprocess.run(once, check=True, capture_output=True)
    readers = [Reader(tmp_path / name / "archive") for name in ("run", "once")]
    assert readers[0].manifest.spans == readers[1].manifest.spans
    rows = readers[0].num_rows
    for name in ("obs", "reward", "action", "end"):
        np.testing.assert_array_equal(readers[0].rows(name, 0, rows), readers[1].rows(name, 0, rows))
    assert readers[0].episodes() == readers[1].episodes()


def test_entries_of_an_observation_keep_their_names():
    fields = archiving.named({"obs": {"policy": np.zeros(1), "critic": np.zeros(2)}, "reward": np.zeros(3)})
    assert list(fields) == ["obs.policy", "obs.critic", "reward"]
