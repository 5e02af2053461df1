"""The ceiling: steps/s of a Brax environment alone, and with a policy that chooses its actions.

    python -m benchmarks.rollout env=ant num_envs=256                    # random actions, nothing learnt
    python -m benchmarks.rollout env=ant num_envs=256 policy=64,64       # actions sampled by a network of that size
    python -m benchmarks.rollout survey                                  # ant over numbers of environments, every task, every backend

Uses Brax directly, without a restart, a clock or a score, so that nothing of ours can slow the ceiling that we are measured against.
The environments are split over all CPU cores (or GPUs), and each device steps them in blocks; the best block size is the ceiling.
"""

import functools
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import ours, processes
from benchmarks.harness import RESULTS, Row, latest, numbers, once, parse, record, timed

COUNTS = (64, 256, 1024, 4096)
"""Environments of ant, to see what more of them bring."""
SURVEYED = "64"
"""Block size of the survey, whatever `blocks` says: what training takes on a CPU."""
TASKS = ("ant", "halfcheetah", "hopper", "walker2d", "humanoid", "reacher", "pusher", "inverted_pendulum")
BACKENDS = ("spring", "positional", "generalized", "mjx")


@dataclass(frozen=True)
class Options:
    """What is rolled out, and how."""

    env: str = "ant"
    backend: str = "spring"
    num_envs: int = 256
    devices: int = 0
    """Devices the environments are split over; 0: all GPUs, or one CPU device per core."""
    blocks: str = "32,64,128,0"
    """Environments stepped at once on a device, to try one after the other; 0: all of them. Sizes that do not divide are left out."""
    steps: int = 100
    """Steps of every environment per timed call."""
    repeats: int = 5
    policy: str = ""
    """Widths of the hidden layers; empty: random actions."""
    turn: int = 0
    """Number of the measurement among its repetitions."""
    write: bool = True
    """Append the row to benchmarks/results/rollout.jsonl."""


def block_sizes(blocks: str, per_device: int, most: int = 0) -> list[int]:
    """The sizes to try, ascending: those that divide the environments of a device, up to `most` (0: any); and all of them for 0."""
    asked = [size or per_device for size in numbers(blocks)]
    most = min(per_device, most or per_device)
    largest = max(size for size in range(1, most + 1) if per_device % size == 0)
    return sorted({size for size in asked if size <= most and per_device % size == 0}) or [largest]


def choose(key: Any, obs: Any, size: int, weights: list[Any]) -> Any:
    """Actions [block, size]: uniform noise where there are no weights, else a tanh-normal draw around a network's output."""
    import jax
    import jax.numpy as jnp

    if not weights:
        return jax.random.uniform(key, (obs.shape[0], size), minval=-1.0, maxval=1.0)
    for weight in weights[:-1]:
        obs = jax.nn.swish(obs @ weight)
    return jnp.tanh(obs @ weights[-1] + jax.random.normal(key, (obs.shape[0], size)))


def roll_block(state_and_key: Any, weights: list[Any], *, env: Any, steps: int) -> Any:
    """Step one block `steps` times."""
    import jax

    def step(carry: Any, _: None) -> tuple[Any, None]:
        state, key = carry
        key, action_key = jax.random.split(key)
        return (jax.vmap(env.step)(state, choose(action_key, state.obs, env.action_size, weights)), key), None

    return jax.lax.scan(step, state_and_key, None, length=steps)[0]


