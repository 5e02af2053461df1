"""The usual estimate of a run's length, as a formula whose one guess, the seconds of a rollout, can be replaced by a measurement."""

from dataclasses import dataclass

GUESS_S = 5.0
"""Seconds that the usual estimate takes for a rollout."""


@dataclass(frozen=True)
class Estimate:
    """What the formula gives."""

    env_steps: float
    """Environment steps of the whole run."""
    steps_per_s: float
    """Environment steps in a second, over all environments."""
    wall_s: float
    """Seconds that the run takes."""

    @property
    def hours(self) -> float:
        """The same in hours."""
        return self.wall_s / 3600


def estimate(env_steps: float, num_envs: int, rollout_length: int, rollout_s: float = GUESS_S) -> Estimate:
    """Wall time of `env_steps` when `num_envs` environments take `rollout_length` steps each in `rollout_s` seconds.

        steps/s = num_envs × rollout_length / rollout_s        wall = env_steps / (steps/s)

    `env_steps` counts the steps of all environments together. Raises ValueError for a number that is not above 0.

    >>> estimate(100e6, num_envs=100, rollout_length=1000).wall_s
    5000.0
    """
    if min(env_steps, num_envs, rollout_length, rollout_s) <= 0:
        message = f"env_steps={env_steps}, num_envs={num_envs}, rollout_length={rollout_length} and rollout_s={rollout_s} must be above 0."
        raise ValueError(message)
    steps_per_s = num_envs * rollout_length / rollout_s
    return Estimate(env_steps, steps_per_s, env_steps / steps_per_s)
