"""How much memory a program's state takes, and whether that is there, before any of it is allocated."""

import math
from dataclasses import replace
from typing import Any

import jax

from jaxrl_long.config import MAX_INT32, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import state_shapes
from jaxrl_long.runtime import assemble, devices, memory
from jaxrl_long.trainer import Program, TrainState


def needed(program: Program, shapes: TrainState) -> memory.Need:
    """Bytes of a train state on all devices: their shares, and what each of them has a copy of."""
    parts = ((shapes.learner, shapes.starts), (shapes.env, shapes.archive, shapes.memory), shapes.replay)
    return memory.Need(*(program.mesh.size * sum(_bytes_on_one(leaf) for leaf in jax.tree.leaves(part)) for part in parts))


def room(program: Program) -> int:
    """Bytes that can still be taken: on the host where the devices are its cores, otherwise on all devices together."""
    if program.mesh.devices.flat[0].platform == "cpu":
        return memory.available_host_bytes()
    # Shares are equal: the fullest device decides.
    return min(_free(device) for device in program.mesh.devices.flat) * program.mesh.size


def _free(device: Any) -> int:
    statistics = device.memory_stats() or {}
    return statistics.get("bytes_limit", devices.describe()["memory_bytes"]) - statistics.get("bytes_in_use", 0)


AUTO = 0.5
"""Share of the free memory that the whole run takes with `replay.memory=auto`."""


def settled(settings: Settings) -> Settings:
    """The same settings with a ring as large as `replay.memory` allows, if that is asked.

    Raises:
        ConfigError: not even the least ring fits.
    """
    if settings.replay.capacity or not settings.replay.memory:
        return settings
    program = assemble.program(_with_ring(settings, least := settings.rollouts_least))
    need = needed(program, state_shapes(program))
    asked = settings.replay.memory_bytes()
    allowed = AUTO * room(program) - need.parameters - need.environments if asked is None else asked
    if need.ring > allowed:
        left = "" if asked else f", but {memory.gigabytes(max(0.0, allowed))} are left for it"
        near = f"replay.memory={-(-need.ring // 10**6)}MB or fewer environments"
        raise ConfigError([f"replay.memory={settings.replay.memory}: the least ring takes {memory.gigabytes(need.ring)}{left}. Nearest: {near}."])
    # Beyond a few rollouts every further one takes the same.
    some, more = (_ring_bytes(settings, number) for number in (16 * least, 32 * least))
    rollouts = int(16 * least * (1 + (allowed - some) / (more - some)))
    rollouts = max(least, min(rollouts, MAX_INT32 // settings.samples_per_update))
    # What does not grow evenly (priorities double at powers of two) is found by halving; `fits` always does.
    fits, most = least, rollouts
    while fits < most:
        if _ring_bytes(settings, rollouts) <= allowed:
            fits = rollouts
        else:
            most = rollouts - 1
        rollouts = (fits + most + 1) // 2
    return _with_ring(settings, fits)


def _ring_bytes(settings: Settings, rollouts: int) -> int:
    program = assemble.program(_with_ring(settings, rollouts))
    return needed(program, state_shapes(program)).ring


def _with_ring(settings: Settings, rollouts: int) -> Settings:
    return replace(settings, replay=replace(settings.replay, capacity=rollouts * settings.samples_per_update))


def require(settings: Settings, program: Program, shapes: TrainState) -> None:
    """Raise ConfigError, with what would fit, if the state does not."""
    if refused := memory.refusal(settings, needed(program, shapes), room(program)):
        raise ConfigError([refused])


def _bytes_on_one(leaf: Any) -> int:
    """Of one device's share."""
    stored = jax.eval_shape(jax.random.key_data, leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    shared = math.prod(leaf.sharding.shard_shape(leaf.shape)) / max(1, math.prod(leaf.shape))
    return round(math.prod(stored.shape) * shared) * stored.dtype.itemsize
