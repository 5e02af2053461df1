"""The fused training loop. Read it top to bottom.

One *update* collects T steps of N environments, stores them in the ring, improves the learner, and only then moves the
observation moments. A *chunk* is a number of updates run by one jitted, donating program on every device: environments and
ring are split over the devices, the learner is replicated. Nothing in it talks to the host.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh

from jaxrl_long.algorithms.protocol import Algorithm, Report, Rollout
from jaxrl_long.envs.archive import drawn, remembered
from jaxrl_long.envs.curriculum import Curriculum
from jaxrl_long.envs.simulator import SimStep
from jaxrl_long.envs.vector import EnvState, VectorEnv
from jaxrl_long.replay.ring import Ends, Layout, Ring, write
from jaxrl_long.replay.sampling import View
from jaxrl_long.typing import Array, Bool, Int, Key, PyTree

AXIS = "devices"
"""The mesh axis that environments are split over."""

# Draws are keyed by (run key, update, what for, global environment, step): they depend on no device, block or chunk.
PARAMETERS, FIRST_STARTS, FIRST_POOL, POOL_STARTS, ROLLOUT, LEARNING, PAST = range(7)


@struct.dataclass
class TrainState:
    """Everything that a run's future depends on."""

    learner: Any
    env: EnvState
    """Leaves [N, ...], split over devices."""
    starts: SimStep
    """The pool of start states that restarts draw from, leaves [M, ...]; on every device the same."""
    archive: PyTree
    """Moments that episodes may go back to, leaves [K, N, ...], split over devices along N; () where they never do."""
    memory: PyTree
    """What the policy remembers, leaves [N, ...], split over devices."""
    replay: Ring
    """Leaves [C, N, ...], split over devices along N."""
    key: Key[Array, ""]
    """Of the whole run; never consumed, only derived from."""
    update: Int[Array, ""]
    """Updates done. Environment steps are update * N * T, counted by the host, whose integers do not overflow."""
    reach: PyTree = ()
    """How far goals are, as a share of how far they usually are, []; () where that is always 1."""
    examined: PyTree = ()
    """Where the host keeps the environments of a lasting evaluation when it saves; () while training runs."""


@struct.dataclass
class Fault:
    """The first non-finite environment of a chunk, as it was before the step that broke it; one per device, leaves [D, ...]."""

    found: Bool[Array, " D"]
    index: Int[Array, " D"]
    """Global number of the environment."""
    update: Int[Array, " D"]
    sim: PyTree
    """Its simulator state before the step."""
    action: PyTree
    """The action it was given."""
    key: Key[Array, " D"]
    """The key of that step."""


