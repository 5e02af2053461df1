"""From settings to the program they mean."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrl_long import named
from jaxrl_long.algorithms.ppo import PPO
from jaxrl_long.algorithms.protocol import Algorithm
from jaxrl_long.algorithms.sac import SAC
from jaxrl_long.config import ALGORITHMS, Settings
from jaxrl_long.envs import registry
from jaxrl_long.envs.curriculum import Curriculum
from jaxrl_long.envs.disturbed import disturbed
from jaxrl_long.envs.shaped import Shaped
from jaxrl_long.envs.simulator import Continuous, Simulator
from jaxrl_long.envs.stacked import Stacked
from jaxrl_long.envs.vector import VectorEnv
from jaxrl_long.fields import ConfigError, show
from jaxrl_long.learning.distributions import Categorical, Distribution, TanhNormal
from jaxrl_long.learning.returns import lookahead_discount
from jaxrl_long.replay import codec
from jaxrl_long.replay.ring import Layout
from jaxrl_long.trainer import AXIS, Program

CPU_BLOCK = 64
"""Environments whose states stay in a core's cache for a whole rollout; 64 to 128 measured alike on ant."""


def distribution(simulator: Simulator) -> Distribution:
    """The kind of policy that a simulator's actions need."""
    return TanhNormal(simulator.action.size) if isinstance(simulator.action, Continuous) else Categorical(simulator.action.count)


NEEDED = ("gradient_steps", "init", "initial_memory", "act", "ring_fields", "action", "improve", "observe")
"""What an Algorithm has."""


def algorithm(settings: Settings, simulator: Simulator) -> Algorithm:
    """The algorithm that the settings name. To add one to the package: a file in `algorithms/`, and a line here.

    Raises:
        ConfigError: a user's class that can't be found or built, or is no Algorithm; what does not go together in this world.
    """
    actions = distribution(simulator)
    if settings.algorithm.name not in ALGORITHMS:
        return _own_algorithm(settings, actions)
    if settings.algorithm.name == "sac":
        goals: Any = simulator if hasattr(simulator, "goal_reward") and settings.replay.hindsight else None
        if goals is not None and settings.algorithm.n_step > 1:
            raise ConfigError([f"algorithm.n_step={settings.algorithm.n_step} does not go with hindsight. Nearest: algorithm.n_step=1 or replay.hindsight=0."])
        return SAC(settings.algorithm, settings.replay, actions, settings.samples_per_update, settings.archive.share, goals)
    return PPO(settings.algorithm, actions)


def _own_algorithm(settings: Settings, actions: Distribution) -> Algorithm:
    asked = settings.algorithm
    constructor = named.load("algorithm", asked.name)
    made = named.built("algorithm", asked.name, asked.options, lambda: constructor(asked, actions, **asked.options))
    if problems := named.lacking("algorithm", asked.name, made, "An Algorithm", NEEDED, "jaxrl_long/algorithms/protocol.py", NEEDED[1:]):
        raise ConfigError(problems)
    return made


def layout(settings: Settings) -> Layout:
    """Of the ring that the algorithm needs. Raises ConfigError for a codec that can't be had."""
    drawn, codecs = settings.draws, settings.replay.codecs()
    for name in codecs.values():
        codec.find(name)
    return Layout(
        capacity=settings.ring_rows,
        length=settings.rollout_length,
        codecs=tuple(codecs.items()),
        cuts=settings.ring_cuts,
        window=settings.algorithm.n_step + 1 if drawn else 1,
        begin=-(-settings.replay.begin // settings.num_envs) if drawn else 0,
        prioritised=drawn and settings.replay.prioritise > 0,
        stack=settings.env.stack if drawn else 1,
    )


def mesh(devices: int) -> Mesh:
    """The first `devices` local devices in a row; 0: all of them."""
    found = jax.local_devices()
    return Mesh(np.array(found[: devices or len(found)]), (AXIS,))


def block_size(asked: int, per_device: int, platform: str, at_once: int = 0) -> int:
    """Environments stepped at once: as asked, or on a CPU the largest divisor that fits the cache (and what the world allows), elsewhere all."""
    if asked:
        return asked
    fitting = min(CPU_BLOCK, at_once or CPU_BLOCK) if platform == "cpu" else per_device
    return max(size for size in range(1, min(fitting, per_device) + 1) if per_device % size == 0)


def simulator(settings: Settings) -> Simulator:
    """The world that training runs in."""
    world = disturbed(registry.make(settings.env, settings.horizon), settings.disturb)
    if settings.env.stack > 1:
        world = Stacked(world, settings.env.stack)
    if not settings.goals.shaping:
        return world
    return Shaped(world, settings.goals.shaping, lookahead_discount(float(settings.algorithm.lookahead), settings.algorithm.discount))


def curriculum(settings: Settings, world: Simulator) -> Curriculum | None:
    """How far goals are in training. Raises ConfigError where there are none."""
    goals = settings.goals
    if not goals.curriculum:
        return None
    if hasattr(world, "nearer") and not hasattr(world, "success"):
        raise ConfigError([f"goals.curriculum={show(goals.curriculum)}: this environment does not say when a goal is reached: it lacks success(state)."])
    if not hasattr(world, "nearer"):
        raise ConfigError([f"goals.curriculum={show(goals.curriculum)}: this environment has no goals that could be nearer. Leave it at 0."])
    return Curriculum(goals.curriculum, goals.start, goals.pace)


def program(settings: Settings) -> Program:
    """The static half of the run that the settings describe, on this process's devices."""
    world = simulator(settings)
    devices = mesh(settings.devices)
    restart = settings.restart
    vector = VectorEnv(world, settings.horizon, restart.every, restart.random, restart.stagger, restart.source, restart.share)
    return Program(
        vector=vector,
        algorithm=algorithm(settings, world),
        mesh=devices,
        num_envs=settings.num_envs,
        rollout_length=settings.rollout_length,
        block=block_size(settings.block, settings.num_envs // devices.size, devices.devices.flat[0].platform, vector.at_once),
        total_updates=settings.updates,
        layout=layout(settings),
        pool=restart.pool,
        renew=min(restart.renew, restart.pool),
        keep=restart.keep,
        keep_every=max(1, restart.spacing // settings.rollout_length),
        curriculum=curriculum(settings, world),
        lent=settings.archive.lend if settings.archive.share else 0,
    )
