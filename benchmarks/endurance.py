"""What makes agents last: one option at a time against the same training without it, at equal environment steps.

    python -m benchmarks.endurance env=ant seeds=0-2              # every option that is missing, one run after the other; stop and go on at will
    python -m benchmarks.endurance env=hopper options=rewind      # only those whose name holds this text

An agent is examined in 64 copies that are never reset, deterministic, undisturbed, for 20,000 steps or as `endurance=` says. Steps between failures are
those of all copies together; where none failed, a 95 % lower bound stands in. The price is what the first 1000 steps
pay and how fast the training was, both against the base's median.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks import learning, ours
from benchmarks.harness import RESULTS, Row, latest, numbers, once, parse

BASE, OWN = "base", "own settings"
PLAIN = {"walker2d": "algorithm.lookahead=100 algorithm.lookahead_end=0", "humanoid": "algorithm.lookahead=50 algorithm.lookahead_end=0"}
"""What takes a task's own measures out of its settings: the base that options are compared with, and that OWN keeps."""

OPTIONS: dict[str, str] = {
    BASE: "",
    OWN: "",
    "lookahead 100": "algorithm.lookahead=100",
    "lookahead 1000": "algorithm.lookahead=1000",
    "lookahead grows to 1000": "algorithm.lookahead_end=1000",
    "failing costs 100 steps": "algorithm.failure_cost=100",
    "no entropy bonus": "algorithm.entropy=0",
    "entropy bonus falls": "algorithm.entropy_schedule=linear",
    "constant learning rate": "algorithm.schedule=constant",
    "averaged policy": "algorithm.average=0.98",
    "wider networks": "algorithm.policy_layers=[128,128] algorithm.value_layers=[256,256]",
    "pushes": "disturb.push=0.5",
    "noisy senses": "disturb.observation=0.05",
    "noisy muscles": "disturb.action=0.2",
    "other masses and frictions": "disturb.mass=0.3 disturb.friction=0.3",
    "random restarts": "restart.random=true",
    "no restarts": "restart.every=0 horizon=1000000",
    "rewind": "restart.source=rewind",
    "archive": "restart.source=archive",
    "no restarts, rewind": "restart.every=0 horizon=1000000 restart.source=rewind",
    "grows, failing costs": "algorithm.lookahead_end=1000 algorithm.failure_cost=100",
    "grows, rewind": "algorithm.lookahead_end=1000 restart.source=rewind",
    "grows, rewind, failing costs": "algorithm.lookahead_end=1000 restart.source=rewind algorithm.failure_cost=100",
    "no restarts, grows, rewind, failing costs": (
        "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000 restart.source=rewind algorithm.failure_cost=100"
    ),
}
"""Each option's settings, beside the task's own. More steps are a run of their own: `steps=`."""


@dataclass(frozen=True)
class Options:
    """Which task, which options, and how the agents are examined."""

    env: str = "ant"
    seeds: str = "0-2"
    options: str = ""
    """Only options whose name holds this text."""
    steps: int = 0
    """Environment steps of a training; 0: the task's default."""
    endurance: int = 20_000
    num_envs: int = 64
    refresh: bool = False


def run(name: str, seed: int, options: Options) -> Row:
    """Train one agent with an option, and examine it."""
    asked = {"steps": options.steps} if options.steps else {}
    plain = "" if name == OWN else PLAIN.get(options.env, "")
    words = [*ours.words(env=options.env, seed=seed, **asked), *plain.split(), *OPTIONS[name].split()]
    examination = learning.Options(endurance=options.endurance, num_envs=options.num_envs)
    with ours.scratch() as folder:
        run_dir = Path(folder) / "run"
        trained = ours.train(run_dir, words, timeout_s=7200.0)
        window_return = ours.evaluations(run_dir / ours.METRICS)[-1]["window_return"]
        found = learning.examine(run_dir, examination)
    last = trained.reports[-1]
    return {"window_return": window_return, "steps": last["env_steps"], "wall_s": last["wall_s"], "steps_per_s": trained.steps_per_s, **found}


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each task, option and seed."""
    return latest("endurance", "env", "option", "seed", "asked_steps", "endurance", results=results, kind="cpu")


def lasting(row: Row) -> float:
    """Steps between failures, or their lower bound where none was seen."""
    return row["steps_between_failures"] or row["steps_between_failures_at_least"]


def main() -> None:
    """Every row that is missing, seed by seed, so that a study that is stopped has compared all options on the same seeds."""
    _, options = parse(Options)
    chosen = [name for name in OPTIONS if (options.options in name or name == BASE) and (name != OWN or options.env in PLAIN)]
    for seed in numbers(options.seeds):
        for name in chosen:
            asked = {"asked_steps": options.steps, "endurance": options.endurance, "copies": options.num_envs}
            key = {"env": options.env, "option": name, "seed": seed, **asked}
            once("endurance", key, functools.partial(run, name, seed, options), refresh=options.refresh)


if __name__ == "__main__":
    main()
