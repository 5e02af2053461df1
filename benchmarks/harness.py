"""One protocol for every number: how it is timed, what is written beside it, where the row goes.

Imports no jax: a benchmark that only starts commands must not hold memory or threads that the commands would feel.
"""

import datetime
import functools
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
Row = dict[str, Any]
Options = typing.TypeVar("Options")


@dataclass(frozen=True)
class Timing:
    """How long one call takes, in seconds; `compile_s` is the first call, which the others leave out."""

    compile_s: float
    median_s: float
    low_s: float
    """First quartile."""
    high_s: float
    """Third quartile."""
    repeats: int


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile (linear between ranks). Raises ValueError when there is no value."""
    if not values:
        msg = "quartiles need at least one value."
        raise ValueError(msg)
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def timed(call: Callable[[Any], Any], argument: Any, *, repeats: int = 5, warmup: int = 1) -> tuple[Timing, Any]:
    """Time `argument = call(argument)` over and over, each time until its result is there; also returns the last result.

    The result is fed back, so that a call may donate its argument. At least 5 repeats, or ValueError.
    """
    import jax

    if repeats < 5:
        msg = f"repeats={repeats} is too few for quartiles. Use repeats=5 or more."
        raise ValueError(msg)
    start = time.perf_counter()
    argument = jax.block_until_ready(call(argument))
    compile_s = time.perf_counter() - start
    for _ in range(warmup):
        argument = jax.block_until_ready(call(argument))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        argument = jax.block_until_ready(call(argument))
        seconds.append(time.perf_counter() - start)
    low, middle, high = quartiles(seconds)
    return Timing(compile_s, middle, low, high, repeats), argument


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _output(*command: str) -> str:
    """What a command prints, or an empty string where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@functools.cache
def device() -> tuple[str, str]:
    """`gpu` and the first one's name, or else `cpu` and the processor's, found without jax."""
    gpu = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    if gpu and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        return "gpu", gpu[0]
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return "cpu", names[0] if names else platform.processor() or platform.machine()


def stamp() -> Row:
    """Where and with what a row was measured: kind (cpu or gpu), device, cpus (that this process may use), versions, commit, date (UTC)."""
    kind, name = device()
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "jaxrl_long", "benchmarks/*.py")
    commit = _output("git", "rev-parse", "--short=12", "HEAD") or "none"
    return {
        "kind": kind,
        "device": name,
        "cpus": cpus,
        "python": platform.python_version(),
        "jax": _version("jax"),
        "brax": _version("brax"),
        "commit": commit + ("+changes" if changed else ""),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def record(question: str, row: Row, *, results: Path = RESULTS) -> Row:
    """Append `row`, stamped, to `results/<question>.jsonl` and return it. A key of `row` wins over the stamp's (a peer's versions)."""
    stamped = {**stamp(), **row}
    results.mkdir(parents=True, exist_ok=True)
    with (results / f"{question}.jsonl").open("a") as file:
        file.write(json.dumps(stamped) + "\n")
    return stamped


def jsonl(path: Path) -> list[Row]:
    """The rows of a file, oldest first; empty when there is none. A last line that is still being written is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    return list(json_lines(text if text.endswith("\n") else text[: text.rfind("\n") + 1]))


def json_lines(text: str) -> Iterator[Row]:
    """The JSON objects among the lines of a program's output; everything else is passed over."""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict):
            yield value


def rows(question: str, *, results: Path = RESULTS, **wanted: Any) -> list[Row]:
    """The recorded rows whose keys equal all of `wanted`, oldest first."""
    found = jsonl(results / f"{question}.jsonl")
    return [row for row in found if all(row.get(key) == value for key, value in wanted.items())]


def latest(question: str, *keys: str, results: Path = RESULTS, **wanted: Any) -> list[Row]:
    """Of the rows that agree in `keys` only the newest: a measurement done again replaces the older one."""
    newest = {json.dumps([row.get(key) for key in keys]): row for row in rows(question, results=results, **wanted)}
    return list(newest.values())


def once(question: str, key: Row, measure: Callable[[], Row], *, refresh: bool = False, results: Path = RESULTS) -> Row:
    """The recorded row that has `key`'s values, or the one that `measure` returns, recorded under them. A CPU's row does not answer for a GPU.

    This is what makes a benchmark stoppable: run it again, and only what is missing is measured.
    """
    key = {**key, "kind": device()[0]}
    known = [] if refresh else rows(question, results=results, **key)
    if known:
        print(f"{question}: known {json.dumps(key)}", flush=True)
        return known[-1]
    print(f"{question}: measuring {json.dumps(key)}", flush=True)
    return record(question, {**key, **measure()}, results=results)


def _whole(text: str) -> int:
    """An integer, also in the forms 5e6 and 4_096. Raises ValueError for a fraction."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def numbers(text: str) -> list[int]:
    """`0-4` and `0,2,7` as lists of integers, both ends included."""
    spans = [part.split("-") for part in text.split(",")]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


def parse(options: type[Options], arguments: list[str] | None = None, *, verbs: tuple[str, ...] = ()) -> tuple[str, Options]:
    """Read `verb key=value ...` into a dataclass of int, float, bool and str fields; the verb is "" where none is given.

    A mistake ends the process with exit code 2 and one line that says what is accepted.
    """
    types = {field.name: field.type for field in fields(typing.cast("Any", options))}
    convert: dict[Any, Callable[[str], Any]] = {int: _whole, float: float, str: str, bool: lambda text: {"true": True, "false": False}[text]}
    verb, values = "", {}
    for argument in sys.argv[1:] if arguments is None else arguments:
        name, equals, text = argument.partition("=")
        if not equals and argument in verbs:
            verb = argument
            continue
        try:
            values[name] = convert[types[name]](text)
        except (KeyError, ValueError):
            accepted = " ".join([f"[{'|'.join(verbs)}]", *(f"{key}=" for key in types)] if verbs else [f"{key}=" for key in types])
            print(f"{argument!r} does not fit. Accepted: {accepted}", file=sys.stderr)
            raise SystemExit(2) from None
    return verb, options(**values)
