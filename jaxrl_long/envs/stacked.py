"""The latest observations at once, for worlds that show too little of themselves in one: speeds follow from two places.

Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", who stacked four frames.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.envs.wrapper import Wrapper
from jaxrl_long.typing import Array, Float, Key, PyTree


@struct.dataclass
class Seen:
    """A world, and what was observed of it before."""

    world: PyTree
    before: PyTree
    """Leaves [K - 1, O], oldest first; the first observation of the episode stands in for those before it."""


class Stacked(Wrapper):
    """Any Simulator, observed by its `number` latest observations in a row [K O], the newest last."""

    def __init__(self, inner: Any, number: int) -> None:
        """Wrap `inner`."""
        super().__init__(inner)
        self.number = number
        size = inner.obs_size
        self.obs_size = {name: number * each for name, each in size.items()} if isinstance(size, dict) else number * size
        if hasattr(inner, "undisturbed"):
            self.undisturbed = Stacked(inner.undisturbed, number)
        for name in ("achieved", "desired"):
            if hasattr(inner, name):
                setattr(self, name, self._of_newest(getattr(inner, name)))
        if hasattr(inner, "with_goal"):
            self.with_goal = self._with_goal

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start."""
        start = self.inner.reset(key)
        before = jax.tree.map(lambda leaf: jnp.stack([leaf] * (self.number - 1)), start.obs)
        return start.replace(state=Seen(start.state, before), obs=stack(before, start.obs))

    def step(self, state: Seen, action: Any, key: Key[Array, ""]) -> SimStep:
        """Advance the world."""
        after = self.inner.step(state.world, action, key)
        obs = stack(state.before, after.obs)
        later = jax.tree.map(lambda row, leaf: jnp.concatenate([row[1:], leaf[None]]), state.before, after.obs)
        return after.replace(state=Seen(after.state, later), obs=obs)

    def _of_newest(self, function: Any) -> Any:
        return lambda obs: function(newest(obs, self.number))

    def _with_goal(self, obs: PyTree, goal: Float[Array, "... G"]) -> PyTree:
        """Another goal in each of them."""
        frames = jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-1], self.number, -1), obs)
        changed = self.inner.with_goal(frames, jnp.broadcast_to(goal[..., None, :], (*goal.shape[:-1], self.number, goal.shape[-1])))
        return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-2], -1), changed)


def stack(before: PyTree, obs: PyTree) -> PyTree:
    """Earlier observations [K - 1, O] and the newest [O] in a row [K O]."""
    return jax.tree.map(lambda row, leaf: jnp.concatenate([row.reshape(-1), leaf]), before, obs)


def newest(obs: PyTree, number: int) -> PyTree:
    """The last of `number` observations in a row [..., K O]."""
    return jax.tree.map(lambda leaf: leaf[..., leaf.shape[-1] // number * (number - 1) :], obs)
