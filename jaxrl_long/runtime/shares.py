"""Where the time of an update goes, measured on this machine with the run's own pieces."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
from jax.sharding import PartitionSpec as P

from jaxrl_long import __version__
from jaxrl_long.config import SPEED, Settings
from jaxrl_long.fields import to_plain
from jaxrl_long.launch import empty_rollout, state_specs
from jaxrl_long.runtime.folder import write_atomically
from jaxrl_long.trainer import AXIS, Program, TrainState, collect, improve, observe, store
from jaxrl_long.typing import Array

REPEATS = 3
LEAST = 0.1
"""Share of an update that has to be left for the simulator if it is taken to be what the other pieces leave."""


def measured(program: Program, settings: Settings, state: TrainState, update_s: float) -> dict[str, float]:
    """Shares of an update's time: simulate, infer, learn. Read from the cache where these settings were measured on this machine before."""
    cache = _cache_file(settings)
    try:
        return json.loads(cache.read_text()) if cache else keep(settings, *pieces(program, state, update_s), update_s)
    except (OSError, ValueError):
        pass
    return keep(settings, *pieces(program, state, update_s), update_s)


def pieces(program: Program, state: TrainState, update_s: float) -> tuple[float, float]:
    """Seconds that learning and inference take of an update, which takes `update_s`; what is left is the simulator's.

    Pieces alone take a little longer than within the fused update. Where they leave next to nothing, which may just be that,
    collecting is measured too, and the update divided as the pieces are.
    """
    learn_s, infer_s = _time(_learner(program), state), _time(_inference(program), state)
    if learn_s + infer_s < (1 - LEAST) * update_s:
        return learn_s, infer_s
    return divided(learn_s, infer_s, _time(_collector(program), state), update_s)


def divided(learn_s: float, infer_s: float, collect_s: float, update_s: float) -> tuple[float, float]:
    """An update's seconds of learning and of inference, in proportion to pieces that may take longer than all of it together.

    >>> divided(learn_s=6.0, infer_s=1.0, collect_s=2.0, update_s=4.0)
    (3.0, 0.5)
    """
    scale = update_s / (collect_s + learn_s)
    return learn_s * scale, min(infer_s, collect_s) * scale


def keep(settings: Settings, learn_s: float, infer_s: float, update_s: float) -> dict[str, float]:
    """The shares that these times are of an update's, kept for the next run with these settings."""
    shares = {"simulate": 1.0 - (learn_s + infer_s) / update_s, "infer": infer_s / update_s, "learn": learn_s / update_s}
    cache = _cache_file(settings)
    # Where they can't be kept, they are measured again.
    with suppress(OSError):
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, json.dumps(shares))
    return shares


def _learner(program: Program) -> Callable[[TrainState], Any]:
    """Everything of an update but `collect`, on a rollout of this state's observations."""

    def learn(state: TrainState) -> Any:
        row = empty_rollout(program, state.learner, state.env, state.memory)
        wide = replace(row, last_obs=(), memory=())
        rollout = jax.tree.map(lambda leaf: jnp.repeat(leaf, program.rollout_length, axis=0), wide)
        rollout = replace(rollout, last_obs=row.last_obs, memory=row.memory)
        state, _ = improve(program, store(program, state, rollout), rollout)
        state = observe(program, state, rollout)
        return state.learner, jax.lax.psum(jnp.sum(state.replay.cursor), AXIS)

    return _jitted(program, learn)


def _inference(program: Program) -> Callable[[TrainState], Any]:
    """The policy's part of `collect`: T decisions of every environment, in its blocks."""

    def infer(state: TrainState) -> Array:
        def step(total: Array, t: Array) -> tuple[Array, None]:
            keys = jax.vmap(lambda index: jax.random.fold_in(jax.random.fold_in(state.key, t), index))(state.env.index)
            decision = program.algorithm.act(state.learner, state.env.obs, state.memory, state.env.age == 0, keys)
            return total + jnp.sum(decision.log_prob), None

        return jax.lax.psum(jax.lax.scan(step, jnp.float32(0), jnp.arange(program.rollout_length))[0], AXIS)

    return _jitted(program, infer)


def _collector(program: Program) -> Callable[[TrainState], Any]:
    """`collect`, of which everything is used."""

    def gather(state: TrainState) -> Array:
        state, rollout, _, _ = collect(program, state)
        leaves = [leaf for leaf in jax.tree.leaves((state.env, rollout)) if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
        return jax.lax.psum(sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in leaves), AXIS)

    return _jitted(program, gather)


def _jitted(program: Program, function: Callable[[TrainState], Any]) -> Callable[[TrainState], Any]:
    def on_mesh(state: TrainState) -> Any:
        return jax.shard_map(function, mesh=program.mesh, in_specs=(state_specs(state),), out_specs=P(), check_vma=False)(state)

    return jax.jit(on_mesh)


def _time(function: Callable[[TrainState], Any], state: TrainState) -> float:
    """The shortest of a few runs, in seconds, after one that compiles."""
    jax.block_until_ready(function(state))
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(function(state))
        times.append(time.perf_counter() - begin)
    return min(times)


def _cache_file(settings: Settings) -> Path | None:
    """Beside the compiled programs; None where those are not kept either."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    if folder is None:
        return None
    plain = to_plain(settings)
    device = jax.local_devices()[0]
    what = [plain[name] for name in SPEED] + [device.device_kind, jax.__version__, jaxlib.__version__, __version__]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return Path(folder) / "shares" / f"{digest}.json"
