"""Brax bodies that must reach a place, and are paid nothing until they are there. See `envs/goals.py`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long.envs.brax import BraxSimulator
from jaxrl_long.envs.goals import Places
from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.typing import Array, Bool, Float, Key, PyTree

GOAL = 1
"""What a reset's key is folded with to draw a goal; the body gets the key itself."""


class SparseReacher(Places, BraxSimulator):
    """Brax's reacher, paid 1 for each step in which its fingertip is within `radius` of the target, and nothing else.

    Observes what brax's does: [cosines 2, sines 2, target 2, speed of the tip 2, tip - target 3].
    """

    def __init__(self, backend: str, radius: float = 0.05, **options: Any) -> None:
        """Build the task; `options` are brax's."""
        super().__init__("reacher", backend, options)
        self.radius = radius

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw joints, and a target: brax's, or on the way to it where goals are nearer."""
        start = super().reset(key)
        far, tip, body = self.desired(start.obs), self.achieved(start.obs), self.physics(start.state)
        moved = self._env.pipeline_init(body.q.at[2:].set(tip + self.reach * (far - tip)), body.qd)
        return replace(start, state=self._keep(moved), obs=self._env._get_obs(moved))

    def step(self, state: PyTree, action: Float[Array, " A"], key: Key[Array, ""]) -> SimStep:
        """Move."""
        after = super().step(state, action, key)
        return replace(after, reward=self.goal_reward(self.achieved(after.obs), self.desired(after.obs)))

    def success(self, state: PyTree) -> Bool[Array, ""]:
        """The tip is at the target."""
        obs = self._env._get_obs(self.physics(state))
        return self.goal_reward(self.achieved(obs), self.desired(obs)) > 0

    def achieved(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where the tip is."""
        return obs[..., 4:6] + obs[..., 8:10]

    def desired(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where the target is."""
        return obs[..., 4:6]

    def with_goal(self, obs: Float[Array, "... O"], goal: Float[Array, "... G"]) -> Float[Array, "... O"]:
        """Another target."""
        return jnp.concatenate([obs[..., :4], goal, obs[..., 6:8], self.achieved(obs) - goal, obs[..., 10:]], axis=-1)


class AntGoal(Places, BraxSimulator):
    """Brax's ant, paid 1 for each step within `radius` m of a place that is `distance` m from where it starts, in any direction, and nothing else.

    Observes [brax's ant 27, position 2, goal 2]. A fallen ant is out, as in brax's.
    """

    def __init__(self, backend: str, distance: float = 4.0, radius: float = 0.5, **options: Any) -> None:
        """Build the task; `options` are brax's. Raises ValueError where the goal would be reached at the start."""
        if distance <= radius:
            raise ValueError(f"distance={distance} is not above radius={radius}.")
        super().__init__("ant", backend, options)
        self.distance, self.radius = distance, radius
        body = self.obs_size
        assert isinstance(body, int)
        self.obs_size = body + 4
        # Here it matters where it is: no place can be exchanged for another.
        self.translates = ()
        del self.push

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start and a goal."""
        start = super().reset(key)
        angle = jax.random.uniform(jax.random.fold_in(key, GOAL), maxval=2 * jnp.pi)
        # At the least twice the radius away, lest there be nothing to do.
        far = jnp.maximum(self.distance * self.reach, min(2 * self.radius, self.distance))
        goal = self.position(start.state)[:2] + far * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return replace(self._seen(start, goal), reward=jnp.zeros(()))

    def step(self, state: PyTree, action: Float[Array, " A"], key: Key[Array, ""]) -> SimStep:
        """Walk."""
        return self._seen(super().step(state, action, key), state["goal"])

    def physics(self, state: PyTree) -> Any:
        """Brax's own physics state, which knows no goal."""
        return super().physics({name: leaf for name, leaf in state.items() if name != "goal"})

    def success(self, state: PyTree) -> Bool[Array, ""]:
        """It is there."""
        return self.goal_reward(self.position(state)[:2], state["goal"]) > 0

    def achieved(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where it is."""
        return obs[..., -4:-2]

    def desired(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where it shall be."""
        return obs[..., -2:]

    def with_goal(self, obs: Float[Array, "... O"], goal: Float[Array, "... G"]) -> Float[Array, "... O"]:
        """Another place to be."""
        return jnp.concatenate([obs[..., :-2], goal], axis=-1)

    def _seen(self, after: SimStep, goal: Float[Array, "2"]) -> SimStep:
        place = self.position(after.state)[:2]
        obs = jnp.concatenate([after.obs, place, goal])
        return replace(after, state={**after.state, "goal": goal}, obs=obs, reward=self.goal_reward(place, goal))


TASKS: dict[str, Callable[..., BraxSimulator]] = {"sparse_reacher": SparseReacher, "ant_goal": AntGoal}
"""Registered names."""
