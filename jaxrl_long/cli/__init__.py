"""One command line for every command: `python -m jaxrl_long.<name> [verb] [path ...] key=value ...`.

Settings are decided, and their errors reported, before jax or brax is imported; nothing is written outside the run's folder.
"""

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from jaxrl_long.cli import folders, sweep
from jaxrl_long.cli.command import BAD_SETTINGS, DONE, FAILED, SAVED, Call, Command
from jaxrl_long.cli.compose import make_settings
from jaxrl_long.cli.help import help_text
from jaxrl_long.cli.words import Words, read
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.runtime.process import let_go
from jaxrl_long.stored import load_settings

__all__ = ["BAD_SETTINGS", "DONE", "FAILED", "SAVED", "Call", "Command", "prepare", "run", "settings"]


def run(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (by default this process's) and return the exit code.

    Settings that don't fit, and runs that can't go on, are told on standard error without a traceback; any other exception is a bug
    and passes through.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if name := next((word for word in given if word in command.subcommands), None):
        return run(command.subcommands[name], [word for word in given if word != name])
    try:
        words = read(command, given)
        if words.help:
            print(help_text(command, _settings_for_help(command, words)), flush=True)
            return DONE
        if words.multirun:
            runs = sweep.combinations(command, words.assignments)
            _check_all(command, words, runs)
            return sweep.run_all(command, words, runs)
        call = prepare(command, words)
        if command.makes_runs:
            folders.create(call.settings)
        code = command.main(call) or DONE
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does once it has seen enough.
        let_go(sys.stdout)
        return FAILED
    except ConfigError as error:
        print(f"ConfigError: {error}", file=sys.stderr)
        return BAD_SETTINGS
    except RunError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    return code


def prepare(command: Command, words: Words) -> Call:
    """The valid call that a command line means; nothing is written yet.

    Raises:
        ConfigError: all settings that don't fit, at once.
    """
    given = words.assignments
    about_runs = any(item.name == "run_dir" for item in fields(command.settings))
    named = load_settings(given["run"]) if "run" in given else None
    if named is not None and about_runs:
        if "run_dir" in given:
            raise ConfigError(["run= and run_dir= can't both be given: run=DIR goes on with the run in DIR."])
        settings = make_settings(command, given, named, fresh=False)
    else:
        settings = make_settings(command, given, _defaults(command, named))
    stored = folders.stored_for(settings, named) if command.makes_runs else named
    return Call(settings, words.verb, words.paths, stored)


def settings(command: Command, *words: str) -> Any:
    """What a command line means, for who calls from Python: `settings(train.COMMAND, "env=ant", "horizon=1000000")`. Nothing is written.

    Raises:
        ConfigError: all settings that don't fit, at once.
    """
    return prepare(command, read(command, list(words))).settings


def _defaults(command: Command, named: Any) -> Any:
    """The command's defaults; what it shares with a run that it reads comes from there."""
    defaults = command.settings()
    if named is None:
        return defaults
    for item in fields(command.settings):
        if item.metadata.get("stored"):
            setattr(defaults, item.name, getattr(named, item.name))
    if hasattr(defaults, "run"):
        defaults.run = named.run_dir
    return defaults


def _check_all(command: Command, words: Words, runs: list[dict[str, str]]) -> None:
    """Refuse a sweep as a whole when one of its runs can't be made."""
    if "run" in words.assignments and command.makes_runs:
        raise ConfigError(["run= goes on with one run, so it can't be used with -m."])
    problems: dict[str, None] = {}
    for combination in runs:
        try:
            prepare(command, Words(verb=words.verb, paths=words.paths, assignments=words.assignments | combination))
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(problems)


def _settings_for_help(command: Command, words: Words) -> Any:
    """What the rest of the command line gives; the plain defaults when that does not fit."""
    try:
        return prepare(command, words).settings
    except ConfigError:
        return command.settings()
