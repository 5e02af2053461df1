"""jax is set up before it starts, the user's flags are kept, and compiled programs are reused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import devices

ROOT = str(Path(devices.__file__).parents[2])


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | {"PYTHONPATH": ROOT} | environment, check=False)


PREPARE = """
import json, os, sys
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import devices
assert 'jax' not in sys.modules
try:
    devices.prepare('cpu', devices={count}, compilation_cache={cache!r})
except ConfigError as error:
    sys.exit(str(error))
import jax
print(json.dumps([jax.device_count(), os.environ['XLA_FLAGS'], jax.config.jax_default_matmul_precision, devices.describe()]))
"""


def test_three_cpu_devices_start_with_the_users_flags_kept_and_the_collective_timeout_raised() -> None:
    result = run(PREPARE.format(count=3, cache="none"), XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert result.returncode == 0, result.stderr
    count, flags, precision, described = json.loads(result.stdout)
    assert count == 3
    assert flags == "--xla_cpu_enable_fast_math=false --xla_cpu_collective_call_terminate_timeout_seconds=1200"
    assert precision == "highest"
    assert (described["platform"], described["kind"], described["count"]) == ("cpu", "cpu", 3)
    assert described["memory_bytes"] > 2**28


def test_a_device_count_in_the_users_flags_wins_and_too_many_devices_are_refused() -> None:
    result = run(PREPARE.format(count=3, cache="none"), XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert "devices=3, but there are 2 cpu devices. Use devices=2 or less." in result.stderr
    assert "Traceback" not in result.stderr


COMPILE = """
import logging, sys
from jaxrl_long.runtime import devices
devices.prepare('cpu', devices=2, compilation_cache={cache!r})
import jax, jax.numpy as jnp, numpy as np
from jax import monitoring
from jax.sharding import Mesh, PartitionSpec as P
events = []
monitoring.register_event_listener(lambda name, **_: events.append(name))
mesh = Mesh(np.array(jax.devices()), ('d',))
f = jax.jit(jax.shard_map(lambda x: jax.lax.pmean(jnp.sin(x @ x.T), 'd'), mesh=mesh, in_specs=P('d'), out_specs=P()))
print(f(jnp.ones((4, 3))).sum(), sum('cache_hits' in name for name in events), sum('cache_misses' in name for name in events))
"""


def test_a_second_process_reuses_the_programs_of_two_cpu_devices_in_silence(tmp_path: Path) -> None:
    code = COMPILE.format(cache=str(tmp_path / "cache"))
    first, second = run(code), run(code)
    assert (first.stderr, second.stderr) == ("", "")
    total, hits, misses = first.stdout.split()
    assert (hits, int(misses) > 0) == ("0", True)
    assert second.stdout.split() == [total, misses, "0"]


def test_the_automatic_cache_folder_is_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert devices.cache_folder("auto", print) == str(tmp_path / "jaxrl_long" / "compiled")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert devices.cache_folder("auto", print) == str(tmp_path / ".cache" / "jaxrl_long" / "compiled")
    assert devices.cache_folder("none", print) is None


def test_a_cache_folder_that_cannot_be_written_is_an_error_only_if_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    said: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert devices.cache_folder("auto", said.append) is None
    assert said == [f"compiled programs are not kept: {blocked}/jaxrl_long/compiled can't be written (Not a directory)."]
    with pytest.raises(ConfigError, match=r"compilation_cache=.*file/x can't be written: Not a directory. Name another folder, or none."):
        devices.cache_folder(str(blocked / "x"), said.append)


def test_only_flags_that_this_xla_knows_are_added_since_it_aborts_over_others() -> None:
    assert devices.xla_knows("xla_cpu_collective_call_terminate_timeout_seconds")
    assert devices.xla_knows("xla_gpu_deterministic_ops")
    assert not devices.xla_knows("xla_cpu_no_such_flag_anywhere")


def test_a_flag_of_the_users_is_not_overridden() -> None:
    present = "--xla_cpu_collective_call_terminate_timeout_seconds=7"
    assert devices.xla_flags(present, "cpu", deterministic=False) == present
    assert devices.xla_flags("", "gpu", deterministic=True) == "--xla_gpu_deterministic_ops=true"
    assert devices.xla_flags("", "gpu", deterministic=False) == ""


def test_a_gpu_that_is_not_there_is_refused_with_what_to_do() -> None:
    result = run("from jaxrl_long.runtime import devices; devices.prepare('gpu', compilation_cache='none')", JAX_PLATFORMS="cpu")
    assert "machine=gpu, but jax finds no GPU. Use machine=cpu, or install the extra `cuda`." in result.stderr


def test_a_platform_that_was_asked_for_and_is_not_there_is_refused_with_what_to_do() -> None:
    result = run("from jaxrl_long.runtime import devices; devices.prepare('gpu', compilation_cache='none')", JAX_PLATFORMS="cuda", CUDA_VISIBLE_DEVICES="")
    assert "machine=gpu can't start: . " not in result.stderr
    assert "machine=gpu can't start: " in result.stderr
    assert "Use machine=cpu, or install the extra `cuda`." in result.stderr


def test_preparing_again_in_a_started_process_is_accepted_for_the_same_devices_and_refused_for_more() -> None:
    code = PREPARE.format(count=2, cache="none") + (
        "devices.prepare('cpu', devices=2, compilation_cache='none')\n"
        "try:\n    devices.prepare('cpu', devices=4, compilation_cache='none')\nexcept ConfigError as error:\n    print(error.problems[0])"
    )
    result = run(code)
    assert result.stdout.splitlines()[1:] == ["devices=4, but jax has already started with 2. Use a new process."]
