"""Where a run's state lives, how it begins, and the jitted program that moves it on by a chunk of updates.

Environments and ring are split over the devices, the learner is on each of them.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrl_long.algorithms.protocol import Rollout
from jaxrl_long.envs.archive import make_archive
from jaxrl_long.envs.vector import EnvState
from jaxrl_long.learning.moments import Count, Sum
from jaxrl_long.replay.codec import Stored
from jaxrl_long.replay.priority import Priorities
from jaxrl_long.replay.ring import Ring, make_ring
from jaxrl_long.trainer import AXIS, FIRST_POOL, FIRST_STARTS, PARAMETERS, Fault, Program, TrainState, derived, kept, no_fault, update
from jaxrl_long.typing import Array, Float, Int, Key, PyTree


def state_specs(state: TrainState) -> TrainState:
    """How each leaf of the state is laid out over the mesh."""
    split: Any = P(AXIS)
    everywhere: Any = P()
    return TrainState(
        learner=jax.tree.map(lambda _: everywhere, state.learner),
        env=jax.tree.map(lambda _: split, state.env),
        starts=jax.tree.map(lambda _: everywhere, state.starts),
        archive=jax.tree.map(lambda _: P(None, AXIS), state.archive),
        memory=jax.tree.map(lambda _: split, state.memory),
        replay=ring_specs(state.replay),
        key=everywhere,
        update=everywhere,
        reach=jax.tree.map(lambda _: everywhere, state.reach),
    )


def ring_specs(ring: Ring) -> Ring:
    """The same for the ring: what has an axis of environments is split along it."""
    split: Any = P(None, AXIS)
    everywhere: Any = P()

    def of(tree: PyTree, spec: Any) -> PyTree:
        return jax.tree.map(lambda _: spec, tree)

    def stored(leaf: Stored) -> Stored:
        return Stored(split, of(leaf.key, split), of(leaf.scale, everywhere))

    return Ring(
        fields=jax.tree.map(stored, ring.fields, is_leaf=lambda node: isinstance(node, Stored)),
        end=split,
        age=split,
        before=of(ring.before, split),
        finals=of(ring.finals, split),
        priorities=Priorities(split, everywhere) if ring.priorities else (),
        version=everywhere,
        count=of(ring.count, P(AXIS)),
        cursor=everywhere,
        filled=everywhere,
    )


def state_shapes(program: Program) -> TrainState:
    """Shapes, dtypes and shardings of the train state, without computing it."""
    shapes = jax.eval_shape(lambda key: _build(program, key, jnp.arange(program.num_envs)), jax.random.key(0))

    def placed(leaf: Any, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(program.mesh, spec))

    return jax.tree.map(placed, shapes, state_specs(shapes))


def _build(program: Program, key: Key[Array, ""], index: Int[Array, " n"]) -> TrainState:
    """The state before the first update, of the environments with these global numbers."""
    env_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(derived(key, 0, FIRST_STARTS), index)
    pool_keys = jax.random.split(derived(key, 0, FIRST_POOL), program.pool)
    # Drawn together: a reset is a large program, and is compiled once here.
    reach = jnp.float32(program.curriculum.start) if program.curriculum else None
    drawn = program.vector.starts(jnp.concatenate([env_keys, pool_keys]), reach)
    first, starts = jax.tree.map(lambda leaf: leaf[: index.shape[0]], drawn), jax.tree.map(lambda leaf: leaf[index.shape[0] :], drawn)
    env = program.vector.begin(first, env_keys, index)
    one_obs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), env.obs)
    learner = program.algorithm.init(derived(key, 0, PARAMETERS), one_obs)
    memory = program.algorithm.initial_memory(index.shape[0])
    one = jax.eval_shape(lambda: kept(program, learner, empty_rollout(program, learner, env, memory)))
    fields = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((program.rollout_length, *leaf.shape[1:]), leaf.dtype), one)
    ring = make_ring(program.layout, fields, env.obs, index.shape[0])
    archive = make_archive(env, program.keep) if program.vector.returns else ()
    return TrainState(learner, env, starts, archive, memory, ring, key, jnp.int32(0), () if reach is None else reach)


def empty_rollout(program: Program, learner: Any, env: EnvState, memory: PyTree) -> Rollout:
    """One row of the shapes that `collect` yields."""
    decision = program.algorithm.act(learner, env.obs, memory, env.age == 0, None)
    number: Float[Array, " N"] = jnp.zeros(env.age.shape)
    flag = number > 0
    row = Rollout(env.obs, decision.choice, number, number, flag, flag, env.age, env.obs, (), ())
    return replace(jax.tree.map(lambda leaf: leaf[None], row), last_obs=env.obs, memory=memory)


def init_state(program: Program, seed: int) -> TrainState:
    """The state before the first update, built where it will live (so that no two of its leaves share a buffer)."""
    specs = state_specs(state_shapes(program))

    def build(key: Key[Array, ""], index: Int[Array, " n"]) -> TrainState:
        return _build(program, key, index)

    sharded = jax.shard_map(build, mesh=program.mesh, in_specs=(P(), P(AXIS)), out_specs=specs, check_vma=False)
    return jax.jit(sharded)(jax.random.key(seed), jnp.arange(program.num_envs))


def without_ring(state: TrainState) -> TrainState:
    """What a checkpoint holds that leaves the ring out."""
    nothing: Any = ()
    return replace(state, replay=nothing)


def empty_ring(program: Program) -> Ring:
    """The ring before the first update, built where it will live."""
    specs = state_specs(state_shapes(program)).replay
    # Of the whole state nothing else is computed: the compiler leaves it out.
    sharded = jax.shard_map(
        lambda index: _build(program, jax.random.key(0), index).replay, mesh=program.mesh, in_specs=P(AXIS), out_specs=specs, check_vma=False
    )
    return jax.jit(sharded)(jnp.arange(program.num_envs))


Totals = dict[str, Count | Sum]
"""What the updates of a chunk reported, added up: integers exactly, the rest compensated."""


def read(totals: Totals, updates: int) -> dict[str, int | float]:
    """The numbers of a chunk of that many updates, on the host: totals of the names ending in `_count`, means of the others."""
    numbers = {name: total.as_int() if isinstance(total, Count) else total.as_float() for name, total in totals.items()}
    return {name: number if name.endswith("_count") else number / updates for name, number in numbers.items()}


def make_chunk(program: Program) -> Any:
    """The jitted program `chunk(state, updates, lent=()) -> (state, totals, fault)`: any number of updates with one trace. The state is donated.

    `lent` is what the archive lends, a Transition whose leaves [lent, ...] are split over devices.
    """
    shapes = state_shapes(program)
    # Jitted for its cache of traces: once to learn the report's shape, and the loop's body is known.
    step = jax.jit(lambda state, lent: update(program, state, lent), inline=True)

    def chunk(state: TrainState, updates: Int[Array, ""], lent: PyTree) -> tuple[TrainState, Totals, Fault]:
        one = jax.eval_shape(step, state, lent)[1]
        nothing: Totals = {name: Count.of(0) if jnp.issubdtype(leaf.dtype, jnp.integer) else Sum.zeros(leaf.shape) for name, leaf in one.items()}

        def body(_: Array, carry: tuple[TrainState, Totals, Fault]) -> tuple[TrainState, Totals, Fault]:
            state, totals, fault = carry
            state, report, new = step(state, lent)
            fault = jax.tree.map(lambda old, latest: jnp.where(fault.found, old, latest), fault, new)
            return state, {name: totals[name].plus(number) for name, number in report.items()}, fault

        state, totals, fault = jax.lax.fori_loop(0, updates, body, (state, nothing, no_fault(program, state)))
        return state, totals, jax.tree.map(lambda leaf: leaf[None], fault)

    specs = state_specs(shapes)
    sharded = jax.shard_map(chunk, mesh=program.mesh, in_specs=(specs, P(), P(AXIS)), out_specs=(specs, P(), P(AXIS)), check_vma=False)
    return jax.jit(lambda state, updates, lent=(): sharded(state, updates, lent), donate_argnums=0)
