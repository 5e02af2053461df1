"""Two small discrete worlds of our own: the cheapest way to see a run learn."""

import math

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import Discrete, SimStep
from jaxrl_long.typing import Array, Bool, Float, Int, Key


@struct.dataclass
class CartPoleState:
    """A pole that stands on a cart on a track."""

    x: Float[Array, ""]
    """Cart's place on the track, in m."""
    x_dot: Float[Array, ""]
    """Cart's speed, in m/s."""
    angle: Float[Array, ""]
    """Pole's angle from upright, in rad."""
    angle_dot: Float[Array, ""]
    """Pole's angular speed, in rad/s."""


class CartPole:
    """Keep the pole up by pushing the cart left (0) or right (1); pays 1 a step, ends when the pole or the cart is out of bounds.

    Observes [x, x_dot, angle, angle_dot]. Constants and the (explicit) Euler step are those of Gymnasium's CartPole-v1, whose
    500-step limit is a matter of the horizon here.
    Source: Barto, Sutton and Anderson 1983, doi:10.1109/TSMC.1983.6313077.
    """

    obs_size = 4
    action = Discrete(2)
    dt = 0.02

    gravity = 9.8
    cart_mass = 1.0
    pole_mass = 0.1
    half_length = 0.5
    """Half of the pole's length, in m."""
    force = 10.0
    """Push of an action, in N."""
    x_limit = 2.4
    angle_limit = 12 * math.pi / 180

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Every quantity uniform in ±0.05."""
        state = CartPoleState(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))
        return SimStep(state, self._observe(state), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: CartPoleState, action: Int[Array, ""], key: Key[Array, ""]) -> SimStep:
        """Push for `dt`. The dynamics draw nothing."""
        del key
        push = jnp.where(action == 1, self.force, -self.force)
        cos, sin = jnp.cos(state.angle), jnp.sin(state.angle)
        mass = self.cart_mass + self.pole_mass
        moment = self.pole_mass * self.half_length
        thrust = (push + moment * state.angle_dot**2 * sin) / mass
        angle_acceleration = (self.gravity * sin - cos * thrust) / (self.half_length * (4 / 3 - self.pole_mass * cos**2 / mass))
        acceleration = thrust - moment * angle_acceleration * cos / mass
        state = CartPoleState(
            x=state.x + self.dt * state.x_dot,
            x_dot=state.x_dot + self.dt * acceleration,
            angle=state.angle + self.dt * state.angle_dot,
            angle_dot=state.angle_dot + self.dt * angle_acceleration,
        )
        fallen = (jnp.abs(state.x) > self.x_limit) | (jnp.abs(state.angle) > self.angle_limit)
        return SimStep(state, self._observe(state), jnp.ones(()), fallen)

    def _observe(self, state: CartPoleState) -> Float[Array, "4"]:
        return jnp.stack([state.x, state.x_dot, state.angle, state.angle_dot])


MAP = (
    "........",
    ".####...",
    "....#.^.",
    ".^..#...",
    "....##..",
    ".#...#..",
    ".#^..#^.",
    ".#.....G",
)
"""`.` floor, `#` wall, `^` trap, `G` goal. Row 0 is the top one."""

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Rows and columns moved by up, right, down, left."""


@struct.dataclass
class GridWorldState:
    """Where the walker stands."""

    cell: Int[Array, "2"]
    """Row and column."""


class GridWorld:
    """Walk from a random floor cell of MAP to the goal by up (0), right (1), down (2) and left (3).

    A step costs 0.01; the goal pays 1 and ends the episode, a trap costs 1 and ends it; walls and edges keep the walker in place.
    Observes the one-hot cell, row by row [64].
    """

    obs_size = len(MAP) * len(MAP[0])
    action = Discrete(len(MOVES))
    dt = 1.0

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Uniform over the floor cells."""
        floor = jnp.array(_cells("."), jnp.int32)
        state = GridWorldState(jax.random.choice(key, floor))
        return SimStep(state, self._observe(state), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: GridWorldState, action: Int[Array, ""], key: Key[Array, ""]) -> SimStep:
        """Walk one cell. Nothing is drawn."""
        del key
        edge = jnp.array([len(MAP) - 1, len(MAP[0]) - 1], jnp.int32)
        wanted = jnp.clip(state.cell + jnp.array(MOVES, jnp.int32)[action], 0, edge)
        state = GridWorldState(jnp.where(_marked("#", wanted), state.cell, wanted))
        goal, trap = _marked("G", state.cell), _marked("^", state.cell)
        reward = jnp.where(goal, 1.0, jnp.where(trap, -1.0, -0.01))
        return SimStep(state, self._observe(state), reward, goal | trap)

    def success(self, state: GridWorldState) -> Bool[Array, ""]:
        """Whether the walker stands on the goal."""
        return _marked("G", state.cell)

    def _observe(self, state: GridWorldState) -> Float[Array, "64"]:
        return jax.nn.one_hot(state.cell[0] * len(MAP[0]) + state.cell[1], self.obs_size, dtype=jnp.float32)


def _cells(mark: str) -> list[tuple[int, int]]:
    return [(row, column) for row, line in enumerate(MAP) for column, symbol in enumerate(line) if symbol == mark]


def _marked(mark: str, cell: Int[Array, "2"]) -> Bool[Array, ""]:
    """Whether MAP has `mark` at `cell`."""
    return jnp.array([[symbol == mark for symbol in line] for line in MAP])[cell[0], cell[1]]
