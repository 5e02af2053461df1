"""Rules of a run's folder, checkpoints and limits."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl_long.config import AgentSettings, Settings
from jaxrl_long.fields import show
from jaxrl_long.rules.base import rule


@rule("checkpoint.best", "eval.lasting")
def endurance_is_looked_at(settings: Settings) -> Iterator[str]:
    """Who is chosen by endurance must be examined for it."""
    if settings.checkpoint.best == "endurance" and not settings.eval.lasting:
        yield "checkpoint.best=endurance needs evaluations that go on: eval.lasting=false. Nearest: eval.lasting=true or checkpoint.best=return."


@rule("run_dir")
def run_dir_can_be_written(settings: Settings) -> Iterator[str]:
    """The run's folder exists or can be created, and files can be written into it."""
    if settings.run_dir is not None:
        yield from _unwritable("run_dir", settings.run_dir)


@rule("compilation_cache", trees=(Settings, AgentSettings))
def cache_can_be_written(settings: Any) -> Iterator[str]:
    """The folder of compiled programs exists or can be created."""
    if settings.compilation_cache not in ("auto", "none"):
        yield from _unwritable("compilation_cache", settings.compilation_cache)


def _unwritable(name: str, text: str) -> Iterator[str]:
    if "\0" in text:
        yield f"{name}={text!r} is not a path."
        return
    folder = Path(text)
    try:
        existing = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    except OSError as error:
        yield f"{name}={text} can't be used: {error.strerror}."
        return
    if not existing.is_dir():
        yield f"{name}={text}: {existing} is a file. Name a folder."
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"{name}={text}: {existing} can't be written to. Name a folder that can."


@rule("run", trees=(AgentSettings,))
def run_is_named(settings: AgentSettings) -> Iterator[str]:
    """There is no default run."""
    if settings.run is None:
        yield "run= is missing: name the folder of the run, as in run=runs/ant."


@rule("checkpoint", trees=(AgentSettings,))
def checkpoint_is_an_update(settings: AgentSettings) -> Iterator[str]:
    """The latest checkpoint, the best, or that of an update."""
    if settings.checkpoint not in ("latest", "best") and not re.fullmatch(r"[0-9]{1,18}", settings.checkpoint):
        yield f"checkpoint={show(settings.checkpoint)} is neither latest nor best nor the number of an update."


@rule("stop.cost", "stop.price")
def a_cost_needs_a_price(settings: Settings) -> Iterator[str]:
    """Without a price, no time costs anything."""
    if settings.stop.cost and not settings.stop.price:
        yield f"stop.cost={show(settings.stop.cost)} needs stop.price, what an hour of this machine costs in USD, such as stop.price=2.5."
