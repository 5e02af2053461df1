"""The text of --help, made from the settings tree's own documentation."""

import functools
import textwrap
from collections.abc import Iterator
from typing import Any

from jaxrl_long.cli import compose
from jaxrl_long.cli.command import Command
from jaxrl_long.fields import docs, leaves, show
from jaxrl_long.rules import environments

WIDTH = 110
GROUPS = {
    "env": "environments with settings of their own",
    "machine": "auto, or",
    "algorithm": "learning algorithms",
    "tracker": "where metrics go besides metrics.jsonl",
}


def help_text(command: Command, settings: Any) -> str:
    """All that a user needs to call the command; values are those of `settings`."""
    words = [f"python -m {command.runs_as}"]
    verbs = [*command.verbs, *command.subcommands]
    words += ["[VERB]"] if verbs else []
    fewest, most = command.paths
    place = command.takes.upper() + (" ..." if most > 1 else "")
    words += [place if fewest else f"[{place}]"] if most else []
    words += ["[-m]", "[key=value ...]"]
    parts = [f"Usage: {' '.join(words)}", "", command.summary, ""]
    parts += [f"Verbs: {', '.join(verbs)}", ""] if verbs else []
    parts += _examples(command)
    rows = [(name, owner, item.metadata.get("main", False)) for name, owner, item in leaves(command.settings)]
    parts += ["Most important settings, with the values that this command line gives:"]
    parts += _settings(settings, [(name, owner) for name, owner, main in rows if main])
    parts += _groups(command)
    others = [(name, owner) for name, owner, main in rows if not main]
    parts += ["Every other setting:", *_settings(settings, others)] if others else []
    parts += _notes(command)
    return "\n".join(parts)


def _examples(command: Command) -> Iterator[str]:
    if command.examples:
        yield "Examples:"
        yield from (f"  python -m {command.runs_as} {example}" for example in command.examples)
        yield ""


def _groups(command: Command) -> Iterator[str]:
    known = compose.groups(command)
    if not known:
        return
    yield "Groups of settings (later ones win over earlier ones, key=value wins over all; or a YAML file of your own):"
    for group in known:
        yield from _paragraph(f"  {group}=", f"{GROUPS.get(group, 'files')}: {', '.join(compose.options(group))}")
    others = sorted(set(environments()) - set(compose.options("env")))
    yield from _paragraph("", f"further environments, with the defaults: {', '.join(others)}; or package.module:Class of your own")
    yield ""


def _settings(settings: Any, rows: list[tuple[str, type]]) -> Iterator[str]:
    for name, owner in rows:
        last = name.rsplit(".", 1)[-1]
        value = functools.reduce(getattr, name.split("."), settings)
        choices = owner.__dataclass_fields__[last].metadata.get("choices")
        listed = f" One of: {', '.join(choices)}." if choices else ""
        yield from _paragraph(f"  {name}={show(value)}", docs(owner)[last] + listed)
    yield ""


def _paragraph(head: str, text: str) -> Iterator[str]:
    """`text` as a column beside `head`."""
    column = 38
    lines = textwrap.wrap(text, WIDTH - column) or [""]
    if len(head) >= column:
        yield head
        head = ""
    yield f"{head:{column}}{lines[0]}".rstrip()
    yield from (" " * column + line for line in lines[1:])


def _notes(command: Command) -> Iterator[str]:
    yield "Numbers may be written 5e6. Paths are taken as they are. `-m seed=0,1,2` runs every value, each in a process of its own."
    if command.makes_runs:
        yield "run=DIR goes on with the run in DIR; so does the same command with the same run_dir."
    yield "Exit codes: 0 done, 1 failure, 2 settings that don't fit, 75 stopped by a signal after saving."
