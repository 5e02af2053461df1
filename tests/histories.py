"""Made-up lives of environments, kept whole on the host: what a ring that forgets must agree with."""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long.replay.ring import Ends, Layout, Ring, make_ring, write


@functools.cache
def writer(layout: Layout) -> Any:
    """A compiled write, one for each layout."""
    return jax.jit(lambda ring, fields, ends, version: write(ring, layout, fields, ends, version))


@dataclass
class History:
    """Every step of N environments; arrays [steps, N], the observation's only feature its own number."""

    layout: Layout
    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    age: np.ndarray
    episode: np.ndarray
    final_obs: np.ndarray
    ring: Ring = field(init=False)

    def __post_init__(self) -> None:
        """Write all of it."""
        length, number = self.layout.length, self.obs.shape[1]
        shapes: dict[str, Any] = {
            "obs": jax.ShapeDtypeStruct((length, number, 1), jnp.float32),
            "reward": jax.ShapeDtypeStruct((length, number), jnp.float32),
        }
        self.ring = make_ring(self.layout, shapes, jax.ShapeDtypeStruct((number, 1), jnp.float32), number)
        put = writer(self.layout)
        for version in range(self.steps // length):
            rows = slice(version * length, (version + 1) * length)
            fields = {"obs": jnp.asarray(self.obs[rows, :, None]), "reward": jnp.asarray(self.reward[rows])}
            flags = jnp.asarray(self.terminated[rows]), jnp.asarray(self.truncated[rows])
            ends = Ends(*flags, jnp.asarray(self.age[rows]), jnp.asarray(self.final_obs[rows, :, None]))
            self.ring = put(self.ring, fields, ends, jnp.int32(version))

    @property
    def steps(self) -> int:
        """Steps of each environment."""
        return self.obs.shape[0]

    def step_of(self, row: int) -> int:
        """The step that a row of the ring holds now."""
        newest = self.steps - 1
        return newest - (newest - row) % self.layout.capacity

    def last_of_episode(self, step: int, env: int) -> int:
        """The step that ends the episode, or the newest one."""
        ended = (self.terminated | self.truncated)[step:, env]
        return step + int(np.argmax(ended)) if ended.any() else self.steps - 1


def lived(layout: Layout, rollouts: int, *, number: int = 3, chance: float = 0.1, seed: int = 0) -> History:
    """A history in which each step ends the episode with that chance, half of them by truncation."""
    random = np.random.default_rng(seed)
    steps = rollouts * layout.length
    ended = random.random((steps, number)) < chance
    terminated = ended & (random.random((steps, number)) < 0.5)
    age, episode = np.zeros((steps, number), np.int32), np.zeros((steps, number), np.int32)
    for step in range(1, steps):
        age[step] = np.where(ended[step - 1], 0, age[step - 1] + 1)
        episode[step] = episode[step - 1] + ended[step - 1]
    # Every observation has a number of its own; what a step led to is the next one's, or where it ended the episode one of its own.
    obs = (np.arange(steps)[:, None] * number + np.arange(number)).astype(np.float32)
    following = np.concatenate([obs[1:], np.full((1, number), -1, np.float32)])
    final_obs = np.where(ended, -obs - 1000, following)
    reward = random.normal(size=(steps, number)).astype(np.float32)
    return History(layout, obs, reward, terminated, ended & ~terminated, age, episode, final_obs)
