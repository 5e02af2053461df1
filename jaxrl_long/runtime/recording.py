"""Record what a trained agent does: copies of the world are taken to some age unwatched, and one of those alive is then looked at in every step.

The copies are an evaluation's, and so is the one compiled program that moves them: a step that is watched is a dispatch of one step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_long.config import RenderSettings
from jaxrl_long.envs.floating_origin import true_position
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.rules.pictures import BODILESS
from jaxrl_long.runtime.assessment import Agent
from jaxrl_long.runtime.evaluation import EvalState, Evaluator, Tally, make_evaluator
from jaxrl_long.runtime.experiment import EVAL_SEED
from jaxrl_long.runtime.progress import steps_bar
from jaxrl_long.runtime.tape import Facts, Tape
from jaxrl_long.typing import PyTree

POINTS = 1000
"""Moments of the unwatched steps, and of the watched ones, at which all copies are looked at: as many as a plot can show."""
DISPATCH = 1000
"""Steps between two looks of the host, at the most."""
FILM_S = 10.0
LEAST_STEPS = 200


@struct.dataclass
class Look:
    """What is looked at of E copies; on the host, once it was read."""

    tally: Tally
    place: PyTree
    """Cell [E, 2] and position within it [E, 3]; () where the world has no places."""
    goal: PyTree
    """Places to be reached [E, 2], or ()."""
    pose: PyTree
    """What pictures need of each state, or ()."""


@dataclass
class _Points:
    """Moments of all copies, as they come."""

    age: list[int] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def add(self, age: int, look: Look) -> None:
        if not self.age or self.age[-1] < age:
            self.age.append(age)
            self.looks.append(replace(look, pose=()))

    def arrays(self, first: Look) -> dict[str, Any]:
        """The fields of a Tape that are about all copies."""
        tallies = [look.tally for look in self.looks]
        going = np.stack([tally.going for tally in tallies])
        found: dict[str, Any] = {
            "age": np.array(self.age),
            "score": np.stack([tally.score.high.astype(np.float64) + tally.score.low for tally in tallies]),
            "life": np.stack([tally.life for tally in tallies]),
        }
        if first.place:
            cells, local = (np.stack([look.place[part] for look in self.looks]) for part in (0, 1))
            found["path"] = np.where(going[..., None], true_position(cells, local), np.nan)
        if len(first.goal):
            found["goal"] = first.goal
        return found


class Recorder:
    """Copies of one agent's world, and what was seen of them."""

    def __init__(self, agent: Agent, num_envs: int, seed: int) -> None:
        """Copies as an evaluation with the same seed has them. Nothing is compiled yet."""
        self.simulator: Any = agent.world
        self.learner, self._seed = agent.learner, seed
        self._evaluator: Evaluator = make_evaluator(agent.program, num_envs)
        self._look = jax.jit(lambda state: look(self.simulator, state))
        self.state, self.age = self._start(), 0

    def again(self) -> None:
        """Back to the start."""
        self.state, self.age = self._start(), 0

    def look(self) -> Look:
        """What can be seen now. Copied: the next step is given the state's own buffers."""
        return jax.tree.map(np.array, self._look(self.state))

    def advance(self, steps: int) -> None:
        """Take all copies on."""
        self.state = self._evaluator.advance(self.learner, self.state, jnp.int32(steps))
        self.age += steps

    def _start(self) -> EvalState:
        return self._evaluator.start(jax.random.key(EVAL_SEED + self._seed))


def look(simulator: Any, state: EvalState) -> Look:
    """What there is to see of E copies, whatever kind of world it is."""
    world: Any = state.env.sim
    nothing: Any = ()
    place = jax.vmap(placed(simulator))(world) if hasattr(simulator, "position") else nothing
    goal = simulator.desired(state.env.obs) if hasattr(simulator, "position") and hasattr(simulator, "desired") else nothing
    pose = jax.vmap(simulator.pose)(world) if hasattr(simulator, "pose") else nothing
    return Look(state.tally, place, goal if len(goal) and goal.shape[-1] == 2 else nothing, pose)


