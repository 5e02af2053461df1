"""Brax's environments as Simulators. The only module that imports brax; none of brax's training wrappers is used."""

import contextlib
import copy
import io
import types
import warnings
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

# mujoco.mjx prints a line on stdout for every optional package that it misses; brax imports it.
with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from brax import base, envs, fluid, math

from jaxrl_long.envs.simulator import Continuous, SimStep
from jaxrl_long.typing import Array, Float, Key, PyTree

TRANSLATES = {
    "ant": (0, 1),
    "halfcheetah": (0,),
    "hopper": (0,),
    "humanoid": (0, 1),
    "humanoidstandup": (0, 1),
    "swimmer": (0, 1),
    "walker2d": (0,),
}
"""Axes along which a task's world can be moved without a change in what it observes and pays."""

KEPT = {
    "spring": ("q", "qd", "x", "x_i", "xd_i", "j", "jd", "a_p", "a_c"),
    "positional": ("q", "qd", "x", "x_i", "xd_i", "jd", "a_p", "a_c"),
    "generalized": ("q", "qd", "x", "root_com", "cinr", "cd", "cdof", "cdofd", "mass_mx_inv", "con_jac", "con_diag", "con_aref"),
    "mjx": ("qpos", "qvel", "qacc_warmstart", "x"),
}
"""What a step reads of brax's physics state. The rest is constant or computed anew, up to 96 % of the bytes (mjx)."""


SOLVERS = ("generalized", "mjx")
"""Backends that solve a system of equations in every step, with an unknown for each degree of freedom."""
BATCH_WORK = 200_000
"""A CPU's LAPACK kernels hand a batch of more work than that (n³ for each system of n unknowns) on to XLA's own threads, and wait for
them within such a thread: once each of them waits, which as many devices soon achieve, all wait for ever (seen in jaxlib 0.10.2)."""


