"""What `plan` can be asked. Knows no jax."""

from dataclasses import dataclass, field, fields

from jaxrl_long.config import Settings
from jaxrl_long.fields import setting
from jaxrl_long.planning.calculator import GUESS_S


@dataclass
class TargetSettings:
    """What the run may take; the plan then says what it would need."""

    hours: float = setting(0.0, low=0, high=1e6)
    """Hours of wall time; 0: no target."""
    cost: float = setting(0.0, low=0, high=1e9)
    """USD; 0: no target."""


@dataclass
class TuneSettings:
    """A search for the settings with the highest training steps/s on this machine."""

    enabled: bool = False
    """Search num_envs, rollout_length, algorithm.minibatches and block; takes minutes."""
    preset: str = setting("tuned.yaml", path=True)
    """File to write what was found to, for `machine=tuned.yaml`; it must not exist yet."""
    check: bool = False
    """Train with both settings, 3 seeds each, and compare the return per minute; takes six runs."""


@dataclass
class PlanSettings(Settings):
    """The settings of the run that is planned, and what is asked about it."""

    json: bool = setting(False, main=True)
    """Print the plan as one line of JSON on standard output, and nothing else there."""
    refresh: bool = setting(False, main=True)
    """Measure again, whatever was measured before."""
    price: float | None = setting(None, low=0, high=1e6, main=True)
    """USD that an hour of the whole machine costs; null: from the catalogue, by the device found."""
    prices: str = setting("auto", path=True)
    """Catalogue of prices: a YAML file like configs/prices.yaml; auto: that one."""
    target: TargetSettings = field(default_factory=TargetSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)

    @property
    def training(self) -> Settings:
        """The run's own settings."""
        return Settings(**{item.name: getattr(self, item.name) for item in fields(Settings)})


@dataclass
class CalculatorSettings:
    """The usual estimate of a run's length."""

    t: float = setting(100.0, low=1, high=1000, main=True)
    """Total training steps, over all environments, in millions."""
    n: int = setting(100, low=1, high=10_000, main=True)
    """Parallel environments."""
    s: int = setting(1000, low=1, high=100_000, main=True)
    """Steps of each environment in a rollout."""
    rollout_s: float = setting(GUESS_S, above=0, high=1e6, main=True)
    """Seconds that a rollout takes; 5 is the usual guess, put a measured number here."""
    json: bool = setting(False, main=True)
    """Print the result as one line of JSON."""
