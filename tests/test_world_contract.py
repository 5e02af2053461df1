"""Worlds of the user's own that break the contract: each mistake is told in a sentence, before anything compiles."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_long.config import EnvSettings
from jaxrl_long.envs import contract, probes, registry
from jaxrl_long.envs.simulator import Continuous, Discrete, SimStep
from jaxrl_long.fields import ConfigError
from jaxrl_long.typing import Array, Key


class Right:
    """Keeps the contract; what is below differs from it in one thing each."""

    obs_size: Any = 3
    action: Any = Continuous(2)
    dt: Any = 0.05

    def reset(self, key: Key[Array, ""]) -> Any:
        return SimStep(state=jnp.zeros(3), obs=jnp.zeros(3), reward=jnp.float32(0), terminated=jnp.bool_(False))

    def step(self, state: Any, action: Any, key: Key[Array, ""]) -> Any:
        return SimStep(state=state + 1, obs=state, reward=jnp.float32(1), terminated=state[0] > 5)

    def success(self, state: Any) -> Any:
        return state[0] > 3

    def position(self, state: Any) -> Any:
        return state


def step(**parts: Any) -> type[Right]:
    """A world whose steps have these parts, given the state and the action."""

    class Wrong(Right):
        def step(self, state: Any, action: Any, key: Key[Array, ""]) -> Any:
            right = {"state": state + 1, "obs": state, "reward": jnp.float32(1), "terminated": state[0] > 5}
            return SimStep(**right | {name: part(state, action) for name, part in parts.items()})

    return Wrong


def having(**members: Any) -> type[Right]:
    return type("Wrong", (Right,), members)


def branching(self: Any, state: Any, action: Any, key: Any) -> Any:
    if state[0] > 3:
        state = state * 0
    return Right.step(self, state, action, key)


def numeric(self: Any, state: Any, action: Any, key: Any) -> Any:
    return Right.step(self, jnp.asarray(np.asarray(state)), action, key)


MISTAKES = [
    (step(reward=lambda state, action: action[:1]), ["reward of step has shape (1,): it is one number, of shape ()."]),
    (step(reward=lambda state, action: 1), ["reward of step is int32, not float"]),
    (step(reward=lambda state, action: None), ["reward of step is NoneType, not one float."]),
    (step(terminated=lambda state, action: jnp.float32(0)), ["terminated of step is float32, not bool"]),
    (step(terminated=lambda state, action: state > 5), ["terminated of step has shape (3,)"]),
    (step(obs=lambda state, action: state[:2]), ["obs of step has shape (2,), but obs_size=3 means (3,)."]),
    (step(obs=lambda state, action: [0.0, 0.0, 0.0]), ["obs of step is a list, not an array [3]."]),
    (step(obs=lambda state, action: state.astype(jnp.int32)), ["obs of step is int32: networks read floats."]),
    (step(state=lambda state, action: state.astype(jnp.int32)), ["state is float32[3] after reset and int32[3] after step"]),
    (
        step(state=lambda state, action: {"place": state}),
        ["state of reset and step are built differently: only reset has state, only step has state['place']."],
    ),
    (step(state=lambda state, action: state + action), ["step(state, action, key) raises TypeError in test_world_contract.py, line", "(3,), (2,)"]),
    (having(step=lambda self, state, action, key: (state, 1.0, False, {})), ["step(state, action, key) gives a tuple of 4, not a SimStep"]),
    (having(step=lambda self, state, action: state), ["step(state, action, key) raises TypeError: "]),
    (having(step=branching), ["step(state, action, key) needs the value of an array in test_world_contract.py", "`if state[0] > 3:`", "jnp.where"]),
    (having(step=numeric), ["step(state, action, key) needs the value of an array in test_world_contract.py", "np.asarray(state)"]),
    (having(reset=lambda self, key: jnp.zeros(3)), ["reset(key) gives a", "not a SimStep"]),
    (having(reset=lambda self, key: self.missing), ["reset(key) raises AttributeError in test_world_contract.py, line", "'missing'"]),
    (having(obs_size={"policy": 3}), ["obs of reset is no mapping, but obs_size has the entries policy.", "obs of step is no mapping"]),
    (having(obs_size=4), ["obs of reset has shape (3,), but obs_size=4 means (4,).", "obs of step has shape (3,)"]),
    (having(success=lambda self, state: 1.0), ["success(state) gives float32[], not one bool."]),
    (having(position=lambda self, state: state[:2]), ["position(state) gives float32[2], not three floats, in metres."]),
    (having(position=lambda self, state: state["x"]), ["position(state) raises TypeError in test_world_contract.py"]),
]
MISDECLARED = [
    (having(obs_size=0), "obs_size=0 is not the number of features"),
    (having(obs_size={"policy": 3, "critic": None}), "is not the number of features of an observation, such as 4, or of each entry of it."),
    (having(action=2), "action=2 is neither Continuous(size) nor Discrete(count)."),
    (having(action=Discrete(0)), "0 is not a number of at least 1."),
    (having(dt=0.0), "dt=0 is not a time in seconds above 0, such as 0.05."),
    (having(dt=True), "dt=true is not a time in seconds"),
]


@pytest.mark.parametrize(("world", "said"), MISTAKES, ids=lambda part: part[0][:40] if isinstance(part, list) else "")
def test_a_mistake_is_told_in_a_sentence(world: type[Any], said: list[str]):
    problems = list(contract.broken(world()))
    text = "\n".join(problems)
    assert all(part in text for part in said)
    # One mistake is told once, or once of reset and once of step.
    assert len(problems) <= 2


@pytest.mark.parametrize(("world", "said"), MISDECLARED)
def test_attributes_that_can_not_be_are_told(world: type[Any], said: str):
    (problem,) = contract.misdeclared(world())
    assert said in problem


def test_a_world_that_keeps_it_has_no_problems():
    assert not [*contract.misdeclared(Right()), *contract.broken(Right())]
    assert not list(contract.broken(having(action=Discrete(3))()))


@pytest.mark.parametrize("probe", [probe for probe in vars(probes).values() if hasattr(probe, "reset") and hasattr(probe, "step")])
def test_our_own_probes_keep_it(probe: type[Any]):
    world = probe()
    assert not [*contract.misdeclared(world), *contract.broken(world)]


def test_several_mistakes_are_told_at_once():
    wrong = step(reward=lambda state, action: action, terminated=lambda state, action: 0.0)
    globals()["Wrong"] = wrong
    with pytest.raises(ConfigError) as caught:
        registry.make(EnvSettings(name=f"{__name__}:Wrong"))
    assert [problem.split(":")[2].split(" of")[0].strip() for problem in caught.value.problems] == ["reward", "terminated"]
