"""Cart-pole against its published dynamics, the grid world against its map, the probe worlds against their promises."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.envs.classic import MAP, CartPole, CartPoleState, GridWorld, GridWorldState
from jaxrl_long.envs.probes import BreakAt, ChosenReward, ConstantReward, CountEnv, DelayedReward, Fragile, HugeReward, MatchedReward, RandomStart, SeenReward

KEY = jax.random.key(0)
LEFT, RIGHT = jnp.int32(0), jnp.int32(1)


def pole(x: float = 0.0, x_dot: float = 0.0, angle: float = 0.0, angle_dot: float = 0.0) -> CartPoleState:
    """A cart-pole in this state."""
    return CartPoleState(*(jnp.float32(value) for value in (x, x_dot, angle, angle_dot)))


def test_a_push_moves_an_upright_cartpole_as_the_equations_say():
    after = CartPole().step(pole(), RIGHT, KEY)
    # thrust = 10/1.1; angle'' = -thrust / (0.5 (4/3 - 0.1/1.1)); x'' = thrust - 0.05 angle''/1.1. Positions lag by one Euler step.
    thrust = 10 / 1.1
    angle_acceleration = -thrust / (0.5 * (4 / 3 - 0.1 / 1.1))
    acceleration = thrust - 0.05 * angle_acceleration / 1.1
    np.testing.assert_allclose(after.obs, [0.0, 0.02 * acceleration, 0.0, 0.02 * angle_acceleration], rtol=1e-6)
    assert after.reward == 1
    assert not after.terminated


def test_a_push_moves_a_leaning_moving_cartpole_as_the_equations_say():
    after = CartPole().step(pole(0.1, 0.2, 0.05, -0.3), LEFT, KEY)
    sin, cos = math.sin(0.05), math.cos(0.05)
    thrust = (-10 + 0.05 * 0.3**2 * sin) / 1.1
    angle_acceleration = (9.8 * sin - cos * thrust) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    acceleration = thrust - 0.05 * angle_acceleration * cos / 1.1
    expected = [0.1 + 0.02 * 0.2, 0.2 + 0.02 * acceleration, 0.05 - 0.02 * 0.3, -0.3 + 0.02 * angle_acceleration]
    np.testing.assert_allclose(after.obs, expected, rtol=1e-5)


@pytest.mark.parametrize(("state", "fallen"), [(pole(x=2.39), False), (pole(x=-2.41), True), (pole(angle=0.20), False), (pole(angle=-0.22), True)])
def test_the_cartpole_ends_beyond_2_4_m_and_12_degrees(state: CartPoleState, fallen: bool):
    assert bool(CartPole().step(state, LEFT, KEY).terminated) == fallen


def test_the_cartpole_has_no_time_limit_of_its_own():
    assert not hasattr(CartPole(), "max_steps")


def at(row: int, column: int) -> GridWorldState:
    """The walker on this cell."""
    return GridWorldState(jnp.array([row, column], jnp.int32))


@pytest.mark.parametrize(
    ("start", "action", "end", "reward", "ended"),
    [
        ((0, 0), 1, (0, 1), -0.01, False),  # right, over floor
        ((0, 0), 0, (0, 0), -0.01, False),  # up, against the edge
        ((0, 0), 3, (0, 0), -0.01, False),  # left, against the edge
        ((0, 1), 2, (0, 1), -0.01, False),  # down, against a wall
        ((7, 6), 1, (7, 7), 1.0, True),  # right, onto the goal
        ((3, 0), 1, (3, 1), -1.0, True),  # right, into a trap
        ((7, 7), 1, (7, 7), 1.0, True),  # on the goal it stays
    ],
)
def test_walls_stop_traps_end_and_the_goal_pays(start: tuple[int, int], action: int, end: tuple[int, int], reward: float, ended: bool):
    after = GridWorld().step(at(*start), jnp.int32(action), KEY)
    assert tuple(after.state.cell.tolist()) == end
    np.testing.assert_allclose(after.reward, reward)
    assert bool(after.terminated) == ended


def test_only_the_goal_is_a_success():
    world = GridWorld()
    assert world.success(at(7, 7))
    assert not world.success(at(3, 1))


def test_the_observation_is_one_hot_row_by_row():
    after = GridWorld().step(at(1, 0), jnp.int32(2), KEY)
    assert after.obs.shape == (64,)
    assert after.obs.sum() == 1
    assert after.obs.argmax() == 2 * 8 + 0


def test_every_floor_cell_is_a_start_and_the_goal_can_be_reached_from_each():
    starts = jax.vmap(GridWorld().reset)(jax.random.split(KEY, 4000)).state.cell
    floor = {(row, column) for row, line in enumerate(MAP) for column, symbol in enumerate(line) if symbol == "."}
    assert {tuple(cell) for cell in np.asarray(starts).tolist()} == floor
    reached = {(7, 7)}
    for _ in range(64):
        reached |= {(r, c) for r, c in floor if {(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)} & reached}
    assert floor <= reached


def test_count_env_pays_one_a_step_and_dies_when_told():
    world = CountEnv(die_at=3)
    step = world.reset(KEY)
    seen = []
    for _ in range(3):
        step = world.step(step.state, LEFT, KEY)
        seen.append((float(step.obs[0]), float(step.reward), bool(step.terminated)))
    assert seen == [(1.0, 1.0, False), (2.0, 1.0, False), (3.0, 1.0, True)]


def test_count_env_never_dies_by_itself():
    world = CountEnv()
    ages = jnp.array([0, 999, 2**30], jnp.int32)
    assert not jax.vmap(lambda t: world.step(world.reset(KEY).state.replace(t=t), LEFT, KEY).terminated)(ages).any()


def test_starts_differ_where_they_should():
    starts = jax.vmap(RandomStart().reset)(jax.random.split(KEY, 100)).obs
    assert len(set(np.asarray(starts).ravel().tolist())) == 100


def test_a_cracked_copy_breaks_at_its_age_and_the_others_do_not():
    world = BreakAt(age=2)
    state = Fragile(jnp.zeros(2, jnp.int32), jnp.array([0.0, 1.0]))
    first = jax.vmap(world.step, in_axes=(0, None, None))(state, jnp.zeros(1), KEY)
    second = jax.vmap(world.step, in_axes=(0, None, None))(first.state, jnp.zeros(1), KEY)
    assert np.isfinite(first.obs).all()
    np.testing.assert_array_equal(np.isnan(second.obs[:, 0]), [False, True])
    np.testing.assert_array_equal(np.isnan(second.reward), [False, True])


def test_a_huge_reward_is_paid_once():
    world = HugeReward(age=2)
    step = world.reset(KEY)
    paid = []
    for _ in range(3):
        step = world.step(step.state, LEFT, KEY)
        paid.append(float(step.reward))
    np.testing.assert_allclose(paid, [1.0, 1e30, 1.0])


@pytest.mark.parametrize("continuous", [False, True])
def test_probe_worlds_pay_what_their_names_say(continuous: bool):
    worst, best = (jnp.array([-1.0]), jnp.array([1.0])) if continuous else (LEFT, RIGHT)

    def paid(kind: type, action: jax.Array) -> tuple[float, float, bool]:
        world = kind(continuous)
        start = world.reset(KEY)
        after = world.step(start.state, action, KEY)
        return float(after.reward), float(start.obs[0]), bool(after.terminated)

    assert paid(ConstantReward, worst) == (1.0, 0.0, True)
    reward, obs, ended = paid(SeenReward, worst)
    assert (reward, abs(obs), ended) == (obs, 1.0, True)
    assert paid(DelayedReward, best) == (0.0, 0.0, False)
    assert paid(ChosenReward, best) == (1.0, 0.0, True)
    assert paid(ChosenReward, worst) == (-1.0, 0.0, True)
    reward, obs, _ = paid(MatchedReward, best)
    assert reward == obs
    assert paid(MatchedReward, worst)[0] == -obs


def test_the_delayed_reward_comes_with_the_second_step_which_ends_the_episode():
    world = DelayedReward()
    after = world.step(world.step(world.reset(KEY).state, LEFT, KEY).state, LEFT, KEY)
    assert float(after.reward) == 1.0
    assert bool(after.terminated)
