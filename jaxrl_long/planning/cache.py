"""Measurements kept beside the compiled programs, by everything that they depend on. Knows no jax: a plan that is known takes no start of it."""

import hashlib
import importlib.metadata
import importlib.util
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxrl_long import __version__, machine
from jaxrl_long.config import SPEED, Settings
from jaxrl_long.fields import to_plain
from jaxrl_long.planning.model import Measured
from jaxrl_long.rules import CONFIGS
from jaxrl_long.runtime import memory
from jaxrl_long.runtime.folder import write_atomically

EVALUATION = ("num_envs", "window", "lasting")
"""Settings of the evaluation that its time depends on."""


@dataclass(frozen=True)
class Known:
    """A measurement, and when it was made."""

    measured: Measured
    need: memory.Need
    room: int
    """Bytes of memory that were free before."""
    time_s: float
    """`time.time()` of the measurement."""


def identity(settings: Settings) -> str:
    """A digest of what the measurement depends on: settings, device, versions, and the code of this package and of a user's classes."""
    plain = to_plain(settings)
    what = [plain[name] for name in SPEED] + [plain["eval"][name] for name in EVALUATION]
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib", "brax")]
    device = [machine.device_name(), machine.usable_cores(), machine.visible_gpus()]
    versions += [_code(CONFIGS.parent)]
    for name in (settings.env.name, settings.algorithm.name, *settings.replay.codecs().values()):
        if ":" in name:
            versions += [_code(Path(place)) for place in _places(re.split(r"[.:]", name)[0])]
    return hashlib.sha256(json.dumps([what, versions, device, __version__], sort_keys=True, default=str).encode()).hexdigest()[:24]


def _code(place: Path) -> str:
    """A digest of the Python files at a place: their names, sizes and times."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.exists()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _places(package: str) -> list[str]:
    """Where a user's module or package lies; it is not imported."""
    found = importlib.util.find_spec(package)
    return [*(found.submodule_search_locations or [])] or [found.origin or ""] if found else []


def file(settings: Settings) -> Path | None:
    """Where the measurement of these settings is kept; None where compiled programs are not kept either."""
    folder = machine.cache_folder(settings.compilation_cache)
    return None if folder is None else folder / "plans" / f"{identity(settings)}.json"


def load(settings: Settings) -> Known | None:
    """What was measured before; None if nothing was, or it can't be read."""
    path = file(settings)
    try:
        data = json.loads(path.read_text()) if path else None
        return Known(Measured.from_plain(data["measured"]), memory.Need(**data["need"]), data["room"], data["time_s"]) if data else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def store(settings: Settings, known: Known) -> None:
    """Keep a measurement, whole or not at all; silently not where that can't be written."""
    path = file(settings)
    if path is None:
        return
    data: dict[str, Any] = {"measured": known.measured.plain(), "need": asdict(known.need), "room": known.room, "time_s": known.time_s}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(data))
