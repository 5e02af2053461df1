"""How long compiling takes: each task on its backend, each backend of ant; from an empty compilation cache.

    python -m benchmarks.compile_time           # one short training each; stop and go on at will

What is there already is not measured again.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours
from benchmarks.harness import RESULTS, Row, jsonl, latest, once, parse
from benchmarks.rollout import BACKENDS

WORLDS = (
    *(("ant", backend) for backend in BACKENDS),
    ("halfcheetah", "spring"),
    ("humanoid", "spring"),
    ("inverted_pendulum", "spring"),
    ("cartpole", "auto"),
)


@dataclass(frozen=True)
class Options:
    """Only whether to measure again."""

    refresh: bool = False


def compiled(env: str, backend: str) -> Row:
    """Seconds of the first report of a training, and the part of it that was compiling."""
    with ours.scratch() as scratch:
        folder = Path(scratch)
        asked = ours.words(env=env, env__backend=backend, steps=1_000_000, compilation_cache=folder / "cache", eval__every=0)
        first = ours.train(folder / "run", asked, until=lambda metrics: bool(jsonl(metrics))).reports[0]
    return {"compile_s": first["compile_s"], "first_report_s": first["wall_s"]}


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each world."""
    return latest("compile_time", "env", "backend", results=results, kind="cpu")


def main() -> None:
    """Every world that is missing, one after the other."""
    _, options = parse(Options)
    for env, backend in WORLDS:
        once("compile_time", {"env": env, "backend": backend}, functools.partial(compiled, env, backend), refresh=options.refresh)


if __name__ == "__main__":
    main()
