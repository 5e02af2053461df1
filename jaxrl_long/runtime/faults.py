"""What is kept of an environment whose physics broke, and the step taken again from it."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long.envs.simulator import Simulator
from jaxrl_long.fields import ConfigError
from jaxrl_long.trainer import Fault
from jaxrl_long.typing import PyTree


def dump(folder: Path, fault: Fault) -> str:
    """Write the first broken environment of a chunk to `folder`/faults as plain arrays; returns a sentence about it.

    `sim<path>` are the leaves of the simulator's state before the step, `action` what it was given, `key` the data of the key
    that VectorEnv's step was given for it.
    """
    first = int(np.argmax(jax.device_get(fault.found)))
    one = jax.tree.map(lambda leaf: leaf[first], fault)
    update, index = int(one.update), int(one.index)
    path = folder / "faults" / f"update-{update}-environment-{index}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, allow_pickle=False, action=np.asarray(one.action), key=_plain(one.key), **_named("sim", one.sim))
    return f"environment {index} gave a non-finite number in update {update}: it was restarted, the others are untouched. Its state before: {path}"


@dataclass(frozen=True)
class Replay:
    """A step that was taken again."""

    action: np.ndarray
    reward: float
    before: dict[str, str]
    """Non-finite leaves of the state before the step: `2 of 27`, by name. Empty where the step itself is at fault."""
    after: dict[str, str]
    """The same after it, with `obs` and `reward`."""


def replay(path: Path, simulator: Simulator) -> Replay:
    """Take the step of a dump again.

    Raises:
        ConfigError: the file can't be read, or holds the state of another world.
    """
    stored = _read(path)
    like = jax.eval_shape(simulator.reset, jax.random.key(0)).state
    wanted = {f"sim{jax.tree_util.keystr(where)}": leaf for where, leaf in jax.tree_util.tree_leaves_with_path(like)}
    if differing := sorted((wanted.keys() ^ stored.keys()) - {"action", "key"}):
        raise ConfigError([f"{path} holds the state of another world: {differing[0]} is not in both."])
    state = jax.tree.unflatten(jax.tree.structure(like), [_like(stored[name], leaf) for name, leaf in wanted.items()])
    # As VectorEnv.step splits it: the first half is the simulator's.
    key = jax.random.split(jax.random.wrap_key_data(jnp.asarray(stored["key"])))[0]
    after = jax.jit(simulator.step)(state, jnp.asarray(stored["action"]), key)
    found = _named("state", after.state) | _named("obs", after.obs) | {"reward": np.asarray(after.reward)}
    return Replay(stored["action"], float(after.reward), _broken(stored), _broken(found))


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError([f"{path} can't be read: {error}"]) from None
    if not {"action", "key"} <= stored.keys():
        raise ConfigError([f"{path} is no dump of a fault: it holds no action or key."])
    return stored


def _named(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    return {f"{prefix}{jax.tree_util.keystr(where)}": _plain(leaf) for where, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: np.ndarray, leaf: Any) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array, leaf.dtype)


def _broken(named: dict[str, np.ndarray]) -> dict[str, str]:
    """How many numbers of each array are not finite, where any is."""
    counts = {name: (int((~np.isfinite(array)).sum()), array.size) for name, array in named.items() if np.issubdtype(array.dtype, np.floating)}
    return {name: f"{bad} of {size}" for name, (bad, size) in counts.items() if bad}
