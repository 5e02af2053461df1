"""Search for the settings that train the most steps/s on this machine, and ask whether the agent is any better for it."""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from jaxrl_long import machine, rules
from jaxrl_long.config import MAX_ENVS, Settings, StopSettings
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.stored import save_settings

BETTER = 1.03
"""A change is kept when it is at least that much faster: less is noise."""
SEEDS = (0, 1, 2)
POLL_S = 0.5

Rate = Callable[[Settings], float | None]
"""Training steps/s of settings; None where they do not fit into memory."""


def _envs(settings: Settings, factor: float) -> Settings:
    return replace(settings, num_envs=int(settings.num_envs * factor))


def _length(settings: Settings, factor: float) -> Settings:
    return replace(settings, rollout_length=int(settings.rollout_length * factor))


def _minibatches(settings: Settings, factor: float) -> Settings:
    return replace(settings, algorithm=replace(settings.algorithm, minibatches=int(settings.algorithm.minibatches * factor)))


def _block(settings: Settings, factor: float) -> Settings:
    # 0 is the automatic size; 64 is what that is on a CPU. At least 1: 0 would mean it again.
    return replace(settings, block=max(1, int((settings.block or 64) * factor)))


MOVES = (_envs, _length, _minibatches, _block)


@dataclass
class Tuned:
    """What a search has found."""

    settings: Settings
    rate: float
    """Training steps/s of `settings`."""
    before: float
    """Training steps/s of those it began with."""


def describe(settings: Settings) -> str:
    """The searched settings as one would type them."""
    own = f"num_envs={settings.num_envs} rollout_length={settings.rollout_length} block={settings.block}"
    return f"{own} algorithm.minibatches={settings.algorithm.minibatches}" if _has_minibatches(settings) else own


def _has_minibatches(settings: Settings) -> bool:
    return settings.algorithm.name == "ppo"


def search(settings: Settings, rate: Rate, say: Callable[[str], None]) -> Tuned:
    """One setting after the other is doubled or halved for as long as that helps. Raises RunError if the first settings do not fit."""
    before = rate(settings)
    if before is None:
        raise RunError("the settings that the search would begin with do not fit into memory.")
    best = Tuned(settings, before, before)
    for move in (move for move in MOVES if move is not _minibatches or _has_minibatches(settings)):
        for factor in (2.0, 0.5):
            if _climb(best, move, factor, rate, say):
                break
    return best


def _climb(best: Tuned, move: Callable[[Settings, float], Settings], factor: float, rate: Rate, say: Callable[[str], None]) -> bool:
    """Go on in one direction; whether the first step helped."""
    moved = False
    while True:
        candidate = move(best.settings, factor)
        if not _valid(candidate):
            return moved
        found = rate(candidate)
        if found is None:
            return moved
        say(f"{describe(candidate)}: {found:,.0f} steps/s")
        if found < BETTER * best.rate:
            return moved
        best.settings, best.rate, moved = candidate, found, True


def _valid(settings: Settings) -> bool:
    smallest = min(settings.num_envs, settings.rollout_length, settings.algorithm.minibatches)
    return smallest >= 1 and settings.num_envs <= MAX_ENVS and not rules.broken(settings)


def preset(found: Tuned) -> str:
    """The text of a machine preset with the settings found."""
    settings, day = found.settings, datetime.datetime.now().astimezone().date()
    # In the place of the machine's own file, whose other settings must not get lost.
    before = yaml.safe_load((rules.CONFIGS / "machine" / f"{machine.find_machine()}.yaml").read_text(encoding="utf-8"))
    own: dict[str, object] = {"num_envs": settings.num_envs, "rollout_length": settings.rollout_length, "block": settings.block}
    if _has_minibatches(settings):
        own["algorithm"] = {**before.get("algorithm", {}), "minibatches": settings.algorithm.minibatches}
    values = {**before, **own}
    return "\n".join(
        [
            "# @package _global_",
            f"# For env={settings.env.name} on {machine.device_name()}, {day}: {found.rate:,.0f} instead of {found.before:,.0f} training steps/s.",
            "# Steps are not learning: other sizes of updates may learn better or worse from each step.",
            yaml.safe_dump(values, sort_keys=False),
        ]
    )


def check_preset(path: str) -> None:
    """Raise ConfigError where no preset can be written to `path`."""
    target = Path(path)
    if target.suffix not in (".yaml", ".yml"):
        raise ConfigError([f"tune.preset={path} is no YAML file. Name one that ends in .yaml."])
    try:
        exists, writable = target.exists(), os.access(target.parent, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError([f"tune.preset={path} can't be written: {error.strerror}. Name another file."]) from None
    if exists:
        raise ConfigError([f"tune.preset={path} exists already. Name another file."])
    if not writable:
        raise ConfigError([f"tune.preset={path} can't be written: {target.parent} is no folder that can be written to. Name another file."])


def write_preset(found: Tuned, path: str) -> None:
    """Write the preset to a new file. Raises ConfigError where there is one already, or none can be written."""
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(preset(found))
    except FileExistsError:
        raise ConfigError([f"tune.preset={path} exists already. Name another file."]) from None
    except OSError as error:
        raise ConfigError([f"tune.preset={path} can't be written: {error.strerror}. Name another file."]) from None


@dataclass(frozen=True)
class Learned:
    """What one training came to."""

    window_return: float
    wall_s: float

    @property
    def per_minute(self) -> float:
        """Window return per minute of wall time."""
        return self.window_return / (self.wall_s / 60)


def check(settings: Settings, stop: Stop, say: Callable[[str], None]) -> Iterator[Learned]:
    """Train with these settings from three seeds, each in a process of its own, untracked and to the end; fewer if told to stop."""
    for seed in SEEDS:
        with tempfile.TemporaryDirectory(prefix="jaxrl_long_tune_") as folder:
            save_settings(replace(settings, seed=seed, stop=StopSettings(), tracker=[]), folder)
            say(f"trains with {describe(settings)} seed={seed}")
            if not _trained(Path(folder), stop):
                return
            row = json.loads((Path(folder) / "summary.json").read_text())
        yield Learned(row["window_return"], row["wall_s"])


def _trained(folder: Path, stop: Stop) -> bool:
    """Train the run in a folder to its end; False if told to stop before. Raises RunError if it failed."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([sys.executable, "-m", "jaxrl_long.train", f"run={folder}"], stdout=log, stderr=log)
        while process.poll() is None:
            if stop.poll():
                process.terminate()
            time.sleep(POLL_S)
        if process.returncode and not stop.poll():
            log.seek(0)
            raise RunError(f"training ended with {process.returncode}: {log.read().strip()[-500:]}")
    return not stop.poll()
