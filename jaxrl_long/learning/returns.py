"""Advantages and value targets of fixed-length rollouts with several episodes in them."""

import jax
import jax.numpy as jnp

from jaxrl_long.typing import Array, Bool, Float, typed


@typed
def gae(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    ended: Bool[Array, "T N"],
    *,
    discount: float | Float[Array, ""],
    trace: float,
    weight: Float[Array, "T N"] | None = None,
) -> Float[Array, "T N"]:
    """Advantage of each action over the critic's expectation, in reward units.

        δₜ = rₜ + γ (1 − terminatedₜ) V(s′ₜ) − V(sₜ)
        Aₜ = wₜ (δₜ + γ λ (1 − endedₜ) Aₜ₊₁)

    `next_value` is V of the observation *before* any restart, so a truncated step bootstraps and a terminated one does not.
    `weight` w in [0, 1] is the truncated importance ratio min(1, π/μ) of steps taken by an earlier policy μ; none: 1.
    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16; with weights, the V-trace of Espeholt et al. 2018,
    arXiv:1802.01561, with both of its thresholds at 1 and λ in its c.

    Two environments end after one step whose reward is 1; what followed is worth 10, which only the truncated one is credited with.

    >>> one, ended = jnp.ones((1, 2)), jnp.array([[True, True]])
    >>> gae(one, 0 * one, 10 * one, jnp.array([[True, False]]), ended, discount=0.5, trace=1.0).tolist()
    [[1.0, 6.0]]
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(ended, 0.0, discount * trace)
    if weight is not None:
        delta, decay = weight * delta, weight * decay

    def backward(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        step_delta, step_decay = row
        advantage = step_delta + step_decay * later
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]


@typed
def lookahead_discount(lookahead: float, discount: float) -> float:
    """γ of an agent that looks `lookahead` steps ahead: 1 − 1/lookahead; `discount` itself where lookahead is 0.

    >>> lookahead_discount(100.0, 0.97), lookahead_discount(0.0, 0.97)
    (0.99, 0.97)
    """
    return 1.0 - 1.0 / lookahead if lookahead > 0 else discount


@typed
def growing_discount(first: float, last: float, progress: Float[Array, ""]) -> Float[Array, ""]:
    """γ on the way from one to the other: the lookahead 1 / (1 − γ) moves by equal ratios.

        1 − γ = (1 − γ₀)^(1 − p) (1 − γ₁)^p

    `progress` p is clipped to [0, 1].

    >>> [round(1 / (1 - float(growing_discount(0.9, 0.999, jnp.float32(share))))) for share in (0.0, 0.5, 1.0)]
    [10, 100, 1000]
    """
    done = jnp.clip(progress, 0.0, 1.0)
    return 1.0 - (1.0 - first) ** (1.0 - done) * (1.0 - last) ** done
