"""Our training steps/s beside other libraries', one run after the other.

    python -m benchmarks.others setup      # an environment for each in .peers/; needs a network
    python -m benchmarks.others            # ours and each of them in alternation, three turns

rejax does what we do: the same Brax ant, as many environments, updates of the same size, networks of 64x64. Stable-Baselines3 and SBX train gymnasium's
Ant-v5 in MuJoCo with their own settings, Sample Factory Ant-v4: another simulator and other updates, but what somebody without a GPU would start. An
interpreter named by REJAX_PYTHON, SB3_PYTHON or SF_PYTHON is used instead of our own environment.

Start-up is what a run's first part takes beyond what its steps would at the rate of the rest: imports, compilation, processes that start.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours, peers, processes
from benchmarks.harness import Row, once, parse

SCRIPTS = Path(__file__).resolve().parent / "peers"


@dataclass(frozen=True)
class Library:
    """Another trainer: what to install, and how it is started there."""

    environment: str
    """Name of its environment; libraries may share one."""
    requirements: tuple[str, ...]
    script: str
    words: tuple[str, ...] = ()

    @property
    def own(self) -> Path:
        """The interpreter of the environment that `setup` makes."""
        return peers.FOLDER / f"{self.environment}-env" / "bin" / "python"

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return Path(os.environ.get(f"{self.environment.upper()}_PYTHON") or self.own)


SF = ("sample-factory==2.1.1", "gymnasium[mujoco]==0.29.1", "mujoco==3.2.7", "numpy==1.26.4", "torch==2.13.0")
SB3 = ("stable-baselines3==2.9.2", "sbx-rl==0.28.0", "gymnasium[mujoco]==1.4.0", "torch==2.13.0")
LIBRARIES = {
    "rejax": Library("rejax", ("rejax==0.1.3", "gymnax==0.0.9", "brax==0.14.2"), "rejax_ppo.py"),
    "Stable-Baselines3": Library("sb3", SB3, "sb3_ppo.py", ("--library=sb3",)),
    "Sample Factory": Library("sf", SF, "sf_ppo.py"),
    "SBX": Library("sb3", SB3, "sb3_ppo.py", ("--library=sbx",)),
}


@dataclass(frozen=True)
class Options:
    """How often, and how long."""

    steps: int = 1_200_000
    """Environment steps of each of our runs."""
    repeats: int = 3
    only: str = ""
    """Only the library of this name."""
    refresh: bool = False


def setup() -> None:
    """Make the environments that are missing."""
    for library in LIBRARIES.values():
        if library.python != library.own:
            continue
        if not library.own.exists():
            subprocess.run([sys.executable, "-m", "venv", str(library.own.parent.parent)], check=True)
        # Also where an earlier try broke off; there is nothing to do where it did not.
        subprocess.run([str(library.own), "-m", "pip", "install", "-q", *library.requirements], check=True)


def theirs(library: Library) -> Row:
    """One run of a library's trainer: what its script prints."""
    with ours.scratch() as folder:
        command = processes.Command([str(library.python), str(SCRIPTS / library.script), *library.words])
        done = processes.run(command, Path(folder) / "peer.jsonl")
        return {**done.rows[-1], "peak_bytes": done.peak_bytes, "requirements": list(library.requirements)}


def same_as_rejax(options: Options) -> Row:
    """Our training with equal networks for policy and critic, as rejax has them; the rest are our defaults, which its script follows."""
    with ours.scratch() as folder:
        asked = ours.words(env="ant", env__backend="spring", steps=options.steps, eval__every=0, algorithm__value_layers="[64,64]")
        # Nobody else's programs are kept from an earlier run.
        trained = ours.train(Path(folder) / "run", [*asked, f"compilation_cache={Path(folder) / 'cache'}"])
    first = trained.reports[0]
    startup_s = round(first["wall_s"] - first["env_steps"] / trained.steps_per_s, 1)
    return {"steps_per_s": trained.steps_per_s, "startup_s": startup_s, "peak_bytes": trained.peak_bytes, "settings": asked}


def main() -> None:
    """Set up, or measure."""
    verb, options = parse(Options, verbs=("setup",))
    if verb == "setup":
        setup()
        return
    chosen = {name: library for name, library in LIBRARIES.items() if options.only in ("", name)}
    missing = [name for name, library in chosen.items() if not library.python.exists()]
    if missing:
        raise SystemExit(f"There is no {' and no '.join(missing)} here. Run: python -m benchmarks.others setup")

    def side(name: str, measure: Callable[[], Row], turn: int) -> Row:
        return once("others", {"side": name, "turn": turn, "steps": options.steps}, measure, refresh=options.refresh)

    sides: dict[str, Callable[[int], Row]] = {"ours": functools.partial(side, "ours", functools.partial(same_as_rejax, options))}
    sides |= {name: functools.partial(side, name, functools.partial(theirs, library)) for name, library in chosen.items()}
    processes.alternate(sides, options.repeats)


if __name__ == "__main__":
    main()