def placed(simulator: Any) -> Callable[[PyTree], Any]:
    """The function that says which cell a world is in, and where in it."""
    return getattr(simulator, "place", lambda state: (jnp.zeros(2, jnp.int32), simulator.position(state)))


def record(agent: Agent, settings: RenderSettings, say: Callable[[str], None]) -> Tape:
    """Take copies to `settings.at`, and film the first one that is alive there; where there is none, the last second of the one that lived longest.

    Raises:
        ConfigError: the world does not last as long, or can't be filmed.
        RunError: no copy took a single step.
    """
    _check(agent.program.vector.simulator, settings)
    recorder, points = Recorder(agent, settings.num_envs, settings.seed), _Points()
    start = recorder.look()
    points.add(0, start)
    _take_to(recorder, settings.at, points)
    now, second = recorder.look().tally, max(1, round(1.0 / recorder.simulator.dt))
    failed = None
    if now.going.any():
        shown, steps = int(now.going.argmax()), settings.steps or max(LEAST_STEPS, round(FILM_S / recorder.simulator.dt))
    else:
        shown, failed = int(now.life.argmax()), int(now.life.max())
        if not failed:
            raise RunError("no copy took a single step: the physics gave non-finite numbers in all of them.")
        say(f"no copy was alive at step {settings.at:,}: the last one failed at step {failed:,}. Shown is its last second.")
        steps = min(failed, second)
        recorder.again()
        _take_to(recorder, failed - steps, _Points())
    first = recorder.age
    film = _filmed(recorder, shown, steps, points)
    last = recorder.look().tally
    if failed is None and not last.going[shown]:
        failed = int(last.life[shown])
        say(f"the copy that is shown failed at step {failed:,}, after {failed - first} of {steps} steps.")
    world = {"dt": recorder.simulator.dt, "update": agent.update, "alive": int(last.going.sum())}
    facts = Facts(settings.env.name, seed=settings.seed, shown=shown, first=first, asked=settings.at, failed=failed, **world)
    scene = recorder.simulator.scene() if hasattr(recorder.simulator, "pose") else {}
    return Tape(facts, **points.arrays(start), **film, **scene, walls=getattr(recorder.simulator, "walls", None))


def _check(simulator: Any, settings: RenderSettings) -> None:
    """What only the world itself knows."""
    limit = getattr(simulator, "max_steps", None)
    if limit is not None and settings.at >= limit:
        raise ConfigError([f"at={settings.at} is not below the inner limit of env={settings.env.name}, {limit} steps. Nearest: {limit - 1}."])
    if settings.format != "path" and not hasattr(simulator, "pose"):
        raise ConfigError([f"format={settings.format}: env={settings.env.name} {BODILESS}"])


def _take_to(recorder: Recorder, age: int, points: _Points) -> None:
    """Advance unwatched, as long as any copy goes on."""
    if not age:
        return
    stride = -(-age // POINTS)
    with steps_bar("advance", age) as bar:
        while recorder.age < age:
            recorder.advance(min(DISPATCH, stride - recorder.age % stride, age - recorder.age))
            seen = recorder.look()
            going = seen.tally.going.any()
            if recorder.age % stride == 0 or not going:
                points.add(recorder.age, seen)
            bar.at(recorder.age, f"{seen.tally.going.mean():.1%} going on")
            if not going:
                return


def _filmed(recorder: Recorder, shown: int, steps: int, points: _Points) -> dict[str, np.ndarray]:
    """Look at one copy before each of `steps` steps, until it fails: the fields of a Tape that are about it."""
    end, stride, rows = recorder.age + steps, -(-steps // POINTS), []
    seen = recorder.look()
    while seen.tally.going[shown] and recorder.age < end:
        cell = {"cell": seen.place[0]} if seen.place else {}
        rows.append({name: leaf[shown] for name, leaf in (cell | (seen.pose or {})).items()})
        recorder.advance(1)
        seen = recorder.look()
        if (end - recorder.age) % stride == 0:
            points.add(recorder.age, seen)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
