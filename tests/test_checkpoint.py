"""Checkpoints round-trip every kind of leaf, survive damage, and never lose an intact one."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrl_long.runtime import checkpoint
from jaxrl_long.runtime.checkpoint import CheckpointError, Checkpoints
from jaxrl_long.typing import PyTree


@struct.dataclass
class Inner:
    weight: jax.Array
    half: jax.Array
    empty: jax.Array


@struct.dataclass
class State:
    inner: Inner
    key: jax.Array
    counts: dict
    flags: tuple


def _build(seed: int = 0) -> State:
    weight = jax.random.normal(jax.random.key(seed), (8, 3))
    inner = Inner(weight, weight.astype(jnp.bfloat16), jnp.zeros((8, 0)))
    counts = {"a.b": jnp.int32(7), "a": {"b": jnp.uint32(9)}}
    return State(inner, jax.random.split(jax.random.key(seed), 4), counts, (jnp.array([True, False]), jnp.float32(np.nan)))


build = jax.jit(_build, static_argnums=0)


def like(state: PyTree, sharding: NamedSharding | None = None) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state)


def numbers(state: PyTree) -> list[np.ndarray]:
    return [np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in jax.tree.leaves(state)]


def assert_bit_equal(left: PyTree, right: PyTree) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(numbers(left), numbers(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.view(np.uint8) if a.ndim else a, b.view(np.uint8) if b.ndim else b)


def small(value: float = 1.0) -> dict:
    return {"x": jnp.full((4,), value)}


def test_every_kind_of_leaf_and_the_host_record_come_back_bit_equal(tmp_path: Path) -> None:
    state = build()
    Checkpoints(tmp_path).save(3, 96, state, {"chunk": 5, "wandb": None, "wall_s": 0.1 + 0.2}, block=True)
    restored, host = Checkpoints(tmp_path).restore(3, like(state))
    assert_bit_equal(restored, state)
    assert restored.key.dtype == state.key.dtype
    assert host == {"chunk": 5, "wandb": None, "wall_s": 0.30000000000000004}


def test_a_state_may_be_donated_as_soon_as_save_returns_and_again_after_a_restore(tmp_path: Path) -> None:
    bump = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)
    checkpoints = Checkpoints(tmp_path)
    state = jax.jit(lambda: {"a": jnp.zeros((1000, 100)), "b": jnp.zeros((1000, 100))})()
    checkpoints.save(1, 1, state, {})
    state = bump(bump(state))
    checkpoints.wait()
    restored, _ = checkpoints.restore(1, like(state))
    assert float(restored["a"].max()) == 0.0
    again = bump(restored)
    assert (float(again["a"].min()), float(again["b"].max())) == (1.0, 1.0)
    assert float(checkpoints.restore(1, like(state))[0]["a"].max()) == 0.0


def test_saved_on_two_devices_it_is_restored_on_one_and_the_reverse(tmp_path: Path) -> None:
    two = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("d",)), PartitionSpec("d"))
    one = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("d",)), PartitionSpec("d"))
    state = {"x": jnp.arange(8.0), "key": jax.random.split(jax.random.key(1), 8)}
    checkpoints = Checkpoints(tmp_path)
    for update, (source, target) in enumerate([(two, one), (one, two)]):
        checkpoints.save(update, update, jax.device_put(state, source), {}, block=True)
        restored, _ = checkpoints.restore(update, like(state, target))
        assert_bit_equal(restored, state)
        assert [leaf.sharding for leaf in jax.tree.leaves(restored)] == [target, target]


def test_a_process_with_one_device_restores_what_a_process_with_two_has_saved(tmp_path: Path) -> None:
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("d",)), PartitionSpec("d"))
    Checkpoints(tmp_path).save(1, 1, {"x": jax.device_put(jnp.arange(8.0), sharding)}, {}, block=True)
    code = (
        "import jax; jax.config.update('jax_num_cpu_devices', 1)\n"
        "from jaxrl_long.runtime.checkpoint import Checkpoints\n"
        f"state, _ = Checkpoints({str(tmp_path)!r}).restore(1, {{'x': jax.ShapeDtypeStruct((8,), 'float32')}})\n"
        "print(len(jax.devices()), state['x'].tolist())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_plain_environment())
    assert result.stdout.strip() == "1 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]"


def _plain_environment() -> dict[str, str]:
    root = str(Path(checkpoint.__file__).parents[2])
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}


def test_env_steps_beyond_2_31_stand_in_the_name_and_come_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(12, 2147482624 + 2048, small(), {"env_steps": 2147484672}, block=True)
    assert [path.name for path in tmp_path.iterdir()] == ["00000012-2147484672"]
    assert checkpoints.record(12)["env_steps"] == 2147484672
    assert checkpoints.restore(12, like(small()))[1] == {"env_steps": 2147484672}


def test_the_latest_keep_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for update, score in enumerate([1.0, 9.0, float("nan"), 3.0, None, 2.0]):
        checkpoints.save(update, update * 10, small(update), {}, score=score)
    checkpoints.wait()
    assert checkpoints.all() == [1, 4, 5]
    assert checkpoints.latest() == 5


def test_who_is_going_to_be_read_stays_until_let_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.held.add(1)
    for update in range(4):
        checkpoints.save(update, update * 10, small(update), {}, block=True)
    assert checkpoints.all() == [1, 3]
    checkpoints.held.clear()
    checkpoints.save(4, 40, small(4), {}, block=True)
    assert checkpoints.all() == [4]


def test_a_second_save_of_one_update_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, 50, small(1.0), {"n": 1}, block=True)
    checkpoints.save(5, 50, small(2.0), {"n": 2}, block=True)
    state, host = Checkpoints(tmp_path).restore(5, like(small()))
    assert (float(state["x"][0]), host) == (2.0, {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["00000005-50.1"]


def test_part_of_a_state_can_be_read_alone(tmp_path: Path) -> None:
    state = {"train": build(), "eval": small(4.0)}
    Checkpoints(tmp_path).save(1, 1, state, {}, block=True)
    part, _ = Checkpoints(tmp_path).restore(1, {"eval": like(small())}, partial=True)
    assert part["eval"]["x"].tolist() == [4.0, 4.0, 4.0, 4.0]


def test_leaves_beside_a_state_are_left_alone_and_no_others(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(1, 1, {"train": small(4.0), "eval": small(5.0), "old": jnp.zeros(2)}, {}, block=True)
    both = {"train": like(small()), "old": jax.ShapeDtypeStruct((2,), jnp.float32)}
    assert Checkpoints(tmp_path).restore(1, both, beside="['eval']")[0]["train"]["x"].tolist() == [4.0, 4.0, 4.0, 4.0]
    with pytest.raises(CheckpointError, match=r"\['old'\]: saved float32\[2\], expected absent"):
        Checkpoints(tmp_path).restore(1, {"train": like(small())}, beside="['eval']")


def test_a_state_that_does_not_fit_is_refused_naming_leaf_and_both_shapes(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(1, 1, {"net": jnp.zeros((64, 64)), "old": jnp.zeros(2)}, {}, block=True)
    wanted = {"net": jax.ShapeDtypeStruct((32, 32), jnp.float32), "new": jax.ShapeDtypeStruct((), jnp.int32)}
    with pytest.raises(CheckpointError) as error:
        Checkpoints(tmp_path).restore(1, wanted)
    assert "['net']: saved float32[64, 64], expected float32[32, 32]" in str(error.value)
    assert "['old']: saved float32[2], expected absent" in str(error.value)
    assert "['new']: saved absent, expected int32[]" in str(error.value)


def _largest(path: Path) -> Path:
    return max((file for file in (path / "arrays").rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


DAMAGES = {
    "empty folder": lambda path: [shutil.rmtree(path), path.mkdir()],
    "no arrays": lambda path: shutil.rmtree(path / "arrays"),
    "truncated array": lambda path: _largest(path).write_bytes(_largest(path).read_bytes()[:-7]),
    "emptied array": lambda path: _largest(path).write_bytes(b""),
    "flipped array": lambda path: _flip(_largest(path)),
    "flipped record": lambda path: _flip(path / "checkpoint.json"),
    "flipped sums": lambda path: _flip(path / "SHA256SUMS"),
    "empty sums": lambda path: (path / "SHA256SUMS").write_text(""),
    "truncated sums": lambda path: (path / "SHA256SUMS").write_text((path / "SHA256SUMS").read_text()[:100]),
    "stray file": lambda path: (path / "arrays" / "stray").write_text("x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped_by_name_and_the_newest_intact_one_is_used(tmp_path: Path, damage: str) -> None:
    writer = Checkpoints(tmp_path, keep=3)
    for update in (1, 2):
        writer.save(update, update * 10, small(update), {}, block=True)
    DAMAGES[damage](tmp_path / "00000002-20")
    said: list[str] = []
    reader = Checkpoints(tmp_path, keep=1, say=said.append)
    assert reader.latest() == 1
    assert len(said) == 1
    assert "00000002-20 is skipped: " in said[0]
    with pytest.raises(CheckpointError, match="no intact checkpoint of update 2"):
        reader.restore(2, like(small()))
    # Saving update 2 again works; the damaged one has not pushed an intact one out before that.
    reader.save(2, 20, small(2.5), {}, block=True)
    assert float(reader.restore(2, like(small()))[0]["x"][0]) == 2.5


def test_damaged_checkpoints_do_not_push_intact_ones_out(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for update in (1, 2):
        checkpoints.save(update, update, small(), {}, block=True)
    _flip(tmp_path / "00000002-2" / "checkpoint.json")
    fresh = Checkpoints(tmp_path, keep=2, say=lambda _: None)
    fresh.save(3, 3, small(), {}, block=True)
    assert fresh.all() == [1, 2, 3]


def test_nothing_intact_means_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent").latest() is None
    assert Checkpoints(tmp_path / "absent").all() == []


def test_a_failing_save_surfaces_at_the_next_call_and_leaves_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, 1, small(), {}, block=True)

    def full(path: Path, arrays: dict) -> None:
        (path.parent / "half").write_text("half")
        raise OSError(28, f"No space left on device, {len(arrays)} arrays")

    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "_write_arrays", full)
        checkpoints.save(2, 2, small(), {})
        with pytest.raises(CheckpointError, match=r"update 2 .* No space left on device, 1 arrays"):
            checkpoints.save(3, 3, small(), {})
    assert checkpoints.latest() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["00000001-1"]
    checkpoints.save(3, 3, small(), {}, block=True)
    assert checkpoints.latest() == 3


def test_saving_happens_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    write = checkpoint._write_arrays
    monkeypatch.setattr(checkpoint, "_write_arrays", lambda path, arrays: go.wait(20) and write(path, arrays))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, 1, small(), {})
    assert checkpoints.busy
    assert checkpoints.all() == []
    go.set()
    checkpoints.wait()
    assert checkpoints.all() == [1]


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_swept_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / ".writing-00000004-4").mkdir(parents=True)
    (tmp_path / ".writing-00000004-4" / "checkpoint.json").write_text("{")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    assert (tmp_path / ".writing-00000004-4").exists()
    checkpoints.save(4, 4, small(), {}, block=True)
    assert [path.name for path in tmp_path.iterdir()] == ["00000004-4"]


def test_another_layout_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(checkpoint, "LAYOUT", 0)
        Checkpoints(tmp_path).save(1, 1, small(), {}, block=True)
    with pytest.raises(CheckpointError, match="has layout 0, this version reads layout 1"):
        Checkpoints(tmp_path).restore(1, like(small()))


def test_a_host_record_that_is_no_json_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        Checkpoints(tmp_path).save(1, 1, small(), {"x": object()})


def test_no_file_of_a_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(1, 1, build(), {}, block=True)
    record = json.loads((tmp_path / "00000001-1" / "checkpoint.json").read_text())
    assert record["leaves"][".key"] == {"shape": [4], "dtype": "key<fry>", "key": "threefry2x32"}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 4
    assert not [file for file in files if file.read_bytes()[:1] == b"\x80"]
