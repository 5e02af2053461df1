"""`-m`: every combination of listed values, each as a run of its own in a fresh process, one after the other."""

import hashlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from jaxrl_long.cli import command as codes
from jaxrl_long.cli import compose, folders
from jaxrl_long.cli.command import Command
from jaxrl_long.cli.words import Words
from jaxrl_long.fields import ConfigError, leaves

BY_SEVERITY = (codes.DONE, codes.SAVED, codes.BAD_SETTINGS, codes.FAILED)


def combinations(command: Command, assignments: Mapping[str, str]) -> list[dict[str, str]]:
    """The values that the listed settings take in each run, by name; one empty combination when nothing is listed.

    Raises:
        ConfigError: a list that Hydra can't enumerate.
    """
    paths = {name for name, _, item in leaves(command.settings) if item.metadata.get("path")} | {"run"}
    listed: dict[str, list[str]] = {}
    for name, text in assignments.items():
        choice = name in compose.groups(command) and not compose.is_file(text)
        if name in paths and not choice:
            continue
        try:
            override = compose.parse(name, text)
            if override.is_sweep_override():
                # A value listed twice would be one folder used twice.
                listed[name] = list(dict.fromkeys(override.sweep_string_iterator()))
        except compose.UNREADABLE as error:
            # Text that Hydra can't read is one value; what is wrong with it is said when the run's settings are made.
            if type(error).__name__ == "HydraException":
                raise ConfigError([f"{name}={text} can't be listed for -m: {error}."]) from None
    return [dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]


def folder_name(combination: Mapping[str, str]) -> str:
    """Name of the folder of one combination: `algorithm.clip=0.1,seed=0`."""
    name = re.sub(r"[^\w.,=+\[\]-]+", "_", ",".join(f"{key}={combination[key]}" for key in sorted(combination)))
    if len(name.encode()) <= 200:
        return name
    return f"{name[:150]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_all(command: Command, words: Words, runs: list[dict[str, str]]) -> int:
    """Run every combination and return the worst of their exit codes.

    A signal to this process is passed to the run under way, and no further run is started.
    """
    has_folder = any(item.name == "run_dir" for item in fields(command.settings))
    base = _base_folder(words) if has_folder else None
    worst = codes.DONE
    for number, combination in enumerate(runs, 1):
        assignments = words.assignments | combination
        if base:
            assignments["run_dir"] = str(base / folder_name(combination))
        print(f"[{number}/{len(runs)}] {folder_name(combination)}", file=sys.stderr, flush=True)
        words_again = [*([words.verb] if words.verb else []), *words.folders, *(f"{key}={text}" for key, text in assignments.items())]
        code, stopped = _run(command, words_again)
        worst = max(worst, code, key=BY_SEVERITY.index)
        if stopped:
            break
    return worst


def _base_folder(words: Words) -> Path:
    if "run_dir" in words.assignments:
        return Path(words.assignments["run_dir"])
    return folders.new_folder(f"multirun-{time.strftime('%Y%m%d-%H%M%S')}")


def _run(command: Command, arguments: list[str]) -> tuple[int, bool]:
    """One run: its exit code as one of the documented ones, and whether a signal has stopped it."""
    # A session of its own: a terminal's Ctrl-C reaches this process only, which passes on exactly one signal.
    process = subprocess.Popen([sys.executable, "-m", command.runs_as, *arguments], stdin=subprocess.DEVNULL, start_new_session=True)
    with _passed_on(process) as received:
        code = process.wait()
    return (code if code in BY_SEVERITY else codes.FAILED), bool(received)


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Generator[list[int]]:
    received: list[int] = []

    def pass_on(number: int, frame: Any) -> None:  # noqa: ARG001 (the signature of a signal handler)
        received.append(number)
        if process.poll() is None:
            os.kill(process.pid, number)

    watched = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, pass_on) for number in watched}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
