"""The typed settings tree. Knows no jax: a wrong setting is refused before jax or brax is imported."""

import math
from dataclasses import dataclass, field
from typing import Any

from jaxrl_long.fields import closest, setting, show

BACKENDS = ("spring", "positional", "generalized", "mjx")
ALGORITHMS = ("ppo", "sac")
SCHEDULES = ("constant", "linear", "kl")
ACTIVATIONS = ("tanh", "relu", "swish", "elu")
CODECS = ("float32", "bfloat16", "float16", "int8", "delta")
CAST = ("float32", "bfloat16", "float16")
ROUNDED: dict[str, tuple[str, ...]] = {"obs": CODECS, "action": CODECS, "choice": CAST}
"""Fields of the ring that may be rounded, and by what. Probabilities are computed from `choice`: a scale of 255 steps is too coarse for it.
All others decide what is learnt, and stay as they are."""
RING = 1_000_000
"""Transitions that an algorithm which learns from the ring alone keeps by default."""
BYTES = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
ARCHIVED = 16
"""Rollouts that the ring holds at the least when all of them go to disk: they are fetched that many at a time."""
PRECISIONS = ("default", "high", "highest")
SOURCES = ("pool", "fresh", "archive", "rewind")
TRACKERS = ("wandb",)
WANDB_MODES = ("auto", "online", "offline")

SPEED = (
    *("env", "horizon", "num_envs", "rollout_length", "block", "devices", "precision", "deterministic"),
    *("restart", "disturb", "goals", "algorithm", "replay", "archive"),
)
"""What the time of an update depends on, besides the machine: measurements are kept under these."""

# Ages and indices on the device are int32.
MAX_INT32 = 2**31 - 1
MAX_ENVS = 2**20
MAX_STEPS = 10**15


def size_in_bytes(text: str, otherwise: str = "") -> float:
    """`500MB` as a number. Raises ValueError with the rest of a sentence that starts with the value."""
    try:
        size = float(text[:-2]) * BYTES[text[-2:]]
    except (ValueError, KeyError):
        size = 0.0
    if not 0 < size < math.inf:
        raise ValueError(f"is no size. Write it as 500MB or 4GB ({', '.join(BYTES)}){otherwise}.")
    return size


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


@dataclass
class AlgorithmSettings:
    """PPO (Schulman et al. 2017, arXiv:1707.06347) or SAC (Haarnoja et al. 2018, arXiv:1812.05905)."""

    name: str = setting("ppo", choices=ALGORITHMS)
    """Learning algorithm."""
    learning_rate: float = setting(1e-3, above=0, high=1, main=True)
    """Step size of Adam at the start of the run."""
    schedule: str = setting("linear", choices=SCHEDULES)
    """How the learning rate moves: constant, linear (to 0 at `steps`), or kl (adapted to keep `target_kl`)."""
    target_kl: float = setting(0.01, above=0, high=10, only="ppo")
    """KL divergence between policies before and after an update that the kl schedule aims at, in nats."""
    lookahead: float = setting(0.0, low=0, high=1e9)
    """Steps the agent looks ahead: discount = 1 - 1/lookahead. 0: `discount` is used as given."""
    lookahead_end: float = setting(0.0, low=0, high=1e9, only="ppo")
    """Steps it looks ahead at the end of the run, reached by equal ratios from those at its start; 0: the same throughout."""
    discount: float = setting(0.97, above=0, high=1, main=True)
    """Worth of a reward one step later."""
    trace: float = setting(0.95, low=0, high=1, only="ppo")
    """λ of GAE."""
    epochs: int = setting(4, low=1, high=1000, only="ppo")
    """Passes over the batch in each update."""
    minibatches: int = setting(16, low=1, high=2**20, main=True, only="ppo")
    """Gradient steps in each pass."""
    clip: float = setting(0.2, above=0, high=10, only="ppo")
    """How far the probability ratio may leave 1 and still be reinforced."""
    entropy: float = setting(0.01, low=0, high=100, only="ppo")
    """Weight of the entropy bonus."""
    entropy_schedule: str = setting("constant", choices=("constant", "linear"), only="ppo")
    """How that weight moves: constant, or linear (to 0 at `steps`)."""
    failure_cost: float = setting(0.0, low=0, high=1e6, only="ppo")
    """What failing costs beyond the lost future, in steps: so many times the mean absolute reward of a step."""
    average: float = setting(0.0, low=0, high=0.9999, only="ppo")
    """The policy that is evaluated and handed over is a moving average that keeps this share of itself at each update; 0: the latest."""
    value_weight: float = setting(0.5, above=0, high=1000, only="ppo")
    """Weight of the critic's loss."""
    max_grad_norm: float = setting(1.0, above=0, high=1e9)
    """Global norm to which gradients are scaled down."""
    normalize_advantage: bool = setting(True, only="ppo")
    """Centre advantages and divide them by their standard deviation, over the whole batch."""
    normalize_reward: bool = True
    """Let the critic work in standard deviations of its targets, so that rewards need no hand scaling."""
    clip_obs: float = setting(10.0, above=0, high=1e9)
    """Normalised observations are clipped to this many standard deviations."""
    policy_layers: tuple[int, ...] = setting((64, 64), low=1, high=2**15)
    """Widths of the policy's hidden layers."""
    value_layers: tuple[int, ...] = setting((128, 128), low=1, high=2**15)
    """Widths of the critic's hidden layers."""
    activation: str = setting("swish", choices=ACTIVATIONS)
    """Nonlinearity of the hidden layers."""
    reuse: int = setting(0, low=0, high=1000, only="ppo")
    """Earlier rollouts of the ring the update also learns from, with off-policy correction."""
    batch: int = setting(256, low=1, high=2**20, only="sac")
    """Transitions of a gradient step, over all devices."""
    update_ratio: float = setting(0.0625, above=0, high=100, only="sac")
    """Gradient steps for each environment step."""
    n_step: int = setting(1, low=1, high=1000, only="sac")
    """Steps whose rewards are summed before the critic is believed."""
    temperature: float = setting(0.1, above=0, high=1e6, only="sac")
    """Weight of the entropy at the start, in the critic's unit; it then tunes itself."""
    target_entropy: float = setting(1.0, low=-100, high=100, only="sac")
    """Entropy that it aims at: so many times -1 nat for each entry of a continuous action, or of the logarithm of the number of discrete ones."""
    target_rate: float = setting(0.005, above=0, high=1, only="sac")
    """Share of the way that the target critics move to the critics in each gradient step."""
    layer_norm: bool = setting(False, only="sac")
    """Normalise the critics' layers."""


