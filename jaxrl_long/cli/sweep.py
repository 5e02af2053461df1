"""`-m`: every combination of listed values, each as a run of its own in a fresh process, one after the other."""

import hashlib
import itertools
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from jaxrl_long.cli import command as codes
from jaxrl_long.cli import compose, folders
from jaxrl_long.cli.command import Command
from jaxrl_long.cli.words import Words
from jaxrl_long.fields import ConfigError, leaves

MOST_RUNS = 1000
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
                listed[name] = list(dict.fromkeys(itertools.islice(override.sweep_string_iterator(), MOST_RUNS + 1)))
        except compose.UNREADABLE as error:
            # Text that Hydra can't read is one value; what is wrong with it is said when the run's settings are made.
            if type(error).__name__ == "HydraException":
                raise ConfigError([f"{name}={text} can't be listed for -m: {error}."]) from None
    if (number := math.prod(map(len, listed.values()))) > MOST_RUNS:
        raise ConfigError([f"-m lists {number} runs or more; at most {MOST_RUNS} are run at once. List fewer values of {' or '.join(listed)}."])
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
    base = _base_folder(words) if command.makes_runs else None
    worst = codes.DONE
    with Relay() as relay:
        for number, combination in enumerate(runs, 1):
            assignments = words.assignments | combination
            if base:
                assignments["run_dir"] = str(base / folder_name(combination))
            print(f"[{number}/{len(runs)}] {folder_name(combination)}", file=sys.stderr, flush=True)
            again = [*([words.verb] if words.verb else []), *words.paths, *(f"{key}={text}" for key, text in assignments.items())]
            worst = max(worst, relay.run([sys.executable, "-m", *command.runs_as.split(), *again]), key=BY_SEVERITY.index)
            if relay.received:
                break
    return worst


def _base_folder(words: Words) -> Path:
    if "run_dir" in words.assignments:
        return Path(words.assignments["run_dir"])
    return folders.new_folder(f"multirun-{time.strftime('%Y%m%d-%H%M%S')}")


class Relay:
    """Runs processes one at a time, and passes the signals that this process gets on to the one under way."""

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

    def __init__(self) -> None:
        self.received: list[int] = []
        """Signals that came, in order."""
        self._missed: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Relay":
        self._before = {number: signal.signal(number, self._pass_on) for number in self.SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, arguments: list[str]) -> int:
        """Run a process to its end; its exit code, as one of the documented ones."""
        # A session of its own: a terminal's Ctrl-C reaches this process only, which passes on exactly one signal.
        self._process = process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True)
        while self._missed:
            process.send_signal(self._missed.pop())
        code = process.wait()
        self._process = None
        return code if code in BY_SEVERITY else codes.FAILED

    def _pass_on(self, number: int, _: object) -> None:
        self.received.append(number)
        if self._process is None:
            self._missed.append(number)
        else:
            self._process.send_signal(number)
