"""What a command is, and what it is called with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

DONE = 0
"""Exit code: done, also when stopped by a stop file or a budget."""
FAILED = 1
"""Exit code: a failure while running."""
BAD_SETTINGS = 2
"""Exit code: settings that don't fit; nothing was started or written."""
SAVED = 75
"""Exit code: stopped by a signal after everything was saved; the same command goes on."""


@dataclass(frozen=True)
class Call:
    """One valid call of a command."""

    settings: Any
    """The command's settings tree; every rule holds, `auto` is resolved where that needs no jax."""
    verb: str | None = None
    """The verb given, of those that the command knows."""
    paths: list[str] = field(default_factory=list)
    """Positional folders or files; they exist."""
    stored: Any = None
    """The Settings of the run that `run=` named or that `run_dir=` continues, as they were stored; None for a new run."""


@dataclass(frozen=True)
class Command:
    """A command `python -m jaxrl_long.<name> [verb] [path ...] key=value ...`.

    A settings tree with `run_dir` makes it a command that creates or continues runs; `run=DIR` then means that run's stored
    settings plus the command line's. In a tree with `run`, DIR's settings replace the defaults of fields marked `stored`.
    """

    name: str
    """Last part of the module's name."""
    summary: str
    """What it does, in one sentence."""
    settings: type
    """Dataclass of its settings."""
    main: Callable[[Call], int | None]
    """Called once the settings are valid; returns an exit code, None for 0. Imports jax and the like inside, not before."""
    config: str | None = None
    """File in configs/ whose defaults list names the groups, in order of precedence; None: no groups."""
    verbs: tuple[str, ...] = ()
    """Words that may come first."""
    paths: tuple[int, int] = (0, 0)
    """Fewest and most positional paths."""
    takes: str = "folder"
    """What the positional paths are: folder or file."""
    examples: tuple[str, ...] = ()
    """Arguments of calls worth showing in --help."""
    creates: bool = True
    """Whether a tree with `run_dir` means that a run's folder is made; otherwise it only says which run is meant."""
    subcommands: "Mapping[str, Command]" = field(default_factory=dict)
    """Commands of their own settings, by the word that comes first."""
    module: str = ""
    """Module that runs it; by default jaxrl_long.<name>."""

    @property
    def makes_runs(self) -> bool:
        """Whether a call makes or continues a run."""
        return self.creates and any(item.name == "run_dir" for item in fields(self.settings))

    @property
    def runs_as(self) -> str:
        """Module that `python -m` runs."""
        return self.module or f"jaxrl_long.{self.name}"
