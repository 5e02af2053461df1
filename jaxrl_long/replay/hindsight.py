"""Hindsight: what was reached later in the same episode, as if it had been the goal all along.

One draw looks at the steps left of its episode and at one row, so that its cost does not depend on how long episodes are, and it
is right across the ring's cursor, in episodes longer than the ring, and never leaves the episode.
Source: Andrychowicz et al. 2017, arXiv:1707.01495, "Hindsight experience replay" (the `future` strategy); with geometric distances
Eysenbach et al. 2022, arXiv:2206.07568, "Contrastive learning as goal-conditioned reinforcement learning".
"""

import jax
import jax.numpy as jnp

from jaxrl_long.replay.sampling import Place, Standing, View
from jaxrl_long.typing import Array, Float, Int, Key


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
