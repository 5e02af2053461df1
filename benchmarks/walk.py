"""One trained agent walks far from home, and every now and then a step is taken again in float64.

    python -m benchmarks.walk run=runs/ant out=/tmp/walk floating_origin=true steps=1e6      # walks; one JSON line, and the steps to check in `out`
    JAX_ENABLE_X64=1 python -m benchmarks.walk reference env=ant backend=spring out=/tmp/walk # takes those steps in float64; one JSON line

`benchmarks/horizon.py` starts both. They are processes of their own, because jax is either a float32 or a float64 one.
"""

import functools
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, parse

CUT = 5_000
"""Steps of one dispatch."""
PER_DECADE = 4
GRAVITY = 9.81


@dataclass(frozen=True)
class Options:
    """Whose walk, and how far."""

    run: str = ""
    env: str = "ant"
    backend: str = "spring"
    """Physics of the reference."""
    floating_origin: bool = True
    steps: int = 1_000_000
    num_envs: int = 16
    seed: int = 0
    out: str = ""
    """Folder for the steps that are taken again."""


def marks(steps: int) -> list[int]:
    """The ages that are looked at: four in each decade from 100 on, and the last one."""
    ages = [round(10 ** (power / PER_DECADE)) for power in range(2 * PER_DECADE, 10 * PER_DECADE)]
    return [*(age for age in ages if age < steps), steps]


def whereabouts(state: Any) -> Any:
    """Distance of every copy along x, in m and float64: cells are whole numbers, only the rest was rounded."""
    import numpy as np

    from jaxrl_long.envs.floating_origin import CELL

    world = getattr(state, "world", state)
    local = np.asarray(world["x"].pos)[:, 0, 0].astype(np.float64)
    return local + CELL * np.asarray(state.cell)[:, 0].astype(np.float64) if hasattr(state, "cell") else local


def walk(options: Options) -> Row:
    """Let the copies walk; what they did at each mark, by name."""
    from jaxrl_long.config import EvaluateSettings
    from jaxrl_long.machine import find_machine
    from jaxrl_long.runtime import devices
    from jaxrl_long.stored import load_settings

    stored = load_settings(options.run)
    devices.prepare(find_machine(), devices=1)
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl_long.runtime import assessment
    from jaxrl_long.runtime.evaluation import make_evaluator, snapshot

    world = replace(stored.env, floating_origin=options.floating_origin)
    asked = EvaluateSettings(run=options.run, horizon=2**31 - 2, num_envs=options.num_envs, devices=1, env=world)
    agent = assessment.load(asked, stored)
    evaluator = make_evaluator(agent.program, options.num_envs)
    simulator, algorithm = agent.program.vector.simulator, agent.program.algorithm

    @jax.jit
    def next_step(learner: Any, env: Any, memory: Any) -> tuple[Any, Any]:
        action = algorithm.act(learner, env.obs, memory, env.age == 0, None).action
        return action, jax.vmap(simulator.step, in_axes=(0, 0, None))(env.sim, action, jax.random.key(0))

    state, done = evaluator.start(jax.random.key(options.seed)), 0
    curve: dict[str, list[Any]] = {"step": [], "going": [], "faulted": [], "lived": [], "score": [], "distance_m": []}
    checked: list[dict[str, Any]] = []
    for mark in marks(options.steps):
        while done < mark:
            count = min(CUT, mark - done)
            state, done = evaluator.advance(agent.learner, state, jnp.int32(count)), done + count
        seen = snapshot(state.tally)
        action, after = jax.device_get(next_step(agent.learner, state.env, state.memory))
        before = jax.device_get(state.env.sim)
        here = whereabouts(before)
        leaves = jax.tree.leaves(getattr(before, "world", before))
        found = {"going": seen.going, "action": action, "reward": after.reward, "moved": whereabouts(after.state) - here}
        checked.append({**found, **{f"leaf{number:03d}": leaf for number, leaf in enumerate(leaves)}})
        lived, score = int(seen.life.sum(dtype=np.int64)), float(seen.score.sum())
        far = float(np.abs(here[seen.going]).mean()) if seen.going.any() else None
        now = {"step": mark, "going": int(seen.going.sum()), "faulted": int(seen.faulted.sum()), "lived": lived, "score": score, "distance_m": far}
        for name, value in now.items():
            curve[name].append(value)
        print(f"{options.env} floating_origin={options.floating_origin}: {now}", file=sys.stderr, flush=True)
        if not now["going"]:
            break
    Path(options.out).mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: np.stack([step[name] for step in checked]) for name in checked[0]}
    np.savez(Path(options.out) / "steps.npz", **arrays)
    return curve


def reference(options: Options) -> Row:
    """Take the kept steps again in float64: errors of reward and displacement over the copies that were going, and the world's energy."""
    import jax
    import numpy as np

    from jaxrl_long.envs.brax import BraxSimulator

    if not jax.config.values["jax_enable_x64"]:
        message = "the reference needs float64: start it with JAX_ENABLE_X64=1."
        raise RuntimeError(message)
    simulator = BraxSimulator(options.env, options.backend)
    kept = dict(np.load(Path(options.out) / "steps.npz"))
    shape = jax.eval_shape(simulator.reset, jax.random.key(0)).state
    leaves = [kept[f"leaf{number:03d}"] for number in range(len(jax.tree.leaves(shape)))]
    wide = [leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf for leaf in leaves]
    state = jax.tree.unflatten(jax.tree.structure(shape), wide)
    step = jax.jit(jax.vmap(jax.vmap(functools.partial(again, simulator))))
    reward, moved, energy = jax.device_get(step(state, kept["action"].astype(np.float64)))
    going = kept["going"]

    def over(error: Any) -> list[float | None]:
        return [float(row[alive].mean()) if alive.any() else None for row, alive in zip(error, going, strict=True)]

    squared = over((kept["reward"] - reward) ** 2)
    return {
        "reward_error_rms": [None if value is None else value**0.5 for value in squared],
        "reward_error_mean": over(kept["reward"] - reward),
        "displacement_error_mean_m": over(kept["moved"] - moved),
        "energy_j": over(energy) if np.isfinite(energy).all() else [None] * len(going),
    }


def again(simulator: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
    """Reward, displacement along x (m) and energy before the step (J; kinetic of the links' centres, and height) of one step."""
    import jax
    import jax.numpy as jnp

    after = simulator.step(state, action, jax.random.key(0))
    moved = simulator.position(after.state)[0] - simulator.position(state)[0]
    physics = simulator.physics(state)
    if not hasattr(physics, "mass"):
        return after.reward, moved, jnp.nan
    kinetic = 0.5 * physics.mass * (physics.xd_i.vel**2).sum(axis=-1)
    return after.reward, moved, (kinetic + physics.mass * GRAVITY * physics.x_i.pos[:, 2]).sum()


def main() -> None:
    """Walk, or take the steps again; one JSON line."""
    verb, options = parse(Options, verbs=("reference",))
    print(json.dumps(reference(options) if verb == "reference" else walk(options)))


if __name__ == "__main__":
    main()
