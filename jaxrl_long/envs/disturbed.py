"""A world that does not behave: pushes, noisy senses and muscles, bodies of other masses on other ground. For training only.

What an agent has been pushed out of in training it survives later. Source: Tobin et al. 2017, arXiv:1703.06907 (randomised
worlds); Rudin et al. 2022, arXiv:2109.11978 (pushes of walking robots).
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.config import DisturbSettings
from jaxrl_long.envs.simulator import Continuous, SimStep, Simulator
from jaxrl_long.envs.wrapper import Wrapper
from jaxrl_long.fields import ConfigError, show
from jaxrl_long.typing import Array, Float, Key, PyTree

# What a key is folded with; the undisturbed world gets the key itself, so that its draws stay as they are.
BODY, SENSES, MUSCLES, PUSH, FORCE = range(10, 15)


@struct.dataclass
class Body:
    """A world and the body that was drawn for its episode."""

    world: PyTree
    mass: Float[Array, ""]
    """Factor of every mass and inertia."""
    friction: Float[Array, ""]
    """Factor of every friction coefficient."""


class Disturbed(Wrapper):
    """Any Simulator, with disturbances drawn from the keys of its resets and steps. `undisturbed` is what it was made of."""

    def __init__(self, inner: Any, settings: DisturbSettings) -> None:
        """Wrap `inner`. Raises ConfigError where it can't be disturbed in a way that the settings ask for."""
        super().__init__(inner)
        self.undisturbed, self._settings = inner, settings
        self._varies = bool(settings.mass or settings.friction)
        problems = [f"disturb.{name}={show(getattr(settings, name))}: this environment {why}. Leave it at 0." for name, why in _unable(inner, settings)]
        if problems:
            raise ConfigError(problems)

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start and a body."""
        start = self.inner.reset(key)
        mass, friction = self._drawn_body(jax.random.fold_in(key, BODY))
        return start.replace(state=Body(start.state, mass, friction), obs=self._noisy(start.obs, key))

    def step(self, state: Body, action: Any, key: Key[Array, ""]) -> SimStep:
        """Push, act with unsteady muscles, and look with unsteady eyes. Rewards and ends are the world's own."""
        inner, world = self.inner, state.world
        if self._varies:
            inner = inner.with_body(state.mass, state.friction)
        if self._settings.push:
            world = self._pushed(inner, world, key)
        if self._settings.action:
            noise = jax.random.normal(jax.random.fold_in(key, MUSCLES), action.shape)
            action = jnp.clip(action + self._settings.action * noise, -1.0, 1.0)
        after = inner.step(world, action, key)
        return after.replace(state=Body(after.state, state.mass, state.friction), obs=self._noisy(after.obs, key))

    def _drawn_body(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        """Factors, uniform around 1."""
        draw = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return 1.0 + self._settings.mass * draw[0], 1.0 + self._settings.friction * draw[1]

    def _pushed(self, inner: Any, world: PyTree, key: Key[Array, ""]) -> PyTree:
        """The world, now and then with another speed along the ground."""
        kicked = jax.random.uniform(jax.random.fold_in(key, PUSH)) < 1.0 / self._settings.push_every
        speed = self._settings.push * jax.random.normal(jax.random.fold_in(key, FORCE), (3,)).at[2].set(0.0)
        return jax.tree.map(lambda old, new: jnp.where(kicked, new, old), world, inner.push(world, speed))

    def _noisy(self, obs: PyTree, key: Key[Array, ""]) -> PyTree:
        if not self._settings.observation:
            return obs
        leaves, shape = jax.tree.flatten(obs)
        keys = jax.random.split(jax.random.fold_in(key, SENSES), len(leaves))
        noise = [self._settings.observation * jax.random.normal(each, leaf.shape) for leaf, each in zip(leaves, keys, strict=True)]
        return jax.tree.unflatten(shape, [leaf + some for leaf, some in zip(leaves, noise, strict=True)])


def disturbed(simulator: Simulator, settings: DisturbSettings) -> Simulator:
    """The simulator with the disturbances that the settings ask for; itself where they ask for none."""
    asked = settings.push or settings.observation or settings.action or settings.mass or settings.friction
    return Disturbed(simulator, settings) if asked else simulator


def _unable(inner: Any, settings: DisturbSettings) -> list[tuple[str, str]]:
    """Settings that this world can't follow, and why."""
    found = []
    if settings.action and not isinstance(inner.action, Continuous):
        found.append(("action", "has discrete actions"))
    if settings.push and not hasattr(inner, "push"):
        found.append(("push", "can't be pushed"))
    found += [(name, "has no body that could differ") for name in ("mass", "friction") if getattr(settings, name) and not hasattr(inner, "with_body")]
    return found
