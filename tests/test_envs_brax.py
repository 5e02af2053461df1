"""Brax's tasks through the Simulator contract: the same numbers as brax's own, from less state."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs

from jaxrl_long.envs.brax import TRANSLATES, BraxSimulator, solved_at_once
from jaxrl_long.envs.goal_tasks import TASKS
from jaxrl_long.envs.registry import OURS
from jaxrl_long.rules import environments
from jaxrl_long.typing import Array, PyTree

KEY = jax.random.key(0)
STEPS = 25

BACKENDS = ("spring", "positional", "generalized", "mjx")
TRAJECTORIES = [*(("hopper", backend) for backend in BACKENDS), ("pusher", "spring"), ("humanoid", "spring"), ("swimmer", "generalized"), ("fast", "spring")]
"""What a step reads depends on the backend; the tasks are those that read the most: bodies' places, speeds, fluid forces."""
MOVABLE = [
    *((name, backend) for name in ("ant", "hopper") for backend in BACKENDS),
    *((name, "spring") for name in ("halfcheetah", "walker2d", "humanoid", "humanoidstandup")),
    ("swimmer", "generalized"),
]
"""A free and a sliding root on every backend, and every movable task."""
QUICK = {("hopper", "spring"), ("swimmer", "generalized"), ("fast", "spring")}


def cases(pairs: list[tuple[str, str]]) -> list[Any]:
    """Test parameters, most of them slow: each compiles a physics step of its own."""
    return [pytest.param(*pair, id="-".join(pair), marks=[] if pair in QUICK else pytest.mark.slow) for pair in pairs]


@functools.cache
def hopper() -> BraxSimulator:
    return BraxSimulator("hopper", "spring")


def test_every_movable_task_is_tested_below():
    assert {name for name, _ in MOVABLE} == set(TRANSLATES)


def test_the_installed_brax_has_the_tasks_that_are_registered_and_no_others():
    assert set(envs._envs) == set(environments()) - set(OURS) - set(TASKS)


def test_backends_that_solve_systems_are_stepped_a_few_at_once_on_a_cpu():
    # 14 degrees of freedom: 200,000 / 14^3 = 72.9; the humanoid's 23: 16.4.
    assert BraxSimulator("ant", "generalized").at_once == 72
    assert solved_at_once("mjx", 23) == 16
    assert solved_at_once("generalized", 100) == 1
    assert hopper().at_once == 0


@pytest.mark.slow
def test_two_devices_that_solve_systems_do_not_wait_for_one_another_for_ever(tmp_path: Path):
    # 256 starts of 14 unknowns each, and as many evaluated: on a machine with two cores that stood still.
    words = ["env=ant", "env.backend=generalized", "num_envs=256", "rollout_length=4", "steps=1024", "devices=2", "eval.num_envs=256", "eval.window=2"]
    run = [sys.executable, "-m", "jaxrl_long.train", *words, f"run_dir={tmp_path / 'run'}", "compilation_cache=none"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "XLA_FLAGS": ""})
    assert done.returncode == 0, done.stderr
    assert "1,024 steps" in done.stdout


def actions(simulator: BraxSimulator) -> Array:
    """Random actions [STEPS, A]."""
    return jax.random.uniform(jax.random.key(1), (STEPS, simulator.action.size), minval=-1.0, maxval=1.0)


