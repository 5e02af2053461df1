"""Moments of the recent past, kept on the device, that environments can be taken back to.

Where episodes always start anew, a rare failure is seldom seen twice, and an age beyond the next restart is never reached.
Starting instead a little before the failure makes rare failures frequent in training; starting from any kept moment lets
episodes grow older than the restarts that cut them. Source: Tavakoli et al. 2018, arXiv:1811.11298, "Exploring restart
distributions"; Ecoffet et al. 2021, arXiv:2004.12919, "First return, then explore".
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_long.envs.vector import EnvState, Moment
from jaxrl_long.typing import Array, Bool, Int, Key


@struct.dataclass
class Archive:
    """The last K moments of N environments, overwritten oldest first; leaves [K, N, ...]."""

    moment: Moment
    known: Bool[Array, "K N"]
    """Whether the environment's episode, as it is now, has been there."""


def make_archive(env: EnvState, keep: int) -> Archive:
    """Room for `keep` moments of environments like these, none of them known yet."""
    moment = Moment.of(env)
    return Archive(jax.tree.map(lambda leaf: jnp.stack([leaf] * keep), moment), jnp.zeros((keep, *env.age.shape), bool))


def remembered(archive: Archive, env: EnvState, update: Int[Array, ""], every: int, rollout_length: int) -> Archive:
    """The archive after a rollout: every so many updates the environments' present moment takes the place of the oldest.

    An environment younger than a rollout has started anew in it: what it lived through before is no past of this episode.
    """
    keep = archive.known.shape[0]
    known = archive.known & (env.age >= rollout_length)
    slot = update // every % keep

    def written(archive: Archive) -> Archive:
        now = Archive(Moment.of(env), jnp.ones_like(env.age, bool))
        return jax.tree.map(lambda rows, row: rows.at[slot].set(row), archive, now)

    return jax.lax.cond(update % every == 0, written, lambda archive: archive, Archive(archive.moment, known))


def drawn(archive: Archive, keys: Key[Array, " N"]) -> tuple[Moment, Bool[Array, " N"]]:
    """For each environment one of its known moments, all equally likely, and whether there is any."""
    lots = jax.vmap(lambda key: jax.random.uniform(key, archive.known.shape[:1]), out_axes=1)(keys)
    pick = jnp.argmax(jnp.where(archive.known, lots, -1.0), axis=0)
    number = jnp.arange(pick.shape[0])
    return jax.tree.map(lambda rows: rows[pick, number], archive.moment), archive.known.any(axis=0)
