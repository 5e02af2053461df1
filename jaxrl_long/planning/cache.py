"""Measurements kept beside the compiled programs, by everything that they depend on. Knows no jax: a plan that is known takes no start of it."""

import hashlib
import importlib.metadata
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl_long import __version__, machine
from jaxrl_long.config import Settings
from jaxrl_long.fields import to_plain
from jaxrl_long.planning.model import Measured

DECIDING = ("env", "horizon", "num_envs", "rollout_length", "block", "devices", "precision", "deterministic", "restart", "algorithm", "replay")
"""Settings that a measurement depends on."""
EVALUATION = ("num_envs", "window")


@dataclass(frozen=True)
class Known:
    """A measurement, and when it was made."""

    measured: Measured
    need: dict[str, int]
    """Bytes of the parts of the state."""
    time_s: float
    """`time.time()` of the measurement."""

    @property
    def age_s(self) -> float:
        """Seconds since then."""
        return max(0.0, time.time() - self.time_s)


def identity(settings: Settings) -> str:
    """A digest of what the measurement depends on: settings, device and versions."""
    plain = to_plain(settings)
    what = [plain[name] for name in DECIDING] + [plain["eval"][name] for name in EVALUATION]
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib", "brax")]
    device = [machine.device_name(), machine.usable_cores()]
    return hashlib.sha256(json.dumps([what, versions, device, __version__], sort_keys=True, default=str).encode()).hexdigest()[:24]


def file(settings: Settings) -> Path | None:
    """Where the measurement of these settings is kept; None where compiled programs are not kept either."""
    folder = machine.cache_folder(settings.compilation_cache)
    return None if folder is None else folder.parent / "plans" / f"{identity(settings)}.json"


def load(settings: Settings) -> Known | None:
    """What was measured before; None if nothing was, or it can't be read."""
    path = file(settings)
    try:
        data = json.loads(path.read_text()) if path else None
        return Known(Measured.from_plain(data["measured"]), data["need"], data["time_s"]) if data else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def store(settings: Settings, known: Known) -> None:
    """Keep a measurement, whole or not at all; silently not where that can't be written."""
    path = file(settings)
    if path is None:
        return
    data: dict[str, Any] = {"measured": known.measured.plain(), "need": known.need, "time_s": known.time_s}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(data))
        draft.replace(path)
    except OSError:
        return
