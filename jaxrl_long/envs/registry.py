"""From settings to a Simulator: registered names, and users' classes by `package.module:Class`."""

from collections.abc import Callable
from typing import Any

from jaxrl_long import named
from jaxrl_long.config import EnvSettings
from jaxrl_long.envs import contract
from jaxrl_long.envs.classic import CartPole, GridWorld
from jaxrl_long.envs.floating_origin import FloatingOrigin
from jaxrl_long.envs.goals import BitFlip, PointMaze
from jaxrl_long.envs.simulator import Simulator
from jaxrl_long.fields import ConfigError, closest
from jaxrl_long.rules import environments

OURS: dict[str, Callable[..., Any]] = {"cartpole": CartPole, "gridworld": GridWorld, "bitflip": BitFlip, "point_maze": PointMaze}
"""Registered environments that are not brax's."""

NEEDED = ("reset", "step", "obs_size", "action", "dt")
"""What a Simulator has."""


def names() -> list[str]:
    """The registered names, in alphabetical order.

    >>> names()[:3]
    ['ant', 'ant_goal', 'bitflip']
    """
    return sorted(environments())


def make(env: EnvSettings, horizon: int | None = None) -> Simulator:
    """The simulator that the settings ask for, with a floating origin where that applies.

    `horizon` is how long episodes are to last, if they shall be checked against the world's own limit. Brax is imported only
    for one of its tasks.

    Raises:
        ConfigError: no such name, module or class; an option or a backend that it does not take; a class that is not a
            Simulator, or breaks its contract; a horizon above the world's inner limit.
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
    simulator = _built(env, named.load("env", env.name), env.options)
    lacking = named.lacking("env", env.name, simulator, "A Simulator", NEEDED, "jaxrl_long/envs/simulator.py", NEEDED[:2])
    problems = lacking + [f"env={env.name}: {problem}" for problem in contract.misdeclared(simulator)]
    # What is not whole can't be tried.
    if problems := problems or [f"env={env.name}: {problem}" for problem in contract.broken(simulator)]:
        raise ConfigError(problems)
    return simulator


def _built(env: EnvSettings, constructor: Callable[..., Any], options: dict[str, Any]) -> Any:
    return named.built("env", env.name, env.options, lambda: constructor(**options))


def _refuse_backend(env: EnvSettings) -> None:
    if env.backend != "auto":
        raise ConfigError([f"env.backend={env.backend}: env={env.name} has no choice of backends. Leave it at auto."])
