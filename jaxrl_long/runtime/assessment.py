"""`evaluate`: a finished or running run's policy, continued for as long as asked."""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long import __version__
from jaxrl_long.algorithms.protocol import Decision
from jaxrl_long.config import EvaluateSettings, RenderSettings, Settings
from jaxrl_long.fields import ConfigError, to_plain
from jaxrl_long.launch import state_shapes
from jaxrl_long.runtime import assemble, endurance
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.continuation import Store, continued
from jaxrl_long.runtime.evaluation import make_evaluator
from jaxrl_long.runtime.experiment import EVAL_SEED
from jaxrl_long.runtime.folder import RunFolder, now, record
from jaxrl_long.runtime.progress import steps_bar
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.trainer import Program, TrainState
from jaxrl_long.typing import Array, PyTree

BESIDE = ("run", "json", "devices", "compilation_cache", "checkpoint")
"""Settings that don't decide the numbers; the checkpoint does, by its update."""


@dataclass(frozen=True)
class Agent:
    """What a run has learnt up to one of its checkpoints, and the program that acts with it."""

    program: Program
    learner: Any
    update: int
    precision: str = "highest"
    """Of matrix products when it acts in a process that chose none, in jax's names."""

    @property
    def env_steps(self) -> int:
        """Steps in the environments that it has learnt from."""
        return self.update * self.program.steps_per_update

    @property
    def world(self) -> Any:
        """The world that it was trained in, undisturbed: one copy, without clock or restarts."""
        return self.program.vector.endless().simulator

    def act(self, obs: PyTree, memory: PyTree = None) -> tuple[Array, PyTree]:
        """Decide, deterministically, for N observations [N, ...] as the world gives them: actions [N, A] or [N], and what it will remember of this.

        `memory`: what it remembers of the step before; None at the start of an episode. Most agents remember nothing.

        Raises:
            ValueError: not such observations.
        """
        obs = observations(obs, self._observed)
        number = jax.tree.leaves(obs)[0].shape[0]
        begins = memory is None
        memory = self.program.algorithm.initial_memory(number) if begins else memory
        with jax.default_matmul_precision(self.precision):
            decision = self._decide(self.learner, obs, memory, jnp.full(number, begins), None)
        return decision.action, decision.memory

    @functools.cached_property
    def _observed(self) -> PyTree:
        """Shapes of one observation."""
        return jax.eval_shape(lambda: self.world.reset(jax.random.key(0)).obs)

    @functools.cached_property
    def _decide(self) -> Callable[..., Decision]:
        return jax.jit(self.program.algorithm.act)


def observations(given: Any, one: PyTree) -> PyTree:
    """N observations as arrays, where `one` has the shapes of a single one. Raises ValueError where they are none."""
    many = isinstance(one, Mapping)
    if isinstance(given, Mapping) != many or (many and set(given) != set(one)):
        found = f"has the entries {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"is a {type(given).__name__}"
        wanted = f"have the entries {', '.join(one)}" if many else "are one array"
        raise ValueError(f"obs {found}, but this world's N observations {wanted}.")
    arrays = {name: jnp.asarray(value) for name, value in given.items()} if many else {"": jnp.asarray(given)}
    for name, array in arrays.items():
        shape, entry = (one[name] if many else one).shape, f"obs[{name!r}]" if name else "obs"
        if array.ndim == 0 or array.shape[1:] != shape:
            hint = f" {entry}[None] is one." if array.shape == shape else ""
            raise ValueError(f"{entry} has shape {list(array.shape)}, but this world's N observations have [N, {', '.join(map(str, shape))}].{hint}")
    if len({array.shape[0] for array in arrays.values()}) > 1:
        raise ValueError(f"obs has {', '.join(f'{array.shape[0]} of {name}' for name, array in arrays.items())}: as many of each are needed.")
    return arrays if many else arrays[""]


def load(settings: EvaluateSettings | RenderSettings, stored: Settings, say: Callable[[str], None] = print) -> Agent:
    """The agent of a run with the `stored` settings; needs nothing but the run's folder. Raises ConfigError if there is no such checkpoint."""
    folder = RunFolder(Path(settings.run or ""))
    checkpoints = Checkpoints(folder.checkpoints, say=say)
    update = find_update(settings.checkpoint, checkpoints, folder)
    program = assemble.program(replace(stored, devices=settings.devices, block=0, env=settings.env))
    shapes = state_shapes(program)
    # Only the learner's leaves are read: the ring may be large, and another number of environments doesn't matter.
    nothing: Any = None
    wanted = TrainState(shapes.learner, env=nothing, starts=nothing, archive=nothing, memory=nothing, replay=nothing, key=nothing, update=nothing)
    learner = checkpoints.restore(update, wanted, partial=True)[0].learner
    return Agent(replace(program, vector=replace(program.vector, horizon=settings.horizon)), learner, update, settings.precision)


