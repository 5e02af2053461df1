"""How is learnt, and from which steps."""

import math
from dataclasses import dataclass, field
from typing import Any

from jaxrl_long.config.limits import MAX_INT32
from jaxrl_long.fields import USER_CLASS, closest, setting, show

ALGORITHMS = ("ppo", "sac")
SCHEDULES = ("constant", "linear", "kl")
ACTIVATIONS = ("tanh", "relu", "swish", "elu")
CODECS = ("float32", "bfloat16", "float16", "int8", "delta")
CAST = ("float32", "bfloat16", "float16")
ROUNDED: dict[str, tuple[str, ...]] = {"obs": CODECS, "action": CODECS, "choice": CAST}
"""Fields of the ring that may be rounded, and by what. Probabilities are computed from `choice`: a scale of 255 steps is too coarse for it.
All others decide what is learnt, and stay as they are."""
BYTES = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def size_in_bytes(text: str, otherwise: str = "") -> float:
    """`500MB` as a number. Raises ValueError with the rest of a sentence that starts with the value.

    >>> size_in_bytes("4GB")
    4000000000.0
    """
    try:
        size = float(text[:-2]) * BYTES[text[-2:]]
    except (ValueError, KeyError):
        size = 0.0
    if not 0 < size < math.inf:
        raise ValueError(f"is no size. Write it as 500MB or 4GB ({', '.join(BYTES)}){otherwise}.")
    return size


def _may_be(codec: str, allowed: tuple[str, ...]) -> bool:
    """Whether a field that may be rounded by the `allowed` codecs may be by this one; one of the user's own needs a field that takes any."""
    return codec in allowed or (allowed == CODECS and codec not in CODECS)


@dataclass
class AlgorithmSettings:
    """PPO (Schulman et al. 2017, arXiv:1707.06347) or SAC (Haarnoja et al. 2018, arXiv:1812.05905)."""

    name: str = setting("ppo", choices=ALGORITHMS, own=True)
    """Learning algorithm, or `package.module:Class` of the user's own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments handed to the constructor of a class of the user's own."""
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
    save_every: float = setting(0.0, low=0, high=1e9, duration=True)
    """Time between two saves of them, in seconds or as 2h; 0: with each checkpoint. The last checkpoint of a run that ends or is stopped always
    has them; who resumes from one without them, after a crash, goes on as with save=false."""
    codec: str = "float32"
    """How observations and actions are stored: float32, bfloat16, float16, int8, delta or package.module:Class of the user's own;
    or by field, as obs:int8,action:bfloat16."""
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
        by_field, whole = {}, []
        for part in map(str.strip, self.codec.split(",")):
            name, colon, codec = map(str.strip, part.partition(":"))
            if not colon or (name not in ROUNDED and codec not in CODECS and USER_CLASS.fullmatch(part)):
                whole.append(part)
            else:
                by_field[name] = codec
        for codec in [*whole, *by_field.values()]:
            if codec not in CODECS and not USER_CLASS.fullmatch(codec):
                raise ValueError(f"names no codec: {show(codec)}. {closest(codec, CODECS)}")
        for name, codec in by_field.items():
            if not _may_be(codec, allowed := ROUNDED.get(name, ("float32",))):
                fitting = f"{name} may be {' or '.join(allowed)}" if name in ROUNDED else f"{name} decides what is learnt and is never rounded"
                raise ValueError(f"does not fit: {fitting}. Fields that may be rounded: {', '.join(ROUNDED)}.")
        if len(whole) > 1 or (whole and by_field):
            raise ValueError("is neither one codec nor a list such as obs:int8,action:bfloat16.")
        chosen = {name: whole[0] if _may_be(whole[0], allowed) else "bfloat16" for name, allowed in ROUNDED.items()} if whole else by_field
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
