"""What a Simulator around another one takes over from it."""

import copy
from typing import Any, Self

from jaxrl_long.typing import Array, Float

SAME = ("max_steps", "at_once", "achieved", "desired", "with_goal", "goal_reward", "walls", "scene", "viewer")
"""Members that say the same of both, where the inner world has them."""
OF_STATE = ("success", "position", "place", "pose")
"""Members that look at the inner world's state."""


class Wrapper:
    """A world around `inner`, whose state has the inner world's as `state.world`."""

    def __init__(self, inner: Any) -> None:
        """Take over what `inner` has."""
        self.inner = inner
        self.obs_size, self.action, self.dt = inner.obs_size, inner.action, inner.dt
        for name in SAME:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        for name in OF_STATE:
            if hasattr(inner, name):
                setattr(self, name, _of_world(getattr(inner, name)))
        if hasattr(inner, "nearer"):
            self.nearer = self._nearer

    def _nearer(self, reach: Float[Array, ""]) -> Self:
        """The same around the inner world with nearer goals."""
        other = copy.copy(self)
        other.inner = self.inner.nearer(reach)
        return other


def _of_world(function: Any) -> Any:
    return lambda state: function(state.world)
