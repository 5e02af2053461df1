"""What this machine offers, found without importing jax."""

import ctypes.util
import glob
import importlib.util
import os
import platform
import sys
from pathlib import Path

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin", "jax_rocm60_plugin")
"""Packages by which jax reaches a GPU."""
GRAPHICS = {"egl": "EGL", "osmesa": "OSMesa"}
"""Libraries that draw without a screen, by MuJoCo's names for them, the one to try first ahead."""


def find_machine() -> str:
    """`gpu` when jax will find one, otherwise `cpu`; also the names of the settings in configs/machine.

    `JAX_PLATFORMS` decides when it is set; otherwise a GPU counts if its device file and jax's plugin for it are there
    and it is not hidden from this process.
    """
    asked = os.environ.get("JAX_PLATFORMS", "").split(",")[0].strip().lower()
    if asked:
        return "cpu" if asked == "cpu" else "gpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "cpu"
    return "gpu" if _gpu_device() and any(importlib.util.find_spec(name) for name in PLUGINS) else "cpu"


def _gpu_device() -> bool:
    # /dev/dxg is the GPU inside Windows' Linux subsystem, /dev/kfd is AMD's.
    return bool(glob.glob("/dev/nvidia[0-9]*")) or Path("/dev/dxg").exists() or Path("/dev/kfd").exists()


def usable_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_name() -> str:
    """What does the work here: the first GPU's name, or the processor's; `unknown` where the system does not say."""
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")) if find_machine() == "gpu" else []
    key, path = ("Model", gpus[0]) if gpus else ("model name", Path("/proc/cpuinfo"))
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), platform.processor() or "unknown")


def visible_gpus() -> str:
    """How many GPUs there are, and which of them this process may use."""
    return f"{len(glob.glob('/dev/nvidia[0-9]*'))} {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"


def cache_folder(asked: str) -> Path | None:
    """Where compiled programs are kept with `compilation_cache=asked`; None: nowhere. It may not exist yet."""
    if asked == "none":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base if asked == "auto" else asked).expanduser().absolute()
    return folder / "jaxrl_long" / "compiled" if asked == "auto" else folder


def graphics() -> list[str]:
    """Ways to draw without a screen that are installed here, in MuJoCo's names; the one that `MUJOCO_GL` asks for, where it is set."""
    if asked := os.environ.get("MUJOCO_GL", "").strip().lower():
        return [asked]
    if sys.platform == "darwin":
        return ["cgl"]
    return [name for name, library in GRAPHICS.items() if ctypes.util.find_library(library)]
