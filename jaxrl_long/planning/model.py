"""From measured pieces to the wall time of a run. Knows no jax."""

from dataclasses import asdict, dataclass, field
from typing import Any

from jaxrl_long.config import Settings


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
    """Compiling the training program and building its state, with the compiled programs of before at hand if they are kept."""
    cold_compile_s: float
    """The same where nothing had been compiled before; equal to `compile_s` if it was not so here."""
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
    """Reading one report."""
    checkpoint_bytes: int
    state_bytes: int
    """Of the train state, over all devices."""
    workspace_bytes: int
    """What the compiled program needs besides, over all devices."""
    host_bytes: int
    """Peak resident memory of the measuring process, without what is the devices' own."""
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
    """Wall time of the whole run; `bound`: median, or low or high for the quartiles of everything that is repeated."""
    update, evaluation, save = (getattr(spread, bound) for spread in (measured.update, measured.evaluation, measured.save))
    train_s = settings.updates * update
    eval_s = evaluations(settings) * evaluation + measured.evaluation_compile_s
    saves = int((train_s + eval_s) // settings.checkpoint.every) if settings.checkpoint.every else 0
    return Times(measured.startup_s, measured.compile_s, train_s, eval_s, saves * save + measured.final_save_s)
