"""How much memory a program's state takes, and whether that is there, before any of it is allocated."""

from typing import Any

import jax

from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import devices, memory
from jaxrl_long.trainer import Program, TrainState


def needed(program: Program, shapes: TrainState) -> memory.Need:
    """Bytes of a train state: each device's share, and what every device has a copy of."""
    return memory.Need(program.mesh.size * _bytes((shapes.learner, shapes.starts)), _bytes((shapes.env, shapes.archive, shapes.memory)), _bytes(shapes.replay))


def room(program: Program) -> int:
    """Bytes that can still be taken: on the host where the devices are its cores, otherwise on all devices together."""
    if program.mesh.devices.flat[0].platform == "cpu":
        return memory.available_host_bytes()
    # Shares are equal: the fullest device decides.
    return min(_free(device) for device in program.mesh.devices.flat) * program.mesh.size


def _free(device: Any) -> int:
    statistics = device.memory_stats() or {}
    return statistics.get("bytes_limit", devices.describe()["memory_bytes"]) - statistics.get("bytes_in_use", 0)


def require(settings: Settings, program: Program, shapes: TrainState) -> None:
    """Raise ConfigError, with what would fit, if the state does not."""
    if refused := memory.refusal(settings, needed(program, shapes), room(program)):
        raise ConfigError([refused])


def _bytes(tree: Any) -> int:
    leaves = [jax.eval_shape(jax.random.key_data, leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in jax.tree.leaves(tree)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
