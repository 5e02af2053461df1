"""Return-scale normalisation: the critic works in standard deviations of its targets, so that rewards need no hand scaling.

Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude" (PopArt), arXiv:1602.07714.
"""

import jax.numpy as jnp
from flax import struct

from jaxrl_long.typing import Array, Float, Int, PyTree, typed

SLOWEST = 0.01
"""Weight of the newest batch once many were seen: a memory of about 100 updates."""


@struct.dataclass
class ValueScale:
    """The critic's unit: value = output * std + mean, in reward units."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    updates: Int[Array, ""]
    """Batches seen."""

    @property
    def std(self) -> Float[Array, ""]:
        """The spread of targets, kept away from 0 where returns hardly differ."""
        return jnp.maximum(jnp.sqrt(self.variance), jnp.maximum(1e-3 * jnp.abs(self.mean), 1e-4))


def initial() -> ValueScale:
    """Outputs are values as they are."""
    return ValueScale(jnp.float32(0.0), jnp.float32(1.0), jnp.int32(0))


@typed
def moved(scale: ValueScale, mean: Float[Array, ""], variance: Float[Array, ""]) -> ValueScale:
    """The scale after a batch of targets of this mean and variance: a plain average at first, an exponential one later.

    Non-finite batches are left out.
    """
    usable = jnp.isfinite(mean) & jnp.isfinite(variance)
    share = jnp.maximum(1.0 / (scale.updates + 1), SLOWEST)
    new_mean = scale.mean + share * (mean - scale.mean)
    new_variance = (1 - share) * scale.variance + share * variance + share * (1 - share) * (mean - scale.mean) ** 2
    new = (new_mean, new_variance, scale.updates + 1)
    return ValueScale(*(jnp.where(usable, n, old) for n, old in zip(new, (scale.mean, scale.variance, scale.updates), strict=True)))


def rescaled(params: PyTree, old: ValueScale, new: ValueScale) -> PyTree:
    """The critic's parameters with the last layer changed so that the values it stands for stay the same under the new scale."""
    out = params["params"]["out"]
    kernel = out["kernel"] * (old.std / new.std)
    bias = (old.std * out["bias"] + old.mean - new.mean) / new.std
    return {"params": {**params["params"], "out": {"kernel": kernel, "bias": bias}}}