@dataclass
class ReplaySettings:
    """The on-device ring of the latest steps."""

    capacity: int = setting(0, low=0, high=MAX_INT32)
    """Transitions kept, over all environments; 0: as `memory` says, or what PPO reads (reuse + 1 rollouts), or a million."""
    memory: str = ""
    """With capacity=0, as many transitions as fit into so much memory, such as 4GB; auto: into half of what is free when the run begins."""
    save: bool = True
    """Save them with each checkpoint. false: smaller and quicker checkpoints, but who resumes starts with an empty ring, fills it before
    learning from it, and does not get exactly the same run."""
    codec: str = "float32"
    """How observations and actions are stored: float32, bfloat16, float16, int8 or delta; or by field, as obs:int8,action:bfloat16."""
    begin: int = setting(10_000, low=1, high=MAX_INT32, only="sac")
    """Transitions in the ring before there is learning from it."""
    prioritise: float = setting(0.0, low=0, high=2, only="sac")
    """Draw steps in proportion to their error to this power; 0: all alike. Source: Schaul et al. 2016, arXiv:1511.05952."""
    importance: float = setting(0.4, low=0, high=1, only="sac")
    """How much of that preference is taken back by weights; 1: all of it."""
    hindsight: float = setting(0.8, low=0, high=1, only="sac")
    """Where the world has goals: share of the drawn steps whose goal becomes what was reached later. Source: Andrychowicz et al. 2017, arXiv:1707.01495."""
    hindsight_discount: float = setting(1.0, above=0, high=1, only="sac")
    """How much likelier a goal is than one reached a step later; 1: any of the episode is as likely as another."""

    def memory_bytes(self) -> float | None:
        """Bytes that `memory` allows; None where it does not say how many. Raises ValueError with the rest of a sentence that starts with the value."""
        return None if self.memory in ("", "auto") else size_in_bytes(self.memory, ", or auto")

    def codecs(self) -> dict[str, str]:
        """The codec of each field that is not exact. Raises ValueError with the rest of a sentence that starts with the value."""
        parts = [part.partition(":") for part in self.codec.split(",")]
        by_field = {name.strip(): codec.strip() for name, colon, codec in parts if colon}
        whole = [name.strip() for name, colon, _ in parts if not colon]
        for codec in [*whole, *by_field.values()]:
            if codec not in CODECS:
                raise ValueError(f"names no codec: {show(codec)}. {closest(codec, CODECS)}")
        for name, codec in by_field.items():
            if codec not in (allowed := ROUNDED.get(name, ("float32",))):
                fitting = f"{name} may be {' or '.join(allowed)}" if name in ROUNDED else f"{name} decides what is learnt and is never rounded"
                raise ValueError(f"does not fit: {fitting}. Fields that may be rounded: {', '.join(ROUNDED)}.")
        if len(whole) > 1 or (whole and by_field):
            raise ValueError("is neither one codec nor a list such as obs:int8,action:bfloat16.")
        chosen = {name: whole[0] if whole[0] in allowed else "bfloat16" for name, allowed in ROUNDED.items()} if whole else by_field
        return {name: codec for name, codec in chosen.items() if codec != "float32"}


