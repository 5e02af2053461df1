"""The floating origin on a toy world, where every number is exact, and on brax's ant."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxrl_long.envs.brax import BraxSimulator
from jaxrl_long.envs.floating_origin import CELL, Floating, FloatingOrigin, cells
from jaxrl_long.envs.probes import CountEnv
from jaxrl_long.envs.simulator import Continuous, SimStep
from jaxrl_long.typing import Array, PyTree

KEY = jax.random.key(0)


@struct.dataclass
class Place:
    """Where the slider is, in m."""

    at: Array


class Slider:
    """Moves by its action (in m, on x and y) and pays the way that it measures along x, as running tasks do."""

    obs_size = 1
    action = Continuous(2)
    dt = 1.0
    translates = (0, 1)
    max_steps = 77

    def reset(self, key: Array) -> SimStep:
        """Start at the origin."""
        del key
        return SimStep(Place(jnp.zeros(3)), jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Place, action: Array, key: Array) -> SimStep:
        """Move."""
        del key
        after = state.at + jnp.append(action, 0)
        return SimStep(Place(after), jnp.zeros(1), (after - state.at)[0], jnp.zeros((), bool))

    def position(self, state: Place) -> Array:
        """The place itself."""
        return state.at

    def shift(self, state: Place, offset: Array) -> Place:
        """Move unnoticed."""
        return Place(state.at + offset)

    def success(self, state: Place) -> Array:
        """Within 1 m of the inner origin."""
        return jnp.abs(state.at[0]) < 1


def slide(action: tuple[float, float], steps: int) -> tuple[Floating, Array]:
    """The last state and all rewards of a slider under a constant action."""
    world = FloatingOrigin(Slider())

    def step(state: Floating, _: None) -> tuple[Floating, Array]:
        after = world.step(state, jnp.array(action), KEY)
        return after.state, after.reward

    return jax.jit(lambda: jax.lax.scan(step, world.reset(KEY).state, length=steps))()


def test_a_long_way_is_counted_exactly_and_every_step_of_it_is_paid_exactly():
    # 1/3 m a step in float32; after 300,000 steps (100 km) a float32 position would move in steps of 1/128 m.
    third = float(np.float32(1 / 3))
    state, reward = slide((third, -2 * third), 300_000)
    way = np.float64(CELL) * np.asarray(state.cell) + np.asarray(state.world.at[:2], np.float64)
    np.testing.assert_allclose(way, [300_000 * third, -600_000 * third], rtol=1e-7)
    np.testing.assert_allclose(reward, third, rtol=1e-6)
    assert np.abs(state.world.at).max() <= CELL / 2


def test_a_move_of_the_world_is_exact():
    # 1.75 + 0.5 = 2.25 leaves ±2 and becomes -1.75 in cell 1.
    state = Floating(Place(jnp.array([1.75, 0.0, 9.0])), jnp.array([0, 5], jnp.int32))
    after = FloatingOrigin(Slider()).step(state, jnp.array([0.5, 0.0]), KEY)
    np.testing.assert_array_equal(after.state.world.at, [-1.75, 0.0, 9.0])
    np.testing.assert_array_equal(after.state.cell, [1, 5])
    assert after.reward == 0.5


def test_the_true_position_is_cells_and_place():
    state = Floating(Place(jnp.array([1.0, -1.0, 0.5])), jnp.array([75_000, -1], jnp.int32))
    np.testing.assert_array_equal(FloatingOrigin(Slider()).position(state), [300_001.0, -5.0, 0.5])


def test_only_free_axes_and_only_sound_positions_are_moved():
    np.testing.assert_array_equal(cells(jnp.array([9.0, -9.0, 9.0]), (0, 1)), [2, -2])
    np.testing.assert_array_equal(cells(jnp.array([9.0, -9.0, 9.0]), (0,)), [2, 0])
    np.testing.assert_array_equal(cells(jnp.array([jnp.nan, jnp.inf, 0.0]), (0, 1)), [0, 0])
    np.testing.assert_array_equal(cells(jnp.array([1e30, -2.0, 0.0]), (0, 1)), [0, 0])


def test_what_the_inner_world_offers_is_passed_on():
    world: Any = FloatingOrigin(Slider())
    assert (world.obs_size, world.action, world.dt, world.max_steps) == (1, Continuous(2), 1.0, 77)
    assert world.success(world.reset(KEY).state)


def test_a_world_that_can_not_be_moved_is_refused_with_what_it_lacks():
    with pytest.raises(ValueError, match="CountEnv can't have a floating origin: it lacks translates, position, shift"):
        FloatingOrigin(CountEnv())


N, T = 16, 20


@functools.cache
def ant() -> BraxSimulator:
    return BraxSimulator("ant", "spring")


@functools.cache
def ant_roll() -> Callable[[Floating, Array], Array]:
    """A compiled rollout of N ants under random actions: (floating states, edge of a cell or 0 for no floating origin) -> rewards [T, N]."""
    world = FloatingOrigin(ant())
    action = jax.random.uniform(jax.random.key(1), (T, N, 8), minval=-1.0, maxval=1.0)

    def one(state: Floating, action: Array, floating: Array) -> tuple[Floating, Array]:
        after = world.step(state, action, KEY)
        offset = CELL * jnp.append(after.state.cell - state.cell, 0).astype(jnp.float32)
        # Undone where the origin shall not float: one compiled program serves all runs, and their rounding is the same.
        fixed = Floating(ant().shift(after.state.world, offset), state.cell)
        return jax.tree.map(lambda a, b: jnp.where(floating, a, b), after.state, fixed), after.reward

    def roll(state: Floating, floating: Array) -> Array:
        step = jax.vmap(one, in_axes=(0, 0, None))
        return jax.lax.scan(lambda state, action: step(state, action, floating), state, action)[1]

    return jax.jit(roll)


def starts(local: Array, cell: int) -> PyTree:
    """N ants whose starts are moved to `local` [N] m along x of a cell along x."""
    start = jax.vmap(ant().reset)(jax.random.split(KEY, N)).state
    offset = jnp.zeros((N, 3)).at[:, 0].set(local)
    return Floating(jax.vmap(ant().shift)(start, offset), jnp.zeros((N, 2), jnp.int32).at[:, 0].set(cell))


def rms(error: Array) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(error, np.float64)))))


def test_an_ant_at_300_km_is_paid_as_at_the_origin_and_without_the_floating_origin_it_is_not():
    roll = ant_roll()
    truth = roll(starts(jnp.zeros(N), 0), jnp.array(False))
    # Anywhere within 100 m of the inner origin, cell 75,000: 300 km.
    floating = roll(starts(jnp.linspace(-100.0, 100.0, N), 75_000), jnp.array(True))
    far = roll(starts(jnp.full(N, 300e3), 0), jnp.array(False))
    assert rms(floating - truth) <= 1e-3
    assert rms(far - truth) > 0.1