def solved_at_once(backend: str, unknowns: int) -> int:
    """How many environments may be stepped at once on a device without that; 0: any number."""
    if backend not in SOLVERS or jax.default_backend() != "cpu":
        return 0
    return max(1, (BATCH_WORK - 1) // unknowns**3)


class _NumpyOfOldJax:
    """`jax.numpy` with the `a_min` argument of `clip`, which jax has dropped and brax's fluid forces (swimmer) still use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    def clip(self, x: Array, a_min: float) -> Array:
        return jnp.maximum(x, a_min)


vars(fluid)["jp"] = _NumpyOfOldJax()


class BraxSimulator:
    """A Brax task on one of its physics backends: spring, positional, generalized or mjx.

    Actions are within [-1, 1]; brax scales and clips them to the actuators' ranges. The state is a dictionary of the fields of
    brax's own physics state that a step reads (KEPT).
    """

    def __init__(self, name: str, backend: str, options: dict[str, Any] | None = None) -> None:
        """Build the task. `options` are keyword arguments of brax's class.

        Raises:
            KeyError: the installed brax has no task of this name.
            ValueError: the task does not support the backend, or its observations are not vectors.
            TypeError: brax's class does not know an option.
        """
        options = dict(options or {})
        with _quiet_mujoco():
            env: Any = envs.get_environment(name, backend=backend, **options)
        self._env = env
        # `fast` has no physics; a backend changes nothing in it.
        self._kept = ("x", "xd") if name == "fast" else KEPT[backend]
        shapes = jax.eval_shape(env.reset, jax.random.key(0))
        self._physics_shape = shapes.pipeline_state
        self.obs_size = _sizes(shapes.obs)
        self.action = Continuous(env.action_size)
        # brax keeps some time steps in float32: 0.05 s is the truth, not 0.04999999701976776.
        self.dt = round(float(env._dt if name == "fast" else env.dt), 7)
        hidden = options.get("exclude_current_positions_from_observation", True)
        self.at_once = 0 if name == "fast" else solved_at_once(backend, env.sys.qd_size())
        self.translates: tuple[int, ...] = TRANSLATES.get(name, ()) if hidden else ()
        if self.translates:
            self.push = self._push
        if name != "fast":
            self.with_body = self._with_body
            self.pose = self._pose

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw a start."""
        return self._result(self._env.reset(key))

    def step(self, state: PyTree, action: Float[Array, " A"], key: Key[Array, ""]) -> SimStep:
        """Advance the physics by `dt`. Brax's steps draw nothing, so `key` is not read."""
        del key
        zero = jnp.zeros(())
        # No brax step reads the observation, the reward, the metrics or the info before it: they need not be carried.
        return self._result(self._env.step(envs.State(self.physics(state), obs=zero, reward=zero, done=zero), action))

    def physics(self, state: PyTree) -> Any:
        """Brax's own physics state, as its steps and its renderer take it; what neither reads is zero."""
        full = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self._physics_shape)
        full = full.replace(**state)
        if "qpos" in state:
            return full.replace(q=state["qpos"], qd=state["qvel"])
        if hasattr(full, "mass"):
            # The link masses of a maximal-coordinate backend: constants of the system, by brax's formula.
            system = self._env.sys
            return full.replace(mass=system.link.inertia.mass ** (1 - system.spring_mass_scale))
        return full

    def position(self, state: PyTree) -> Float[Array, "3"]:
        """Where the root body is, in m from the world's origin."""
        return state["x"].pos[0]

    def shift(self, state: PyTree, offset: Float[Array, "3"]) -> PyTree:
        """Move the whole world by `offset` m. Only meaningful along the axes in `translates`; 0 along the others."""
        moved = {field: _moved(state[field], offset) for field in ("x", "x_i", "a_c") if field in state}
        coordinates = "qpos" if "qpos" in state else "q"
        axes = jnp.stack([offset[axis] for axis in self.translates])
        # The first joint coordinates of these tasks are the root's position along just these axes.
        q = state[coordinates]
        moved[coordinates] = jnp.concatenate([q[: len(self.translates)] + axes, q[len(self.translates) :]])
        if "root_com" in state:
            moved["root_com"] = state["root_com"] + offset
        if "a_p" in state:
            # The first link hangs on an anchor that is fixed in the world; every other anchor moves with its parent.
            anchor = state["a_p"]
            moved["a_p"] = anchor.replace(pos=anchor.pos.at[1:].add(offset))
        if "j" in state:
            joint = state["j"]
            moved["j"] = joint.replace(pos=joint.pos.at[0].add(math.inv_rotate(offset, state["a_p"].rot[0])))
        return {**state, **moved}

    def _pose(self, state: PyTree) -> dict[str, Array]:
        """What pictures need of a state: joint coordinates `q`, and positions `pos` and rotations `rot` of all links."""
        return {"q": state["qpos" if "qpos" in state else "q"], "pos": state["x"].pos, "rot": state["x"].rot}

    def scene(self) -> dict[str, np.ndarray]:
        """The task's `model` as MuJoCo writes it, and the `axes` that it moves along unnoticed: its first joint coordinates."""
        model = self._env.sys.mj_model
        # Its type stubs leave the functions out.
        library: Any = mujoco
        written = np.empty(library.mj_sizeModel(model), np.uint8)
        library.mj_saveModel(model, None, written)
        return {"model": written, "axes": np.array(self.translates, np.int64)}

    def viewer(self, pos: np.ndarray, rot: np.ndarray, seconds: float) -> str:
        """A page that shows links at positions [S, L, 3] and rotations [S, L, 4], `seconds` apart. It loads Brax's viewer and three.js from the network."""
        from brax.io import html

        states: Any = [types.SimpleNamespace(x=base.Transform(pos=at, rot=turn)) for at, turn in zip(pos, rot, strict=True)]
        return html.render(self._env.sys.tree_replace({"opt.timestep": seconds}), states, height="100vh", colab=False)

    def _push(self, state: PyTree, velocity: Float[Array, "3"]) -> PyTree:
        """Add to the speed of the whole body, in m/s. Only meaningful along the axes in `translates`; 0 along the others."""
        free = len(self.translates)
        speeds = "qvel" if "qvel" in state else "qd"
        moved = {speeds: state[speeds].at[:free].add(jnp.stack([velocity[axis] for axis in self.translates]))}
        if "cd" in state:
            # Of reduced coordinates everything else follows.
            return self._keep(self._env.pipeline_init(state["q"], moved["qd"]))
        if "xd_i" in state:
            motion = state["xd_i"]
            moved["xd_i"] = motion.replace(vel=motion.vel + velocity)
        if "jd" in state:
            # Links keep their speeds relative to one another; the first one's are relative to the world, in its anchor's frame.
            motion, turn = state["jd"], state["a_p"].rot[0]
            moved["jd"] = motion.replace(vel=motion.vel.at[0].add(math.inv_rotate(velocity, turn)))
        return {**state, **moved}

    def _with_body(self, mass: Float[Array, ""], friction: Float[Array, ""]) -> "BraxSimulator":
        """The same task with every friction coefficient multiplied, and with a body that is so many times as heavy.

        Its motors are as many times weaker, which is the same for them: in the maximal-coordinate backends these tasks give
        every link the mass 1, whatever its inertia says.
        """
        system = self._env.sys
        changed = {"geom_friction": system.geom_friction * friction, "actuator_gear": system.actuator_gear / mass}
        other = copy.copy(self)
        other._env = copy.copy(self._env)
        other._env.sys = system.replace(actuator=system.actuator.replace(gear=system.actuator.gear / mass), **changed)
        return other

    def _keep(self, physics: Any) -> PyTree:
        return {field: getattr(physics, field) for field in self._kept}

    def _result(self, after: Any) -> SimStep:
        obs = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), after.obs)
        return SimStep(self._keep(after.pipeline_state), obs, jnp.asarray(after.reward, jnp.float32), jnp.asarray(after.done) > 0.5)


def _moved(transform: Any, offset: Float[Array, "3"]) -> Any:
    return transform.replace(pos=transform.pos + offset)


def _sizes(obs: Any) -> int | dict[str, int]:
    """Feature counts of an observation's shapes. Raises ValueError for images."""
    for leaf in jax.tree.leaves(obs):
        if len(leaf.shape) != 1:
            message = f"An observation of shape {leaf.shape} is not a vector. Choose options under which the task observes vectors."
            raise ValueError(message)
    return obs.shape[0] if hasattr(obs, "shape") else {name: leaf.shape[0] for name, leaf in obs.items()}


@contextlib.contextmanager
def _quiet_mujoco() -> Generator[None]:
    """Silence what brax's old model files provoke: by itself MuJoCo also writes MUJOCO_LOG.TXT into the current directory."""
    # Its type stubs leave the function out.
    library: Any = mujoco
    library.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.set_mju_user_warning(None)
