"""Worlds that push, shake and vary: only as much as they are asked to, and only in training."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import assert_bit_equal, largest_difference

from jaxrl_long.config import DisturbSettings, EnvSettings, Settings
from jaxrl_long.envs.brax import BraxSimulator
from jaxrl_long.envs.disturbed import Body, Disturbed, disturbed
from jaxrl_long.envs.floating_origin import FloatingOrigin
from jaxrl_long.envs.probes import CountEnv, RandomStart
from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import assemble

BACKENDS = ("spring", "positional", "generalized", "mjx")
KEY = jax.random.key(0)
ONE = jnp.ones(())


class Echo:
    """Observes its last action, and pays it."""

    obs_size = 1
    action = RandomStart.action
    dt = 1.0

    def reset(self, key):
        del key
        return self._at(jnp.zeros(1))

    def step(self, state, action, key):
        del state, key
        return self._at(action)

    def _at(self, action):
        return SimStep(action, action, action[0], jnp.zeros((), bool))


@functools.cache
def falling(task: str, backend: str) -> tuple[BraxSimulator, Any]:
    """A task, and its state some steps after a start, without a muscle moved."""
    simulator = BraxSimulator(task, backend)
    step = jax.jit(simulator.step)
    state = simulator.reset(KEY).state
    for _ in range(5):
        state = step(state, jnp.zeros(simulator.action.size), KEY).state
    return simulator, state


def cases() -> list[Any]:
    tasks = [*(("hopper", backend) for backend in BACKENDS), ("ant", "spring")]
    return [pytest.param(*task, id="-".join(task), marks=[] if task == ("hopper", "spring") else pytest.mark.slow) for task in tasks]


def test_without_disturbances_the_world_is_itself():
    world = CountEnv()
    assert disturbed(world, DisturbSettings()) is world


def test_noise_of_the_senses_is_as_large_as_asked_and_pays_nothing():
    shaken = Disturbed(Echo(), DisturbSettings(observation=0.5))
    action = jnp.full((2000, 1), 0.25)
    start = jax.vmap(shaken.reset)(jax.random.split(KEY, 2000))
    after = jax.vmap(shaken.step)(start.state, action, jax.random.split(KEY, 2000))
    for seen, middle in ((start.obs, 0.0), (after.obs, 0.25)):
        # 2000 draws: the mean is right within 3 * 0.5 / sqrt(2000) = 0.034.
        assert float(seen.mean()) == pytest.approx(middle, abs=0.034)
        assert float(seen.std()) == pytest.approx(0.5, rel=0.06)
    np.testing.assert_array_equal(after.reward, 0.25)


def test_noise_of_the_muscles_moves_what_is_done_and_stays_in_range():
    shaken = Disturbed(Echo(), DisturbSettings(action=0.5))
    done = jax.vmap(shaken.step)(jax.vmap(shaken.reset)(jax.random.split(KEY, 2000)).state, jnp.zeros((2000, 1)), jax.random.split(KEY, 2000)).reward
    assert float(jnp.abs(done).max()) == 1.0
    # Of a normal of 0.5, 4.6 % lie beyond 1.
    assert float((jnp.abs(done) == 1).mean()) == pytest.approx(0.046, abs=0.015)


def test_bodies_differ_between_episodes_and_not_within_one():
    shaken = Disturbed(FloatingOrigin(BraxSimulator("hopper", "spring")), DisturbSettings(mass=0.2, friction=0.4))
    starts = jax.vmap(shaken.reset)(jax.random.split(KEY, 500)).state
    for factor, reach in ((starts.mass, 0.2), (starts.friction, 0.4)):
        assert 1 - reach <= float(factor.min()) < 1 - 0.9 * reach
        assert 1 + 0.9 * reach < float(factor.max()) <= 1 + reach
    one = jax.tree.map(lambda leaf: leaf[0], starts)
    after = jax.jit(shaken.step)(one, jnp.zeros(3), KEY).state
    assert (float(after.mass), float(after.friction)) == (float(one.mass), float(one.friction))


@pytest.mark.parametrize(("task", "backend"), cases())
def test_a_body_of_the_usual_weight_on_the_usual_ground_moves_as_usual(task, backend):
    simulator, state = falling(task, backend)
    action = jnp.full(simulator.action.size, 0.7)
    varied = jax.jit(lambda mass, friction: simulator.with_body(mass, friction).step(state, action, KEY).obs)
    usual = jax.jit(simulator.step)(state, action, KEY).obs
    assert largest_difference(varied(ONE, ONE), usual) < 1e-4
    assert largest_difference(varied(1.5 * ONE, ONE), usual) > 1e-3
    # Half as heavy with half the effort is the same to a motor, and half the effort alone is not.
    half = jnp.full(simulator.action.size, 0.35)
    strong = jax.jit(lambda: simulator.with_body(0.5 * ONE, ONE).step(state, half, KEY).obs)()
    assert largest_difference(strong, usual) < 1e-4
    assert largest_difference(jax.jit(simulator.step)(state, half, KEY).obs, usual) > 1e-2


@pytest.mark.parametrize(("task", "backend"), cases())
def test_a_slippery_ground_moves_a_body_on_it_otherwise(task, backend):
    simulator, state = falling(task, backend)
    actions = jax.random.uniform(KEY, (60, simulator.action.size), minval=-1.0, maxval=1.0)

    def seen(friction: Any) -> Any:
        world = simulator.with_body(ONE, friction)

        def step(state: Any, action: Any) -> tuple[Any, Any]:
            after = world.step(state, action, KEY)
            return after.state, after.obs

        return jax.lax.scan(step, state, actions)[1]

    slippery, usual = (jax.jit(seen)(friction * ONE) for friction in (0.3, 1.0))
    # In the first steps nothing touches the ground yet, or hardly.
    assert largest_difference(slippery[-30:], usual[-30:]) > 1e-2


@pytest.mark.parametrize(("task", "backend"), cases())
def test_a_push_moves_the_whole_body_by_its_speed(task, backend):
    simulator, state = falling(task, backend)
    step, still = jax.jit(simulator.step), jnp.zeros(simulator.action.size)
    assert largest_difference(step(jax.jit(simulator.push)(state, jnp.zeros(3)), still, KEY).obs, step(state, still, KEY).obs) < 1e-3
    pushed = jax.jit(simulator.push)(state, jnp.array([0.5, 0.0, 0.0]))
    places = [np.asarray(simulator.position(after.state)) for after in (step(state, still, KEY), step(pushed, still, KEY))]
    # 0.5 m/s for one step, less what the ground takes.
    gone = float(places[1][0] - places[0][0])
    assert 0.3 * 0.5 * simulator.dt < gone < 1.1 * 0.5 * simulator.dt


def test_pushes_come_as_often_as_asked():
    simulator, state = falling("hopper", "spring")
    shaken = Disturbed(FloatingOrigin(simulator), DisturbSettings(push=1.0, push_every=4))
    floating = FloatingOrigin(simulator).reset(KEY).state.replace(world=state)
    keys = jax.random.split(KEY, 400)
    speeds = jax.jit(jax.vmap(lambda key: shaken._pushed(shaken.undisturbed, floating, key).world["qd"][0]))(keys)
    kicked = np.asarray(speeds) != float(state["qd"][0])
    # A quarter of 400, within three standard deviations of 8.7.
    assert abs(kicked.sum() - 100) < 26
    assert float((np.asarray(speeds)[kicked] - float(state["qd"][0])).std()) == pytest.approx(1.0, rel=0.25)


def test_evaluation_is_undisturbed_and_the_agent_sees_through_one_wrapper():
    plan = assemble.program(Settings(env=EnvSettings("hopper", "spring"), disturb=DisturbSettings(observation=0.1, push=1.0), num_envs=4, devices=1))
    assert isinstance(plan.vector.simulator, Disturbed)
    assert isinstance(plan.vector.endless().simulator, FloatingOrigin)
    state = plan.vector.simulator.reset(KEY).state
    assert isinstance(state, Body)
    assert_bit_equal(state.world, plan.vector.endless().simulator.reset(KEY).state)
    world: Any = plan.vector.simulator
    assert_bit_equal(world.position(state), world.undisturbed.position(state.world))


@pytest.mark.parametrize(("changes", "why"), [
    ({"push": 1.0}, r"disturb\.push=1: this environment can't be pushed"),
    ({"mass": 0.1, "friction": 0.2}, r"disturb\.mass=0\.1: .*no body(.|\n)*disturb\.friction=0\.2"),
    ({"action": 0.1}, r"disturb\.action=0\.1: .*discrete"),
])  # fmt: skip
def test_what_a_world_can_not_do_is_refused(changes, why):
    with pytest.raises(ConfigError, match=why):
        disturbed(CountEnv(), replace(DisturbSettings(), **changes))
