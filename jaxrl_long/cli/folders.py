"""Where a run lives: a new folder, or one that is continued."""

import itertools
import time
from pathlib import Path
from typing import Any

from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.stored import SETTINGS_FILE, continuation_problems, load_settings

RUNS = Path("runs")
"""Default parent of new runs, under the current folder."""


def stored_for(settings: Any, named: Settings | None) -> Settings | None:
    """The stored settings of the run that `settings` continue; None for a new run.

    `named` are those of `run=DIR`, if it was given; otherwise `run_dir` decides.

    Raises:
        ConfigError: the run can't go on with these settings.
    """
    stored = named
    if stored is None and settings.run_dir and (Path(settings.run_dir) / SETTINGS_FILE).exists():
        stored = load_settings(settings.run_dir)
    if stored is not None and settings.replay.memory and not settings.replay.capacity and settings.replay.memory == stored.replay.memory:
        # A run that has chosen the size of its ring keeps it, however much is free now.
        settings.replay.capacity = stored.replay.capacity
    if stored is not None and (problems := continuation_problems(stored, settings)):
        raise ConfigError(problems)
    return stored


def create(settings: Any) -> None:
    """Make the run's folder and name it in `settings`; without one, runs/<env>-<yyyymmdd-hhmmss>-s<seed>.

    Raises:
        ConfigError: the folder can't be made.
    """
    try:
        if settings.run_dir is not None:
            Path(settings.run_dir).mkdir(parents=True, exist_ok=True)
            return
        environment = settings.env.name.rsplit(":", 1)[-1]
        settings.run_dir = str(new_folder(f"{environment}-{time.strftime('%Y%m%d-%H%M%S')}-s{settings.seed}"))
    except OSError as error:
        raise ConfigError([f"run_dir={error.filename} can't be made: {error.strerror}."]) from None


def new_folder(name: str) -> Path:
    """Make a folder of this name in RUNS; a number is added when another process was faster."""
    RUNS.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("an endless count has ended")
