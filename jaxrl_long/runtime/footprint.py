"""How much memory a program's state takes, and whether that is there, before any of it is allocated."""

from typing import Any

import jax

from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import devices, memory
from jaxrl_long.trainer import Program, TrainState


def needed(shapes: TrainState) -> memory.Need:
    """Bytes of a train state, all devices' shares together and what they have in common once."""
    return memory.Need(_bytes(shapes.learner), _bytes((shapes.env, shapes.starts, shapes.memory)), _bytes(shapes.replay))


def room(program: Program) -> int:
    """Bytes that can still be taken: on the host where the devices are its cores, otherwise on all devices together."""
    device = program.mesh.devices.flat[0]
    if device.platform == "cpu":
        return memory.available_host_bytes()
    statistics = device.memory_stats() or {}
    free = statistics.get("bytes_limit", devices.describe()["memory_bytes"]) - statistics.get("bytes_in_use", 0)
    return free * program.mesh.size


def require(settings: Settings, program: Program, shapes: TrainState) -> None:
    """Raise ConfigError, with what would fit, if the state does not."""
    if refused := memory.refusal(settings, needed(shapes), room(program)):
        raise ConfigError([refused])


def _bytes(tree: Any) -> int:
    leaves = [jax.eval_shape(jax.random.key_data, leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in jax.tree.leaves(tree)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
