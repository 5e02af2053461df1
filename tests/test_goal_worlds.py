"""Worlds with goals: what they say of them, how far they are, and what is paid on the way."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commandline import train
from worlds import program, trained

from jaxrl_long.config import EnvSettings, GoalSettings, Settings
from jaxrl_long.envs import registry
from jaxrl_long.envs.curriculum import Curriculum
from jaxrl_long.envs.goals import BitFlip, PointMaze
from jaxrl_long.envs.probes import CountEnv
from jaxrl_long.envs.shaped import Shaped
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime import assemble

KEY = jax.random.key(0)
PLACES = [*(pytest.param(name, marks=[] if name == "point_maze" else pytest.mark.slow) for name in ("point_maze", "sparse_reacher", "ant_goal"))]
CORRIDOR = ("#######", "#.....#", "#######")


def made(name: str, **options: Any) -> Any:
    return registry.make(EnvSettings(name=name, options=options))


@pytest.mark.parametrize("name", PLACES)
def test_what_a_world_says_of_its_goals_agrees_with_what_it_pays(name: str):
    world = made(name)
    start = jax.vmap(world.reset)(jax.random.split(KEY, 64))
    actions = jax.random.uniform(KEY, (64, world.action.size), minval=-1.0)
    after = jax.vmap(world.step)(start.state, actions, jax.random.split(KEY, 64))
    goal, there = world.desired(after.obs), world.achieved(after.obs)
    np.testing.assert_allclose(goal, world.desired(start.obs), atol=1e-6)
    np.testing.assert_array_equal(after.reward, world.goal_reward(there, goal))
    np.testing.assert_array_equal(jax.vmap(world.success)(after.state), after.reward > 0)
    # Had the goal been where it is now, this step would have been paid, and it would have looked so.
    other = world.with_goal(after.obs, there)
    np.testing.assert_allclose(world.desired(other), there, atol=1e-6)
    np.testing.assert_allclose(world.achieved(other), there, atol=1e-6)
    np.testing.assert_allclose(world.with_goal(other, goal), after.obs, atol=1e-6)
    assert (world.goal_reward(there, world.desired(other)) == 1).all()


@pytest.mark.parametrize(("name", "far", "near"), [("point_maze", 6.0, 1.2), pytest.param("ant_goal", 4.0, 1.0, marks=pytest.mark.slow)])
def test_goals_are_nearer_when_asked(name: str, far: float, near: float):
    world = made(name)

    def distances(world: Any) -> np.ndarray:
        obs = jax.vmap(world.reset)(jax.random.split(KEY, 200)).obs
        return np.linalg.norm(world.achieved(obs) - world.desired(obs), axis=-1)

    assert distances(world).max() == pytest.approx(far, rel=0.25)
    assert distances(world.nearer(jnp.float32(0.0))).max() <= near + 1e-3


@pytest.mark.slow
def test_the_target_of_the_reacher_is_on_the_way_to_a_farther_one():
    world = made("sparse_reacher")
    far, near = world.reset(KEY).obs, world.nearer(jnp.float32(0.25)).reset(KEY).obs
    np.testing.assert_allclose(world.achieved(near), world.achieved(far), atol=1e-5)
    way = world.desired(far) - world.achieved(far)
    np.testing.assert_allclose(world.desired(near) - world.achieved(near), 0.25 * way, atol=1e-5)


def test_bits_of_a_nearer_goal_differ_less():
    near = jax.vmap(BitFlip(20).nearer(jnp.float32(0.2)).reset)(jax.random.split(KEY, 200)).obs
    assert np.abs(near[:, :20] - near[:, 20:]).mean() == pytest.approx(0.1, abs=0.02)


def test_a_point_is_driven_and_stopped_by_walls():
    world = PointMaze(CORRIDOR)
    state = world.reset(KEY).state.replace(position=jnp.array([1.5, 1.5]), goal=jnp.array([5.5, 1.5]))
    step = jax.jit(world.step)
    assert not bool(world.success(state))
    for _ in range(100):
        after = step(state, jnp.array([1.0, 1.0]), KEY)
        state = after.state
    # Against the right wall at x = 6 and the lower one at y = 2, within the goal's radius and a step of either.
    assert 5.5 < float(state.position[0]) < 6.0
    assert 1.5 < float(state.position[1]) < 2.0
    np.testing.assert_array_equal(state.speed, jnp.zeros(2))
    # Top speed: thrust / drag.
    free = world.reset(KEY).state.replace(position=jnp.array([1.1, 1.5]))
    for _ in range(12):
        free = step(free, jnp.array([1.0, 0.0]), KEY).state
    assert float(free.speed[0]) == pytest.approx(2.5 * (1 - 0.8**12), rel=1e-5)


@pytest.mark.parametrize(
    ("maze", "message"),
    [
        (("###", "#.#", "##"), "rows of equal length"),
        (("###", "#x#", "###"), "rows of equal length"),
        (("###", "#..", "###"), "surrounded"),
        (("#####", "#.#.#", "#####"), "can't be reached"),
        (("###", "###", "###"), "no floor"),
    ],
)
def test_mazes_that_are_none_are_refused(maze: tuple[str, ...], message: str):
    with pytest.raises(ValueError, match=message):
        PointMaze(maze)


def test_the_reach_follows_success():
    plan = Curriculum(success=0.75, start=0.1, pace=0.5)

    def moved(reach: float, successes: int, ended: int) -> float:
        return float(plan.moved(jnp.float32(reach), jnp.int32(successes), jnp.int32(ended), 10))

    assert moved(0.5, 6, 8) == pytest.approx(0.5)
    assert moved(0.5, 8, 8) == pytest.approx(0.6)
    assert moved(0.5, 0, 4) == pytest.approx(0.35)
    assert moved(0.12, 0, 8) == pytest.approx(0.1)
    assert moved(0.98, 8, 8) == 1.0
    assert moved(0.5, 0, 0) == 0.5


def test_goals_of_training_come_nearer_and_go_farther_and_those_of_evaluation_do_not():
    # Two bits are often met by chance within 20 steps; 20 bits never are.
    for bits, grows in ((2, True), (20, False)):
        plan = program(BitFlip(bits), horizon=20, stagger=True, curriculum=Curriculum(0.2, 0.5, 0.5))
        state, numbers, _ = trained(plan, 40)
        assert (float(state.reach) > 0.5) == grows
        assert numbers["goal_reach"] <= 1.0
    starts = state.starts.obs
    assert np.abs(starts[:, :20] - starts[:, 20:]).mean() < 0.4
    evaluated = plan.vector.endless().starts(jax.random.split(KEY, 100)).obs
    assert np.abs(evaluated[:, :20] - evaluated[:, 20:]).mean() == pytest.approx(0.5, abs=0.05)


def test_pay_for_the_way_sums_to_nothing_that_an_action_could_change():
    discount, weight = 0.9, 2.0
    inner = PointMaze(CORRIDOR)
    world = Shaped(inner, weight, discount)
    start = world.reset(KEY)
    state, plain, total = start.state, start.state.world, 0.0
    for step in range(30):
        action = jax.random.uniform(jax.random.fold_in(KEY, step), (2,), minval=-1.0)
        after, bare = world.step(state, action, KEY), inner.step(plain, action, KEY)
        total += discount**step * (float(after.reward) - float(bare.reward))
        state, plain = after.state, bare.state
    # Σ γᵗ (γΦₜ₊₁ - Φₜ) = γᵀ Φ_T - Φ₀, whatever was done in between.
    first = -weight * float(jnp.linalg.norm(inner.achieved(start.obs) - inner.desired(start.obs)))
    last = -weight * float(jnp.linalg.norm(plain.position - plain.goal))
    assert total == pytest.approx(discount**30 * last - first, abs=1e-4)


class Pit(PointMaze):
    """Ends with the first step."""

    def step(self, state, action, key):
        return replace(super().step(state, action, key), terminated=jnp.bool_(True))


def test_nothing_is_left_of_the_way_where_the_world_has_ended():
    world: Any = Shaped(Pit(CORRIDOR), 1.0, 0.9)
    start = world.reset(KEY)
    after = world.step(start.state, jnp.zeros(2), KEY)
    bare = Pit(CORRIDOR).step(start.state.world, jnp.zeros(2), KEY)
    assert float(after.reward - bare.reward) == pytest.approx(-float(start.state.potential), rel=1e-6)
    assert float(after.state.potential) == 0.0


def test_evaluation_is_not_shaped():
    settings = Settings(EnvSettings("point_maze"), goals=GoalSettings(shaping=1.0), horizon=200)
    world: Any = assemble.simulator(settings)
    assert isinstance(world, Shaped)
    assert isinstance(world.undisturbed, PointMaze)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("env=hopper", "goals.curriculum=0.7"), r"goals\.curriculum=0\.7: env=hopper has no goals\. Nearest: goals\.curriculum=0\."),
        (("env=cartpole", "goals.shaping=1"), r"goals\.shaping=1: env=cartpole has no goals\. Nearest: goals\.shaping=0\."),
        (("env=point_maze", "goals.curriculum=0.7", "restart.source=fresh"), r"does not go with restart\.source=fresh\. Nearest: restart\.source=pool\."),
        (("env=point_maze", "goals.curriculum=0.7", "restart.renew=0"), r"needs starts that are redrawn: restart\.renew=0\. Nearest: restart\.renew=1\."),
        (("env=point_maze", "algorithm=sac", "algorithm.schedule=kl"), r"algorithm\.schedule=kl does not go with algorithm\.name=sac"),
        (("env=point_maze", "goals.shaping=1", "algorithm.lookahead_end=1000"), "needs one discount throughout"),
        (("env=point_maze", "algorithm=sac", "goals.shaping=1"), r"does not go with replay\.hindsight=0\.8\. Nearest: replay\.hindsight=0\."),
    ],
)
def test_what_goals_can_not_be_is_said_first(words: tuple[str, ...], message: str):
    with pytest.raises(ConfigError, match=message):
        train(*words)


def test_a_class_without_goals_is_asked_when_it_is_built():
    class_name = f"{CountEnv.__module__}:{CountEnv.__name__}"
    with pytest.raises(ConfigError, match="has no goals that could be nearer"):
        assemble.program(Settings(EnvSettings(class_name), goals=GoalSettings(curriculum=0.5)))
    with pytest.raises(ConfigError, match="has no goals"):
        assemble.program(Settings(EnvSettings(class_name), goals=GoalSettings(shaping=0.5)))
