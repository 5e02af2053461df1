"""How a run is watched, saved and ended."""

from dataclasses import dataclass

from jaxrl_long.config.limits import MAX_ENVS, MAX_INT32, MAX_STEPS
from jaxrl_long.fields import setting

WANDB_MODES = ("auto", "online", "offline")


@dataclass
class EvalSettings:
    """Evaluation on its own environments and seeds."""

    every: int = setting(50, low=0, high=MAX_STEPS)
    """Updates between evaluations; 0: only at the end."""
    num_envs: int = setting(64, low=1, high=MAX_ENVS)
    """Environments evaluated at once, over all devices."""
    window: int = setting(1000, low=1, high=MAX_INT32 - 1)
    """Steps whose summed reward is reported as `window_return`."""
    lasting: bool = False
    """Beside it, let environments live on from one evaluation to the next, `window` steps each time: how often do agents fail at any age?"""
    video: int = setting(0, low=0, high=MAX_STEPS)
    """Evaluations between two videos of the agent, for the run's `pictures` and its trackers; 0: none. A process beside training makes them."""


@dataclass
class CheckpointSettings:
    """When the whole state is saved."""

    every: float = setting(300.0, low=0, high=1e9, duration=True)
    """Time between saves, in seconds or as 10m; 0: only at the end or when stopped. A new best evaluation is saved besides."""
    keep: int = setting(2, low=1, high=1000)
    """Latest checkpoints kept; the one with the best evaluation is kept besides."""
    best: str = setting("return", choices=("return", "endurance"))
    """Which one that is: by `window_return`, or by how seldom the environments fail that live on (the latest of equals; needs `eval.lasting`)."""


@dataclass
class StopSettings:
    """What ends a run before its steps are done; it saves first, and goes on when asked to with other limits."""

    after: float = setting(0.0, low=0, high=1e9, duration=True)
    """Wall time of the whole run, over all of its processes, in seconds or as 8h; 0: no limit."""
    cost: float = setting(0.0, low=0, high=1e9)
    """USD that the whole run may cost at `stop.price`; 0: no limit."""
    price: float = setting(0.0, low=0, high=1e6)
    """USD per hour of this machine."""
    reward_per_step: float | None = setting(None)
    """Tripwire: end the run (exit code 1) when this metric has been at least that and then stays below; null: off."""
    steps_between_failures: float = setting(0.0, low=0, high=1e15)
    """Tripwire: end the run (exit code 1) when agents have lasted at least that long and then fail more often; 0: off."""
    patience: int = setting(5, low=1, high=10**6)
    """Reports in a row that a tripwire waits for."""
    broken: int = setting(10, low=0, high=10**6)
    """Reports in a row with too many non-finite numbers (over 1 in 1000 steps, or half of the gradients) that end the run (exit code 1); 0: never."""


@dataclass
class WandbSettings:
    """Weights & Biases, used with `tracker=wandb`."""

    project: str = "jaxrl_long"
    """Project the run is filed under."""
    entity: str | None = None
    """User or team; null: the one logged in."""
    group: str | None = None
    """Name under which several runs are shown together."""
    mode: str = setting("auto", choices=WANDB_MODES)
    """auto: online when logged in, otherwise offline."""


@dataclass
class MlflowSettings:
    """MLflow, used with `tracker=mlflow`."""

    uri: str = setting("auto", path=True)
    """Database or server: sqlite:///FILE, postgresql://USER@HOST/NAME, http://HOST:PORT. auto: MLFLOW_TRACKING_URI, else mlflow.db beside the run's folder."""
    experiment: str = "jaxrl_long"
    """Experiment the run is filed under; made when it does not exist."""
