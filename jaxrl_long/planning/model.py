"""From measured pieces to the wall time of a run. Knows no jax."""

from dataclasses import asdict, dataclass, field
from typing import Any

from jaxrl_long.config import Settings
from jaxrl_long.runtime.schedule import CHUNK_S

DRIFT = 0.08
"""By how much a machine may be faster or slower when the run is made than while it was measured: the worst of `benchmarks/plan_accuracy.py`."""


@dataclass(frozen=True)
class Spread:
    """A measured time in seconds: median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Median and quartiles of at least one value (linear between ranks)."""
        ranked = sorted(values)

        def at(share: float) -> float:
            place = share * (len(ranked) - 1)
            below = int(place)
            above = min(below + 1, len(ranked) - 1)
            return ranked[below] + (place - below) * (ranked[above] - ranked[below])

        return cls(at(0.5), at(0.25), at(0.75))


@dataclass(frozen=True)
class Measured:
    """What was measured on this machine, in seconds and bytes."""

    startup_s: float
    """From the process's start to a program that can be compiled: imports, settings, the world."""
    compile_s: float
    """Making the training program and its state where these very programs were compiled before, and are kept."""
    cold_compile_s: float
    """The same as it was at first here: longer, unless they had been compiled already."""
    updates: int
    """Length of the run that it was measured for, which the program knows: one of another length is compiled anew."""
    devices: int
    """That the environments are split over."""
    update: Spread
    """One update: collect, store, improve, observe."""
    learn_s: float
    """Of it: everything but collecting."""
    infer_s: float
    """Of it: the policy's decisions while collecting."""
    evaluation: Spread
    """One evaluation, its window whole."""
    evaluation_compile_s: float
    save: Spread
    """What a save holds training up: the copy to host memory."""
    final_save_s: float
    """A save that is waited for."""
    transfer_s: float
    """Reading one report; training does it while the next chunk runs."""
    checkpoint_bytes: int
    """Of one save, before it is compressed."""
    workspace_bytes: int
    """What the compiled program needs besides the state, over all devices."""
    host_bytes: int
    """Peak resident memory of a process that trains, before anything is saved; on a CPU the devices' memory is part of it."""
    rates: dict[int, float] = field(default_factory=dict)
    """Training steps/s by number of environments, around the one that was asked for."""

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> "Measured":
        """Read it back. Raises TypeError or KeyError for data of another version."""
        read: dict[str, Any] = {name: Spread(**data[name]) for name in ("update", "evaluation", "save")}
        read["rates"] = {int(number): rate for number, rate in data["rates"].items()}
        return cls(**(data | read))


@dataclass(frozen=True)
class Times:
    """Where the wall time of a run goes, in seconds."""

    startup_s: float
    compile_s: float
    train_s: float
    eval_s: float
    save_s: float

    @property
    def wall_s(self) -> float:
        """From the process's start to its exit."""
        return self.startup_s + self.compile_s + self.train_s + self.eval_s + self.save_s


def evaluations(settings: Settings) -> int:
    """How often the run is evaluated; always at its end."""
    every = settings.eval.every
    return settings.updates // every + (settings.updates % every > 0) if every else 1


def predict(settings: Settings, measured: Measured, bound: str = "median") -> Times:
    """Wall time of the whole run; `bound`: median, or low or high for the quartiles of everything that is repeated, DRIFT included."""
    update, evaluation, save = (getattr(spread, bound) for spread in (measured.update, measured.evaluation, measured.save))
    drift = {"low": 1 - DRIFT, "median": 1.0, "high": 1 + DRIFT}[bound]
    train_s, eval_s = settings.updates * update * drift, evaluations(settings) * evaluation * drift
    compile_s = measured.compile_s if settings.updates == measured.updates else max(measured.compile_s, measured.cold_compile_s)
    save_s = saves(settings, train_s + eval_s) * save + measured.final_save_s
    return Times(measured.startup_s, compile_s + measured.evaluation_compile_s, train_s, eval_s, save_s)


def saves(settings: Settings, seconds: float) -> int:
    """How often a run of that length saves before its end: by the clock, looked at between chunks, and at most once for each evaluation."""
    every = settings.checkpoint.every
    timed = int(seconds // max(every, CHUNK_S)) if every else 0
    return timed + evaluations(settings)
