"""How a ring row is written: each field's bytes per entry, and what is lost."""

import jax
import jax.numpy as jnp

from jaxrl_long.typing import Array, PyTree

Codec = str
"""float32 or bfloat16."""

LOSSY_FIELDS = frozenset({"obs", "choice"})
"""Only what networks read is rounded; rewards, ends and log probabilities decide targets, and stay as they are."""


def encode(codec: Codec, fields: dict[str, PyTree]) -> dict[str, PyTree]:
    """The stored form of named fields. bfloat16 keeps 8 significant bits: a relative error of at most 2^-8, half the bytes."""
    if codec == "float32":
        return fields
    return {name: jax.tree.map(_rounded, value) if name in LOSSY_FIELDS else value for name, value in fields.items()}


def decode(fields: dict[str, PyTree]) -> dict[str, PyTree]:
    """The fields as float32 again, whatever they were stored as."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf, fields)


def _rounded(leaf: Array) -> Array:
    return leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf
