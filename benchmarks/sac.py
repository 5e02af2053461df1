"""Soft actor-critic, ours beside Brax's: what a budget of environment steps reaches, and how long it takes, start to end of the process.

    python -m benchmarks.sac env=reacher seeds=0-2     # one run after the other; stop it and start it again at will

Ours trains as `algorithm=sac env=...` does. Brax publishes SAC settings for hopper; the other tasks get them too, with their own discount and
without the scale that hopper's rewards need. Both are evaluated every tenth of the way on 64 deterministic copies over an episode.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours, peers, processes
from benchmarks.harness import RESULTS, ROOT, Row, jsonl, latest, numbers, once, parse
from jaxrl_long import cli, train

SCRIPT = ROOT / "benchmarks" / "peers" / "brax_sac.py"
THEIRS: dict[str, dict[str, float]] = {
    "hopper": {},
    "inverted_pendulum": {"discount": 0.99, "reward-scaling": 1.0},
    "reacher": {"discount": 0.98, "reward-scaling": 5.0, "episode-length": 200},
}
"""What the peer is told, beyond its published settings."""
EVALUATIONS = 10


@dataclass(frozen=True)
class Options:
    """Which task, and how far."""

    env: str = "reacher"
    seeds: str = "0-2"
    steps: int = 300_000
    only: str = ""
    """Only the side of this name."""
    refresh: bool = False


def measured(rows: list[Row]) -> Row:
    """What the last evaluation says, and the curve."""
    curve = [[row["env_steps"], row["wall_s"], row["window_return"]] for row in rows if row.get("window_return") is not None]
    steps, wall_s, reached = curve[-1]
    return {"steps": steps, "wall_s": wall_s, "window_return": reached, "curve": curve}


def run_ours(seed: int, options: Options) -> Row:
    """One training of ours, with an empty compilation cache as the peer has none."""
    with ours.scratch() as folder:
        run_dir = Path(folder) / "run"
        settings = ours.words(algorithm="sac", env=options.env, seed=seed, steps=options.steps, eval__num_envs=64, compilation_cache=Path(folder) / "cache")
        ours.train(run_dir, [*settings, *evaluated(options)], timeout_s=7200.0)
        return {**measured(jsonl(run_dir / ours.METRICS)), "settings": settings[:4]}


def evaluated(options: Options) -> list[str]:
    """Evaluate as often as the peer: every so many of the updates that these settings mean."""
    settings = cli.settings(train.COMMAND, *ours.words(algorithm="sac", env=options.env, steps=options.steps))
    return ours.words(eval__every=max(1, settings.updates // EVALUATIONS))


def run_brax(seed: int, options: Options) -> Row:
    """One training of the peer."""
    asked = {"env": options.env, "seed": seed, "steps": options.steps, "evals": 1 + EVALUATIONS, **THEIRS[options.env]}
    words = [f"--{name}={value}" for name, value in asked.items()]
    with ours.scratch() as folder:
        log = Path(folder) / "brax.jsonl"
        processes.run(peers.brax(SCRIPT, words), log, timeout_s=7200.0)
        start, *rows = jsonl(log)
    return {**measured(rows), **peers.brax_identity(), "jax": start["jax"], "settings": start["settings"]}


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each task, side and seed."""
    return latest("sac", "env", "side", "seed", "asked_steps", results=results, kind="cpu")


def main() -> None:
    """Every seed: ours, then theirs."""
    _, options = parse(Options)
    if options.env not in THEIRS:
        raise SystemExit(f"env={options.env}: there are settings of the peer for {', '.join(THEIRS)}.")
    if options.only in ("", "brax"):
        peers.require_brax()
    sides = {side: run for side, run in {"ours": run_ours, "brax": run_brax}.items() if options.only in ("", side)}
    for seed in numbers(options.seeds):
        for side, run in sides.items():
            key = {"env": options.env, "side": side, "seed": seed, "asked_steps": options.steps}
            once("sac", key, functools.partial(run, seed, options), refresh=options.refresh)


if __name__ == "__main__":
    main()
