"""Several observations at once, stored one by one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commandline import train
from worlds import KINDS, assert_bit_equal, program, trained

from jaxrl_long.config import DisturbSettings, EnvSettings, Settings
from jaxrl_long.envs.goals import PointMaze
from jaxrl_long.envs.probes import CountEnv
from jaxrl_long.envs.stacked import Stacked, newest
from jaxrl_long.fields import ConfigError
from jaxrl_long.replay.sampling import View
from jaxrl_long.runtime import assemble

KEY = jax.random.key(0)


def test_the_latest_observations_stand_in_a_row_the_newest_last():
    world = Stacked(CountEnv(), 3)
    start = world.reset(KEY)
    seen, state = [start.obs], start.state
    inner = CountEnv()
    bare = [inner.reset(KEY)]
    for _ in range(4):
        after = world.step(state, jnp.int32(0), KEY)
        bare.append(inner.step(bare[-1].state, jnp.int32(0), KEY))
        seen.append(after.obs)
        state = after.state
    frames = [bare[0].obs, bare[0].obs, *(one.obs for one in bare)]
    for number, obs in enumerate(seen):
        np.testing.assert_array_equal(obs, jnp.concatenate(frames[number : number + 3]))
    assert world.obs_size == 3 * inner.obs_size


def test_goals_are_those_of_the_newest_and_are_changed_in_all():
    world: Any = Stacked(PointMaze(), 3)
    obs = jax.vmap(world.reset)(jax.random.split(KEY, 5)).obs
    np.testing.assert_array_equal(world.achieved(obs), newest(obs, 3)[:, :2])
    goal = jnp.ones((5, 2))
    other = world.with_goal(obs, goal)
    np.testing.assert_array_equal(world.desired(other), goal)
    np.testing.assert_array_equal(other.reshape(5, 3, 6)[:, 0, 4:], goal)
    np.testing.assert_array_equal(other.reshape(5, 3, 6)[..., :4], obs.reshape(5, 3, 6)[..., :4])


def test_what_is_drawn_is_what_was_seen():
    # Restarts every 7 steps, a ring of 40 rows that has wrapped, three steps to the next observation.
    world = Stacked(CountEnv(die_at=11), 3)
    options: dict[str, Any] = KINDS["sac"] | {"n_step": 3, "horizon": 7}
    whole, single = program(world, **options), program(world, **options, stack=3)
    states = [trained(plan, 25)[0] for plan in (whole, single)]
    views = [View(state.replay, plan.layout) for state, plan in zip(states, (whole, single), strict=True)]
    place = views[0].uniform(jax.random.key(1), 500, window=4)
    full, rebuilt = (view.transitions(place, 3, 0.9) for view in views)
    known = np.asarray(rebuilt.usable)
    assert 0.9 < known.mean() < 1.0
    np.testing.assert_array_equal(np.asarray(rebuilt.fields["obs"])[known], np.asarray(full.fields["obs"])[known])
    goes_on = known & (np.asarray(full.weight) > 0)
    np.testing.assert_array_equal(np.asarray(rebuilt.next_obs)[goes_on], np.asarray(full.next_obs)[goes_on])
    # Of what is not known any more, the oldest rows are part.
    age, since = np.asarray(rebuilt.standing.age), np.asarray((place.row - views[1].oldest) % 40)
    np.testing.assert_array_equal(known, since >= np.minimum(age, 2))


def test_a_third_of_the_room_is_taken():
    world = Stacked(CountEnv(), 3)
    sizes = [trained(program(world, **KINDS["sac"], stack=number), 1)[0].replay.fields["obs"].row.nbytes for number in (1, 3)]
    assert sizes[0] == 3 * sizes[1]


def test_evaluation_is_stacked_and_undisturbed():
    plain = assemble.simulator(Settings(EnvSettings("cartpole", stack=2)))
    shaken: Any = assemble.simulator(Settings(EnvSettings("cartpole", stack=2), disturb=DisturbSettings(observation=0.1)))
    assert_bit_equal(shaken.undisturbed.reset(KEY).obs, plain.reset(KEY).obs)
    assert (np.asarray(shaken.reset(KEY).obs) != np.asarray(plain.reset(KEY).obs)).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("env=hopper", "algorithm=sac", "env.stack=2", "restart.source=rewind"), r"env\.stack=2 does not go with restart\.source=rewind"),
        (("env=hopper", "algorithm=sac", "env.stack=2", "archive.enabled=true", "archive.share=0.5"), r"archive\.share=0\.5 does not go with env\.stack=2"),
        (("env=hopper", "env.stack=0"), r"env\.stack=0 is below 1\. Nearest: 1\."),
    ],
)
def test_what_can_not_be_stacked_is_said_first(words, message):
    with pytest.raises(ConfigError, match=message):
        train(*words)
