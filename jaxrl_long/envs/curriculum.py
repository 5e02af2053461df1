"""Goals that are near at first, and farther as more of them are reached."""

from dataclasses import dataclass

import jax.numpy as jnp

from jaxrl_long.typing import Array, Float


@dataclass(frozen=True)
class Curriculum:
    """How the reach of training's goals, a share of how far goals usually are, follows success."""

    success: float
    """Share of the episodes that shall succeed: the reach grows while more do, and shrinks while fewer do."""
    start: float
    """Reach at first, above 0."""
    pace: float
    """How far it moves when every environment has ended one successful episode more than it should have."""

    def moved(self, reach: Float[Array, ""], successes: Array, ended: Array, number: int) -> Float[Array, ""]:
        """The reach after `successes` among `ended` episodes of `number` environments; never below its start, at most 1.

        On the average it stays where it is when `success` of the episodes succeed, however few end at a time.
        """
        change = self.pace * (successes - self.success * ended) / number
        return jnp.clip(reach + change, self.start, 1.0)
