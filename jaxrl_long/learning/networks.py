"""The function approximators: plain multi-layer perceptrons that read one entry of the observation."""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax.numpy as jnp

from jaxrl_long.typing import Array, PyTree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": nn.relu, "swish": nn.swish, "elu": nn.elu}


class MLP(nn.Module):
    """Fully connected layers [..., O] -> [..., outputs]; the last one starts `out_scale` times as large as the others."""

    layers: tuple[int, ...]
    outputs: int
    activation: str = "swish"
    out_scale: float = 1.0
    layer_norm: bool = False
    """Normalise each hidden layer before its nonlinearity."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Apply the layers."""
        for size in self.layers:
            x = nn.Dense(size, kernel_init=nn.initializers.orthogonal(2.0**0.5))(x)
            x = ACTIVATIONS[self.activation](nn.LayerNorm()(x) if self.layer_norm else x)
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.out_scale), name="out")(x)


def entry(obs: PyTree, name: str) -> Array:
    """The part of an observation that the network called `name` (`policy` or `critic`) reads: all of it, unless it is a mapping.

    A mapping without a `critic` entry gives the critic what the policy sees.
    """
    if not isinstance(obs, Mapping):
        return obs
    return obs[name] if name in obs else obs["policy"]
