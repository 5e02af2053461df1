"""A plan, put together from what was measured: as numbers for programs and as a page for people. Knows no jax."""

import datetime
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from jaxrl_long import machine
from jaxrl_long.config import Settings
from jaxrl_long.fields import show
from jaxrl_long.planning import calculator, cost, coverage, diagnosis
from jaxrl_long.planning.cache import Known
from jaxrl_long.planning.model import Times, evaluations, predict, saves
from jaxrl_long.planning.settings import PlanSettings
from jaxrl_long.runtime import memory

PARTS = {"parameters": "parameter", "environments": "environment", "ring": "ring", "workspace": "workspace"}
"""What device memory is for."""


def duration(seconds: float) -> str:
    """Seconds for people: `34 s`, `3.9 min`, `27.8 h`, `12.4 d`.

    >>> [duration(seconds) for seconds in (34, 234, 100_000, 1_071_360)]
    ['34 s', '3.9 min', '27.8 h', '12.4 d']
    """
    for unit, scale, least in (("d", 86400, 3 * 86400), ("h", 3600, 2 * 3600), ("min", 60, 100)):
        if seconds >= least:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds:.0f} s"


def announced(settings: Settings, known: Known | None) -> Iterator[str]:
    """What `train` says before it starts."""
    seen = coverage.coverage(settings.total_steps, settings.num_envs, settings.horizon, settings.restart.oldest, 1.0)
    yield from (f"note: {line}" for line in coverage.advice(seen, settings.num_envs, settings.restart)[:1])
    if known is None:
        yield "plan: these settings were not measured here yet, so the time left follows the first report. `python -m jaxrl_long.plan` measures first."
        return
    times, low, high = (predict(settings, known.measured, bound).wall_s for bound in ("median", "low", "high"))
    when = datetime.datetime.fromtimestamp(known.time_s).astimezone().isoformat(sep=" ", timespec="minutes")
    yield f"plan: {duration(times)} ({duration(low)} to {duration(high)}), as measured on {when}"


def compared(planned_s: float, took_s: float) -> str:
    """What `train` says at its end."""
    return f"planned {duration(planned_s)}, took {duration(took_s)} ({took_s / planned_s - 1:+.0%})"


def make(settings: PlanSettings, known: Known, prices: Mapping[str, Any], cached: bool) -> dict[str, Any]:
    """Everything that is known about the run, as JSON holds it; these names are an interface."""
    measured, need, room = known.measured, known.need, known.room
    on_cpu = machine.find_machine() == "cpu"
    times, low, high = (predict(settings, measured, bound) for bound in ("median", "low", "high"))
    steps_per_s = settings.samples_per_update / measured.update.median
    # Whoever rents a machine pays for its idle cores too.
    paid = machine.usable_cores() if on_cpu else measured.devices
    price = cost.price(prices, "cpu" if on_cpu else machine.device_name(), paid, settings.price)
    seen = coverage.coverage(settings.total_steps, settings.num_envs, settings.horizon, settings.restart.oldest, steps_per_s)
    rollout_s = settings.rollout_length * settings.num_envs / steps_per_s
    guess, ours = (calculator.estimate(settings.total_steps, settings.num_envs, settings.rollout_length, s) for s in (calculator.GUESS_S, rollout_s))
    parts = diagnosis.shares(times, measured)
    transitions, ring_bytes = memory.transitions_for(10, settings.horizon, round(need.ring / (settings.ring_rows * settings.num_envs)))
    written = saves(settings, times.train_s + times.eval_s) + 1
    # The latest ones, the best, and the one that is being written.
    keep = settings.checkpoint.keep + 2
    return {
        "env": settings.env.name,
        "horizon": settings.horizon,
        "env_steps": settings.total_steps,
        "updates": settings.updates,
        "num_envs": settings.num_envs,
        "wall_s": times.wall_s,
        "wall_low_s": low.wall_s,
        "wall_high_s": high.wall_s,
        "finish": _finish(times.wall_s),
        "steps_per_s": steps_per_s,
        "times": asdict(times),
        "evaluations": evaluations(settings),
        "transfer_s": measured.transfer_s,
        "cost_usd": cost.cost_usd(times.wall_s, price.usd_per_hour) if price else None,
        "price_usd_per_hour": price.usd_per_hour if price else None,
        "price_source": price.source if price else None,
        "device": machine.device_name(),
        "device_bytes": need.state + measured.workspace_bytes,
        "parameter_bytes": need.parameters,
        "environment_bytes": need.environments,
        "ring_bytes": need.ring,
        "workspace_bytes": measured.workspace_bytes,
        "host_bytes": measured.host_bytes + measured.checkpoint_bytes,
        "room_bytes": room,
        "checkpoint_bytes": measured.checkpoint_bytes,
        "disk_bytes": keep * measured.checkpoint_bytes,
        "disk_bytes_per_hour": int(written * measured.checkpoint_bytes / (times.wall_s / 3600)),
        "ten_episodes": {"transitions": transitions, "bytes": ring_bytes},
        "rollout_s": rollout_s,
        "guess": {"rollout_s": calculator.GUESS_S, "steps_per_s": guess.steps_per_s, "wall_s": guess.wall_s, "times_too_long": guess.wall_s / ours.wall_s},
        "shares": parts,
        "bottleneck": diagnosis.bottleneck(parts),
        "remedies": [asdict(remedy) for remedy in diagnosis.remedies(settings, measured, times)],
        "rates": {str(envs): rate for envs, rate in measured.rates.items()},
        "coverage": {"lived": seen.lived, "share": seen.share, "oldest": seen.oldest, "episodes": seen.episodes, "floor_s": seen.floor_s},
        "advice": coverage.advice(seen, settings.num_envs, settings.restart) + diagnosis.memory_advice(settings, need, measured.workspace_bytes, room),
        "targets": _targets(settings, times, steps_per_s, price, measured.devices),
        "measured_at": datetime.datetime.fromtimestamp(known.time_s).astimezone().isoformat(timespec="seconds"),
        "age_s": max(0.0, time.time() - known.time_s),
        "cached": cached,
    }