@dataclass(frozen=True)
class Program:
    """The static half of a run: what to simulate, how to learn, and the sizes that the compiled program is made for."""

    vector: VectorEnv
    algorithm: Algorithm
    mesh: Mesh
    num_envs: int
    rollout_length: int
    block: int
    """Environments stepped at once on a device: what fits its cache. Divides num_envs / devices."""
    total_updates: int
    layout: Layout
    """Of the ring."""
    pool: int
    renew: int
    """Start states redrawn at each update, at most `pool`."""
    keep: int = 1
    """Moments K of each environment that the archive holds."""
    keep_every: int = 1
    """Updates between two of them."""
    curriculum: Curriculum | None = None
    """How far goals are; None: as far as usual."""
    lent: int = 0
    """Transitions from the archive on disk that a chunk is lent, over all devices."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update."""
        return self.num_envs * self.rollout_length

    @property
    def first_learning(self) -> int:
        """Updates until the ring holds enough to learn from; those before are quicker than all later ones."""
        return -(-max(self.layout.begin, self.layout.window) // self.rollout_length)


def update(program: Program, state: TrainState, lent: PyTree = ()) -> tuple[TrainState, Report, Fault]:
    """One cycle on one device's share of the environments, and of what the archive on disk lends."""
    state, rollout, fault, summary = collect(program, state)
    state = store(program, state, rollout)
    state, report = improve(program, state, rollout, lent)
    state = observe(program, state, rollout)
    state = renew_starts(program, move_goals(program, state, summary))
    state = remember_moments(program, state)
    return (
        replace(state, update=state.update + 1),
        {**summary, **report, **ages(state.env), **({"goal_reach": state.reach} if program.curriculum else {})},
        fault,
    )


def collect(program: Program, state: TrainState) -> tuple[TrainState, Rollout, Fault, Report]:
    """T steps of the policy in every environment, a cache-sized block of environments at a time."""
    first_memory, rollout_key = state.memory, derived(state.key, state.update, ROLLOUT)

    def roll(block: tuple[EnvState, PyTree, PyTree]) -> tuple[tuple[EnvState, PyTree, Fault], tuple[Rollout, Report]]:
        env, memory, past = block
        env_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(rollout_key, env.index)
        carry = (env, memory, no_fault(program, state))

        def step(carry: tuple[EnvState, PyTree, Fault], t: Array) -> tuple[tuple[EnvState, PyTree, Fault], tuple[Rollout, Report]]:
            env, memory, fault = carry
            act_keys, sim_keys = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(env_keys), 1, 0)
            decision = program.algorithm.act(state.learner, env.obs, memory, env.age == 0, act_keys)
            after, outcome = program.vector.step(env, decision.action, sim_keys, state.starts, past)
            fault = remember(fault, outcome.fault, env, decision.action, sim_keys, state.update)
            row = Rollout(
                obs=env.obs,
                choice=decision.choice,
                log_prob=decision.log_prob,
                reward=outcome.reward,
                terminated=outcome.terminated,
                truncated=outcome.truncated,
                age=env.age,
                final_obs=outcome.final_obs,
                last_obs=(),
                memory=(),
            )
            return (after, decision.memory, fault), (row, summarize(outcome))

        return jax.lax.scan(step, carry, jnp.arange(program.rollout_length))

    (env, memory, faults), (rows, summaries) = in_blocks(roll, (state.env, state.memory, moments_to_return_to(program, state)), program.block)
    # Blocks come first: [blocks, T, block, ...] -> [T, N, ...].
    rows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1).reshape(leaf.shape[1], -1, *leaf.shape[3:]), rows)
    rollout = replace(rows, last_obs=env.obs, memory=first_memory)
    first = jnp.argmax(faults.found)
    fault = jax.tree.map(lambda leaf: leaf[first], faults)
    summary = {name: jax.lax.psum(jnp.sum(x), AXIS) for name, x in summaries.items()}
    return replace(state, env=env, memory=memory), rollout, fault, summary


def store(program: Program, state: TrainState, rollout: Rollout) -> TrainState:
    """The rollout becomes the ring's latest."""
    fields = kept(program, state.learner, rollout)
    ends = Ends(rollout.terminated, rollout.truncated, rollout.age, rollout.final_obs)
    return replace(state, replay=write(state.replay, program.layout, fields, ends, state.update, AXIS))


def kept(program: Program, learner: Any, rollout: Rollout) -> dict[str, PyTree]:
    """What the ring keeps of a rollout; ages too, where episodes may begin at any."""
    fields = program.algorithm.ring_fields(learner, rollout)
    return fields | {"age": rollout.age} if program.vector.returns else fields


def improve(program: Program, state: TrainState, rollout: Rollout, lent: PyTree = ()) -> tuple[TrainState, Report]:
    """The algorithm learns."""
    key = derived(state.key, state.update, LEARNING)
    progress = state.update.astype(jnp.float32) / program.total_updates
    learner, ring, report = program.algorithm.improve(state.learner, rollout, View(state.replay, program.layout, lent), key, progress, AXIS)
    return replace(state, learner=learner, replay=ring), report


def observe(program: Program, state: TrainState, rollout: Rollout) -> TrainState:
    """The observation moments move."""
    return replace(state, learner=program.algorithm.observe(state.learner, rollout, AXIS))


def move_goals(program: Program, state: TrainState, summary: Report) -> TrainState:
    """Goals are drawn farther away or nearer from now on."""
    if program.curriculum is None:
        return state
    ended = summary["terminated_count"] + summary["truncated_count"]
    return replace(state, reach=program.curriculum.moved(state.reach, summary["success_count"], ended, program.num_envs))


