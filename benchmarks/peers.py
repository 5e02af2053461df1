"""The other trainers, and how to start them, each in an environment of its own.

    python -m benchmarks.peers setup                        # fetches Brax's main branch into .peers/ and makes its environment
    python -m benchmarks.peers brax steps=3e6 seed=1        # one run, its JSON lines on the terminal

Brax's main branch is needed because the released 0.14.2 trainer does not start where jax has lost `device_put_replicated`.
An environment that has it already is named by BRAX_PYTHON (an interpreter) and BRAX_SOURCE (a checkout, put on PYTHONPATH; where it is no
git folder, a `COMMIT` file in it names the commit).
"""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes
from benchmarks.harness import ROOT, Row, parse

FOLDER = ROOT / ".peers"
BRAX_COMMIT = "0b96d056328d15ea7ebfd3ce07f42be72ec76e40"
BRAX_URL = "https://github.com/google/brax"
SCRIPT = ROOT / "benchmarks" / "peers" / "brax_ppo.py"


@dataclass(frozen=True)
class BraxOptions:
    """A run of Brax's PPO; the names are ours, the defaults are Brax's published ant settings at 256 environments."""

    env: str = "ant"
    backend: str = "spring"
    seed: int = 0
    steps: int = 3_000_000
    evals: int = 7
    num_envs: int = 256
    unroll: int = 5
    batch: int = 128
    minibatches: int = 32
    epochs: int = 4
    policy_layers: str = "32,32,32,32"
    value_layers: str = "256,256,256,256,256"
    discount: float = 0.97
    reward_scaling: float = 10.0
    num_eval_envs: int = 64
    devices: int = 1

    @property
    def env_steps_per_update(self) -> int:
        """Environment steps of one of Brax's training steps: minibatches of `batch` sequences of `unroll` steps."""
        return self.batch * self.unroll * self.minibatches

    @property
    def rollout_length(self) -> int:
        """The same data as steps of each environment: our `rollout_length`. Raises ValueError where it is no whole number."""
        length, rest = divmod(self.env_steps_per_update, self.num_envs)
        if rest:
            msg = f"num_envs={self.num_envs} does not divide the {self.env_steps_per_update} steps of an update."
            raise ValueError(msg)
        return length


def brax_command(options: BraxOptions, *, evaluate: bool = True) -> processes.Command:
    """The command line of one run."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items()]
    return brax(SCRIPT, [*words, *([] if evaluate else ["--no-eval"])])


def brax(script: Path, words: list[str]) -> processes.Command:
    """A script of `peers/` that needs Brax, where there is one."""
    own = FOLDER / "brax-env" / "bin" / "python"
    python = os.environ.get("BRAX_PYTHON") or (str(own) if own.exists() else sys.executable)
    source = brax_source()
    path = os.pathsep.join([str(source)] * (source is not None) + [os.environ.get("PYTHONPATH", "")])
    return processes.Command([python, str(script), *words], {"PYTHONPATH": path})


def brax_source() -> Path | None:
    """The checkout of Brax that runs use, or None for the installed release."""
    named = os.environ.get("BRAX_SOURCE")
    if named:
        return Path(named)
    own = FOLDER / "brax"
    return own if own.exists() else None


def require_brax() -> None:
    """End the process, with the remedy, where there is no Brax whose trainer starts: asked before hours are spent on the other side."""
    if brax_source() is None and not os.environ.get("BRAX_PYTHON"):
        message = "Brax's trainer of the installed release does not start on this jax. Run: python -m benchmarks.peers setup, or set BRAX_SOURCE."
        raise SystemExit(message)


def brax_identity() -> Row:
    """Which Brax is measured: `peer` for a row."""
    source = brax_source()
    if source is None:
        return {"peer": "brax release"}
    note = source / "COMMIT"
    if note.exists():
        return {"peer": f"brax main {note.read_text().strip()[:12]}"}
    shown = subprocess.run(["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {"peer": f"brax main {shown.stdout.strip()[:12] if (source / '.git').exists() else 'of unknown commit'}"}


def setup() -> None:
    """Fetch the pinned commit of Brax and make an environment with its requirements, on the jax that we run on. Needs git and a network; does nothing twice."""
    source, environment = FOLDER / "brax", FOLDER / "brax-env"
    if not source.exists():
        source.mkdir(parents=True)
        for words in (["init", "-q"], ["fetch", "-q", "--depth=1", BRAX_URL, BRAX_COMMIT], ["checkout", "-q", "FETCH_HEAD"]):
            subprocess.run(["git", "-C", str(source), *words], check=True)
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", "brax==0.14.2", f"jax=={importlib.metadata.version('jax')}"], check=True)


def main() -> None:
    """`setup` or `brax`."""
    verb, options = parse(BraxOptions, verbs=("setup", "brax"))
    if verb == "setup":
        setup()
        return
    require_brax()
    with tempfile.TemporaryDirectory(prefix="jaxrl_long_") as folder:
        print(processes.run(brax_command(options), Path(folder) / "brax.jsonl").output, end="")


if __name__ == "__main__":
    main()
