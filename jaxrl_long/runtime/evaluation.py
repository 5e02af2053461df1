"""Evaluation: a policy, deterministic, in environments of its own that are never reset, for as long as anybody asks.

An environment counts until it ends. Everything that a number depends on is in `EvalState`, so that numbers do not depend on
how a long evaluation is cut into dispatches, and the learner and the training environments are only read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.envs.vector import EnvState, Outcome, chosen
from jaxrl_long.learning.moments import Sum
from jaxrl_long.trainer import AXIS, Program, derived
from jaxrl_long.typing import Array, Bool, Int, Key, PyTree

FIRST_STARTS, STEPS, REVIVAL = 100, 101, 102
"""What keys are drawn for; apart from the purposes of training."""
PLACEHOLDERS = 1
"""Start states kept for environments that ended: they are stepped on, as shapes are fixed, but no longer count."""


@struct.dataclass
class Tally:
    """What is known of environments under evaluation, leaves [E]."""

    going: Bool[Array, " E"]
    """Not ended yet."""
    died: Bool[Array, " E"]
    """Terminated by the task itself, not by the horizon or the guard."""
    faulted: Bool[Array, " E"]
    """Ended by the guard: the physics gave a non-finite number."""
    succeeded: Bool[Array, " E"]
    """The task was solved at some step."""
    life: Int[Array, " E"]
    """Steps lived."""
    score: Sum
    """Reward of these steps."""


@struct.dataclass
class EvalState:
    """Environments under evaluation, leaves [E, ...] split over devices unless said otherwise."""

    env: EnvState
    memory: PyTree
    starts: SimStep
    """Placeholders, [D, ...]: one of each device's."""
    tally: Tally
    key: Key[Array, ""]
    """On every device the same."""


@dataclass(frozen=True)
class Snapshot:
    """What an evaluation knows after some steps, on the host; arrays [E]."""

    life: np.ndarray
    going: np.ndarray
    died: np.ndarray
    faulted: np.ndarray
    succeeded: np.ndarray
    score: np.ndarray
    """float64."""

    @property
    def window_return(self) -> float:
        """Mean total reward; an environment that ended keeps what it had."""
        return float(self.score.mean())


@dataclass(frozen=True)
class Evaluator:
    """The two compiled programs of an evaluation with a fixed number of environments."""

    start: Callable[[Array], EvalState]
    """key -> fresh environments"""
    shapes: EvalState
    """Shapes, dtypes and shardings of such a state."""
    advance: Callable[[Any, EvalState, Array], EvalState]
    """(learner, state, steps) -> the state that many steps later; the given state is donated."""
    revive: Callable[[EvalState], EvalState]
    """The environments that go on, and fresh ones in place of the others; the given state is donated."""

    def lasting(self, learner: Any, state: EvalState, steps: int) -> tuple[EvalState, int, Snapshot]:
        """Let environments that already live go on: the state after `steps` more, the steps lived in them, and what is known then."""
        state = self.revive(state)
        before = snapshot(state.tally)
        state = self.advance(learner, state, jnp.int32(steps))
        after = snapshot(state.tally)
        return state, int(after.life.sum(dtype=np.int64) - before.life.sum(dtype=np.int64)), after

    def window(self, learner: Any, seed: int, steps: int) -> Snapshot:
        """A fresh evaluation of `steps` steps: a pure function of learner and seed."""
        return snapshot(self.advance(learner, self.start(jax.random.key(seed)), jnp.int32(steps)).tally)


def make_evaluator(program: Program, num_envs: int) -> Evaluator:
    """Programs that evaluate the policy of `program` in `num_envs` environments, a multiple of its devices."""
    vector = program.vector.endless()
    split: Any = P(AXIS)
    everywhere: Any = P()
    specs = EvalState(split, split, split, split, key=everywhere)

    def revive(state: EvalState) -> EvalState:
        # Another key: who starts again meets other starts, and other steps.
        fresh = start(jax.random.fold_in(state.key, REVIVAL), state.env.index)
        env, tally = (chosen(state.tally.going, old, new) for old, new in ((state.env, fresh.env), (state.tally, fresh.tally)))
        return EvalState(env, chosen(state.tally.going, state.memory, fresh.memory), state.starts, tally, fresh.key)

    def start(key: Key[Array, ""], index: Int[Array, " E"]) -> EvalState:
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(derived(key, 0, FIRST_STARTS), index)
        drawn = vector.starts(keys)
        placeholder = jax.tree.map(lambda leaf: leaf[:PLACEHOLDERS], drawn)
        env = vector.begin(drawn, keys, index)
        no = jnp.zeros(index.shape, bool)
        memory = program.algorithm.initial_memory(index.shape[0])
        return EvalState(env, memory, placeholder, Tally(~no, no, no, no, jnp.zeros_like(index), Sum.zeros(index.shape)), key)

    def advance(learner: Any, state: EvalState, steps: Int[Array, ""]) -> EvalState:
        def step(_: Array, state: EvalState) -> EvalState:
            env = state.env
            decision = program.algorithm.act(learner, env.obs, state.memory, env.age == 0, None)
            env_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(derived(state.key, 0, STEPS), env.index)
            # An environment that counts has lived as long as its age: a key of its own for each of its steps.
            keys = jax.vmap(jax.random.fold_in)(env_keys, env.age)
            after, outcome = vector.step(env, decision.action, keys, state.starts)
            return EvalState(after, decision.memory, state.starts, counted(state.tally, outcome), state.key)

        return jax.lax.fori_loop(0, steps, step, state)

    started = jax.jit(jax.shard_map(start, mesh=program.mesh, in_specs=(P(), split), out_specs=specs, check_vma=False))
    advanced = jax.shard_map(advance, mesh=program.mesh, in_specs=(P(), specs, P()), out_specs=specs, check_vma=False)
    shapes = jax.eval_shape(started, jax.random.key(0), jnp.arange(num_envs))

    def placed(spec: P, part: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(program.mesh, spec)), part)

    shapes = jax.tree.map(placed, specs, shapes, is_leaf=lambda node: isinstance(node, P))
    revived = jax.jit(jax.shard_map(revive, mesh=program.mesh, in_specs=(specs,), out_specs=specs, check_vma=False), donate_argnums=0)
    return Evaluator(lambda key: started(key, jnp.arange(num_envs)), shapes, jax.jit(advanced, donate_argnums=1), revived)


def counted(tally: Tally, outcome: Outcome) -> Tally:
    """The tally after one more step; a step that the guard undid is not lived."""
    lived = tally.going & ~outcome.fault
    return Tally(
        going=tally.going & ~outcome.ended,
        died=tally.died | (tally.going & outcome.terminated),
        faulted=tally.faulted | (tally.going & outcome.fault),
        succeeded=tally.succeeded | (tally.going & outcome.success),
        life=tally.life + lived,
        score=jax.tree.map(lambda new, old: jnp.where(lived, new, old), tally.score.plus(outcome.reward), tally.score),
    )


def snapshot(tally: Tally) -> Snapshot:
    """Read an evaluation's numbers; waits for the device."""
    read = jax.device_get(tally)
    score = read.score.high.astype(np.float64) + read.score.low
    return Snapshot(read.life, read.going, read.died, read.faulted, read.succeeded, score)
