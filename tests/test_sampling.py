"""What is drawn from the ring, against histories that forget nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from histories import History, lived
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_long.replay.hindsight import distance, future
from jaxrl_long.replay.ring import Layout
from jaxrl_long.replay.sampling import Place, View

# Few sizes, as each is compiled anew: rollouts of 1, 3 and 4 rows, rings that are not full, just full, and have wrapped.
LAYOUTS = st.sampled_from([Layout(capacity, length, cuts=capacity) for length, capacity in ((1, 7), (3, 12), (4, 20))])
histories = st.builds(lived, LAYOUTS, st.sampled_from([3, 5, 13]), chance=st.sampled_from([0.0, 0.05, 0.3, 1.0]), seed=st.integers(0, 2**16))


def everywhere(history: History, newer: int) -> tuple[Place, np.ndarray, np.ndarray]:
    """Every stored step that has so many newer ones; with its number in the history and its environment."""
    stored = min(history.steps, history.layout.capacity)
    steps = np.arange(history.steps - stored, history.steps - newer)
    step, env = (grid.ravel() for grid in np.meshgrid(steps, np.arange(history.obs.shape[1]), indexing="ij"))
    return Place(jnp.asarray(step % history.layout.capacity), jnp.asarray(env)), step, env


@given(histories)
@settings(max_examples=25, deadline=None)
def test_every_step_knows_its_age_episode_and_version(history):
    place, step, env = everywhere(history, 0)
    standing = View(history.ring, history.layout).standing(place)
    np.testing.assert_array_equal(standing.age, history.age[step, env])
    np.testing.assert_array_equal(standing.episode, history.episode[step, env])
    np.testing.assert_array_equal(standing.version, step // history.layout.length)


@given(histories, st.sampled_from([1, 3]))
@settings(max_examples=25, deadline=None)
def test_transitions_are_those_of_a_history_that_forgets_nothing(history, steps):
    place, step, env = everywhere(history, steps)
    found = View(history.ring, history.layout).transitions(place, steps, 0.9)
    assert bool(jnp.all(found.usable))
    for i, (first, which) in enumerate(zip(step, env, strict=True)):
        reward, weight, now = 0.0, 1.0, int(first)
        for taken in range(steps):
            now = int(first) + taken
            reward, weight = reward + weight * history.reward[now, which], weight * 0.9
            if history.terminated[now, which] or history.truncated[now, which]:
                break
        weight = 0.0 if history.terminated[now, which] else weight
        assert float(found.reward[i]) == pytest.approx(reward, abs=1e-5)
        assert float(found.weight[i]) == pytest.approx(weight, abs=1e-6)
        assert float(found.fields["obs"][i, 0]) == history.obs[first, which]
        if weight:
            assert float(found.next_obs[i, 0]) == history.final_obs[now, which]


def test_a_return_over_several_steps_stops_where_the_episode_does():
    # Rewards of 1, the second step ends: 1 + 0.9 = 1.9; what followed counts 0.9^2 after a cut, and nothing after a death.
    for flag, weight in (("truncated", 0.81), ("terminated", 0.0)):
        history = lived(Layout(8, 4, cuts=4), 2, number=1, chance=0.0)
        history.reward[:] = 1.0
        getattr(history, flag)[1] = True
        history.__post_init__()
        found = View(history.ring, history.layout).transitions(Place(jnp.array([0]), jnp.array([0])), 3, 0.9)
        assert float(found.reward[0]) == pytest.approx(1.9)
        assert float(found.weight[0]) == pytest.approx(weight)


def test_windows_never_cross_the_cursor():
    # A ring of 10 rows, of which rows 0 to 12 were written: what is left is 3 to 12, and windows of 3 begin at 3 to 10.
    history = lived(Layout(10, 1), 13, number=2)
    place = View(history.ring, history.layout).uniform(jax.random.key(0), 2000, 3)
    begun = {history.step_of(int(row)) for row in place.row}
    assert begun == set(range(3, 11))
    assert set(np.asarray(place.env)) == {0, 1}


@given(histories, st.sampled_from([2, 5]))
@settings(max_examples=25, deadline=None)
def test_windows_know_where_their_episodes_end(history, length):
    view = View(history.ring, history.layout)
    place, step, env = everywhere(history, length - 1)
    rows = step[:, None] + np.arange(length)
    np.testing.assert_array_equal(view.window("obs", place, length)[..., 0], history.obs[rows, env[:, None]])
    same = history.episode[rows, env[:, None]] == history.episode[step, env][:, None]
    np.testing.assert_array_equal(view.same_episode(place, length), same)


def test_a_cut_that_is_no_longer_kept_is_not_learnt_from():
    # Every step is cut, and the ring keeps the last 2 cuts of each environment only.
    history = lived(Layout(12, 4, cuts=2), 3, chance=0.0)
    history.truncated[:] = True
    history.episode[:], history.age[:] = np.arange(12)[:, None], 0
    history.final_obs[:] = -history.obs - 1000
    history.__post_init__()
    place, step, env = everywhere(history, 1)
    found = View(history.ring, history.layout).transitions(place, 1, 0.9)
    # Step 11 is the newest, and has no row after it yet; of the others only step 10 is among the last two.
    np.testing.assert_array_equal(found.usable, step == 10)
    np.testing.assert_array_equal(found.next_obs[step == 10, 0], history.final_obs[10, env[step == 10]])


@given(histories)
@settings(max_examples=25, deadline=None)
def test_the_rest_of_an_episode_is_counted_across_the_cursor_and_beyond_the_ring(history):
    view = View(history.ring, history.layout)
    place, step, env = everywhere(history, 0)
    left = view.rows_left(place, view.standing(place))
    np.testing.assert_array_equal(left, [history.last_of_episode(int(s), int(e)) - s for s, e in zip(step, env, strict=True)])


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_hindsight_looks_at_later_stored_steps_of_the_same_episode(discount):
    # 23 rollouts into room for 6: a ring that has wrapped, with episodes of about 14 steps among 24 rows.
    history = lived(Layout(24, 4, cuts=24), 23, chance=0.07, seed=5)
    view = View(history.ring, history.layout)
    place = view.uniform(jax.random.key(1), 1000)
    later = future(view, place, view.standing(place), jax.random.key(2), discount)
    first, then = (np.array([history.step_of(int(row)) for row in where.row]) for where in (place, later))
    env = np.asarray(place.env)
    np.testing.assert_array_equal(later.env, place.env)
    assert (then >= first).all()
    np.testing.assert_array_equal(history.episode[then, env], history.episode[first, env])
    assert (then >= history.steps - 24).all()
    assert (then > first).any()


@pytest.mark.parametrize("discount", [1.0, 0.5, 0.999])
def test_distances_have_the_distribution_asked_for(discount):
    left, number = 4, 40_000
    drawn = np.asarray(distance(jax.random.uniform(jax.random.key(0), (number,)), jnp.full(number, left), discount))
    expected = discount ** np.arange(left + 1)
    np.testing.assert_allclose(np.bincount(drawn, minlength=left + 1) / number, expected / expected.sum(), atol=0.01)