def _finish(wall_s: float) -> str | None:
    """When a run that begins now ends; None beyond the calendar."""
    try:
        return datetime.datetime.fromtimestamp(time.time() + wall_s).astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def _targets(settings: PlanSettings, times: Times, steps_per_s: float, price: cost.Price | None, number: int) -> list[str]:
    """What it would take to meet each target that was named."""
    other_s = times.wall_s - times.train_s
    unit = "core" if machine.find_machine() == "cpu" else "device"
    said = []
    if hours := settings.target.hours:
        said.append(_need(f"{show(hours)} h", cost.for_hours(settings.total_steps, hours, steps_per_s, number, other_s), steps_per_s, unit, number))
    if (usd := settings.target.cost) and price:
        need = cost.for_cost(settings.total_steps, usd, steps_per_s, price.usd_per_hour, number, other_s)
        said.append(_need(f"{show(usd)} USD", need, steps_per_s, unit, number))
    elif usd:
        said.append("target.cost needs a price: this device is in no catalogue, so give price=, what an hour costs in USD.")
    return said


def _need(target: str, need: cost.Need, steps_per_s: float, unit: str, number: int) -> str:
    if need.devices is None:
        rate = f" ({need.steps_per_s:,.0f} steps/s would be needed)" if need.steps_per_s < math.inf else ""
        return f"{target}: out of reach{rate}, {need.why_not}."
    if need.steps_per_s <= steps_per_s:
        return f"{target}: met as it is ({need.steps_per_s:,.0f} steps/s are needed)."
    return f"{target}: {need.steps_per_s:,.0f} steps/s are needed, {need.devices} such {unit}s instead of {number} if each adds as much."


def lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """The plan for people: what, and how much."""
    size = f"{plan['env_steps']:,} steps in {plan['updates']:,} updates of {plan['num_envs']:,} environments"
    money = f"{plan['cost_usd']:,.2f} USD ({plan['price_source']})" if plan["cost_usd"] is not None else "no price known for this device: give price="
    age = duration(plan["age_s"])
    when = plan["measured_at"].replace("T", " ") + (f", {age} ago (kept; refresh=true measures again)" if plan["cached"] else "")
    return [
        ("run", f"{plan['env']} horizon={plan['horizon']:,}, {size}"),
        *_time_lines(plan),
        ("cost", money),
        *_memory_lines(plan),
        *_advice_lines(plan),
        ("measured", f"on {plan['device']}, {when}"),
    ]


def _time_lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    times, guess = plan["times"], plan["guess"]
    within = f"{duration(plan['wall_low_s'])} to {duration(plan['wall_high_s'])}"
    parts = [f"train {duration(times['train_s'])}", f"evaluate {duration(times['eval_s'])} ({plan['evaluations']} times)"]
    parts += [f"{name} {duration(times[key])}" for name, key in (("compile", "compile_s"), ("start", "startup_s"), ("save", "save_s"))]
    rates = ", ".join(f"{int(number):,}: {rate:,.0f}" for number, rate in plan["rates"].items())
    usual = f"{guess['rollout_s']:g} s a rollout make {duration(guess['wall_s'])}"
    done = f", done {plan['finish'].replace('T', ' ')}" if plan["finish"] else ""
    return [
        ("wall time", f"{duration(plan['wall_s'])} ({within}){done}"),
        ("", ", ".join(parts)),
        ("speed", f"{plan['steps_per_s']:,.0f} training steps/s; by environments: {rates}"),
        ("the usual guess", f"{usual}; measured {plan['rollout_s']:.3g} s, the guess is {guess['times_too_long']:.1f} times that"),
    ]


def _memory_lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    size, ten = memory.gigabytes, plan["ten_episodes"]
    parts = ", ".join(f"{name} {size(plan[f'{key}_bytes'])}" for name, key in PARTS.items())
    return [
        ("device memory", f"{size(plan['device_bytes'])} ({parts})"),
        ("host memory", f"{size(plan['host_bytes'])} of {size(plan['room_bytes'])} free"),
        (
            "disk",
            f"{size(plan['disk_bytes'])} ({size(plan['checkpoint_bytes'])} a checkpoint, {size(plan['disk_bytes_per_hour'])} an hour), less when compressed",
        ),
        ("10 whole episodes", f"{ten['transitions']:,} transitions, {size(ten['bytes'])} in this ring's form"),
    ]


def _advice_lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    seen = plan["coverage"]
    parts = ", ".join(f"{name} {share:.0%}" for name, share in sorted(plan["shares"].items(), key=lambda item: -item[1]) if share >= 0.005)
    found = [
        ("horizon", f"each environment lives {seen['lived']:,} steps, {seen['share']:.1%} of it; {seen['episodes']:,} whole episodes, if nothing restarts"),
        ("", f"one whole episode takes {duration(seen['floor_s'])} at least: its steps follow each other"),
        ("where time goes", f"{parts}; {plan['bottleneck']} is the most of it"),
    ]
    found += [("faster", str(diagnosis.Remedy(**remedy))) for remedy in plan["remedies"]]
    found += [("note", text) for text in plan["advice"]]
    return found + [("target", text) for text in plan["targets"]]
