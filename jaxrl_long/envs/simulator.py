"""The contract every environment fulfils: one instance of a world, without a batch axis, a clock or a time limit."""

from typing import Any, Protocol, runtime_checkable

from flax import struct

from jaxrl_long.typing import Array, Bool, Float, Key, PyTree


@struct.dataclass
class SimStep:
    """What a world says after a reset or a step."""

    state: PyTree
    """Everything `step` needs, and whatever differs between copies (goal, masses, difficulty). Leaves are arrays of any shape."""
    obs: PyTree
    """Observation: an array [O], or a mapping of such arrays; networks name the entries that they read (`policy`, `critic`)."""
    reward: Float[Array, ""]
    """Reward of the step just taken; 0 after a reset."""
    terminated: Bool[Array, ""]
    """The world has ended: the future is worth 0. Never set for a time limit, which is not the world's business."""


@struct.dataclass
class Continuous:
    """Actions are vectors [size] within [-1, 1]."""

    size: int = struct.field(pytree_node=False)


@struct.dataclass
class Discrete:
    """Actions are integers 0 .. count - 1."""

    count: int = struct.field(pytree_node=False)


@runtime_checkable
class Simulator(Protocol):
    """A world. A new environment is `reset` and `step` and three attributes; everything else is `VectorEnv`'s work.

    Optional members, looked up with `getattr`:
    `translates: tuple[int, ...]` axes along which the world can be moved unnoticed, with `position(state) -> Float[Array, "3"]`,
    where it is (m), and `shift(state, offset: Float[Array, "3"]) -> state`, which moves all of it (see `FloatingOrigin`);
    `push(state, velocity: Float[Array, "3"]) -> state`, which adds to the body's speed (m/s), and `with_body(mass, friction) -> Simulator`,
    the same world with every mass and friction multiplied (see `Disturbed`);
    `at_once: int` how many copies may be stepped or reset at once on a device (0: any number; what needs it: BATCH_WORK in `envs/brax.py`);
    `max_steps: int` an inner time limit that cannot be switched off (a longer horizon is refused);
    `success(state) -> Bool[Array, ""]` whether the task is solved in this state;
    `achieved(obs)`, `desired(obs)`, `with_goal(obs, goal)` and `goal_reward(achieved, goal)` of a world that pursues goals, for hindsight and
    shaping (see `replay/hindsight.py`), and `nearer(reach) -> Simulator`, the same world with goals that are a share as far (`Curriculum`);
    for pictures: `position`, also of a world that can't be moved, `place(state) -> (cell, position in it)` where that alone is exact, `walls`, a
    floor plan [rows, columns] of 1 m squares, and `pose(state)` with `scene()` and `viewer(...)` of one that MuJoCo and Brax can draw (`envs/brax.py`).
    """

    @property
    def obs_size(self) -> int | dict[str, int]:
        """Features O of the observation, or of each entry of it; a plain attribute will do."""
        ...

    @property
    def action(self) -> Continuous | Discrete:
        """The kind and size of an action."""
        ...

    @property
    def dt(self) -> float:
        """Seconds of simulated time in one step."""
        ...

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start."""
        ...

    def step(self, state: PyTree, action: Any, key: Key[Array, ""]) -> SimStep:
        """Advance the world by one step of `dt` seconds. `action` is [A] floats in [-1, 1], or a [] integer."""
        ...
