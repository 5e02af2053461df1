"""What holds a run up, and what would help by how much. Knows no jax."""

from dataclasses import dataclass, replace

from jaxrl_long.config import Settings
from jaxrl_long.planning.model import Measured, Times, evaluations
from jaxrl_long.runtime.memory import SAFE, Need, gigabytes

WORTH = 1.03
"""A remedy is told when it makes the whole run faster by at least that."""


@dataclass(frozen=True)
class Remedy:
    """Something to change, and how much faster the whole run would be."""

    setting: str
    factor: float
    why: str

    def __str__(self) -> str:
        """As a line for people."""
        return f"{self.setting}: {self.factor:.2f} times as fast ({self.why})"


def shares(times: Times, measured: Measured) -> dict[str, float]:
    """Parts of the wall time: simulation, inference, learning, evaluation, compilation (with start-up), saving. They add up to 1."""
    learn, infer = measured.learn_s / measured.update.median, measured.infer_s / measured.update.median
    parts = {
        "simulation": times.train_s * (1 - learn - infer),
        "inference": times.train_s * infer,
        "learning": times.train_s * learn,
        "evaluation": times.eval_s,
        "compilation": times.compile_s + times.startup_s,
        "saving": times.save_s,
    }
    return {name: seconds / times.wall_s for name, seconds in parts.items()}


def bottleneck(parts: dict[str, float]) -> str:
    """The largest part."""
    return max(parts, key=lambda name: parts[name])


def remedies(settings: Settings, measured: Measured, times: Times) -> list[Remedy]:
    """What would help, the most effective first; each by itself, everything else as it is."""
    parts = shares(times, measured)
    found = [
        *_more_environments(settings, measured, times),
        *_less_learning(settings, parts),
        *_rarer_evaluation(settings, measured, times),
        Remedy("twice the devices", 1 / (1 - (parts["simulation"] + parts["inference"]) / 2), "simulation and inference are split over them"),
    ]
    return sorted((remedy for remedy in found if remedy.factor >= WORTH), key=lambda remedy: -remedy.factor)


def _more_environments(settings: Settings, measured: Measured, times: Times) -> list[Remedy]:
    here = measured.rates.get(settings.num_envs)
    better = [(rate / here, number) for number, rate in measured.rates.items() if here and number != settings.num_envs]
    if not better:
        return []
    factor, number = max(better)
    whole = times.wall_s / (times.wall_s - times.train_s + times.train_s / factor)
    return [Remedy(f"num_envs={number}", whole, f"measured: {measured.rates[number]:,.0f} steps/s; other updates, so learning may differ")]


def _less_learning(settings: Settings, parts: dict[str, float]) -> list[Remedy]:
    why = "learns less from each step"
    if settings.algorithm.name == "sac":
        return [Remedy(f"algorithm.update_ratio={settings.algorithm.update_ratio / 2:g}", 1 / (1 - parts["learning"] / 2), why)]
    epochs = settings.algorithm.epochs
    if settings.algorithm.name != "ppo" or epochs < 2:
        return []
    saved = parts["learning"] * (epochs - epochs // 2) / epochs
    return [Remedy(f"algorithm.epochs={epochs // 2}", 1 / (1 - saved), why)]


def _rarer_evaluation(settings: Settings, measured: Measured, times: Times) -> list[Remedy]:
    every = 2 * settings.eval.every
    rarer = replace(settings, eval=replace(settings.eval, every=every))
    fewer = evaluations(rarer)
    if not every or fewer == evaluations(settings):
        return []
    saved = (evaluations(settings) - fewer) * measured.evaluation.median
    return [Remedy(f"eval.every={every}", times.wall_s / (times.wall_s - saved), f"{fewer} evaluations instead of {evaluations(settings)}")]


def memory_advice(settings: Settings, need: Need, workspace: int, room: int) -> list[str]:
    """What to do about a run that fills much of the memory; empty where it does not."""
    if need.state + workspace > SAFE * room:
        over = f"{gigabytes(need.state)} of state and {gigabytes(workspace)} of workspace"
        return [f"Memory-bound: {over} are more than {SAFE:.0%} of the {gigabytes(room)} that are free. Fewer num_envs, or a shorter rollout_length."]
    if need.state < SAFE / 2 * room or need.ring < need.state / 2:
        return []
    if settings.replay.codec == "float32":
        return ["Most of the memory is the ring: replay.codec=bfloat16 halves its observations and actions."]
    return ["Most of the memory is the ring: a smaller replay.capacity is the only way left."]
