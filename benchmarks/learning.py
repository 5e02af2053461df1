"""What training reaches and how long the agents last, over seeds, with a task's default settings.

    python -m benchmarks.learning env=ant seeds=0-4 steps=4e6 horizon=1e6
    python -m benchmarks.learning env=ant seeds=0 steps=5e6 horizon=1e6 endurance=1e6      # one of them, for a million steps
    python -m benchmarks.learning env=reacher seeds=0-2
    python -m benchmarks.learning random env=reacher       # the return of random actions, for tasks whose returns say little alone

Each run is a row in results/learning.jsonl as soon as its agent has been evaluated; seeds that are there already are passed over.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours
from benchmarks.harness import Row, numbers, once, parse

DAY_S = 86_400.0


@dataclass(frozen=True)
class Options:
    """Which task, how far, and how the agents are examined."""

    env: str = "ant"
    backend: str = "spring"
    """Of the random policy; training uses the task's default."""
    seeds: str = "0-4"
    steps: int = 0
    """Environment steps of a run; 0: the task's default."""
    horizon: int = 0
    """Steps until the task truncates, in training; 0: the task's default."""
    settings: str = ""
    """Further settings for training, separated by spaces."""
    endurance: int = 16_000
    """Steps of the examination, in which nothing restarts."""
    num_envs: int = 64
    """Copies examined."""
    refresh: bool = False


def examine(folder: Path, options: Options) -> Row:
    """How the agent in a run's folder lasts over the whole examination, and what its first 1000 steps paid for comparison."""
    whole = ours.evaluate(folder, horizon=options.endurance, num_envs=options.num_envs, timeout_s=DAY_S)
    names = ("alive", "alive_at", "reward_per_step", "median_life", "steps_between_failures", "steps_between_failures_at_least")
    found = {name: whole[name] for name in names}
    by_age = list(whole["reward_per_step_by_age"].values())
    # The ages before 1000, and the last decade that any copy has lived in.
    rates = {"first_reward_per_step": by_age[0], "last_reward_per_step": next(rate for rate in reversed(by_age) if rate is not None)}
    return {**found, **rates, "endurance": options.endurance, "copies": options.num_envs}


def run(seed: int, options: Options) -> Row:
    """Train one agent in a scratch folder and examine it."""
    asked = {name: getattr(options, name) for name in ("steps", "horizon") if getattr(options, name)}
    with ours.scratch() as folder:
        run_dir = Path(folder) / "run"
        words = [*ours.words(env=options.env, seed=seed, **asked), *options.settings.split()]
        trained = ours.train(run_dir, words, timeout_s=7200.0)
        curve = ours.evaluations(run_dir / ours.METRICS)
        found = examine(run_dir, options)
    reports = trained.reports
    measured = {"steps": reports[-1]["env_steps"], "wall_s": reports[-1]["wall_s"], "steps_per_s": trained.steps_per_s}
    kept = {"window_return": curve[-1]["window_return"], **{name: curve[-1].get(name) for name in ("success_rate", "eval_success_rate")}}
    kept["training_steps_between_failures"] = reports[-1].get("steps_between_failures")
    return {**measured, **kept, **found, "curve": [[row["env_steps"], row["wall_s"], row["window_return"]] for row in curve]}


def random_return(options: Options) -> Row:
    """Mean return of uniformly random actions over 1000 steps or until the task ends, over `num_envs` copies; Brax by itself."""
    import jax
    import jax.numpy as jnp
    from brax import envs

    env = envs.get_environment(options.env, backend=options.backend)
    start = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), options.num_envs))
    alive = jnp.ones(options.num_envs)

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        state, alive = carry
        after = jax.vmap(env.step)(state, jax.random.uniform(key, (options.num_envs, env.action_size), minval=-1.0, maxval=1.0))
        return (after, alive * (1 - after.done)), (after.reward * alive).mean()

    _, reward = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))((start, alive), jax.random.split(jax.random.key(1), 1000))
    return {"window_return": round(float(reward.sum()), 1), "copies": options.num_envs}


def main() -> None:
    """Every seed that is missing, one after the other."""
    verb, options = parse(Options, verbs=("random",))
    if verb == "random":
        key = {"env": options.env, "backend": options.backend}
        print(once("random_policy", key, functools.partial(random_return, options), refresh=options.refresh))
        return
    for seed in numbers(options.seeds):
        asked = {"asked_steps": options.steps, "asked_horizon": options.horizon, "settings": options.settings, "endurance": options.endurance}
        once("learning", {"env": options.env, "seed": seed, **asked}, functools.partial(run, seed, options), refresh=options.refresh)


if __name__ == "__main__":
    main()
