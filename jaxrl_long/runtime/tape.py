"""A recording: what one copy of a world did step by step, and how all copies fared. Everything that pictures are drawn from; knows no jax."""

import json
import math
import os
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_long.fields import RunError


@dataclass(frozen=True)
class Facts:
    """What a recording is of."""

    env: str
    dt: float
    """Seconds in a step."""
    update: int
    seed: int
    shown: int
    """Number of the copy that was recorded step by step."""
    first: int
    """Its age, in steps, at the first of them."""
    asked: int
    """The age that was asked for; more than `first` where no copy got there."""
    failed: int | None
    """The age at which it failed; None: it was alive to the end."""
    alive: int
    """How many copies are alive at the end."""


@dataclass(frozen=True)
class Tape:
    """The recording; times are [S] steps of one copy or [P] moments of all E copies."""

    facts: Facts
    age: np.ndarray
    """Steps [P] at which the copies were looked at."""
    score: np.ndarray
    """Reward of each up to then [P, E]; one that failed keeps what it had."""
    life: np.ndarray
    """Steps that each had lived [P, E]."""
    path: np.ndarray | None = None
    """Where they truly were [P, E, 3] in m, float64; not a number once they had failed. None: the world has no places."""
    goal: np.ndarray | None = None
    """The place that each was to reach [E, 2] in m; None: none."""
    walls: np.ndarray | None = None
    """A floor plan [rows, columns] of 1 m squares; None: open ground."""
    cell: np.ndarray | None = None
    """Which cell of the floating origin the copy that is shown was in [S, 2]."""
    q: np.ndarray | None = None
    """Its joint coordinates [S, Q], within the cell."""
    pos: np.ndarray | None = None
    rot: np.ndarray | None = None
    """Its links' positions [S, L, 3] within the cell, and rotations [S, L, 4]."""
    model: np.ndarray | None = None
    """The bodies, as MuJoCo writes them: bytes. None: nothing that could be drawn."""
    axes: np.ndarray | None = None
    """Axes along which the world looks everywhere the same; its first joint coordinates."""


@dataclass(frozen=True)
class Timing:
    """Which steps are shown, and how fast."""

    stride: int
    """Steps from one picture to the next."""
    fps: float

    @classmethod
    def of(cls, dt: float, most: int) -> "Timing":
        """In real time, with at most `most` pictures a second, for steps of `dt` seconds."""
        stride = max(1, math.ceil(1.0 / (most * dt) - 1e-9))
        return cls(stride, 1.0 / (stride * dt))

    def pictures(self, steps: int) -> int:
        """How many show so many steps."""
        return -(-steps // self.stride)


def save(tape: Tape, path: Path) -> None:
    """Write it, whole or not at all."""
    arrays = {item.name: getattr(tape, item.name) for item in fields(tape) if item.name != "facts" and getattr(tape, item.name) is not None}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, facts=np.array(json.dumps(vars(tape.facts))), **arrays)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: Path) -> Tape:
    """Read it. Raises RunError where the file is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
        return Tape(Facts(**json.loads(str(arrays.pop("facts")))), **arrays)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} is no recording that can be read: {error}. Remove it, and it is made anew.") from None
