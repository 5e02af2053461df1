"""N copies of a simulator with a clock, a guard, a score and restarts: the only place that knows about N, time and ends."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import SimStep, Simulator
from jaxrl_long.learning.moments import Sum
from jaxrl_long.typing import Array, Bool, Float, Int, Key, PyTree, typed

NEVER = 2**31 - 1
"""An age no episode reaches."""


@struct.dataclass
class EnvState:
    """Where N environments stand; every leaf is [N, ...]."""

    sim: PyTree
    """The simulators' own states."""
    obs: PyTree
    """What the policy sees next."""
    age: Int[Array, " N"]
    """Steps since the start of the episode."""
    deadline: Int[Array, " N"]
    """Age at which the episode is cut (truncated)."""
    score: Sum
    """Reward of the episode so far."""
    index: Int[Array, " N"]
    """Global number of each environment, 0 .. N-1, whatever device it is on."""


@struct.dataclass
class Moment:
    """Where N environments once were, to go back to; every leaf is [N, ...]."""

    sim: PyTree
    obs: PyTree
    age: Int[Array, " N"]
    score: Sum

    @classmethod
    def of(cls, env: EnvState) -> "Moment":
        """Where they are now."""
        return cls(env.sim, env.obs, env.age, env.score)


@struct.dataclass
class Outcome:
    """What one step of N environments brought; every leaf is [N, ...]."""

    reward: Float[Array, " N"]
    terminated: Bool[Array, " N"]
    """The world ended: the future is worth 0."""
    truncated: Bool[Array, " N"]
    """The clock (or the guard) cut the episode: the future is worth V(final_obs). Never set together with `terminated`."""
    final_obs: PyTree
    """The observation after the step and *before* any restart."""
    fault: Bool[Array, " N"]
    """The physics gave a non-finite number: the step does not count, the episode is cut at the observation before it."""
    finished_score: Float[Array, " N"]
    """Total reward of the episode that ended; 0 where none did."""
    finished_length: Int[Array, " N"]
    """Its steps; 0 where none ended."""
    success: Bool[Array, " N"]
    """The task is solved in the state reached; always False where the simulator does not say."""
    returned: Bool[Array, " N"]
    """The episode ended and goes on from an earlier moment of its own, instead of starting anew."""

    @property
    def ended(self) -> Bool[Array, " N"]:
        """The episode is over, for whatever reason."""
        return self.terminated | self.truncated


def chosen(condition: Bool[Array, " N"], yes: PyTree, no: PyTree) -> PyTree:
    """Leaf-wise choice per environment between two trees [N, ...]."""

    def choose(a: Array, b: Array) -> Array:
        mask = condition.reshape(condition.shape + (1,) * (a.ndim - 1))
        return jnp.where(mask, a, b)

    return jax.tree.map(choose, yes, no)