@pytest.mark.parametrize(("name", "backend"), cases(TRAJECTORIES))
def test_the_lean_state_gives_braxs_own_trajectory(name: str, backend: str):
    # In float64, so that only what is really different shows: in float32, rounding alone grows to 1e-2 within 25 steps.
    with jax.enable_x64(True):
        simulator = BraxSimulator(name, backend)
        theirs = simulator._env
        shapes = jax.eval_shape(theirs.reset, KEY)

        def step(state: PyTree, action: Array) -> tuple[PyTree, tuple[Array, Array]]:
            after = simulator.step(state, action, KEY)
            return after.state, (after.obs, after.reward)

        def their_step(state: Any, action: Array) -> tuple[Any, tuple[Array, Array]]:
            after = theirs.step(state, action)
            after = jax.tree.map(lambda new, shape: jnp.asarray(new, shape.dtype), after, shapes)
            return after, (after.obs, after.reward)

        end, (obs, reward) = jax.jit(lambda: jax.lax.scan(step, simulator.reset(KEY).state, actions(simulator)))()
        their_end, (their_obs, their_reward) = jax.jit(lambda: jax.lax.scan(their_step, theirs.reset(KEY), actions(simulator)))()
        place = simulator.physics(end).x.pos
    np.testing.assert_allclose(obs, their_obs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(reward, their_reward, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(place, their_end.pipeline_state.x.pos, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "backend"), cases(MOVABLE))
def test_a_world_moved_by_64_m_goes_on_as_if_it_had_not_been(name: str, backend: str):
    with jax.enable_x64(True):
        simulator = BraxSimulator(name, backend)
        offset = jnp.zeros(3).at[jnp.array(simulator.translates)].set(64.0)

        def step(state: PyTree, action: Array) -> tuple[PyTree, tuple[Array, Array]]:
            after = simulator.step(state, action, KEY)
            return after.state, (after.obs, after.reward)

        @jax.jit
        def roll(offset: Array) -> tuple[PyTree, tuple[Array, Array]]:
            start = simulator.shift(simulator.reset(KEY).state, offset)
            end, seen = jax.lax.scan(step, start, actions(simulator))
            return simulator.shift(end, -offset), seen

        end, (obs, reward) = roll(0 * offset)
        moved_end, (moved_obs, moved_reward) = roll(offset)
    np.testing.assert_allclose(moved_obs, obs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moved_reward, reward, rtol=1e-4, atol=1e-4)
    jax.tree.map(lambda moved, still: np.testing.assert_allclose(moved, still, rtol=1e-4, atol=1e-4), moved_end, end)


def test_the_position_moves_with_the_world():
    start = hopper().reset(KEY).state
    moved = hopper().shift(start, jnp.array([8.0, 0.0, 0.0]))
    np.testing.assert_allclose(hopper().position(moved) - hopper().position(start), [8.0, 0.0, 0.0], atol=1e-5)


def test_a_task_ends_when_brax_says_done_and_not_otherwise():
    step = jax.jit(hopper().step)
    start = hopper().reset(KEY).state
    assert not step(start, jnp.zeros(3), KEY).terminated
    # Lifted by 1 m it is still healthy; sunk by 1 m it is below its least height of 0.7 m.
    sunk = {**start, **{name: start[name].replace(pos=start[name].pos - jnp.array([0.0, 0.0, 1.0])) for name in ("x", "x_i")}}
    assert step(sunk, jnp.zeros(3), KEY).terminated


def test_a_task_without_an_end_never_ends():
    simulator = BraxSimulator("reacher", "spring")
    assert not jax.jit(simulator.step)(simulator.reset(KEY).state, jnp.ones(2), KEY).terminated


def test_time_steps_are_those_of_the_tasks():
    assert hopper().dt == 0.008
    assert BraxSimulator("ant", "generalized").dt == 0.05
    assert BraxSimulator("fast", "spring").dt == 0.02


def test_four_resets_are_four_starts():
    obs = jax.vmap(hopper().reset)(jax.random.split(KEY, 4)).obs
    assert len({tuple(row) for row in np.asarray(obs).tolist()}) == 4


def test_options_reach_brax():
    generous = BraxSimulator("hopper", "spring", {"healthy_reward": 3.0})
    start = hopper().reset(KEY).state
    gain = generous.step(start, jnp.zeros(3), KEY).reward - hopper().step(start, jnp.zeros(3), KEY).reward
    np.testing.assert_allclose(gain, 2.0, atol=1e-4)


def test_named_observations_keep_their_names_and_images_are_refused():
    named = BraxSimulator("fast", "spring", {"obs_mode": "dict_latent_state"})
    assert named.obs_size == {"state": 2, "latent_pixels/view_0": 12, "latent_pixels/view_1": 12}
    with pytest.raises(ValueError, match=r"shape \(4, 4, 3\) is not a vector"):
        BraxSimulator("fast", "spring", {"obs_mode": "dict_pixels"})


def test_the_state_holds_no_constants():
    start = jax.eval_shape(hopper().reset, KEY).state
    assert set(start) == {"q", "qd", "x", "x_i", "xd_i", "j", "jd", "a_p", "a_c"}
    assert sum(leaf.size * 4 for leaf in jax.tree.leaves(start)) == 800


def test_nothing_is_printed_and_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    # halfcheetah's model file makes MuJoCo warn, and write MUJOCO_LOG.TXT.
    monkeypatch.chdir(tmp_path)
    BraxSimulator("halfcheetah", "spring")
    assert not list(tmp_path.iterdir())
    said = capfd.readouterr()
    assert said.out + said.err == ""
