"""Which world is trained in, and how: restarts, disturbances, goals."""

from dataclasses import dataclass, field
from typing import Any

from jaxrl_long.config.limits import MAX_INT32
from jaxrl_long.fields import setting

BACKENDS = ("spring", "positional", "generalized", "mjx")
SOURCES = ("pool", "fresh", "archive", "rewind")


@dataclass
class EnvSettings:
    """Which world, and how it is run."""

    name: str = setting("ant", main=True)
    """Registered name, or `package.module:Class` of a user's own Simulator."""
    backend: str = setting("auto", choices=("auto", *BACKENDS), main=True)
    """Physics of a Brax task. auto: the task's own tuned one."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments handed to the environment's constructor."""
    stack: int = setting(1, low=1, high=1000)
    """Latest observations that the agent sees at once, for worlds that show too little of themselves in one."""
    floating_origin: bool = True
    """Keep translation-invariant tasks near the origin, where float32 has decimals. No effect on other tasks."""


@dataclass
class RestartSettings:
    """When *training* episodes are cut, apart from the task's horizon. A cut is a truncation: its value is bootstrapped."""

    every: int = setting(1000, low=0, high=MAX_INT32 - 1)
    """Steps between training restarts; 0: only at the horizon."""
    random: bool = False
    """Draw each interval at random (geometric with mean `every`) instead of a fixed one."""
    stagger: bool = True
    """Draw the environments' first ages at random, so that they do not restart in step."""
    pool: int = setting(64, low=1, high=2**16)
    """Start states kept ready; a restart takes one of them."""
    renew: int = setting(8, low=0, high=2**16)
    """How many of them are redrawn at each update. 0: none, ever."""
    source: str = setting("pool", choices=SOURCES)
    """Where episodes go on: from the pool, from a fresh draw each time, or (a share of them) from a moment that the episode has
    been through: `archive` whatever ended it, `rewind` where it failed."""
    share: float = setting(0.5, low=0, high=1)
    """Share of these ends that go back to an earlier moment."""
    keep: int = setting(8, low=1, high=2**16)
    """Moments kept of each environment."""
    spacing: int = setting(0, low=0, high=MAX_INT32 - 1)
    """Steps between two of them, a multiple of `rollout_length`; 0: one rollout."""

    @property
    def oldest(self) -> int:
        """The age that no training episode outlives; 0: the horizon. What goes on from an archive may grow older than `every`."""
        return 0 if self.source == "archive" else self.every


@dataclass
class DisturbSettings:
    """What disturbs the world in *training*; evaluation is never disturbed."""

    push: float = setting(0.0, low=0, high=1e3)
    """Standard deviation of sudden changes of the body's speed along each axis of the ground, in m/s; 0: none."""
    push_every: int = setting(200, low=1, high=MAX_INT32)
    """Mean number of steps between two of them."""
    observation: float = setting(0.0, low=0, high=1e3)
    """Standard deviation of noise on every observed number, in its own unit."""
    action: float = setting(0.0, low=0, high=10)
    """Standard deviation of noise on every action, whose range is -1 to 1."""
    mass: float = setting(0.0, low=0, high=0.9)
    """Each episode's masses are multiplied by one number in 1 ± this."""
    friction: float = setting(0.0, low=0, high=0.9)
    """Each episode's friction is multiplied by one number in 1 ± this."""


@dataclass
class GoalSettings:
    """How *training* meets goals that are seldom reached by chance; evaluation has them as they are. Only for worlds with goals."""

    curriculum: float = setting(0.0, low=0, high=0.99)
    """Share of the episodes that shall succeed: goals are nearer while fewer do, and farther while more do; 0: as far as usual."""
    start: float = setting(0.1, above=0, high=1)
    """How far they are at first, as a share of how far they usually are, and at the least."""
    pace: float = setting(0.05, above=0, high=1)
    """How much that share moves once every environment has ended one successful episode more than it should have."""
    shaping: float = setting(0.0, low=0, high=1e6)
    """Pay for coming nearer, so much for each unit of distance, in a way that does not change which policy is best. Source: Ng et al. 1999."""
