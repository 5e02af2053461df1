"""What a policy network's output means: a distribution over actions.

A distribution reads `params` [..., P] and speaks of *choices*: what was drawn, and what probabilities are computed from.
`action(choice)` is what the environment gets. Both kinds have the same six members, so that an algorithm is written once.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_long.typing import Array, Float, Int, Key, Shaped, typed

LOG_2PI = math.log(2 * math.pi)
MIN_STD = 1e-3


@dataclass(frozen=True)
class TanhNormal:
    """A diagonal normal squashed into (-1, 1) by tanh; the choice is the value *before* tanh, of which nothing is lost by rounding."""

    size: int
    min_std: float = MIN_STD

    @property
    def num_params(self) -> int:
        """Network outputs: mean and spread of each action entry."""
        return 2 * self.size

    @typed
    def sample(self, params: Float[Array, "... P"], key: Key[Array, "..."]) -> Float[Array, "... A"]:
        """One choice per row, from a key of its own per row."""
        mean, std = self._split(params)
        draw = jax.random.normal if key.ndim == 0 else jax.vmap(jax.random.normal, in_axes=(0, None))
        return mean + std * draw(key, mean.shape[-1:])

    @typed
    def mode(self, params: Float[Array, "... P"]) -> Float[Array, "... A"]:
        """The deterministic choice."""
        return self._split(params)[0]

    @typed
    def action(self, choice: Float[Array, "... A"]) -> Float[Array, "... A"]:
        """What the environment is given."""
        return jnp.tanh(choice)

    @typed
    def log_prob(self, params: Float[Array, "... P"], choice: Float[Array, "... A"]) -> Float[Array, "..."]:
        """Log density of the squashed action: log N(x; μ, σ) − Σ log(1 − tanh² x)."""
        mean, std = self._split(params)
        normal = -0.5 * (((choice - mean) / std) ** 2 + LOG_2PI) - jnp.log(std)
        return jnp.sum(normal - _log_squash(choice), axis=-1)

    @typed
    def entropy(self, params: Float[Array, "... P"], choice: Float[Array, "... A"]) -> Float[Array, "..."]:
        """Entropy in nats: that of the normal, exact, plus the squash's share, estimated at the choice that was drawn.

        The choice is re-expressed as μ + σ ε with ε held fixed, so that gradients reach μ and σ without another draw.
        """
        mean, std = self._split(params)
        noise = jax.lax.stop_gradient((choice - mean) / std)
        return jnp.sum(0.5 * (1 + LOG_2PI) + jnp.log(std) + _log_squash(mean + std * noise), axis=-1)

    @typed
    def kl(self, old: Float[Array, "... P"], new: Float[Array, "... P"]) -> Float[Array, "..."]:
        """KL(old ‖ new) in nats; the squash cancels."""
        (m0, s0), (m1, s1) = self._split(old), self._split(new)
        return jnp.sum(jnp.log(s1 / s0) + (s0**2 + (m0 - m1) ** 2) / (2 * s1**2) - 0.5, axis=-1)

    def _split(self, params: Array) -> tuple[Array, Array]:
        mean, spread = jnp.split(params, 2, axis=-1)
        return mean, jax.nn.softplus(spread) + self.min_std


def _log_squash(x: Array) -> Array:
    """log(1 − tanh² x), without cancellation for large |x|."""
    return 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))


@dataclass(frozen=True)
class Categorical:
    """One of `count` discrete actions; `params` are its logits."""

    count: int

    @property
    def num_params(self) -> int:
        """Network outputs: one logit an action."""
        return self.count

    @typed
    def sample(self, params: Float[Array, "... P"], key: Key[Array, "..."]) -> Int[Array, "..."]:
        """One choice per row, from a key of its own per row."""
        draw = jax.random.categorical if key.ndim == 0 else jax.vmap(jax.random.categorical)
        return draw(key, params).astype(jnp.int32)

    @typed
    def mode(self, params: Float[Array, "... P"]) -> Int[Array, "..."]:
        """The most probable action."""
        return jnp.argmax(params, axis=-1).astype(jnp.int32)

    @typed
    def action(self, choice: Int[Array, "..."]) -> Int[Array, "..."]:
        """What the environment is given."""
        return choice

    @typed
    def log_prob(self, params: Float[Array, "... P"], choice: Int[Array, "..."]) -> Float[Array, "..."]:
        """Log probability of the choice."""
        return jnp.take_along_axis(jax.nn.log_softmax(params), choice[..., None], axis=-1)[..., 0]

    @typed
    def entropy(self, params: Float[Array, "... P"], choice: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """Entropy in nats, exact; the choice is not needed."""
        del choice
        log_p = jax.nn.log_softmax(params)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    @typed
    def kl(self, old: Float[Array, "... P"], new: Float[Array, "... P"]) -> Float[Array, "..."]:
        """KL(old ‖ new) in nats."""
        log_p, log_q = jax.nn.log_softmax(old), jax.nn.log_softmax(new)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


Distribution = TanhNormal | Categorical