def renew_starts(program: Program, state: TrainState) -> TrainState:
    """Part of the pool of starts is redrawn, on every device alike."""
    if not program.renew:
        return state
    keys = jax.random.split(derived(state.key, state.update, POOL_STARTS), program.renew)
    fresh = program.vector.starts(keys, state.reach if program.curriculum else None)
    # Reduced first: a product with the update's number would overflow in a long run.
    slots = (state.update % program.pool * program.renew + jnp.arange(program.renew)) % program.pool
    return replace(state, starts=jax.tree.map(lambda old, new: old.at[slots].set(new), state.starts, fresh))


def moments_to_return_to(program: Program, state: TrainState) -> PyTree:
    """One of each environment's kept moments for the rollout to come; None where episodes never go back."""
    if not program.vector.returns:
        return None
    return drawn(state.archive, jax.vmap(jax.random.fold_in, in_axes=(None, 0))(derived(state.key, state.update, PAST), state.env.index))


def remember_moments(program: Program, state: TrainState) -> TrainState:
    """The archive takes in where the environments are now."""
    if not program.vector.returns:
        return state
    return replace(state, archive=remembered(state.archive, state.env, state.update, program.keep_every, program.rollout_length))


def summarize(outcome: Any) -> Report:
    """What is reported of one step, added up over environments; names ending in `_count` are added up over a chunk."""
    return {
        "reward_count": jnp.sum(outcome.reward),
        "terminated_count": jnp.sum(outcome.terminated, dtype=jnp.int32),
        "truncated_count": jnp.sum(outcome.truncated, dtype=jnp.int32),
        "finished_score_count": jnp.sum(outcome.finished_score),
        # No integer: a million environments may end together, each a million steps old.
        "finished_length_count": jnp.sum(outcome.finished_length, dtype=jnp.float32),
        "returned_count": jnp.sum(outcome.returned, dtype=jnp.int32),
        "success_count": jnp.sum(outcome.success & outcome.ended, dtype=jnp.int32),
        "fault_count": jnp.sum(outcome.fault, dtype=jnp.int32),
    }


def ages(env: EnvState) -> Report:
    """How old the environments' episodes are: the median (of devices' medians, their mean) and the oldest."""
    age = env.age.astype(jnp.float32)
    return {"age_median": jax.lax.pmean(jnp.median(age), AXIS), "age_max": jax.lax.pmax(jnp.max(age), AXIS)}


def no_fault(program: Program, state: TrainState) -> Fault:
    """Nothing broken so far; shapes of one environment."""
    sim = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), state.env.sim)
    shape = jax.eval_shape(lambda: program.algorithm.act(state.learner, state.env.obs, state.memory, state.env.age == 0, None).action)
    action = jnp.zeros(shape.shape[1:], shape.dtype)
    return Fault(jnp.bool_(False), jnp.int32(0), jnp.int32(0), sim, action, state.key)


def remember(fault: Fault, broken: Bool[Array, " N"], env: EnvState, action: PyTree, keys: Key[Array, " N"], update: Array) -> Fault:
    """The first fault stays; otherwise the first environment broken in this step."""
    which = jnp.argmax(broken)
    sim, one_action, key = jax.tree.map(lambda leaf: leaf[which], (env.sim, action, keys))
    new = Fault(broken[which], env.index[which], update, sim, one_action, key)
    return jax.tree.map(lambda old, latest: jnp.where(fault.found, old, latest), fault, new)


def in_blocks(roll: Callable[[PyTree], tuple[PyTree, PyTree]], share: PyTree, block: int) -> tuple[PyTree, PyTree]:
    """Apply `roll` to blocks of environments in turn, every one staying in the cache for a whole rollout.

    `share` has leaves [n, ...]. The first result is `((env, memory, fault), ...)` with environments [n, ...] and faults
    [blocks, ...]; the second keeps a leading axis of blocks.
    """
    number = jax.tree.leaves(share)[0].shape[0]
    blocks = jax.tree.map(lambda leaf: leaf.reshape(number // block, block, *leaf.shape[1:]), share)
    (env, memory, fault), rows = jax.lax.map(roll, blocks)
    env, memory = jax.tree.map(lambda leaf: leaf.reshape(number, *leaf.shape[2:]), (env, memory))
    return (env, memory, fault), rows


def derived(key: Key[Array, ""], update: Int[Array, ""] | int, purpose: int) -> Key[Array, ""]:
    """The key of one purpose in one update."""
    return jax.random.fold_in(jax.random.fold_in(key, update), purpose)
