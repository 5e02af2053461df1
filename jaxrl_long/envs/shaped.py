"""Pay for the way to a goal, without a change in what is best. For training only.

A step is paid γΦ(s′) − Φ(s) besides, where the potential Φ is minus the distance to the goal, and 0 once the world has ended: over an
episode these sum to what no action changes. Source: Ng, Harada and Russell 1999, "Policy invariance under reward transformations".
"""

from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.envs.wrapper import Wrapper
from jaxrl_long.fields import ConfigError, show
from jaxrl_long.typing import Array, Float, Key, PyTree


@struct.dataclass
class Way:
    """A world, and how well it stands."""

    world: PyTree
    potential: Float[Array, ""]


class Shaped(Wrapper):
    """Any Simulator with goals, paid for coming nearer: `weight` for each unit of distance."""

    def __init__(self, inner: Any, weight: float, discount: float) -> None:
        """Wrap `inner`; `discount` is the learner's γ. Raises ConfigError where it has no goals."""
        if not hasattr(inner, "desired"):
            raise ConfigError([f"goals.shaping={show(weight)}: this environment has no goals. Leave it at 0."])
        super().__init__(inner)
        self.undisturbed = getattr(inner, "undisturbed", inner)
        self._weight, self._discount = weight, discount

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start."""
        start = self.inner.reset(key)
        return start.replace(state=Way(start.state, self._potential(start.obs)))

    def step(self, state: Way, action: Any, key: Key[Array, ""]) -> SimStep:
        """Advance the world, and pay for the way."""
        after = self.inner.step(state.world, action, key)
        potential = jnp.where(after.terminated, 0.0, self._potential(after.obs))
        reward = after.reward + self._discount * potential - state.potential
        return after.replace(state=Way(after.state, potential), reward=reward)

    def _potential(self, obs: PyTree) -> Array:
        return -self._weight * jnp.sqrt(jnp.sum((self.inner.achieved(obs) - self.inner.desired(obs)) ** 2))
