"""How rules between settings are declared and asked, what they know of environments, and the values that stand for `auto`.

A rule names the settings that it reads, so that it is left out when one of them is already known to be wrong.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from jaxrl_long import machine
from jaxrl_long.config import AgentSettings, Settings

CONFIGS = Path(str(files("jaxrl_long") / "configs"))
"""Folder of the YAML files that travel with the package."""


@dataclass(frozen=True)
class EnvFacts:
    """What the rules know about a registered environment: a row of configs/environments.yaml."""

    obs_size: int
    """Features O of the observation."""
    action_size: int | None = None
    """Size A of a continuous action."""
    num_actions: int | None = None
    """Number of discrete actions."""
    backends: tuple[str, ...] = ()
    """Supported physics; the first one is what `auto` means."""
    max_steps: int | None = None
    """A time limit within the world that can't be switched off."""
    translation_invariant: bool = False
    """Whether the floating origin applies."""
    goals: bool = False
    """Whether every episode has a goal of its own, for hindsight."""


@functools.cache
def environments() -> dict[str, EnvFacts]:
    """The registered environments by name."""
    table = yaml.safe_load((CONFIGS / "environments.yaml").read_text(encoding="utf-8"))
    return {name: EnvFacts(**row | {"backends": tuple(row.get("backends", ()))}) for name, row in table.items()}


Rule = Callable[[Any], Iterator[str]]
RULES: list[tuple[tuple[type, ...], tuple[str, ...], Rule]] = []
"""Which trees a rule is for, the settings it reads, and the rule itself."""


def rule(*reads: str, trees: tuple[type, ...] = (Settings,)) -> Callable[[Rule], Rule]:
    """Register a rule: a function of a settings tree that yields what is wrong, each with values that work."""

    def register(check: Rule) -> Rule:
        RULES.append((trees, reads, check))
        return check

    return register


def broken(settings: Any, bad: Collection[str] = ()) -> list[str]:
    """What the rules between settings find wrong; rules that read one of the `bad` settings are left out."""
    checks = [check for trees, reads, check in RULES if isinstance(settings, trees) and not set(reads) & set(bad)]
    return [problem for check in checks for problem in check(settings)]


def resolve(settings: Any) -> Any:
    """Settings that keep the rules, with what `auto` stands for: the environment's backend, and the devices on a CPU."""
    if not isinstance(settings, Settings | AgentSettings):
        return settings
    facts = environments().get(settings.env.name)
    if settings.env.backend == "auto" and facts and facts.backends:
        settings = replace(settings, env=replace(settings.env, backend=facts.backends[0]))
    if settings.devices == 0 and machine.find_machine() == "cpu":
        fitting = (replace(settings, devices=devices) for devices in range(machine.usable_cores(), 1, -1))
        settings = next((candidate for candidate in fitting if not broken(candidate)), replace(settings, devices=1))
    return settings


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, smallest first."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def nearest_divisors(number: int, wanted: int) -> str:
    """The divisors of `number` on both sides of `wanted`: `25 or 50`.

    >>> nearest_divisors(100, 32)
    '25 or 50'
    """
    known = divisors(number)
    below, above = [d for d in known if d < wanted], [d for d in known if d > wanted]
    return " or ".join(str(d) for d in [*below[-1:], *above[:1]])


def nearest_multiples(step: int, wanted: int, high: int, low: int = 1) -> str:
    """The multiples of `step` on both sides of `wanted`, from `low` to `high`: `96 or 128`; empty when there are none.

    >>> nearest_multiples(32, 100, high=1000)
    '96 or 128'
    """
    first, below = -(-low // step) * step, wanted // step * step
    near = sorted({max(first, below), max(first, below + step)})
    return " or ".join(str(number) for number in near if number <= high)
