"""What a state takes is known before it is made."""

import jax
import pytest
from worlds import program

from jaxrl_long.config import ReplaySettings, Settings
from jaxrl_long.envs.probes import CountEnv
from jaxrl_long.fields import ConfigError
from jaxrl_long.launch import init_state, state_shapes
from jaxrl_long.runtime import footprint, memory


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("capacity", [4, 4000])
def test_the_estimate_is_what_is_really_held(capacity, devices):
    plan = program(CountEnv(), num_envs=64, capacity=capacity, devices=devices)
    need = footprint.needed(plan, state_shapes(plan))
    state = init_state(plan, 0)

    def held(tree) -> int:
        return sum(shard.data.nbytes for leaf in jax.tree.leaves(tree) for shard in jax.block_until_ready(leaf).addressable_shards)

    assert need.parameters == held((state.learner, state.starts))
    assert need.ring == held(state.replay)
    assert need.environments == held((state.env, state.memory))


def test_a_state_that_does_not_fit_is_refused_with_nothing_allocated(monkeypatch):
    plan = program(CountEnv(), num_envs=64, capacity=4000)
    shapes = state_shapes(plan)
    settings = Settings(num_envs=64, rollout_length=4, replay=ReplaySettings(capacity=64 * 4000))
    footprint.require(settings, plan, shapes)
    before = len(jax.live_arrays())
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 1_000_000)
    with pytest.raises(ConfigError, match=r"replay\.capacity=256000: the run's state takes .* Nearest: replay\.capacity=\d+"):
        footprint.require(settings, plan, shapes)
    assert len(jax.live_arrays()) == before
