"""What must be set before jax starts: devices, XLA's flags, precision, and the folder of compiled programs."""

import importlib.util
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_long import machine as machine_facts
from jaxrl_long.fields import ConfigError
from jaxrl_long.machine import usable_cores

COLLECTIVE_TIMEOUT_S = 1200
"""How far apart CPU devices may reach a collective before XLA aborts the process (its own default is 40 s)."""
HOST_DEVICES = "xla_force_host_platform_device_count"


def prepare(
    machine: str,
    devices: int = 0,
    precision: str = "highest",
    compilation_cache: str = "auto",
    deterministic: bool = False,
    say: Callable[[str], None] | None = None,
) -> None:
    """Set jax up for `machine` (cpu or gpu), before anything has used it.

    `devices`: local devices to use; on a CPU that many are made (0: one per usable core). `compilation_cache`: auto, none or a folder.
    Flags that the user has put into XLA_FLAGS are kept and win. Raises ConfigError if jax has already started otherwise,
    or if a folder that was asked for can't be written.
    """
    say = say or (lambda text: print(text, file=sys.stderr))
    os.environ["XLA_FLAGS"] = xla_flags(os.environ.get("XLA_FLAGS", ""), machine, deterministic)
    # XLA's own messages about caches, features and autotuning; errors are still shown.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    if machine == "cpu":
        jax.config.update("jax_platforms", "cpu")
        _make_cpu_devices(devices or usable_cores())
    jax.config.update("jax_default_matmul_precision", precision)
    folder = cache_folder(compilation_cache, say)
    jax.config.update("jax_compilation_cache_dir", folder)
    if folder is not None:
        # Everything is worth keeping: a start is made of hundreds of small programs.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _require(machine, devices)


def xla_flags(present: str, machine: str, deterministic: bool) -> str:
    """Append to the flags of XLA_FLAGS those that a run needs; one that is already there is left as it is."""
    wanted = {}
    if machine == "cpu":
        wanted["xla_cpu_collective_call_terminate_timeout_seconds"] = str(COLLECTIVE_TIMEOUT_S)
    if machine == "gpu" and deterministic:
        wanted["xla_gpu_deterministic_ops"] = "true"
    given = {flag.lstrip("-").split("=")[0] for flag in present.split()}
    added = [f"--{name}={value}" for name, value in wanted.items() if name not in given and xla_knows(name)]
    return " ".join([*([present] if present else []), *added])


def xla_knows(flag: str) -> bool:
    """Whether the installed XLA has a flag: it aborts the process over one that it has not, so its library is searched for the name."""
    package = importlib.util.find_spec("jaxlib")
    folders = list(package.submodule_search_locations or []) if package else []
    libraries = [library for folder in folders for library in Path(folder).glob("libjax_common.*")]
    return any(_contains(library, flag.encode()) for library in libraries)


def _contains(path: Path, text: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def _make_cpu_devices(count: int) -> None:
    """Split the CPU into devices, unless the user's XLA_FLAGS already do."""
    import jax

    if HOST_DEVICES in os.environ["XLA_FLAGS"] or getattr(jax.config, "jax_num_cpu_devices", None) == count:
        return
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        # jax has started: fine if it has enough devices, which `_require` looks at.
        if len(jax.devices("cpu")) < count:
            raise ConfigError([f"devices={count}, but jax has already started with {len(jax.devices('cpu'))}. Use a new process."]) from error


def _require(machine: str, devices: int) -> None:
    """Start jax, and raise ConfigError unless it has what was asked for."""
    import jax

    try:
        found = jax.local_devices()
    # jax asserts where a platform that was asked for is not there.
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            [f"machine={machine} can't start: {str(error) or 'jax finds no such device'}. Use machine=cpu, or install the extra `cuda`."]
        ) from error
    if machine == "gpu" and found[0].platform == "cpu":
        raise ConfigError(["machine=gpu, but jax finds no GPU. Use machine=cpu, or install the extra `cuda`."])
    if devices > len(found):
        raise ConfigError([f"devices={devices}, but there are {len(found)} {found[0].platform} devices. Use devices={len(found)} or less."])


def cache_folder(asked: str, say: Callable[[str], None]) -> str | None:
    """Find or make the folder of compiled programs; None: off. Raises ConfigError if the user named one that can't be written."""
    folder = machine_facts.cache_folder(asked)
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable, why = os.access(folder, os.W_OK | os.X_OK), "permission denied"
    except OSError as error:
        writable, why = False, error.strerror
    if writable:
        return str(folder)
    if asked != "auto":
        raise ConfigError([f"compilation_cache={asked} can't be written: {why}. Name another folder, or none."])
    say(f"compiled programs are not kept: {folder} can't be written ({why}).")
    return None


def describe() -> dict[str, Any]:
    """Tell which devices jax uses: platform, kind, count, bytes of memory per device (of the machine, on a CPU), host cores."""
    import jax

    found = jax.local_devices()
    statistics = found[0].memory_stats() if found[0].platform != "cpu" else None
    memory = statistics.get("bytes_limit") if statistics else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"platform": found[0].platform, "kind": found[0].device_kind, "count": len(found), "memory_bytes": memory, "cores": usable_cores()}
