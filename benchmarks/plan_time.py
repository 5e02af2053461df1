"""How long a plan takes: with nothing kept from before, with its programs compiled, and with everything measured.

    python -m benchmarks.plan_time           # three turns of `python -m jaxrl_long.plan env=ant horizon=1000000`, each way

What is there already is not measured again.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, Row, latest, once, parse


@dataclass(frozen=True)
class Options:
    """Which task, and how often."""

    env: str = "ant"
    repeats: int = 3
    refresh: bool = False


def planned(env: str) -> Row:
    """Seconds of three plans, each from the start of its process to its exit; each finds what the one before has left."""
    with ours.scratch() as scratch:
        asked = ours.words(env=env, horizon=1_000_000, compilation_cache=Path(scratch) / "kept", json="true")

        def seconds(*words: str) -> float:
            return round(processes.run(processes.module("jaxrl_long.plan", *asked, *words), Path(scratch) / "plan.log", poll_s=0.05).wall_s, 2)

        return {"empty_s": seconds(), "compiled_s": seconds("refresh=true"), "measured_s": seconds()}


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each turn."""
    return latest("plan_time", "env", "turn", results=results, kind="cpu")


def main() -> None:
    """Every turn that is missing."""
    _, options = parse(Options)
    for turn in range(options.repeats):
        row = once("plan_time", {"env": options.env, "turn": turn}, functools.partial(planned, options.env), refresh=options.refresh)
        print(f"a plan of {options.env}: {row['empty_s']:.0f} s, {row['compiled_s']:.0f} s compiled before, {row['measured_s']:.1f} s measured before")


if __name__ == "__main__":
    main()
