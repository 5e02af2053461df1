"""The settings of a run in its folder: written once, read by whoever continues or examines it. Knows no jax."""

import json
import os
from pathlib import Path
from typing import Any

import yaml

from jaxrl_long import __version__, named
from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError, closest, flat, from_plain, masked, show, to_plain

SETTINGS_FILE = "settings.yaml"
"""The resolved settings of a run, in its folder."""
PROVENANCE_FILE = "provenance.jsonl"
"""What its processes were, a line each."""

MAY_CHANGE = (
    *("steps", "eval", "checkpoint", "stop", "tracker", "wandb", "mlflow", "compilation_cache", "chunk", "block", "devices", "machine", "report", "run_dir"),
    "archive.limit",
)
"""What a run may change when it continues: where and how long it runs and how it is watched, not what it learns."""


def shareable(settings: Settings) -> dict[str, Any]:
    """Settings as plain data that others may see: without the password of a tracker's database."""
    plain = to_plain(settings)
    plain["mlflow"]["uri"] = masked(settings.mlflow.uri)
    return plain


def save_settings(settings: Settings, run_dir: str | Path) -> None:
    """Write DIR/settings.yaml, whole or not at all. `run_dir` itself is left out: a run's folder may be moved; so are passwords."""
    plain = shareable(settings)
    del plain["run_dir"]
    target = Path(run_dir) / SETTINGS_FILE
    draft = target.with_name(f".{SETTINGS_FILE}.{os.getpid()}")
    draft.write_text(f"# jaxrl_long {__version__}\n{yaml.safe_dump(plain, sort_keys=False)}", encoding="utf-8")
    draft.replace(target)


def load_settings(run_dir: str | Path) -> Settings:
    """The settings of the run in a folder; those that its version did not have take their defaults.

    Raises:
        ConfigError: no such folder, no settings in it, or settings that this version does not know.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        there = [str(path.parent) for path in folder.parent.glob(f"*/{SETTINGS_FILE}")]
        raise ConfigError([f"run={folder}: no such folder.{f' {closest(str(folder), there)}' if there else ''}"])
    try:
        plain = yaml.safe_load((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError([f"run={folder} holds no {SETTINGS_FILE}: it is not the folder of a run."]) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError([f"{folder / SETTINGS_FILE} can't be read: {' '.join(str(error).split())}"]) from None
    if not isinstance(plain, dict):
        raise ConfigError([f"{folder / SETTINGS_FILE} holds no settings."])
    settings, problems = from_plain(Settings, plain)
    if problems:
        version = f"It may come from another version than {__version__}."
        raise ConfigError(f"{folder / SETTINGS_FILE}: {problem} {version}" for problem in problems.values())
    settings.run_dir = str(folder)
    if home := _home(folder):
        named.HOMES.append(home)
    return settings


def _home(run_dir: Path) -> str | None:
    """The folder in which the run's latest process stood, if it is there."""
    try:
        home = json.loads((run_dir / PROVENANCE_FILE).read_text(encoding="utf-8").splitlines()[-1])["folder"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return home if Path(home).is_dir() and home not in named.HOMES else None


def continuation_problems(stored: Settings, asked: Settings) -> list[str]:
    """Why a run with the `stored` settings can't go on with the `asked` ones; empty when it can."""
    old, new = flat(stored), flat(asked)
    return [
        f"{name}={show(new[name])}, but the run in {asked.run_dir or stored.run_dir} has {name}={show(old[name])}. "
        f"Keep {show(old[name])}, or start a new run_dir."
        for name in old
        if old[name] != new[name] and name not in MAY_CHANGE and name.split(".")[0] not in MAY_CHANGE
    ]