def each(function: Callable[..., PyTree], at_once: int, *arguments: PyTree) -> PyTree:
    """What a function of one environment says of N, whose leaves are [N, ...]; no more than `at_once` of them together (0: all)."""
    number = jax.tree.leaves(arguments)[0].shape[0]
    if not at_once or number <= at_once:
        return jax.vmap(function)(*arguments)
    size = max(divisor for divisor in range(1, at_once + 1) if number % divisor == 0)
    # `lax.map` has a `batch_size`, but can't put arrays of no elements together again.
    blocks = jax.tree.map(lambda leaf: leaf.reshape(number // size, size, *leaf.shape[1:]), arguments)
    done = jax.lax.map(lambda block: jax.vmap(function)(*block), blocks)
    return jax.tree.map(lambda leaf: leaf.reshape(number, *leaf.shape[2:]), done)


def _finite(step: SimStep) -> Bool[Array, " N"]:
    """Which environments' state, observation and reward are all finite."""
    leaves = [leaf for leaf in jax.tree.leaves(step) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(leaf.reshape(leaf.shape[0], -1)).all(axis=1) for leaf in leaves]).all(axis=0)


@dataclass(frozen=True)
class VectorEnv:
    """N copies of `simulator` that end at `horizon`, and in training restart every `restart_every` steps besides (0: never).

    What ended starts anew, from the pool (or from a `fresh` draw each time); with `archive` a `share` of all ends, and with
    `rewind` of the failures, goes on from an earlier moment of the same episode instead.
    """

    simulator: Simulator
    horizon: int
    restart_every: int = 0
    restart_random: bool = False
    stagger: bool = False
    source: str = "pool"
    """pool, fresh, archive or rewind."""
    share: float = 0.5

    @property
    def returns(self) -> bool:
        """Whether ended episodes may go on from earlier moments."""
        return self.source in ("archive", "rewind")

    @property
    def at_once(self) -> int:
        """How many environments the simulator lets be stepped together; 0: all."""
        return getattr(self.simulator, "at_once", 0)

    def starts(self, keys: Key[Array, " M"], reach: Float[Array, ""] | None = None) -> SimStep:
        """M freshly drawn start states, every leaf [M, ...]; with `reach`, their goals are that share as far as usual."""
        simulator: Any = self.simulator
        return each((simulator if reach is None else simulator.nearer(reach)).reset, self.at_once, keys)

    def begin(self, start: SimStep, keys: Key[Array, " N"], index: Int[Array, " N"]) -> EnvState:
        """N environments at these starts. With `stagger`, first deadlines are spread evenly at random, so that ends do not coincide."""
        ages = jnp.zeros(index.shape, jnp.int32)
        tagged = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, 1)
        deadline = self._deadline(tagged)
        if self.stagger:
            spread = jax.vmap(lambda key: jax.random.uniform(key))(tagged)
            deadline = 1 + (spread * deadline).astype(jnp.int32)
        return EnvState(start.state, start.obs, ages, deadline, Sum.zeros(index.shape), index)

    @typed
    def step(self, state: EnvState, action: PyTree, keys: Key[Array, " N"], starts: SimStep, past: PyTree = None) -> tuple[EnvState, Outcome]:
        """One step of N environments. `keys` [N] are consumed; `starts` [M, ...] is the pool that restarts draw from.

        `past` is where each environment may go back to, a Moment [N, ...] and whether there is one [N]; None: nowhere.
        """
        step_keys, restart_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)

        # Physics.
        after = each(self.simulator.step, self.at_once, state.sim, action, step_keys)

        # Guard: a non-finite environment is cut where it stood before; the others never see its numbers.
        fault = ~_finite(after)
        reward = jnp.where(fault, 0.0, after.reward)
        final_obs = chosen(fault, state.obs, after.obs)
        terminated = after.terminated & ~fault

        # Clock.
        age = state.age + 1
        truncated = ((age >= state.deadline) | fault) & ~terminated
        ended = terminated | truncated

        returned = self._returned(terminated, ended, restart_keys, past)

        # Score.
        score = state.score.plus(reward)
        outcome = Outcome(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
            fault=fault,
            finished_score=jnp.where(ended, score.value, 0.0),
            finished_length=jnp.where(ended, age, 0),
            success=self._success(after) & ~fault,
            returned=returned,
        )

        # Restart.
        going_on = EnvState(after.state, after.obs, age, state.deadline, score, state.index)
        return self._restart(going_on, ended, returned, restart_keys, starts, past), outcome

    def _returned(self, terminated: Bool[Array, " N"], ended: Bool[Array, " N"], keys: Key[Array, " N"], past: PyTree) -> Bool[Array, " N"]:
        """Which of the ended episodes go back: a share of those that may and that have a moment to go back to."""
        if past is None:
            return jnp.zeros_like(ended)
        lots = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 2)))(keys)
        return (terminated if self.source == "rewind" else ended) & past[1] & (lots < self.share)

    def _restart(
        self, state: EnvState, ended: Bool[Array, " N"], returned: Bool[Array, " N"], keys: Key[Array, " N"], starts: SimStep, past: PyTree
    ) -> EnvState:
        """The same environments, those that ended at a start drawn from the pool, or at the moment that they go back to.

        Most steps end nothing, and the copies are then skipped; under `vmap` the branch becomes a plain choice.
        """

        def restarted(state: EnvState) -> EnvState:
            start = self._start(keys, starts)
            interval = self._deadline(jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, 1))
            zero = jnp.zeros_like(state.age)
            again = EnvState(start.state, start.obs, zero, interval, Sum.zeros(zero.shape), state.index)
            if past is not None:
                then = past[0]
                # Not age + interval, which may be more than an int32 holds.
                deadline = then.age + jnp.minimum(interval, self.horizon - then.age)
                again = chosen(returned, EnvState(then.sim, then.obs, then.age, deadline, then.score, state.index), again)
            return chosen(ended, again, state)

        return jax.lax.cond(jnp.any(ended), restarted, lambda state: state, state)

    def _start(self, keys: Key[Array, " N"], starts: SimStep) -> SimStep:
        """A start for each environment, drawn from the pool [M, ...] or, with `fresh`, from the world itself."""
        if self.source == "fresh":
            return self.starts(jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, 3))
        pool_size = jax.tree.leaves(starts)[0].shape[0]
        pick = jax.vmap(lambda key: jax.random.randint(key, (), 0, pool_size))(keys)
        return jax.tree.map(lambda leaf: leaf[pick], starts)

    def _deadline(self, keys: Key[Array, " N"]) -> Int[Array, " N"]:
        """Age at which each new episode is cut: the horizon, or the training restart before it.

        Random intervals are geometric with mean `restart_every`: an environment's chance to restart does not depend on its age.
        """
        number = keys.shape[0]
        if not self.restart_every:
            return jnp.full((number,), self.horizon, jnp.int32)
        if not self.restart_random:
            return jnp.full((number,), min(self.restart_every, self.horizon), jnp.int32)
        drawn = jax.vmap(jax.random.exponential)(keys) * self.restart_every
        return jnp.clip(jnp.ceil(drawn), 1, self.horizon).astype(jnp.int32)

    def _success(self, after: SimStep) -> Bool[Array, " N"]:
        check = getattr(self.simulator, "success", None)
        return jax.vmap(check)(after.state) if check else jnp.zeros_like(after.terminated)

    def reset(self, keys: Key[Array, " N"], index: Int[Array, " N"]) -> EnvState:
        """N environments at starts of their own."""
        return self.begin(self.starts(keys), keys, index)

    def endless(self) -> "VectorEnv":
        """The same environments as an evaluation runs them: to the horizon, all from age 0."""
        return replace(self, simulator=getattr(self.simulator, "undisturbed", self.simulator), restart_every=0, stagger=False, source="pool")
