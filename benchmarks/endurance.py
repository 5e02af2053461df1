"""What makes agents last: one option at a time against the same training without it, at equal environment steps.

    python -m benchmarks.endurance env=ant seeds=0-2              # every option that is missing, one run after the other; stop and go on at will
    python -m benchmarks.endurance env=hopper options=rewind,base # only options of these names, or whose names hold these texts
    python -m benchmarks.endurance price env=walker2d             # how fast the task's own settings train, against the base, turn by turn

An agent is examined in 64 copies that are never reset, deterministic, undisturbed, for 20,000 steps or as `endurance=` says. Steps between failures are
those of all copies together; where none failed, a 95 % lower bound stands in. The price is what the first 1000 steps
pay, and steps/s in a measurement of its own: trainings that last minutes each are too far apart on a machine whose speed drifts.
"""

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks import learning, ours
from benchmarks.harness import RESULTS, Row, latest, numbers, once, parse

BASE, OWN = "base", "own settings"
PLAIN = {
    "hopper": "algorithm.lookahead=0 algorithm.discount=0.997 algorithm.lookahead_end=0 restart.every=1000",
    "walker2d": "algorithm.lookahead=100 algorithm.lookahead_end=0",
    "humanoid": "algorithm.lookahead=50 algorithm.lookahead_end=0 restart.source=pool",
}
"""What takes a task's own measures out of its settings: the base that options are compared with, and that OWN keeps."""

OPTIONS: dict[str, str] = {
    BASE: "",
    # To a horizon that does not restart episodes where the task's settings don't.
    OWN: "horizon=1000000",
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
    "no restarts + rewind": "restart.every=0 horizon=1000000 restart.source=rewind",
    "grows + failing costs": "algorithm.lookahead_end=1000 algorithm.failure_cost=100",
    "grows + rewind": "algorithm.lookahead_end=1000 restart.source=rewind",
    "grows + rewind + failing costs": "algorithm.lookahead_end=1000 restart.source=rewind algorithm.failure_cost=100",
    "no restarts + pushes": "restart.every=0 horizon=1000000 disturb.push=0.5",
    "no restarts + noisy muscles": "restart.every=0 horizon=1000000 disturb.action=0.2",
    "no restarts + grows + noisy muscles": "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000 disturb.action=0.2",
    "no restarts + grows": "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000",
    "no restarts + grows + rewind": "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000 restart.source=rewind",
    "no restarts + grows + entropy bonus falls": "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000 algorithm.entropy_schedule=linear",
    "no restarts + grows + rewind + failing costs": (
        "restart.every=0 horizon=1000000 algorithm.lookahead_end=1000 restart.source=rewind algorithm.failure_cost=100"
    ),
    f"{OWN} + averaged policy": "horizon=1000000 algorithm.average=0.98",
    f"{OWN} + failing costs": "horizon=1000000 algorithm.failure_cost=100",
    f"{OWN} + rewind": "horizon=1000000 restart.source=rewind",
    f"{OWN} + no restarts": "horizon=1000000 restart.every=0",
    f"{OWN} + noisy muscles": "horizon=1000000 disturb.action=0.2",
    f"{OWN} + pushes": "horizon=1000000 disturb.push=0.5",
    f"{OWN} + pushes + averaged policy": "horizon=1000000 disturb.push=0.5 algorithm.average=0.98",
    f"{OWN} + starts from the pool": "horizon=1000000 restart.source=pool",
    f"{OWN} + rewind + averaged policy": "horizon=1000000 restart.source=rewind algorithm.average=0.98",
    f"{OWN} + restarts": "horizon=1000000 restart.every=1000",
    f"{OWN} + restarts + noisy muscles": "horizon=1000000 restart.every=1000 disturb.action=0.2",
    f"{OWN} + restarts + pushes": "horizon=1000000 restart.every=1000 disturb.push=0.5",
}
"""Each option's settings, beside the task's own or, where it is more than those, in place of them. More steps are a run of their own: `steps=`."""


