"""The typed settings tree. Knows no jax: a wrong setting is refused before jax or brax is imported."""

from dataclasses import dataclass, field

from jaxrl_long.config.agents import AgentSettings, RenderSettings
from jaxrl_long.config.learning import ACTIVATIONS, ALGORITHMS, CODECS, AlgorithmSettings, ArchiveSettings, ReplaySettings, size_in_bytes
from jaxrl_long.config.limits import MAX_ENVS, MAX_INT32, MAX_STEPS, PRECISIONS
from jaxrl_long.config.watching import CheckpointSettings, EvalSettings, MlflowSettings, StopSettings, WandbSettings
from jaxrl_long.config.world import BACKENDS, SOURCES, DisturbSettings, EnvSettings, GoalSettings, RestartSettings
from jaxrl_long.fields import setting

__all__ = [
    "ACTIVATIONS",
    "ALGORITHMS",
    "ARCHIVED",
    "BACKENDS",
    "CODECS",
    "MAX_ENVS",
    "MAX_INT32",
    "MAX_STEPS",
    "PRECISIONS",
    "RING",
    "SOURCES",
    "SPEED",
    "TRACKERS",
    "AgentSettings",
    "AlgorithmSettings",
    "ArchiveSettings",
    "CheckpointSettings",
    "DisturbSettings",
    "EnvSettings",
    "EvalSettings",
    "EvaluateSettings",
    "GoalSettings",
    "MlflowSettings",
    "RenderSettings",
    "ReplaySettings",
    "RestartSettings",
    "Settings",
    "StopSettings",
    "WandbSettings",
    "size_in_bytes",
]

RING = 1_000_000
"""Transitions that an algorithm which learns from the ring alone keeps by default."""
ARCHIVED = 16
"""Rollouts that the ring holds at the least when all of them go to disk: they are fetched that many at a time."""
TRACKERS = ("wandb", "mlflow", "tensorboard")

SPEED = (
    *("env", "horizon", "num_envs", "rollout_length", "block", "devices", "precision", "deterministic"),
    *("restart", "disturb", "goals", "algorithm", "replay", "archive"),
)
"""What the time of an update depends on, besides the machine: measurements are kept under these."""


@dataclass
class Settings:
    """Everything a run is decided by."""

    env: EnvSettings = field(default_factory=EnvSettings)
    horizon: int = setting(1000, low=1, high=MAX_INT32 - 1, main=True)
    """Steps until the task itself truncates an episode."""
    steps: int = setting(4_000_000, low=1, high=MAX_STEPS, main=True)
    """Total environment steps of the run, over all environments; rounded up to whole updates."""
    num_envs: int = setting(256, low=1, high=MAX_ENVS, main=True)
    """Environments trained at once, over all devices."""
    rollout_length: int = setting(32, low=1, high=2**20, main=True)
    """Steps collected in each environment for one update."""
    seed: int = setting(0, low=0, high=2**32 - 1, main=True)
    """Decides every random draw of the run."""
    block: int = setting(0, low=0, high=MAX_ENVS)
    """Environments stepped at once on a device; 0: what fits the cache (CPU) or all of them (GPU)."""
    devices: int = setting(0, low=0, high=4096)
    """Local devices to use; 0: all GPUs, or as many CPU cores as the other settings allow."""
    chunk: int = setting(0, low=0, high=MAX_INT32)
    """Updates between two reports; 0: about 2 seconds' worth, measured once and stored with the run."""
    machine: str = setting("auto", path=True)
    """Settings of a kind of machine: cpu, gpu or a YAML file of your own. auto: the kind found here."""
    precision: str = setting("highest", choices=PRECISIONS)
    """Precision of matrix products, in jax's names."""
    deterministic: bool = False
    """Bit-equal runs on a GPU too, at some cost in speed. A CPU is always deterministic."""
    restart: RestartSettings = field(default_factory=RestartSettings)
    disturb: DisturbSettings = field(default_factory=DisturbSettings)
    goals: GoalSettings = field(default_factory=GoalSettings)
    algorithm: AlgorithmSettings = field(default_factory=AlgorithmSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    stop: StopSettings = field(default_factory=StopSettings)
    tracker: list[str] = setting(factory=list, choices=TRACKERS, own=True)
    """Where metrics go besides metrics.jsonl: one of them, several as [wandb,mlflow], package.module:Class of the user's own, or none."""
    wandb: WandbSettings = field(default_factory=WandbSettings)
    mlflow: MlflowSettings = field(default_factory=MlflowSettings)
    report: bool = True
    """Write report.html into the run's folder when the process ends."""
    run_dir: str | None = setting(None, path=True, main=True)
    """Folder of the run: created, or continued if its settings agree. null: runs/<env>-<time>-s<seed>."""
    compilation_cache: str = setting("auto", path=True)
    """Folder of compiled programs, shared between runs; auto: the user's cache folder; none: off."""

    @property
    def samples_per_update(self) -> int:
        """Environment steps of one update, over all environments."""
        return self.num_envs * self.rollout_length

    @property
    def updates(self) -> int:
        """Updates of the whole run: `steps` rounded up."""
        return -(-self.steps // self.samples_per_update)

    @property
    def total_steps(self) -> int:
        """Environment steps that the run really takes: whole updates."""
        return self.updates * self.samples_per_update

    @property
    def draws(self) -> bool:
        """Whether single steps are drawn from the ring: SAC does, PPO never, and a user's own algorithm where it is told how large the ring is."""
        name, replay = self.algorithm.name, self.replay
        return name == "sac" or (name not in ALGORITHMS and bool(replay.capacity or replay.memory))

    @property
    def ring_rows(self) -> int:
        """Steps C of each environment that the ring keeps; a multiple of the rollout length."""
        if self.replay.capacity:
            return self.replay.capacity // self.num_envs
        return self.rollouts_needed * self.rollout_length

    @property
    def rollouts_needed(self) -> int:
        """Rollouts that the ring holds by default: the least for PPO, or enough for RING transitions."""
        wanted = -(-RING // self.samples_per_update) if self.draws else 0
        return max(self.rollouts_least, wanted, ARCHIVED if self.archive.enabled else 0)

    @property
    def rollouts_least(self) -> int:
        """Rollouts that it must hold: what PPO reads, or what there has to be before SAC learns."""
        if not self.draws:
            return self.algorithm.reuse + 1
        return max(-(-self.replay.begin // self.samples_per_update), -(-(self.algorithm.n_step + 1) // self.rollout_length))

    @property
    def ring_cuts(self) -> int:
        """Latest cuts of each environment whose final observations the ring keeps: as many as there are in it, and some."""
        if not self.draws and not self.archive.enabled:
            return 0
        interval = min(self.horizon, self.restart.every or self.horizon)
        often = 3 if self.restart.random else 1
        return min(self.ring_rows, 2 + often * -(-self.ring_rows // interval))


@dataclass
class EvaluateSettings(AgentSettings):
    """What `evaluate` does with a finished or running run. Settings it shares with the run default to the run's own."""

    horizon: int = setting(1000, low=1, high=MAX_INT32 - 1, main=True, stored=True)
    """Steps for which each environment is continued."""
    window: int = setting(1000, low=1, high=MAX_INT32 - 1, main=True)
    """Steps whose summed reward is reported as `window_return`."""
    json: bool = setting(False, main=True)
    """Print the result as one line of JSON on standard output, and nothing else there."""
