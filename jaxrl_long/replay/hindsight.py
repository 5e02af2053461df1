"""Hindsight: what was reached later in the same episode, as if it had been the goal all along.

One draw looks at the steps left of its episode and at one row, so that its cost does not depend on how long episodes are, and it
is right across the ring's cursor, in episodes longer than the ring, and never leaves the episode.
Source: Andrychowicz et al. 2017, arXiv:1707.01495, "Hindsight experience replay" (the `future` strategy); with geometric distances
Eysenbach et al. 2022, arXiv:2206.07568, "Contrastive learning as goal-conditioned reinforcement learning".
"""

from dataclasses import replace
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxrl_long.replay.sampling import Place, Standing, Transition, View
from jaxrl_long.typing import Array, Float, Int, Key, PyTree


class Goals(Protocol):
    """What a world says of its goals, from observations alone, so that others can be put in their place afterwards."""

    def achieved(self, obs: PyTree) -> Float[Array, "... G"]:
        """What has been reached, in the form of a goal."""
        ...

    def desired(self, obs: PyTree) -> Float[Array, "... G"]:
        """What is to be reached."""
        ...

    def with_goal(self, obs: PyTree, goal: Float[Array, "... G"]) -> PyTree:
        """The observation as it were with this goal."""
        ...

    def goal_reward(self, achieved: Float[Array, "... G"], goal: Float[Array, "... G"]) -> Float[Array, "..."]:
        """The reward of a step that led to `achieved`."""
        ...


def relabelled(view: View, place: Place, batch: Transition, goals: Goals, key: Key[Array, ""], share: float, discount: float = 1.0) -> Transition:
    """Transitions over one step, a share of which pursues what was reached at or after it in the same episode.

    Distances are drawn as in `future`, among steps whose outcome is known already. Steps that ended the world are left as they are, and
    give no goals: what they led to is not kept.
    """
    lot_key, distance_key = jax.random.split(key)
    left = jnp.minimum(view.rows_left(place, batch.standing), view.rows_after(place) - 1)
    later = place.later(view.layout, distance(jax.random.uniform(distance_key, left.shape), left, discount))
    then, kept = view.following(later, view.standing(later))
    goal = goals.achieved(then)
    known = kept & ~view.ends(later, 1)[0][:, 0] & ~view.ends(place, 1)[0][:, 0]
    chosen = (jax.random.uniform(lot_key, left.shape) < share) & known

    def either(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)

    obs, next_obs = batch.fields["obs"], batch.next_obs
    return replace(
        batch,
        fields=batch.fields | {"obs": either(goals.with_goal(obs, goal), obs)},
        next_obs=either(goals.with_goal(next_obs, goal), next_obs),
        reward=either(goals.goal_reward(goals.achieved(next_obs), goal), batch.reward),
    )


def future(view: View, place: Place, standing: Standing, key: Key[Array, ""], discount: float = 1.0) -> Place:
    """A step of the same episode, at or after each of B: any as likely as another, or with `discount` < 1 the nearer the likelier.

    P(k) ∝ γᵏ for k = 0 .. left, where `left` steps after it are stored. Step k's outcome is what is reached: at k = 0 the step's own.
    """
    left = view.rows_left(place, standing)
    return place.later(view.layout, distance(jax.random.uniform(key, left.shape), left, discount))


def distance(uniform: Float[Array, " B"], left: Int[Array, " B"], discount: float) -> Int[Array, " B"]:
    """Draws of k from 0 .. left from uniform numbers in [0, 1), P(k) ∝ γᵏ: the inverse of the distribution function."""
    if discount == 1.0:
        drawn = uniform * (left + 1)
    else:
        # 1 - γ^(k+1) over 1 - γ^(left+1); expm1 and log1p, for γ near 1 and few steps left.
        rate = jnp.log(discount)
        drawn = jnp.log1p(uniform * jnp.expm1((left + 1) * rate)) / rate
    return jnp.minimum(jnp.floor(drawn).astype(jnp.int32), left)
