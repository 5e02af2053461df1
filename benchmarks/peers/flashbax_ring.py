"""flashbax's trajectory buffer as a measured peer: JSON lines. Stands alone, in an environment that has flashbax (`benchmarks/replay.py` starts it).

    python benchmarks/peers/flashbax_ring.py --rows 100000 --envs 16 --rollout 8 --batch 256 --window 2

One call adds a rollout and draws a batch of windows, two thousand times over, inside one jitted, donating program. The buffer is full, so that
draws go everywhere.
"""

import argparse
import functools
import importlib.metadata
import json
import statistics
import time
from typing import Any


def main() -> None:
    """Print the median seconds of one addition and draw."""
    parser = argparse.ArgumentParser()
    for name, default in (
        ("rows", 100_000),
        ("envs", 16),
        ("rollout", 8),
        ("batch", 256),
        ("window", 2),
        ("obs", 27),
        ("action", 8),
        ("repeats", 9),
        ("turns", 2000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()

    import flashbax
    import jax
    import jax.numpy as jnp

    one = {
        "obs": jnp.zeros(args.obs),
        "action": jnp.zeros(args.action),
        "reward": jnp.zeros(()),
        "terminated": jnp.zeros((), bool),
        "truncated": jnp.zeros((), bool),
    }
    buffer: Any = flashbax.make_trajectory_buffer(
        add_batch_size=args.envs,
        sample_batch_size=args.batch,
        sample_sequence_length=args.window,
        period=1,
        min_length_time_axis=args.window,
        max_length_time_axis=args.rows,
    )
    rollout = jax.tree.map(lambda leaf: jnp.ones((args.envs, args.rollout, *leaf.shape), leaf.dtype), one)

    def turn(state: Any, key: Any) -> tuple[Any, Any]:
        state = buffer.add(state, rollout)
        drawn = buffer.sample(state, key).experience
        return state, sum(jnp.sum(leaf) for leaf in jax.tree.leaves(drawn))

    @functools.partial(jax.jit, donate_argnums=0)
    def turns(state: Any, key: Any) -> tuple[Any, Any]:
        state, sums = jax.lax.scan(turn, state, jax.random.split(key, args.turns))
        return state, jnp.sum(sums)

    state = jax.jit(lambda: buffer.init(one).replace(is_full=jnp.array(True)))()
    state, _ = jax.block_until_ready(turns(state, jax.random.key(0)))
    seconds = []
    for number in range(args.repeats):
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(turns(state, jax.random.key(number)))
        seconds.append((time.perf_counter() - begin) / args.turns)
    print(json.dumps({"turn_s": statistics.median(seconds), "full": True, "flashbax": importlib.metadata.version("flashbax"), "jax": jax.__version__}))


if __name__ == "__main__":
    main()