@dataclass(frozen=True)
class Options:
    """Which task, which options, and how the agents are examined."""

    env: str = "ant"
    seeds: str = "0-2"
    options: str = ""
    """Only options of these names or, where none has it, whose names hold this text; separated by commas."""
    steps: int = 0
    """Environment steps of a training; 0: the task's default."""
    endurance: int = 20_000
    num_envs: int = 64
    turns: int = 3
    """How often each side's speed is measured."""
    refresh: bool = False


def words(name: str, env: str) -> list[str]:
    """Settings of a training with an option, as a command line has them."""
    plain = "" if name.startswith(OWN) else PLAIN.get(env, "")
    return [*plain.split(), *OPTIONS[name].split()]


def run(name: str, seed: int, options: Options) -> Row:
    """Train one agent with an option, and examine it."""
    asked = {"steps": options.steps} if options.steps else {}
    examination = learning.Options(endurance=options.endurance, num_envs=options.num_envs)
    with ours.scratch() as folder:
        run_dir = Path(folder) / "run"
        trained = ours.train(run_dir, [*ours.words(env=options.env, seed=seed, **asked), *words(name, options.env)], timeout_s=7200.0)
        window_return = ours.evaluations(run_dir / ours.METRICS)[-1]["window_return"]
        found = learning.examine(run_dir, examination)
    last = trained.reports[-1]
    return {"window_return": window_return, "steps": last["env_steps"], "wall_s": last["wall_s"], **found}


def speed(name: str, options: Options) -> Row:
    """Steps/s of a short training with an option."""
    settings = ours.words(env=options.env, steps=options.steps or 1_500_000, eval__every=0)
    with ours.scratch() as folder:
        return {"steps_per_s": ours.train(Path(folder) / "run", [*settings, *words(name, options.env)]).steps_per_s}


def chosen(options: Options) -> list[str]:
    """Names of the options asked for, the base always among them. A text that belongs to none ends the process with exit code 2."""
    open_to = [name for name in OPTIONS if not name.startswith(OWN) or options.env in PLAIN]
    found = {BASE}
    for text in filter(None, options.options.split(",")):
        fitting = {text} if text in open_to else {name for name in open_to if text in name}
        if not fitting:
            refuse(f"options={text!r}: env={options.env} has no option whose name is or holds that. There are: {', '.join(open_to)}.")
        found |= fitting
    return [name for name in open_to if name in found or not options.options]


def refuse(message: str) -> NoReturn:
    """Say what is wrong, and end with exit code 2."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each task, option and seed."""
    return latest("endurance", "env", "option", "seed", "asked_steps", "endurance", results=results, kind="cpu")


def prices(results: Path = RESULTS) -> list[Row]:
    """The latest row of each task, option and turn of the measurement of speed."""
    return latest("endurance_price", "env", "option", "turn", results=results, kind="cpu")


def lasting(row: Row) -> float:
    """Steps between failures, or their lower bound where none was seen."""
    return row["steps_between_failures"] or row["steps_between_failures_at_least"]


def price(options: Options) -> None:
    """Both sides' speed, in alternation. A task without settings of its own has no price: exit code 2."""
    if options.env not in PLAIN:
        refuse(f"env={options.env} has no settings of its own that could cost anything. Those that have: {', '.join(PLAIN)}.")
    for turn in range(options.turns):
        for name in (BASE, OWN):
            key = {"env": options.env, "option": name, "turn": turn, "asked_steps": options.steps}
            once("endurance_price", key, functools.partial(speed, name, options), refresh=options.refresh)


def main() -> None:
    """Every row that is missing, seed by seed, so that a study that is stopped has compared all options on the same seeds."""
    verb, options = parse(Options, verbs=("price",))
    if verb:
        price(options)
        return
    for seed in numbers(options.seeds):
        for name in chosen(options):
            asked = {"asked_steps": options.steps, "endurance": options.endurance, "copies": options.num_envs}
            key = {"env": options.env, "option": name, "seed": seed, **asked}
            # What the base is does not change with the options that are tried again.
            again = options.refresh and (name != BASE or not options.options or BASE in options.options.split(","))
            once("endurance", key, functools.partial(run, name, seed, options), refresh=again)


if __name__ == "__main__":
    main()
