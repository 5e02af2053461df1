"""A trained agent in a program of one's own does what an evaluation sees it do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commandline import train
from test_experiment import run, settings

from jaxrl_long import agent
from jaxrl_long.config import EnvSettings
from jaxrl_long.fields import ConfigError
from jaxrl_long.runtime.evaluation import make_evaluator, snapshot


def test_it_acts_as_in_an_evaluation_one_step_at_a_time_or_within_a_program(tmp_path):
    asked = train("env=hopper", "num_envs=16", "rollout_length=8", "algorithm.minibatches=4", "steps=256", "eval.every=0", f"run_dir={tmp_path / 'run'}")
    run(asked)
    hopper = agent.load(tmp_path / "run")
    assert (hopper.update, hopper.env_steps) == (2, 256)

    evaluator = make_evaluator(hopper.program, 4)
    start = evaluator.start(jax.random.key(5))
    obs, sim = jax.tree.map(np.array, start.env.obs), jax.tree.map(jnp.copy, start.env.sim)
    expected = snapshot(evaluator.advance(hopper.learner, start, jnp.int32(15)).tally)
    assert expected.going.all()

    def step(carry, key):
        sim, obs, memory = carry
        action, memory = hopper.act(obs, memory)
        after = jax.vmap(hopper.world.step, in_axes=(0, 0, None))(sim, action, key)
        return (after.state, after.obs, memory), (action, after.reward)

    action, memory = hopper.act(obs)
    _, (actions, rewards) = jax.jit(lambda carry: jax.lax.scan(step, carry, jax.random.split(jax.random.key(0), 15)))((sim, obs, memory))
    assert action.shape == (4, 3)
    np.testing.assert_allclose(actions[0], action, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rewards.sum(axis=0), expected.score, rtol=1e-4)


def test_the_world_is_undisturbed_and_stacks_what_the_agent_saw(tmp_path):
    asked = settings(tmp_path / "run", env=EnvSettings(name="jaxrl_long.envs.probes:CountEnv", stack=3))
    run(asked)
    found = agent.load(str(tmp_path / "run"), 4)
    obs = found.world.reset(jax.random.key(0)).obs
    action, _ = found.act(jax.tree.map(lambda leaf: leaf[None], obs))
    assert action.shape == (1,)
    assert action.dtype == jnp.int32


def test_lists_are_observations_and_what_is_none_is_told(tmp_path):
    run(settings(tmp_path / "run", env=EnvSettings(name="cartpole")))
    cartpole = agent.load(tmp_path / "run")
    np.testing.assert_array_equal(cartpole.act([[0.0, 0.1, 0.2, 0.3]] * 2)[0], cartpole.act(np.array([[0.0, 0.1, 0.2, 0.3]] * 2))[0])
    for wrong, said in (
        (np.zeros(4), r"obs has shape \[4\], but this world's N observations have \[N, 4\]. obs\[None\] is one."),
        (np.zeros((2, 5)), r"obs has shape \[2, 5\], but this world's N observations have \[N, 4\].$"),
        (0.0, r"obs has shape \[\], but"),
        ({"state": np.zeros((1, 4))}, "obs has the entries state, but this world's N observations are one array"),
    ):
        with pytest.raises(ValueError, match=said):
            cartpole.act(wrong)


@pytest.mark.parametrize(("checkpoint", "said"), [(99, "has no checkpoint of that update. It has: 4."), ("worst", "neither latest nor best")])
def test_what_is_not_there_is_told(tmp_path, checkpoint, said):
    run(settings(tmp_path / "run"))
    with pytest.raises(ConfigError, match=said):
        agent.load(tmp_path / "run", checkpoint)
    with pytest.raises(ConfigError, match="no such folder"):
        agent.load(tmp_path / "nowhere")
