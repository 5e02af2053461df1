"""What a floating origin saves: the reward error of an ant far away, against the same ant at the origin.

    python -m benchmarks.floating_origin env=ant backend=spring offset=300000
    python -m benchmarks.floating_origin survey        # every task whose physics does not care where it is, on every backend

The same states take the same random actions three times: at the origin; far away, carried as whole cells beside a local position; far away
in plain float32. Rows go to results/floating_origin.jsonl.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, Row, latest, once, parse


@dataclass(frozen=True)
class Options:
    """Which world, how far away, how many copies."""

    env: str = "ant"
    backend: str = "spring"
    offset: int = 300_000
    """Distance from the origin, m."""
    local: int = 30
    """Local position of the carried ant at the start, m."""
    steps: int = 20
    num_envs: int = 64
    warmup: int = 50
    """Random steps from the start before anything is compared, so that the ants are moving."""
    refresh: bool = False


def rewards(simulator: Any, state: Any, actions: Any) -> tuple[Any, Any]:
    """Step the copies through `actions` [T, N, A]: the last state and the rewards [T, N]."""
    import jax

    key = jax.random.key(0)

    def step(state: Any, action: Any) -> tuple[Any, Any]:
        after = jax.vmap(simulator.step, in_axes=(0, 0, None))(state, action, key)
        return after.state, after.reward

    return jax.jit(functools.partial(jax.lax.scan, step))(state, actions)


def measure(options: Options) -> Row:
    """Root mean square reward errors over all copies and steps, with the floating origin and without."""
    import jax
    import jax.numpy as jnp

    from jaxrl_long.envs.brax import BraxSimulator
    from jaxrl_long.envs.floating_origin import CELL, Floating, FloatingOrigin

    plain: Any = BraxSimulator(options.env, options.backend)
    floating = FloatingOrigin(plain)
    shape = (options.warmup + options.steps, options.num_envs, plain.action.size)
    actions = jax.random.uniform(jax.random.key(1), shape, minval=-1.0, maxval=1.0)
    start = jax.vmap(plain.reset)(jax.random.split(jax.random.key(2), options.num_envs)).state
    state, _ = rewards(plain, start, actions[: options.warmup])
    actions = actions[options.warmup :]

    moved = jax.vmap(plain.shift, in_axes=(0, None))
    cell = jnp.full((options.num_envs, 2), 0, jnp.int32).at[:, 0].set(round(options.offset / CELL))
    carried = Floating(moved(state, jnp.array([float(options.local), 0.0, 0.0])), cell)
    _, near = rewards(plain, state, actions)
    _, floated = rewards(floating, carried, actions)
    _, far = rewards(plain, moved(state, jnp.array([float(options.offset), 0.0, 0.0])), actions)
    rms = {name: float(jnp.sqrt(jnp.mean((reward - near) ** 2))) for name, reward in (("floating", floated), ("plain", far))}
    return {"floating_rms": rms["floating"], "plain_rms": rms["plain"], "reward_std": float(near.std())}


def worlds() -> list[tuple[str, str]]:
    """Every task that a floating origin is the default of, on every backend."""
    from jaxrl_long.envs.brax import TRANSLATES
    from jaxrl_long.rules import environments

    return [(env, backend) for env in TRANSLATES for backend in environments()[env].backends]


def newest(results: Path = RESULTS) -> list[Row]:
    """The latest row of each world and distance."""
    return latest("floating_origin", "env", "backend", "offset", results=results, kind="cpu")


def recorded(options: Options) -> Row:
    """The row of these options, measured now if there is none."""
    key = {name: value for name, value in vars(options).items() if name != "refresh"}
    return once("floating_origin", key, functools.partial(measure, options), refresh=options.refresh)


def main() -> None:
    """Measure once, print the row; a survey measures each world in a process of its own, whose memory is then free again."""
    verb, options = parse(Options, verbs=("survey",))
    if verb != "survey":
        print(recorded(options))
        return
    for env, backend in worlds():
        asked = ours.words(env=env, backend=backend, offset=options.offset, refresh=str(options.refresh).lower())
        with ours.scratch() as scratch:
            output = processes.run(processes.module("benchmarks.floating_origin", *asked), Path(scratch) / "log").output
        print(output.strip(), flush=True)


if __name__ == "__main__":
    main()
