"""Which updates a run reports, evaluates and ends at: a function of settings alone, so that a resumed run keeps to it."""

from dataclasses import dataclass

CHUNK_S = 2.0
"""Seconds of training between reports with `chunk=0`."""
FIRST = 2
"""Updates of the first chunk with `chunk=0`, from which the others' size is measured."""
LONGEST_S = 8.0
"""A dispatch stays under about 10 s, after which CPU devices that wait for each other are at risk."""


@dataclass
class Schedule:
    """Boundaries between chunks, in updates.

    >>> schedule, ends = Schedule(chunk=20, eval_every=50, total=120), [0]
    >>> while ends[-1] < schedule.total:
    ...     ends.append(schedule.next(ends[-1]))
    >>> ends
    [0, 20, 40, 50, 60, 80, 100, 120]
    >>> [end for end in ends if schedule.evaluates(end)]
    [0, 50, 100, 120]
    """

    chunk: int
    """Updates between reports; 0: not measured yet."""
    eval_every: int
    """Updates between evaluations; 0: only at the end."""
    total: int
    grid: int = 2**31
    """No chunk goes on across multiples of so many updates."""

    def next(self, update: int) -> int:
        """The update at which the chunk that starts at `update` ends."""
        if not self.chunk:
            return min(update + FIRST, self.total, (update // self.grid + 1) * self.grid)
        ends = [self.total, (update // self.chunk + 1) * self.chunk, (update // self.grid + 1) * self.grid]
        return min([*ends, (update // self.eval_every + 1) * self.eval_every] if self.eval_every else ends)

    def evaluates(self, update: int) -> bool:
        """Whether an evaluation belongs to this update; always at the end."""
        return update == self.total or bool(self.eval_every and update % self.eval_every == 0)

    def measured(self, update_s: float) -> None:
        """Set the chunk's size from the time of one update, unless it is set."""
        if not self.chunk:
            self.chunk = max(1, round(CHUNK_S / max(update_s, 1e-6)))