def roll(state: Any, keys: Any, weights: list[Any], *, env: Any, steps: int, block: int) -> tuple[Any, Any]:
    """One device's environments [n, ...] in blocks; `keys` is [1] and comes back advanced."""
    import jax

    count = state.reward.shape[0]
    blocks = jax.tree.map(lambda leaf: leaf.reshape(count // block, block, *leaf.shape[1:]), state)
    next_key, *block_keys = jax.random.split(keys[0], 1 + count // block)
    one = functools.partial(roll_block, weights=weights, env=env, steps=steps)
    out, _ = jax.lax.map(one, (blocks, jax.numpy.stack(block_keys)))
    return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), out), next_key[None]


def layers(policy: str, obs_size: int, action_size: int) -> list[Any]:
    """Random weights of the policy's layers, without biases; none for an empty `policy`."""
    import jax

    if not policy:
        return []
    widths = [obs_size, *numbers(policy), action_size]
    keys = jax.random.split(jax.random.key(2), len(widths))
    return [jax.random.normal(key, (i, o)) / i**0.5 for key, i, o in zip(keys, widths[:-1], widths[1:], strict=False)]


def measure(options: Options) -> Row:
    """The row of one measurement: the best block's rate with its quartiles, every block's median, compile seconds."""
    import jax
    import numpy as np
    from brax import envs

    from jaxrl_long.envs.brax import solved_at_once
    from jaxrl_long.envs.vector import each

    count = options.devices or jax.local_device_count()
    if options.num_envs % count:
        message = f"num_envs={options.num_envs} can't be split over {count} devices. Nearest: {options.num_envs // count * count or count}."
        raise SystemExit(message)
    env: Any = envs.get_environment(options.env, backend=options.backend)
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:count]), ("devices",))
    split = jax.sharding.PartitionSpec("devices")
    sharding = jax.sharding.NamedSharding(mesh, split)
    weights = layers(options.policy, env.observation_size, env.action_size)
    most = solved_at_once(options.backend, env.sys.qd_size())
    reset = jax.jit(lambda keys: each(env.reset, most, keys))
    found = {}
    for block in block_sizes(options.blocks, options.num_envs // count, most):
        state = jax.device_put(reset(jax.random.split(jax.random.key(0), options.num_envs)), sharding)
        keys = jax.device_put(jax.random.split(jax.random.key(1), count), sharding)
        device_roll = functools.partial(roll, weights=weights, env=env, steps=options.steps, block=block)
        program = jax.jit(jax.shard_map(device_roll, mesh=mesh, in_specs=(split, split), out_specs=split, check_vma=False))
        found[block], _ = timed(lambda carry, program=program: program(*carry), (state, keys), repeats=options.repeats)
        print(json.dumps({"block": block, "steps_per_s": rate(options, found[block].median_s), "compile_s": round(found[block].compile_s, 1)}), flush=True)
    best = min(found, key=lambda block: found[block].median_s)
    return {
        "steps_per_s": rate(options, found[best].median_s),
        "steps_per_s_low": rate(options, found[best].high_s),
        "steps_per_s_high": rate(options, found[best].low_s),
        "block": best,
        "block_rates": {str(block): rate(options, timing.median_s) for block, timing in found.items()},
        "compile_s": round(found[best].compile_s, 1),
        "devices": count,
    }


def rate(options: Options, seconds: float) -> int:
    """Environment steps per second of a call that took `seconds`."""
    return round(options.num_envs * options.steps / seconds)


def worlds() -> list[Row]:
    """What the survey measures: ant over COUNTS, then each task and each backend of ant at 256, none of them twice."""
    asked = [("ant", "spring", count) for count in COUNTS] + [(task, "spring", 256) for task in TASKS] + [("swimmer", "generalized", 256)]
    asked += [("ant", name, 256) for name in BACKENDS]
    return [{"env": env, "backend": backend, "num_envs": count} for env, backend, count in dict.fromkeys(asked)]


def surveyed(world: Row, options: Options) -> Row:
    """One world's row, from a process of its own."""
    with ours.scratch() as folder:
        words = ours.words(**world, blocks=SURVEYED, steps=options.steps, repeats=options.repeats, write="false")
        return processes.run(processes.module("benchmarks.rollout", *words), Path(folder) / "rollout.jsonl").rows[-1]


def survey(options: Options) -> None:
    """Every world that is missing, one after the other."""
    for world in worlds():
        once("rollout", {**world, "survey": True}, functools.partial(surveyed, world, options))


def newest(results: Path = RESULTS) -> list[Row]:
    """The survey's latest row of each world."""
    return latest("rollout", "env", "backend", "num_envs", results=results, kind="cpu", survey=True)


def main() -> None:
    """Measure, print one JSON line, append it to the results."""
    verb, options = parse(Options, verbs=("survey",))
    if verb == "survey":
        survey(options)
        return
    # Brax greets with a notice about its maintenance.
    warnings.filterwarnings("ignore", category=UserWarning, module="brax")
    import jax

    jax.config.update("jax_num_cpu_devices", options.devices or os.cpu_count() or 1)
    settings = {name: value for name, value in asdict(options).items() if name not in {"write", "devices"}}
    row = {**settings, **measure(options)}
    print(json.dumps(record("rollout", row) if options.write else row), flush=True)


if __name__ == "__main__":
    main()
