"""From settings to a Simulator: registered names, and users' classes by `package.module:Class`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_long.config import EnvSettings
from jaxrl_long.envs.classic import CartPole, GridWorld
from jaxrl_long.envs.floating_origin import FloatingOrigin
from jaxrl_long.envs.goals import BitFlip, PointMaze
from jaxrl_long.envs.simulator import Continuous, Discrete, Simulator
from jaxrl_long.fields import ConfigError, closest, show
from jaxrl_long.rules import USER_CLASS, environments

OURS: dict[str, Callable[..., Any]] = {"cartpole": CartPole, "gridworld": GridWorld, "bitflip": BitFlip, "point_maze": PointMaze}
"""Registered environments that are not brax's."""

NEEDED = ("reset", "step", "obs_size", "action", "dt")
"""What a Simulator has."""


def names() -> list[str]:
    """The registered names, in alphabetical order."""
    return sorted(environments())


def make(env: EnvSettings, horizon: int | None = None) -> Simulator:
    """The simulator that the settings ask for, with a floating origin where that applies.

    `horizon` is how long episodes are to last, if they shall be checked against the world's own limit. Brax is imported only
    for one of its tasks.

    Raises:
        ConfigError: no such name, module or class; an option or a backend that it does not take; a class that is not a
            Simulator; a horizon above the world's inner limit.
    """
    simulator = _custom(env) if ":" in env.name else _registered(env)
    limit = getattr(simulator, "max_steps", None)
    if horizon is not None and limit is not None and horizon > limit:
        raise ConfigError([f"horizon={horizon} is above the inner limit of env={env.name}, {limit} steps, which can't be switched off. Nearest: {limit}."])
    if env.floating_origin and getattr(simulator, "translates", ()):
        return FloatingOrigin(simulator)
    return simulator


def _registered(env: EnvSettings) -> Simulator:
    facts = environments().get(env.name)
    if facts is None:
        raise ConfigError([f"env={env.name}: no environment of this name. {closest(env.name, names())} Or package.module:Class of your own."])
    if env.name in OURS:
        _refuse_backend(env)
        return _built(env, OURS[env.name], env.options)
    backend = facts.backends[0] if env.backend == "auto" else env.backend
    if backend not in facts.backends:
        raise ConfigError([f"env.backend={backend} is not supported by env={env.name}. Supported: {', '.join(facts.backends)}."])
    if facts.goals:
        from jaxrl_long.envs import goal_tasks

        return _built(env, goal_tasks.TASKS[env.name], {"backend": backend, **env.options})
    from jaxrl_long.envs.brax import BraxSimulator

    return _built(env, BraxSimulator, {"name": env.name, "backend": backend, "options": env.options})


def _custom(env: EnvSettings) -> Simulator:
    _refuse_backend(env)
    if not USER_CLASS.fullmatch(env.name):
        raise ConfigError([f"env={env.name} is not of the form package.module:Class."])
    module_name, _, class_name = env.name.partition(":")
    module = _module(env.name, module_name)
    constructor = getattr(module, class_name, None)
    if not callable(constructor):
        classes = [name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        known = closest(class_name, classes) if classes else "It holds no class."
        raise ConfigError([f"env={env.name}: module {module_name} has no class {class_name}. {known}"])
    simulator = _built(env, constructor, env.options)
    _check(env.name, simulator)
    return simulator


def _module(name: str, module_name: str) -> Any:
    """Import a user's module, also from the current folder. An error inside of it is told as it is."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError([f"env={name}: module {module_name} needs {error.name}, which is not installed."]) from error
        problem = f"env={name}: no module {error.name} can be imported. Run from the folder that holds it, or install it."
        raise ConfigError([problem]) from None


def _built(env: EnvSettings, constructor: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Call the constructor; what it says about its arguments becomes a settings error."""
    try:
        return constructor(**options)
    except (TypeError, ValueError, NotImplementedError) as error:
        given = f"env.options={show(dict(env.options))}" if env.options else "without env.options"
        raise ConfigError([f"env={env.name} can't be built {given}: {error}"]) from error


def _check(name: str, simulator: Any) -> None:
    """Everything that a user's class lacks, at once."""
    missing = [member for member in NEEDED if not hasattr(simulator, member)]
    problems = []
    if missing:
        problems.append(f"env={name} lacks {', '.join(missing)}. A Simulator has {', '.join(NEEDED)} (jaxrl_long/envs/simulator.py).")
    problems += [f"env={name}: {member} is not a method." for member in NEEDED[:2] if not callable(getattr(simulator, member, len))]
    if not isinstance(getattr(simulator, "action", Discrete(1)), Continuous | Discrete):
        problems.append(f"env={name}: action={show(simulator.action)} is neither Continuous(size) nor Discrete(count).")
    if problems:
        raise ConfigError(problems)


def _refuse_backend(env: EnvSettings) -> None:
    if env.backend != "auto":
        raise ConfigError([f"env.backend={env.backend}: env={env.name} has no choice of backends. Leave it at auto."])
