"""Worlds in which every episode has a goal of its own, and nothing is paid on the way to it."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import Discrete, SimStep
from jaxrl_long.typing import Array, Bool, Float, Int, Key


@struct.dataclass
class Bits:
    """Bits as they are, and as they shall be; 0 or 1."""

    now: Float[Array, " G"]
    goal: Float[Array, " G"]


class BitFlip:
    """Make all bits equal to those of the goal by flipping one a step, and then keep them so (the last action flips none); costs 1 a step until then.

    Observes [bits, goal]. With 20 bits, chance finds the goal in one of a million tries: the probe of hindsight.
    Source: Andrychowicz et al. 2017, arXiv:1707.01495, section 3.1.
    """

    dt = 1.0

    def __init__(self, bits: int = 20) -> None:
        """Raises ValueError for no bits."""
        if bits < 1:
            raise ValueError(f"bits={bits} is less than 1.")
        self.bits, self.obs_size, self.action = bits, 2 * bits, Discrete(bits + 1)

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw bits and goal."""
        now, goal = jax.random.bernoulli(key, shape=(2, self.bits)).astype(jnp.float32)
        return SimStep(Bits(now, goal), jnp.concatenate([now, goal]), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Bits, action: Int[Array, ""], key: Key[Array, ""]) -> SimStep:
        """Flip a bit, or none."""
        del key
        now = jnp.where(jnp.arange(self.bits) == action, 1.0 - state.now, state.now)
        reward = self.goal_reward(now, state.goal)
        return SimStep(Bits(now, state.goal), jnp.concatenate([now, state.goal]), reward, jnp.zeros((), bool))

    def success(self, state: Bits) -> Bool[Array, ""]:
        """All are equal."""
        return self.goal_reward(state.now, state.goal) == 0

    def achieved(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """The bits."""
        return obs[..., : self.bits]

    def with_goal(self, obs: Float[Array, "... O"], goal: Float[Array, "... G"]) -> Float[Array, "... O"]:
        """The same bits, another goal."""
        return jnp.concatenate([obs[..., : self.bits], goal], axis=-1)

    def goal_reward(self, achieved: Float[Array, "... G"], goal: Float[Array, "... G"]) -> Any:
        """0 when equal, else -1. Within a half, for bits that were stored roughly."""
        return jnp.where(jnp.all(jnp.abs(achieved - goal) < 0.5, axis=-1), 0.0, -1.0)
