"""From names to simulators, and what is said when that fails."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jaxrl_long.config import EnvSettings
from jaxrl_long.envs import registry
from jaxrl_long.envs.classic import CartPole
from jaxrl_long.envs.floating_origin import FloatingOrigin
from jaxrl_long.envs.probes import CountEnv
from jaxrl_long.fields import ConfigError
from jaxrl_long.rules import environments


def test_all_twelve_brax_tasks_and_our_own_are_registered():
    brax = {"ant", "halfcheetah", "hopper", "walker2d", "humanoid", "humanoidstandup", "swimmer", "reacher", "pusher"}
    brax |= {"inverted_pendulum", "inverted_double_pendulum", "fast"}
    assert set(registry.names()) == brax | {"cartpole", "gridworld", "bitflip", "point_maze", "sparse_reacher", "ant_goal"}


@pytest.mark.parametrize("name", registry.names())
def test_the_table_of_facts_tells_the_truth(name: str):
    facts = environments()[name]
    simulator = registry.make(EnvSettings(name=name, floating_origin=False))
    assert simulator.obs_size == facts.obs_size
    assert getattr(simulator.action, "size", None) == facts.action_size
    assert getattr(simulator.action, "count", None) == facts.num_actions
    assert getattr(simulator, "max_steps", None) == facts.max_steps
    assert bool(getattr(simulator, "translates", ())) == facts.translation_invariant


def test_the_floating_origin_is_put_on_where_it_applies_and_asked_for():
    assert isinstance(registry.make(EnvSettings(name="hopper")), FloatingOrigin)
    assert not isinstance(registry.make(EnvSettings(name="hopper", floating_origin=False)), FloatingOrigin)
    assert not isinstance(registry.make(EnvSettings(name="reacher")), FloatingOrigin)


def test_a_task_that_observes_where_it_is_gets_no_floating_origin():
    simulator = registry.make(EnvSettings(name="hopper", options={"exclude_current_positions_from_observation": False}))
    assert not isinstance(simulator, FloatingOrigin)


def test_auto_means_the_first_backend_of_the_table():
    assert registry.make(EnvSettings(name="inverted_pendulum")).dt == 0.02  # spring; generalized has 0.04
    assert registry.make(EnvSettings(name="inverted_pendulum", backend="generalized")).dt == 0.04


def test_options_reach_a_class_of_ones_own():
    simulator = registry.make(EnvSettings(name="jaxrl_long.envs.probes:CountEnv", options={"die_at": 7}))
    assert isinstance(simulator, CountEnv)
    assert simulator.die_at == 7


def test_a_class_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_world.py").write_text("from jaxrl_long.envs.classic import CartPole\n\n\nclass Mine(CartPole):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert isinstance(registry.make(EnvSettings(name="my_world:Mine")), CartPole)


def refused(**settings: Any) -> str:
    """What `make` says about settings that it refuses."""
    with pytest.raises(ConfigError) as caught:
        registry.make(EnvSettings(**settings))
    return str(caught.value)


def test_a_misspelt_name_gets_the_closest_one():
    assert "halfcheetah" in refused(name="half_cheetah")


def test_a_missing_package_a_missing_module_and_a_missing_class_are_told_apart():
    assert "no module nowhere can be imported" in refused(name="nowhere.world:Class")
    assert "no module jaxrl_long.worlds can be imported" in refused(name="jaxrl_long.worlds:CountEnv")
    assert "not of the form package.module:Class" in refused(name=".worlds:CountEnv")
    said = refused(name="jaxrl_long.envs.probes:CountEnf")
    assert "no class CountEnf" in said
    assert "CountEnv" in said


def test_a_misspelt_module_gets_the_closest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_planets.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "no module my_planet can be imported. Closest: my_planets. Run from" in refused(name="my_planet:Mine")


def test_a_missing_dependency_of_a_users_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "needy_world.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "needs a_package_that_is_not_there" in refused(name="needy_world:Class")


def test_everything_that_a_class_lacks_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "half_world.py").write_text("class Half:\n    action = 3\n    obs_size = 2\n\n    def reset(self, key):\n        pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = refused(name="half_world:Half")
    assert "half_world:Half lacks step, dt." in said
    assert "action=3 is neither Continuous(size) nor Discrete(count)" in said


def test_unknown_options_and_unsupported_backends_are_settings_errors():
    assert "wheels" in refused(name="hopper", options={"wheels": 4})
    assert "Supported: generalized" in refused(name="swimmer", backend="spring")
    assert "no choice of backends" in refused(name="cartpole", backend="spring")
    assert "no choice of backends" in refused(name="jaxrl_long.envs.probes:CountEnv", backend="mjx")


def test_a_horizon_above_the_inner_limit_is_refused_and_names_the_limit():
    limited = EnvSettings(name="jaxrl_long.envs.probes:CountEnv", options={"max_steps": 1000})
    with pytest.raises(ConfigError, match=r"horizon=2500 is above the inner limit .* 1000 steps"):
        registry.make(limited, horizon=2500)
    assert isinstance(registry.make(limited, horizon=1000), CountEnv)
    assert isinstance(registry.make(EnvSettings(name="jaxrl_long.envs.probes:CountEnv"), horizon=2500), CountEnv)


def test_brax_is_imported_for_its_own_tasks_only():
    script = textwrap.dedent("""
        import sys
        from jaxrl_long.config import EnvSettings
        from jaxrl_long.envs import registry
        registry.make(EnvSettings(name="cartpole"))
        registry.make(EnvSettings(name="jaxrl_long.envs.probes:CountEnv"))
        print([name for name in ("brax", "mujoco") if name in sys.modules])
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
