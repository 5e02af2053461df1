"""Worlds in which every episode has a goal of its own, and nothing is paid on the way to it. They need no physics engine.

Each says of its observations what has been `achieved`, what is `desired`, how the same would look `with_goal`, and what a step is
paid (`goal_reward`), so that hindsight and shaping need to know nothing else; and offers itself with goals that are `nearer`.
"""

import copy
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_long.envs.simulator import Continuous, Discrete, SimStep
from jaxrl_long.typing import Array, Bool, Float, Int, Key


class Reach:
    """Goals whose distance can be changed: resets read `reach`, a share from 0 to 1 of how far they usually are."""

    reach: float | Float[Array, ""] = 1.0

    def nearer(self, reach: Float[Array, ""]) -> Self:
        """The same world, with goals that are only that share as far."""
        other = copy.copy(self)
        other.reach = reach
        return other


class Places(Reach):
    """Goals that are places: 1 is paid for each step within `radius` of them, and nothing else."""

    radius: float

    def goal_reward(self, achieved: Float[Array, "... G"], goal: Float[Array, "... G"]) -> Any:
        """1 within `radius`, else 0."""
        return jnp.where(jnp.sum((achieved - goal) ** 2, axis=-1) <= self.radius**2, 1.0, 0.0)


@struct.dataclass
class Bits:
    """Bits as they are, and as they shall be; 0 or 1."""

    now: Float[Array, " G"]
    goal: Float[Array, " G"]


class BitFlip(Reach):
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
        """Draw bits, and which of them the goal has otherwise: half of them, or fewer where goals are nearer."""
        now_key, goal_key = jax.random.split(key)
        now = jax.random.bernoulli(now_key, shape=(self.bits,)).astype(jnp.float32)
        other = jax.random.uniform(goal_key, (self.bits,)) < 0.5 * self.reach
        goal = jnp.where(other, 1.0 - now, now)
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

    def desired(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Those of the goal."""
        return obs[..., self.bits :]

    def with_goal(self, obs: Float[Array, "... O"], goal: Float[Array, "... G"]) -> Float[Array, "... O"]:
        """The same bits, another goal."""
        return jnp.concatenate([obs[..., : self.bits], goal], axis=-1)

    def goal_reward(self, achieved: Float[Array, "... G"], goal: Float[Array, "... G"]) -> Any:
        """0 when equal, else -1. Within a half, for bits that were stored roughly."""
        return jnp.where(jnp.all(jnp.abs(achieved - goal) < 0.5, axis=-1), 0.0, -1.0)


@struct.dataclass
class Point:
    """A point in a maze, and where it shall be; m, m/s."""

    position: Float[Array, "2"]
    speed: Float[Array, "2"]
    goal: Float[Array, "2"]


MAZE = (
    "#########",
    "#...#...#",
    "#.#.#.#.#",
    "#.#...#.#",
    "#.#####.#",
    "#.......#",
    "#########",
)
"""`.` floor and `#` wall, of 1 m each. Row 0 is the top one; x grows to the right and y downwards."""


class PointMaze(Places):
    """Drive a point through a maze to a place on its floor. Pays 1 for each step within `radius` m of it, and nothing else.

    Observes [position 2, speed 2, goal 2]; acts by forces along x and y. Walls stop it. Start and goal are anywhere on the floor.
    """

    obs_size, action, dt = 6, Continuous(2), 0.1
    thrust, drag = 5.0, 2.0
    """m/s² of a full action; 1/s."""

    def __init__(self, maze: tuple[str, ...] = MAZE, radius: float = 0.5) -> None:
        """`maze` is rows of floor and wall. Raises ValueError where its edge is not all wall, or floor can't be reached from floor."""
        rows = tuple(maze)
        if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set(".#"):
            raise ValueError("maze is not rows of equal length of . and #.")
        wall = np.array([[symbol == "#" for symbol in row] for row in rows])
        if not (wall[[0, -1]].all() and wall[:, [0, -1]].all()):
            raise ValueError("maze is not surrounded by walls.")
        floor = np.argwhere(~wall)
        apart = steps_apart(wall, floor)
        if not len(floor) or (apart < 0).any():
            raise ValueError("maze has no floor, or floor that can't be reached from the rest of it.")
        self.radius, self.walls = radius, wall
        self._wall, self._floor, self._apart = jnp.asarray(wall), jnp.asarray(floor), jnp.asarray(apart)

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start, and a goal among the floor that is no farther than that of a share of the longest way."""
        start_key, goal_key, at_key = jax.random.split(key, 3)
        start = jax.random.randint(start_key, (), 0, len(self._floor))
        near = self._apart[start] <= self.reach * jnp.max(self._apart)
        goal = jax.random.categorical(goal_key, jnp.where(near, 0.0, -jnp.inf))
        within = jax.random.uniform(at_key, (2, 2), minval=0.2, maxval=0.8)
        position, target = self._floor[jnp.stack([start, goal])][:, ::-1] + within
        return self._seen(Point(position, jnp.zeros(2), target), jnp.zeros(()))

    def step(self, state: Point, action: Float[Array, "2"], key: Key[Array, ""]) -> SimStep:
        """Push. A wall takes away the speed towards it."""
        del key
        speed = state.speed + self.dt * (self.thrust * jnp.clip(action, -1.0, 1.0) - self.drag * state.speed)
        position = state.position
        for axis in (0, 1):
            moved = position.at[axis].add(self.dt * speed[axis])
            cell = jnp.floor(moved).astype(jnp.int32)
            blocked = self._wall[cell[1], cell[0]]
            position = jnp.where(blocked, position, moved)
            speed = speed.at[axis].multiply(jnp.where(blocked, 0.0, 1.0))
        return self._seen(Point(position, speed, state.goal), self.goal_reward(position, state.goal))

    def success(self, state: Point) -> Bool[Array, ""]:
        """It is there."""
        return self.goal_reward(state.position, state.goal) > 0

    def position(self, state: Point) -> Float[Array, "3"]:
        """Where it is, in m."""
        return jnp.append(state.position, 0.0)

    def achieved(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where it is."""
        return obs[..., :2]

    def desired(self, obs: Float[Array, "... O"]) -> Float[Array, "... G"]:
        """Where it shall be."""
        return obs[..., 4:]

    def with_goal(self, obs: Float[Array, "... O"], goal: Float[Array, "... G"]) -> Float[Array, "... O"]:
        """Another place to be."""
        return jnp.concatenate([obs[..., :4], goal], axis=-1)

    def _seen(self, state: Point, reward: Float[Array, ""]) -> SimStep:
        return SimStep(state, jnp.concatenate([state.position, state.speed, state.goal]), reward, jnp.zeros((), bool))


def steps_apart(wall: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Shortest ways between all pairs of floor cells [C, C], in steps to one of four neighbours; -1 where there is none."""
    index = {tuple(cell): number for number, cell in enumerate(floor.tolist())}
    apart = np.full((len(floor), len(floor)), -1)
    for first, start in enumerate(index):
        apart[first, first], front = 0, [start]
        while front:
            row, column = front.pop(0)
            for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if not wall[cell] and apart[first, index[cell]] < 0:
                    apart[first, index[cell]] = apart[first, index[row, column]] + 1
                    front.append(cell)
    return apart
