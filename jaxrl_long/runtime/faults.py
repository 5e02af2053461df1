"""What is kept of an environment whose physics broke: enough to take the step again."""

from pathlib import Path

import jax
import numpy as np

from jaxrl_long.trainer import Fault


def dump(folder: Path, fault: Fault) -> str:
    """Write the first broken environment of a chunk to `folder`/faults as plain arrays; returns a sentence about it.

    `sim<path>` are the leaves of the simulator's state before the step, `action` what it was given, `key` the step's key data.
    """
    first = int(np.argmax(jax.device_get(fault.found)))
    one = jax.tree.map(lambda leaf: leaf[first], fault)
    update, index = int(one.update), int(one.index)
    path = folder / "faults" / f"update-{update}-environment-{index}.npz"
    path.parent.mkdir(exist_ok=True)
    arrays = {f"sim{jax.tree_util.keystr(where)}": np.asarray(leaf) for where, leaf in jax.tree_util.tree_leaves_with_path(one.sim)}
    np.savez(path, allow_pickle=False, action=np.asarray(one.action), key=np.asarray(jax.random.key_data(one.key)), **arrays)
    return f"environment {index} gave a non-finite number in update {update}: it was restarted, the others are untouched. Its state before: {path}"
