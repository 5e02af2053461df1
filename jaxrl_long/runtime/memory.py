"""What a run holds in memory and on disk, before any of it is allocated. Knows no jax."""

import os
from dataclasses import dataclass
from pathlib import Path

from jaxrl_long.config import Settings

SAFE = 0.9
"""Share of the free memory that a run may fill."""


@dataclass(frozen=True)
class Need:
    """Bytes of a run."""

    parameters: int
    """Learner: networks, optimiser, moments; on every device."""
    environments: int
    """States of all environments, and the pool of starts."""
    ring: int
    """The latest steps, of all environments."""

    @property
    def state(self) -> int:
        """All of it."""
        return self.parameters + self.environments + self.ring


def available_host_bytes() -> int:
    """Memory that processes can still take: what the system says, within the container's limit."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _text("/sys/fs/cgroup/memory.max").strip(), _text("/sys/fs/cgroup/memory.current").strip()
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def gigabytes(size: float) -> str:
    """Bytes for people, in decimal units: `50.76 GB`, `310 MB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def refusal(settings: Settings, need: Need, room: int) -> str | None:
    """Why a run that needs this much can't be made within `room` bytes, with what would fit; None if it can."""
    limit = int(SAFE * room)
    if need.state <= limit:
        return None
    text = f"the run's state takes {gigabytes(need.state)}, of which the ring {gigabytes(need.ring)}, but {gigabytes(room)} are free ({SAFE:.0%} may be used)."
    step = settings.samples_per_update
    least, rows = step * (settings.algorithm.reuse + 1), settings.ring_rows * settings.num_envs
    fitting = int((limit - need.parameters - need.environments) / need.ring * rows) // step * step if need.ring else 0
    if settings.replay.capacity and fitting >= least:
        return f"replay.capacity={settings.replay.capacity}: {text} Nearest: replay.capacity={fitting}."
    each = (need.environments + need.ring) / settings.num_envs
    envs = int((limit - need.parameters) / each) if limit > need.parameters else 0
    step = settings.devices or 1
    return f"num_envs={settings.num_envs}: {text} " + (f"Nearest: num_envs={envs // step * step}." if envs >= step else "A machine with more memory is needed.")


def transitions_for(episodes: int, horizon: int, transition_bytes: int) -> tuple[int, int]:
    """Transitions and bytes that hold that many whole episodes: 10 of 1,000,000 steps at 1 kB are 10 GB."""
    return episodes * horizon, episodes * horizon * transition_bytes
