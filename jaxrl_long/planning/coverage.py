"""How much of its horizon a run will see: environments live their steps one after the other, however many there are. Knows no jax."""

from dataclasses import dataclass

from jaxrl_long.config import RestartSettings


@dataclass(frozen=True)
class Coverage:
    """What the steps of a run mean for each of its environments."""

    lived: int
    """Steps that each environment lives, restarts included."""
    horizon: int
    share: float
    """The same as a share of the horizon."""
    oldest: int
    """The greatest age that training reaches (with random restarts: their mean): an episode lasts to a restart or the horizon."""
    episodes: int
    """Whole horizons that all environments together live through, if nothing restarts before."""
    floor_s: float
    """Seconds that one episode of the horizon's length takes: the environment's steps follow each other."""
    covering_steps: int
    """Environment steps of a run in which every environment lives the horizon once."""

    @property
    def small(self) -> bool:
        """Training never sees most of the horizon."""
        return self.oldest < self.horizon / 2


def coverage(env_steps: int, num_envs: int, horizon: int, restart_every: int, steps_per_s: float) -> Coverage:
    """What `env_steps` over `num_envs` environments see of `horizon`, with training restarts every `restart_every` steps (0: none).

    lived = S / N        floor = horizon × N / (steps/s)

    >>> seen = coverage(100_000_000, 256, 1_000_000, restart_every=1000, steps_per_s=32_000)
    >>> seen.lived, round(seen.share, 3), seen.oldest, seen.floor_s / 3600
    (390625, 0.391, 1000, 2.2222222222222223)
    """
    lived = max(1, env_steps // num_envs)
    oldest = min(lived, horizon, restart_every or horizon)
    return Coverage(
        lived=lived,
        horizon=horizon,
        share=lived / horizon,
        oldest=oldest,
        episodes=num_envs * (lived // horizon),
        floor_s=horizon * num_envs / steps_per_s,
        covering_steps=horizon * num_envs,
    )


def advice(seen: Coverage, num_envs: int, restart: RestartSettings) -> list[str]:
    """What a user should know, and could change, about a run that sees little of its horizon; empty where it sees it all."""
    if not seen.small:
        return []
    horizon = seen.horizon
    ages = f"ages {'of about' if restart.random else 'up to'} {seen.oldest:,} of {horizon:,} steps ({seen.oldest / horizon:.1%})"
    said = [f"Training sees {ages}: the rest is extrapolated, so look at it with `evaluate`."]
    if restart.oldest and restart.oldest < min(seen.lived, horizon):
        there = "about there" if restart.random else "there"
        live = f"lets them live {min(seen.lived, horizon):,} steps"
        said.append(f"restart.every={restart.every} cuts training episodes {there}; restart.every=0 {live}, restart.source=archive some of them.")
    if seen.share < 1:
        fewer = int(num_envs * seen.share)
        instead = f", or num_envs={fewer} with the same steps" if fewer else ""
        said.append(f"To live the whole horizon once: steps={seen.covering_steps}{instead}.")
    return said