def assess(settings: EvaluateSettings, stored: Settings, stop: Stop | None = None, say: Callable[[str], None] = print) -> dict[str, Any] | None:
    """Evaluate the policy of a run. Returns the numbers that `json=true` prints.

    None: told to stop before the end; what was computed is saved, and the same call goes on with it.

    Raises:
        ConfigError: the run has no such checkpoint, or the same evaluation is under way elsewhere.
    """
    agent = load(settings, stored, say)
    folder = RunFolder(Path(settings.run or ""))
    begin, horizon, window = time.perf_counter(), settings.horizon, min(settings.window, settings.horizon)
    stops = sorted({*endurance.marks(horizon), window, horizon})
    place = folder.evaluations / _name(settings, agent.update, agent.program.mesh.size)
    with Store(place, say) as store, steps_bar("evaluate", horizon) as bar:
        evaluator = make_evaluator(agent.program, settings.num_envs)
        seen = continued(evaluator, agent.learner, EVAL_SEED + settings.seed, stops, store, stop or Stop(), bar)
        if seen is None:
            return None
        store.clear()
    result = endurance.report(horizon, seen, seen[horizon], window)
    result |= {"update": agent.update, "seed": settings.seed, "wall_s": time.perf_counter() - begin}
    # A finished run's folder may be read-only by now: the numbers are printed anyway.
    with suppress(OSError):
        record(folder.endurance, {"date": now(), **result})
    return {"run": str(folder.path), **result}


def _name(settings: EvaluateSettings, update: int, devices: int) -> str:
    """The folder of an evaluation: the same for every call that computes the same numbers."""
    asked = {name: value for name, value in to_plain(settings).items() if name not in BESIDE}
    digest = hashlib.sha256(json.dumps([asked, devices, jax.__version__, __version__], sort_keys=True).encode()).hexdigest()
    return f"{update:08d}-{digest[:12]}"


def find_update(asked: str, checkpoints: Checkpoints, folder: RunFolder) -> int:
    """The update whose checkpoint is meant. Raises ConfigError where there is none."""
    if asked == "latest":
        latest = checkpoints.latest()
        if latest is None:
            raise ConfigError([f"run={folder.path} has no intact checkpoint yet: train it further first."])
        return latest
    if asked == "best":
        if (best := checkpoints.best()) is None:
            raise ConfigError([f"checkpoint=best: no intact checkpoint of {folder.path} was evaluated in training. Use checkpoint=latest."])
        return best
    if not asked.isdigit() or int(asked) not in checkpoints.all():
        known = ", ".join(map(str, checkpoints.all())) or "none"
        raise ConfigError([f"checkpoint={asked}: the run has no checkpoint of that update. It has: {known}."])
    return int(asked)


def as_line(result: dict[str, Any]) -> str:
    """The result as one line of JSON."""
    return json.dumps(result, allow_nan=False)


def as_text(result: dict[str, Any]) -> str:
    """The result for people."""
    alive = ", ".join(f"{share:.1%} at {int(age):,}" for age, share in result["alive_at"].items()) or f"{result['alive']:.1%}"
    failing = result["steps_between_failures"]
    low, high = result["steps_between_failures_interval"]
    seldom = f"more than {low:,.0f} (none seen; 95 % sure)" if failing is None else f"{failing:,.0f} ({low:,.0f} to {high:,.0f}, 95 % sure)"
    rates = ", ".join(f"{rate:.4g} in {ages}" for ages, rate in result["reward_per_step_by_age"].items() if rate is not None)
    life = result["median_life"]
    lines = {
        "window return": f"{result['window_return']:,.1f}",
        "reward per step": f"{result['reward_per_step']:.4g} ({rates})",
        "alive": alive,
        "median life": f"{life:,} steps" if life is not None else f"more than {result['horizon']:,} steps",
        "steps between failures": seldom,
        "faults": str(result["faults"]),
    }
    return "\n".join(f"{name:>24}  {text}" for name, text in lines.items())