@dataclass
class ArchiveSettings:
    """Every step of training on disk, in the run's folder `archive`; `python -m jaxrl_long.archive` looks at it."""

    enabled: bool = False
    """Keep it."""
    limit: str = ""
    """Most that it takes, such as 50GB: the oldest steps go first; empty: no limit."""
    codec: str = setting("float32", choices=CAST)
    """How observations and actions are written. Rewards and ends are never rounded."""

    share: float = setting(0.0, low=0, high=0.9, only="sac")
    """Share of each batch that is drawn from it, from before what the ring holds."""
    lend: int = setting(4096, low=1, high=2**24, only="sac")
    """Transitions that are fetched for it at a time, once for each report."""

    def limit_bytes(self) -> float:
        """`limit` in bytes, 0 for none. Raises ValueError with the rest of a sentence that starts with the value."""
        return size_in_bytes(self.limit) if self.limit else 0.0


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
    tracker: list[str] = setting(factory=list, choices=TRACKERS)
    """Where metrics go besides metrics.jsonl: wandb or none."""
    wandb: WandbSettings = field(default_factory=WandbSettings)
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
    def ring_rows(self) -> int:
        """Steps C of each environment that the ring keeps; a multiple of the rollout length."""
        if self.replay.capacity:
            return self.replay.capacity // self.num_envs
        return self.rollouts_needed * self.rollout_length

    @property
    def rollouts_needed(self) -> int:
        """Rollouts that the ring holds by default: the least for PPO, or enough for RING transitions."""
        wanted = 0 if self.algorithm.name == "ppo" else -(-RING // self.samples_per_update)
        return max(self.rollouts_least, wanted, ARCHIVED if self.archive.enabled else 0)

    @property
    def rollouts_least(self) -> int:
        """Rollouts that it must hold: what PPO reads, or what there has to be before SAC learns."""
        if self.algorithm.name == "ppo":
            return self.algorithm.reuse + 1
        return max(-(-self.replay.begin // self.samples_per_update), -(-(self.algorithm.n_step + 1) // self.rollout_length))

    @property
    def ring_cuts(self) -> int:
        """Latest cuts of each environment whose final observations the ring keeps: as many as there are in it, and some."""
        if self.algorithm.name == "ppo" and not self.archive.enabled:
            return 0
        interval = min(self.horizon, self.restart.every or self.horizon)
        often = 3 if self.restart.random else 1
        return min(self.ring_rows, 2 + often * -(-self.ring_rows // interval))


@dataclass
class EvaluateSettings:
    """What `evaluate` does with a finished or running run. Settings it shares with the run default to the run's own."""

    run: str | None = setting(None, path=True, main=True)
    """Folder of the run to evaluate."""
    checkpoint: str = setting("latest", main=True)
    """Which of its checkpoints: latest, best (by window return), or the number of an update."""
    horizon: int = setting(1000, low=1, high=MAX_INT32 - 1, main=True, stored=True)
    """Steps for which each environment is continued."""
    num_envs: int = setting(128, low=1, high=MAX_ENVS, main=True)
    """Environments evaluated at once, over all devices."""
    window: int = setting(1000, low=1, high=MAX_INT32 - 1, main=True)
    """Steps whose summed reward is reported as `window_return`."""
    seed: int = setting(0, low=0, high=2**32 - 1, main=True, stored=True)
    """Decides the starts."""
    json: bool = setting(False, main=True)
    """Print the result as one line of JSON on standard output, and nothing else there."""
    devices: int = setting(0, low=0, high=4096)
    """Local devices to use; 0: all GPUs, or as many CPU cores as divide `num_envs`."""
    env: EnvSettings = setting(factory=EnvSettings, stored=True)
    precision: str = setting("highest", choices=PRECISIONS, stored=True)
    """Precision of matrix products, in jax's names."""
    deterministic: bool = setting(False, stored=True)
    """Bit-equal results on a GPU too, at some cost in speed."""
    compilation_cache: str = setting("auto", path=True, stored=True)
    """Folder of compiled programs, shared between runs; auto: the user's cache folder; none: off."""
