"""What a run holds in memory and on disk, before any of it is allocated. Knows no jax."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jaxrl_long import rules
from jaxrl_long.config import Settings

SAFE = 0.9
"""Share of the free memory that a run may fill."""


@dataclass(frozen=True)
class Need:
    """Bytes of a run, over all of its devices."""

    parameters: int
    """What every device has of its own: networks, optimiser, moments, and the pool of starts."""
    environments: int
    """States of all environments."""
    ring: int
    """The latest steps, of all environments."""

    @property
    def state(self) -> int:
        """All of it."""
        return self.parameters + self.environments + self.ring


def available_host_bytes() -> int:
    """Memory that processes can still take: what the system says, within the limits of the container and of the groups that hold this process."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    return max(0, min([free, *_group_rooms(Path("/sys/fs/cgroup"), _text(Path("/proc/self/cgroup")))]))


GROUP_FILES = {"": ("memory.max", "memory.current", "inactive_file"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")}
"""Of Linux' control groups, version 2 and the memory controller of version 1: limit, use, and the part of the use that is only a cache of files."""


def _group_rooms(root: Path, membership: str) -> Iterator[int]:
    """What each control group above this process still allows; `membership` is /proc/self/cgroup's text."""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        names = GROUP_FILES.get("memory" if "memory" in controllers.split(",") else controllers)
        if names is None:
            continue
        base = root / controllers if controllers else root
        here = base / path.lstrip("/")
        for folder in [group for group in (here, *here.parents) if group == base or base in group.parents]:
            limit, used = _text(folder / names[0]).strip(), _text(folder / names[1]).strip()
            cache = next((entry.split()[1] for entry in _text(folder / "memory.stat").splitlines() if entry.startswith(names[2] + " ")), "0")
            if limit.isdigit() and used.isdigit():
                yield int(limit) - (int(used) - int(cache))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def gigabytes(size: float) -> str:
    """Bytes for people, in decimal units: `50.76 GB`, `310 MB`.

    >>> gigabytes(50_760_000_000), gigabytes(901_000)
    ('50.76 GB', '901.0 kB')
    """
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
    least, rows = step * settings.rollouts_least, settings.ring_rows * settings.num_envs
    fitting = int((limit - need.parameters - need.environments) / need.ring * rows) // step * step if need.ring else 0
    if rows > least and fitting >= least:
        return f"replay.capacity={settings.replay.capacity}: {text} Nearest: replay.capacity={fitting}."
    # With the least ring: what each environment takes of it does not depend on how many there are.
    each = (need.environments + need.ring / rows * least) / settings.num_envs
    nearest = _fitting_envs(settings, int((limit - need.parameters) / each))
    ring = f" with replay.capacity={_least_ring(settings, nearest)}" if nearest and rows > least else ""
    remedy = f"Nearest: num_envs={nearest}{ring}." if nearest else "A machine with more memory is needed."
    return f"num_envs={settings.num_envs}: {text} {remedy}"


def _least_ring(settings: Settings, num_envs: int) -> int:
    """The smallest `replay.capacity` with that many environments; PPO's own default is that already."""
    fewer = replace(settings, num_envs=num_envs)
    return fewer.samples_per_update * fewer.rollouts_least if settings.draws else 0


def _fitting_envs(settings: Settings, most: int) -> int | None:
    """The largest number of environments up to `most` that keeps the rules; None where none does. Powers of two times the devices always split."""
    least = replace(settings, replay=replace(settings.replay, capacity=0))
    step = settings.devices or 1
    near = range(most // step * step, max(0, most - 1024 * step), -step)
    halves = (step << power for power in range(20, -1, -1) if step << power <= most)
    return next((number for number in (*near, *halves) if number > 0 and not rules.broken(replace(least, num_envs=number))), None)


def transitions_for(episodes: int, horizon: int, transition_bytes: int) -> tuple[int, int]:
    """Transitions and bytes that hold that many whole episodes: 10 of 1,000,000 steps at 1 kB are 10 GB.

    >>> transitions_for(10, 1_000_000, 1000)
    (10000000, 10000000000)
    """
    return episodes * horizon, episodes * horizon * transition_bytes
