"""The words of a command line: options, a verb, paths, and assignments. Values are not looked at here."""

import os
import re
from dataclasses import dataclass, field

from jaxrl_long.cli.command import Command
from jaxrl_long.fields import ConfigError, closest, leaves

ASSIGNMENT = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
HELP, MULTIRUN = ("-h", "--help"), ("-m", "--multirun")


@dataclass
class Words:
    """A command line, sorted."""

    help: bool = False
    """-h or --help was given."""
    multirun: bool = False
    """-m was given: values may be lists, and every combination is run."""
    verb: str | None = None
    """First word that is one of the command's verbs."""
    paths: list[str] = field(default_factory=list)
    """Positional folders or files."""
    assignments: dict[str, str] = field(default_factory=dict)
    """Text by setting, in order; the last one wins."""


def names(command: Command) -> list[str]:
    """Dotted names of all settings of a command, and the word `run` of one that knows runs."""
    known = [name for name, _, _ in leaves(command.settings)]
    return ["run", *known] if "run_dir" in known else known


def read(command: Command, arguments: list[str]) -> Words:
    """Sort the words of a command line.

    Raises:
        ConfigError: words that are neither settings, verbs nor paths of this command, or too few or many paths.
    """
    words, problems = Words(), []
    for word in arguments:
        if word in HELP:
            words.help = True
        elif word in MULTIRUN:
            words.multirun = True
        else:
            problems += _read_word(command, words, word)
    fewest, most = command.paths
    if not words.help and not problems and not fewest <= len(words.paths) <= most:
        number = f"{fewest} to {most} {command.takes}s" if most > 1 else f"one {command.takes}"
        problems.append(f"{command.name} takes {number}, not {len(words.paths)}.")
    if problems:
        raise ConfigError(problems)
    return words


def _read_word(command: Command, words: Words, word: str) -> list[str]:
    match = ASSIGNMENT.fullmatch(word)
    if match and (match[1] in names(command) or not _is_path(command, word)):
        # Taken out first, so that a repeated setting moves to its last place.
        words.assignments.pop(match[1], None)
        words.assignments[match[1]] = match[2]
        return []
    if word in command.verbs and not words.verb and not words.paths:
        words.verb = word
        return []
    if _is_path(command, word):
        words.paths.append(word)
        return []
    return [_unknown(command, word)]


def _is_path(command: Command, word: str) -> bool:
    """Whether the word is a path that the command takes, and there is such a thing."""
    exists = os.path.isdir if command.takes == "folder" else os.path.isfile
    return bool(command.paths[1]) and exists(word)


def _unknown(command: Command, word: str) -> str:
    bare = word.lstrip("-+~")
    if word.startswith("-"):
        hint = f"Settings are written without dashes: {bare if '=' in bare else f'{bare}=VALUE'}." if bare else ""
        return f"{word}: no such option. Known: -h or --help, -m or --multirun. {hint}".rstrip()
    if word.startswith("~"):
        return f"{word}: settings can't be removed. Write key=value."
    if "=" in word:
        return f"{word}: not a setting's name. Write key=value."
    if (verbs := [*command.verbs, *command.subcommands]) and not _is_path_like(word):
        return f"{word}: no such verb. {closest(word, verbs)}"
    if command.paths[1]:
        return f"{word}: no such {command.takes}."
    return f"{word}: settings are written key=value. {closest(word, names(command))}"


def _is_path_like(word: str) -> bool:
    """Whether a word was more likely meant as a folder than as a verb."""
    return "/" in word or "." in word
