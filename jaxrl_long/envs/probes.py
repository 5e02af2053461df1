"""Worlds whose right answers are known: tests and learners are checked on them. Used as `env=jaxrl_long.envs.probes:CountEnv`."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.simulator import Continuous, Discrete, SimStep
from jaxrl_long.typing import Array, Float, Int, Key


@struct.dataclass
class Age:
    """Steps since the start."""

    t: Int[Array, ""]


class CountEnv:
    """Observes [t], pays 1 a step, and terminates at age `die_at` (never for 0). A time limit is not its business: see `horizon`.

    `max_steps` makes it claim an inner time limit, as some outside simulators have. Actions are ignored.
    """

    obs_size = 1
    action = Discrete(2)
    dt = 1.0

    def __init__(self, die_at: int = 0, max_steps: int | None = None) -> None:
        """Both in steps."""
        self.die_at = die_at
        if max_steps is not None:
            self.max_steps = max_steps

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Always at 0."""
        del key
        return SimStep(Age(jnp.zeros((), jnp.int32)), jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Age, action: Any, key: Key[Array, ""]) -> SimStep:
        """Count one on."""
        del action, key
        t = state.t + 1
        return SimStep(Age(t), self._observe(t), self._pay(t), t == self.die_at)

    def _observe(self, t: Int[Array, ""]) -> Float[Array, "1"]:
        return t.astype(jnp.float32)[None]

    def _pay(self, t: Int[Array, ""]) -> Float[Array, ""]:
        del t
        return jnp.ones(())


class RandomStart:
    """Observes the number in ±1 that its start drew, for ever; pays 1 a step, terminates at age `die_at` (never for 0)."""

    obs_size = 1
    action = Continuous(1)
    dt = 1.0

    def __init__(self, die_at: int = 0) -> None:
        """In steps."""
        self.die_at = die_at

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw the number."""
        state = (Age(jnp.zeros((), jnp.int32)), jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0))
        return SimStep(state, state[1], jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: tuple[Age, Array], action: Any, key: Key[Array, ""]) -> SimStep:
        """Count one on."""
        del action, key
        age, number = state
        return SimStep((Age(age.t + 1), number), number, jnp.ones(()), age.t + 1 == self.die_at)


@struct.dataclass
class Fragile:
    """A counting world, one copy of which may be about to break."""

    t: Int[Array, ""]
    """Steps since the start."""
    cracked: Float[Array, ""]
    """1 in a copy that breaks, 0 in the others; a test sets it."""


class BreakAt:
    """Counts and pays as CountEnv; at age `age` a copy whose `cracked` is 1 becomes NaN (state, observation and reward).

    Which copies are cracked lies in the state, not in the class: set `state.cracked` of environment 3 alone, and only it
    breaks. A start is cracked with probability `share` (1: every copy; 0: none, until a test sets it).
    """

    obs_size = 1
    action = Continuous(1)
    dt = 1.0

    def __init__(self, age: int = 5, share: float = 0.0) -> None:
        """`age` in steps."""
        self.age = age
        self.share = share

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """At 0, cracked or not."""
        cracked = jax.random.bernoulli(key, self.share).astype(jnp.float32)
        return SimStep(Fragile(jnp.zeros((), jnp.int32), cracked), jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Fragile, action: Any, key: Key[Array, ""]) -> SimStep:
        """Count one on, and break when it is time."""
        del action, key
        t = state.t + 1
        broken = (state.cracked != 0) & (t >= self.age)
        obs = jnp.where(broken, jnp.nan, t.astype(jnp.float32))[None]
        cracked = jnp.where(broken, jnp.nan, state.cracked)
        return SimStep(Fragile(t, cracked), obs, jnp.where(broken, jnp.nan, 1.0), jnp.zeros((), bool))


class HugeReward(CountEnv):
    """CountEnv that pays 1e30 instead of 1 at age `age`."""

    def __init__(self, age: int = 5, die_at: int = 0) -> None:
        """Both in steps."""
        super().__init__(die_at)
        self.age = age

    def _pay(self, t: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.where(t == self.age, jnp.float32(1e30), 1.0)


class Keyed:
    """Observes noise that it draws from a key in its own state, as many users' worlds do; pays 1 a step."""

    obs_size = 1
    action = Continuous(1)
    dt = 1.0

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Keep the key."""
        return SimStep(key, jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Key[Array, ""], action: Any, key: Key[Array, ""]) -> SimStep:
        """Draw, and keep the rest of the key."""
        del action, key
        state, now = jax.random.split(state)
        return SimStep(state, jax.random.normal(now, (1,)), jnp.ones(()), jnp.zeros((), bool))


@struct.dataclass
class Signal:
    """What a probe shows."""

    t: Int[Array, ""]
    """Steps since the start."""
    sign: Float[Array, ""]
    """-1 or 1, drawn at the start."""


class Probe:
    """Episodes of `length` steps that show a sign drawn at the start; subclasses say what is seen and paid. Terminates, never truncates.

    Actions are Discrete(2), read as -1 (0) and 1 (1), or with `continuous=True` one number in [-1, 1].
    """

    obs_size = 1
    dt = 1.0
    length = 1

    def __init__(self, continuous: bool = False) -> None:
        """Choose the kind of actions."""
        self.action = Continuous(1) if continuous else Discrete(2)

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Draw the sign."""
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0).astype(jnp.float32)
        state = Signal(jnp.zeros((), jnp.int32), sign)
        return SimStep(state, self.seen(state)[None], jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Signal, action: Array, key: Key[Array, ""]) -> SimStep:
        """Pay for the action taken in `state`, and go on."""
        del key
        chosen = action[0] if isinstance(self.action, Continuous) else 2.0 * action - 1.0
        after = Signal(state.t + 1, state.sign)
        reward = jnp.asarray(self.paid(state, chosen), jnp.float32)
        return SimStep(after, self.seen(after)[None], reward, after.t >= self.length)

    def seen(self, state: Signal) -> Float[Array, ""]:
        """The one feature observed."""
        del state
        return jnp.zeros(())

    def paid(self, state: Signal, chosen: Float[Array, ""]) -> Float[Array, ""]:
        """Reward of the action `chosen` in [-1, 1], taken in `state`."""
        del state, chosen
        return jnp.ones(())


