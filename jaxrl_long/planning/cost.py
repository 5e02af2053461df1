"""What hours cost, and what it takes to stay within a number of hours or dollars. Knows no jax."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jaxrl_long.fields import ConfigError, show
from jaxrl_long.rules import CONFIGS

CATALOGUE = CONFIGS / "prices.yaml"


@dataclass(frozen=True)
class Price:
    """What the machine costs."""

    usd_per_hour: float
    """Of the whole machine as it is used."""
    source: str
    """Where the price comes from."""


@dataclass(frozen=True)
class Need:
    """What a target asks for."""

    steps_per_s: float
    """Training steps/s with which it is met."""
    devices: int | None
    """That many of the devices used here, if each adds as much; None where no number of them would do."""
    why_not: str = ""
    """The reason, where none would."""


def read_prices(path: str | Path = CATALOGUE) -> dict[str, Any]:
    """The catalogue: `date`, and a table of `devices`. Raises ConfigError for a file that is none."""
    try:
        plain = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        devices = plain["devices"]
        bad = [name for name, row in devices.items() if not 0 <= float(row["usd_per_hour"]) < math.inf]
    except FileNotFoundError:
        raise ConfigError([f"prices={path}: no such file."]) from None
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        example = "date: 2026-06 / devices: / T4: {usd_per_hour: 0.53, source: a bill}"
        raise ConfigError([f"prices={path} is no catalogue of prices ({type(error).__name__}: {error}). Write: {example}"]) from None
    if bad:
        raise ConfigError([f"prices={path}: usd_per_hour of {bad[0]} is {show(devices[bad[0]]['usd_per_hour'])}, not a number of 0 or more."])
    return plain


def price(catalogue: Mapping[str, Any], device: str, number: int, asked: float | None = None) -> Price | None:
    """The price of `number` devices (CPU: cores) called `device` as jax or the system calls it; None if nothing like it is listed.

    `asked` is the user's own price of the whole machine, and wins.
    """
    if asked is not None:
        return Price(asked, "price=")
    rows = catalogue["devices"]
    # The longest name first: `A100 80GB` is more than `A100`.
    name = next((name for name in sorted(rows, key=lambda name: -len(_words(name))) if _words(name) <= _words(device)), None)
    if name is None:
        return None
    unit = "core" if rows[name].get("per") == "core" else name
    each = float(rows[name]["usd_per_hour"])
    return Price(each * number, f"{number} x {each:g} USD per {unit} and hour, {catalogue.get('date', 'no date')}: {rows[name].get('source', 'no source')}")


def _words(name: Any) -> set[str]:
    return set(str(name).lower().replace("-", " ").split())


def cost_usd(wall_s: float, usd_per_hour: float) -> float:
    """What `wall_s` seconds cost.

    >>> cost_usd(5400, 2.0)
    3.0
    """
    return wall_s / 3600 * usd_per_hour


def for_hours(env_steps: float, hours: float, steps_per_s: float, devices: int, overhead_s: float = 0.0) -> Need:
    """What it takes to be done in `hours`, when `devices` of them train `steps_per_s` together; `overhead_s` is no training and stays.

    >>> for_hours(360e6, 10, steps_per_s=4000, devices=2)
    Need(steps_per_s=10000.0, devices=5, why_not='')
    """
    training_s = hours * 3600 - overhead_s
    if training_s <= 0:
        return Need(math.inf, None, f"start-up, evaluation and saving alone take {overhead_s / 3600:.2g} h")
    needed = env_steps / training_s
    return Need(needed, math.ceil(devices * needed / steps_per_s))


def for_cost(env_steps: float, usd: float, steps_per_s: float, usd_per_hour: float, devices: int, overhead_s: float = 0.0) -> Need:
    """What it takes to cost no more than `usd` on this machine, which costs `usd_per_hour` and trains `steps_per_s`.

    More devices cost as much more as they are faster, so they help only where they are cheap for their speed.
    """
    if not usd_per_hour:
        return Need(0.0, devices)
    need = for_hours(env_steps, usd / usd_per_hour, steps_per_s, devices, overhead_s)
    if need.devices is not None and need.devices <= devices:
        return Need(need.steps_per_s, devices)
    return Need(need.steps_per_s, None, need.why_not or "more of these devices cost as much more as they are faster: it takes cheaper or faster ones")
