"""Axis letters, array aliases and the decorator that checks them.

Axes, always in this order: `T` steps of a rollout, `N` environments, `B` = T*N samples, `O` observation features,
`A` action size, `C` ring rows, `U` updates.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, Key, Shaped, jaxtyped

__all__ = ["Array", "Bool", "Float", "Int", "Key", "PyTree", "Shaped", "typed"]

PyTree = Any
"""A nest of containers whose leaves are arrays; the docstring says which axes the leaves share."""

F = TypeVar("F", bound=Callable[..., Any])


def typed(function: F) -> F:
    """Check the shapes and dtypes of a function's arguments and result, at trace time only.

    A decorator on functions instead of jaxtyping's import hook, which breaks flax dataclasses under `lax.scan`.
    """
    return jaxtyped(typechecker=beartype)(function)