class ConstantReward(Probe):
    """One step, one observation, reward 1. V = 1: does the value learn at all?"""


class SeenReward(Probe):
    """One step, reward = the sign observed. V(obs) = obs: does the value read the observation?"""

    def seen(self, state: Signal) -> Float[Array, ""]:
        """The sign."""
        return state.sign

    def paid(self, state: Signal, chosen: Float[Array, ""]) -> Float[Array, ""]:
        """The sign."""
        del chosen
        return state.sign


class DelayedReward(Probe):
    """Two steps, observed as 0 and 1; only the second pays 1. V(1) = 1, V(0) = discount."""

    length = 2

    def seen(self, state: Signal) -> Float[Array, ""]:
        """The age."""
        return state.t.astype(jnp.float32)

    def paid(self, state: Signal, chosen: Float[Array, ""]) -> Float[Array, ""]:
        """1 for the second step."""
        del chosen
        return (state.t == 1).astype(jnp.float32)


class ChosenReward(Probe):
    """One step, reward = the action as a number in [-1, 1]. The best action is 1, V = 1: is the policy pushed the right way?"""

    def paid(self, state: Signal, chosen: Float[Array, ""]) -> Float[Array, ""]:
        """The action."""
        del state
        return chosen


class MatchedReward(Probe):
    """One step, reward = sign x action. The best action is the sign observed, V = 1: does the policy read the observation?"""

    def seen(self, state: Signal) -> Float[Array, ""]:
        """The sign."""
        return state.sign

    def paid(self, state: Signal, chosen: Float[Array, ""]) -> Float[Array, ""]:
        """1 for the right action, -1 for the opposite one."""
        return state.sign * chosen


class LateReward:
    """Eight actions; pays 1 for the third one before age `late`, and for the sixth from then on. Observes which of both it is; never ends.

    Training episodes that are cut before `late` can't find out, unless they go on from a later moment than their start.
    """

    obs_size = 1
    action = Discrete(8)
    dt = 1.0

    def __init__(self, late: int = 200) -> None:
        """In steps."""
        self.late = late

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Always at 0."""
        del key
        return SimStep(Age(jnp.zeros((), jnp.int32)), jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Age, action: Array, key: Key[Array, ""]) -> SimStep:
        """Pay for the action, and count one on."""
        del key
        after = Age(state.t + 1)
        paid = action == jnp.where(state.t >= self.late, 5, 2)
        return SimStep(after, (after.t >= self.late).astype(jnp.float32)[None], paid.astype(jnp.float32), jnp.zeros((), bool))


class RareTrap:
    """A round track of `length` steps with one lock at its end: who has not taken the actions 1, 2, 3 on the last three of them has failed there.

    Elsewhere action 0 pays 1, and the others nothing. Observes the last three places as 1, 2 and 3, all others as 0. Starts anywhere.
    """

    obs_size = 1
    action = Discrete(4)
    dt = 1.0

    def __init__(self, length: int = 1000) -> None:
        """`length` in steps."""
        self.length = length

    def reset(self, key: Key[Array, ""]) -> SimStep:
        """Somewhere on the track, the lock's last three steps excepted."""
        place = Signal(jax.random.randint(key, (), 0, self.length - 3), jnp.ones(()))
        return SimStep(place, self._seen(place), jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Signal, action: Array, key: Key[Array, ""]) -> SimStep:
        """Go on by one; the state's sign turns negative with a wrong action at the lock."""
        del key
        wanted = self._seen(state)[0]
        sign = jnp.where((wanted > 0) & (action != wanted), -1.0, state.sign)
        after = Signal((state.t + 1) % self.length, sign)
        reward = jnp.where(wanted > 0, 1.0, (action == 0).astype(jnp.float32))
        return SimStep(after, self._seen(after), reward, (after.t == 0) & (sign < 0))

    def _seen(self, state: Signal) -> Float[Array, "1"]:
        return jnp.maximum(0.0, 4.0 - (self.length - state.t))[None]
