"""Every rule between settings, and the values that stand for `auto`. Knows no jax.

A rule names the settings that it reads, so that it is left out when one of them is already known to be wrong.
"""

import functools
import importlib.util
import math
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from jaxrl_long import machine
from jaxrl_long.config import MAX_ENVS, MAX_INT32, EvaluateSettings, Settings
from jaxrl_long.fields import closest, show

CONFIGS = Path(str(files("jaxrl_long") / "configs"))
"""Folder of the YAML files that travel with the package."""

USER_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


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
    if not isinstance(settings, Settings | EvaluateSettings):
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
    """The divisors of `number` on both sides of `wanted`: `25 or 50`."""
    known = divisors(number)
    below, above = [d for d in known if d < wanted], [d for d in known if d > wanted]
    return " or ".join(str(d) for d in [*below[-1:], *above[:1]])


def nearest_multiples(step: int, wanted: int, high: int, low: int = 1) -> str:
    """The multiples of `step` on both sides of `wanted`, from `low` to `high`: `96 or 128`; empty when there are none."""
    first, below = -(-low // step) * step, wanted // step * step
    near = sorted({max(first, below), max(first, below + step)})
    return " or ".join(str(number) for number in near if number <= high)


@rule("env.name", trees=(Settings, EvaluateSettings))
def known_environment(settings: Any) -> Iterator[str]:
    """A registered name, or a user's class in a package that can be found (which is not imported here)."""
    name = settings.env.name
    if name in environments():
        return
    if ":" not in name:
        yield f"env={name}: no environment of this name. {closest(name, environments())} Or package.module:Class of your own."
    elif not USER_CLASS.fullmatch(name):
        yield f"env={name} is not of the form package.module:Class."
    elif not _importable(package := re.split(r"[.:]", name)[0]):
        yield f"env={name}: no package {package} can be imported. Run from the folder that holds it, or install it."


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # A module without a spec, as __main__ can be, is imported already.
        return True


@rule("env.name", "env.backend", trees=(Settings, EvaluateSettings))
def supported_backend(settings: Any) -> Iterator[str]:
    """Brax tasks run on the backends that they support; other environments have none."""
    env, facts = settings.env, environments().get(settings.env.name)
    if env.backend == "auto" or (facts and env.backend in facts.backends):
        return
    if facts and facts.backends:
        yield f"env.backend={env.backend} is not supported by env={env.name}. Supported: {', '.join(facts.backends)}."
    elif facts or ":" in env.name:
        yield f"env.backend={env.backend}: env={env.name} has no choice of backends. Leave it at auto."


@rule("env.name", "horizon", trees=(Settings, EvaluateSettings))
def horizon_within_the_world(settings: Any) -> Iterator[str]:
    """A world with its own time limit can't be made to last longer."""
    facts = environments().get(settings.env.name)
    if facts and facts.max_steps and settings.horizon > facts.max_steps:
        yield (
            f"horizon={settings.horizon} is above the inner limit of env={settings.env.name}, {facts.max_steps} steps, "
            f"which can't be switched off. Nearest: {facts.max_steps}."
        )


@rule("num_envs", "devices", trees=(Settings, EvaluateSettings))
def environments_split_over_devices(settings: Any) -> Iterator[str]:
    """Every device gets equally many environments."""
    if settings.devices and settings.num_envs % settings.devices:
        yield (
            f"num_envs={settings.num_envs} can't be split over devices={settings.devices}. Nearest: "
            f"num_envs={nearest_multiples(settings.devices, settings.num_envs, MAX_ENVS)}, "
            f"devices={nearest_divisors(settings.num_envs, settings.devices)}."
        )


@rule("eval.num_envs", "devices")
def evaluation_splits_over_devices(settings: Settings) -> Iterator[str]:
    """Every device evaluates equally many environments."""
    if settings.devices and settings.eval.num_envs % settings.devices:
        near = nearest_multiples(settings.devices, settings.eval.num_envs, MAX_ENVS)
        yield f"eval.num_envs={settings.eval.num_envs} can't be split over devices={settings.devices}. Nearest: {near}."


@rule("algorithm.batch", "algorithm.name", "devices")
def drawn_batch_splits_over_devices(settings: Settings) -> Iterator[str]:
    """Every device draws equally many transitions."""
    devices, batch = settings.devices or 1, settings.algorithm.batch
    if settings.algorithm.name == "sac" and batch % devices:
        yield f"algorithm.batch={batch} can't be split over devices={devices}. Nearest: {nearest_multiples(devices, batch, 2**20)}."


@rule("replay.memory")
def memory_is_a_size(settings: Settings) -> Iterator[str]:
    """Bytes with a unit, or auto."""
    try:
        settings.replay.memory_bytes()
    except ValueError as error:
        yield f"replay.memory={show(settings.replay.memory)} {error}"


@rule("archive.enabled", "archive.share", "archive.lend", "algorithm.name", "env.name", "env.stack", "replay.hindsight", "devices")
def archive_lends_what_it_has(settings: Settings) -> Iterator[str]:
    """Only an archive that is kept can be drawn from, in equal parts by every device; and its goals stay as they were."""
    share, facts = settings.archive.share, environments().get(settings.env.name)
    if not share or settings.algorithm.name != "sac":
        return
    if not settings.archive.enabled:
        yield f"archive.share={show(share)} needs an archive. Nearest: archive.enabled=true or archive.share=0."
    if facts and facts.goals and settings.replay.hindsight:
        yield f"archive.share={show(share)} does not go with replay.hindsight={show(settings.replay.hindsight)}. Nearest: replay.hindsight=0."
    if settings.env.stack > 1:
        yield f"archive.share={show(share)} does not go with env.stack={settings.env.stack}. Nearest: env.stack=1."
    if settings.archive.lend % (settings.devices or 1):
        near = nearest_multiples(settings.devices, settings.archive.lend, 2**24)
        yield f"archive.lend={settings.archive.lend} can't be split over devices={settings.devices}. Nearest: {near}."


@rule("env.stack", "restart.source")
def earlier_observations_are_the_episodes_own(settings: Settings) -> Iterator[str]:
    """Who goes back to an earlier moment has other rows before it in the ring than it has seen."""
    stack, source = settings.env.stack, settings.restart.source
    if stack > 1 and source in ("archive", "rewind") and settings.algorithm.name == "sac":
        yield f"env.stack={stack} does not go with restart.source={source}. Nearest: restart.source=pool."


@rule("archive.limit")
def limit_is_a_size(settings: Settings) -> Iterator[str]:
    """Bytes with a unit."""
    try:
        settings.archive.limit_bytes()
    except ValueError as error:
        yield f"archive.limit={show(settings.archive.limit)} {error}"


@rule("replay.codec")
def codecs_fit_their_fields(settings: Settings) -> Iterator[str]:
    """Known codecs, and none for what must stay exact."""
    try:
        settings.replay.codecs()
    except ValueError as error:
        yield f"replay.codec={show(settings.replay.codec)} {error}"


@rule("algorithm.name", "replay.begin", "replay.capacity", "algorithm.n_step", "num_envs", "rollout_length")
def ring_can_be_drawn_from(settings: Settings) -> Iterator[str]:
    """Learning begins before the ring is full, and a transition fits into it."""
    if settings.algorithm.name != "sac":
        return
    holds, steps = settings.ring_rows * settings.num_envs, settings.algorithm.n_step
    if settings.replay.begin > holds:
        yield f"replay.begin={settings.replay.begin} is more than the ring holds, {holds} transitions. Nearest: {holds}."
    if steps >= settings.ring_rows:
        yield f"algorithm.n_step={steps} needs {steps + 1} rows of the ring, which has {settings.ring_rows}. Nearest: {settings.ring_rows - 1}."


@rule("env.name", "algorithm.name", "algorithm.n_step", "replay.hindsight")
def hindsight_looks_at_single_steps(settings: Settings) -> Iterator[str]:
    """What n steps would have paid on the way to another goal is not known."""
    facts, steps = environments().get(settings.env.name), settings.algorithm.n_step
    if facts and facts.goals and settings.algorithm.name == "sac" and settings.replay.hindsight and steps > 1:
        share = show(settings.replay.hindsight)
        yield f"algorithm.n_step={steps} does not go with replay.hindsight={share}. Nearest: algorithm.n_step=1 or replay.hindsight=0."


@rule("env.name", "goals.curriculum", "goals.shaping")
def goals_are_there(settings: Settings) -> Iterator[str]:
    """A registered world without goals can't have nearer ones; a user's class is asked when it is built."""
    facts = environments().get(settings.env.name)
    if facts and not facts.goals:
        yield from (
            f"goals.{name}={show(number)}: env={settings.env.name} has no goals. Nearest: goals.{name}=0."
            for name in ("curriculum", "shaping")
            if (number := getattr(settings.goals, name))
        )


@rule("goals.curriculum", "restart.source")
def nearer_goals_come_from_the_pool(settings: Settings) -> Iterator[str]:
    """Starts that are drawn within the world's steps know nothing of success elsewhere."""
    if settings.goals.curriculum and settings.restart.source == "fresh":
        yield f"goals.curriculum={show(settings.goals.curriculum)} does not go with restart.source=fresh. Nearest: restart.source=pool."


@rule("goals.shaping", "algorithm.name", "algorithm.lookahead_end", "replay.hindsight")
def shaping_changes_no_optimum(settings: Settings) -> Iterator[str]:
    """A potential is neutral at one discount, and what other goals would have paid on the way is not known."""
    shaping, end = settings.goals.shaping, settings.algorithm.lookahead_end
    if shaping and end and settings.algorithm.name == "ppo":
        yield f"goals.shaping={show(shaping)} needs one discount throughout, and algorithm.lookahead_end={show(end)} moves it. Nearest: 0."
    if shaping and settings.replay.hindsight and settings.algorithm.name == "sac":
        yield f"goals.shaping={show(shaping)} does not go with replay.hindsight={show(settings.replay.hindsight)}. Nearest: replay.hindsight=0."


@rule("num_envs", "rollout_length", "algorithm.minibatches", "algorithm.name", "devices")
def batch_splits_into_minibatches(settings: Settings) -> Iterator[str]:
    """The samples of each device split evenly into minibatches."""
    if settings.algorithm.name != "ppo":
        return
    devices, length, number = settings.devices or 1, settings.rollout_length, settings.algorithm.minibatches
    samples = settings.num_envs // devices * length
    if settings.num_envs % devices or samples % number == 0:
        return
    step = devices * number // math.gcd(number, length)
    near_envs = nearest_multiples(step, settings.num_envs, MAX_ENVS)
    near = [f"num_envs={near_envs}"] if near_envs else []
    over = f" / devices={devices}" if devices > 1 else ""
    yield (
        f"num_envs={settings.num_envs}{over} x rollout_length={length} = {samples} samples can't be split into "
        f"algorithm.minibatches={number}. Nearest: "
        f"{', '.join([*near, f'algorithm.minibatches={nearest_divisors(samples, number)}'])}."
    )


@rule("num_envs", "rollout_length", "algorithm.reuse")
def update_fits_the_index(settings: Settings) -> Iterator[str]:
    """Samples of an update are indexed with 32 bits."""
    segments = settings.algorithm.reuse + 1
    if settings.samples_per_update * segments > MAX_INT32:
        times = f" x {segments} segments (algorithm.reuse + 1)" if segments > 1 else ""
        room = MAX_INT32 // segments
        yield (
            f"num_envs={settings.num_envs} x rollout_length={settings.rollout_length}{times} = {settings.samples_per_update * segments} "
            f"samples is above {MAX_INT32}. Nearest: num_envs={max(1, room // settings.rollout_length)}, "
            f"rollout_length={max(1, room // settings.num_envs)}."
        )


@rule("block", "num_envs", "devices")
def blocks_split_environments(settings: Settings) -> Iterator[str]:
    """The environments of a device are stepped in equal blocks."""
    devices = settings.devices or 1
    each = settings.num_envs // devices
    if settings.block and settings.num_envs % devices == 0 and each % settings.block:
        over = f" / devices={devices} = {each}" if devices > 1 else ""
        yield f"block={settings.block} does not divide num_envs={settings.num_envs}{over}. Nearest: {nearest_divisors(each, settings.block)}."


@rule("replay.capacity", "num_envs", "rollout_length", "algorithm.reuse")
def ring_holds_whole_rollouts(settings: Settings) -> Iterator[str]:
    """The ring is overwritten a rollout at a time, and holds the fresh one and those that are reused."""
    capacity, step, segments = settings.replay.capacity, settings.samples_per_update, settings.algorithm.reuse + 1
    near = nearest_multiples(step, capacity, MAX_INT32, low=step * segments)
    if capacity == 0 or not near:
        return
    if capacity % step:
        yield f"replay.capacity={capacity} is not a multiple of rollout_length x num_envs = {step}. Nearest: {near}."
    elif capacity < step * segments:
        yield (
            f"replay.capacity={capacity} holds {capacity // step} rollouts, but algorithm.reuse={settings.algorithm.reuse} "
            f"reads {segments}. Nearest: replay.capacity={step * segments}, algorithm.reuse={capacity // step - 1}."
        )


@rule("checkpoint.best", "eval.lasting")
def endurance_is_looked_at(settings: Settings) -> Iterator[str]:
    """Who is chosen by endurance must be examined for it."""
    if settings.checkpoint.best == "endurance" and not settings.eval.lasting:
        yield "checkpoint.best=endurance needs evaluations that go on: eval.lasting=false. Nearest: eval.lasting=true or checkpoint.best=return."


@rule("algorithm.lookahead", "algorithm.lookahead_end")
def lookahead_gives_a_discount(settings: Settings) -> Iterator[str]:
    """A lookahead of 1 would be a discount of 0."""
    for name in ("lookahead", "lookahead_end"):
        if 0 < (steps := getattr(settings.algorithm, name)) < 2:
            yield f"algorithm.{name}={show(steps)} is neither 0 (off) nor at least 2. Nearest: 0 or 2."


@rule("algorithm.discount", "algorithm.lookahead", "algorithm.lookahead_end")
def growing_lookahead_has_a_start(settings: Settings) -> Iterator[str]:
    """From an endless lookahead there is no way to another by equal ratios."""
    algorithm = settings.algorithm
    if algorithm.lookahead_end and not algorithm.lookahead and algorithm.discount == 1:
        ends = show(algorithm.lookahead_end)
        yield f"algorithm.lookahead_end={ends} has no start to grow from: algorithm.discount=1 looks ahead for ever. Nearest: algorithm.lookahead=100."


@rule("restart.pool", "restart.renew")
def renewed_starts_fit_the_pool(settings: Settings) -> Iterator[str]:
    """No more starts are redrawn than there are."""
    pool, renew = settings.restart.pool, settings.restart.renew
    if renew > pool:
        yield f"restart.renew={renew} is above restart.pool={pool}. Nearest: restart.renew={pool} or restart.pool={renew}."


@rule("restart.spacing", "rollout_length")
def moments_are_kept_between_rollouts(settings: Settings) -> Iterator[str]:
    """The archive takes in a moment after a rollout, never within one."""
    spacing, length = settings.restart.spacing, settings.rollout_length
    if spacing % length:
        yield f"restart.spacing={spacing} is not a multiple of rollout_length={length}. Nearest: {nearest_multiples(length, spacing, MAX_INT32 - 1)}."


@rule("env.name", "disturb.push", "disturb.action", "disturb.mass", "disturb.friction")
def disturbances_fit_the_world(settings: Settings) -> Iterator[str]:
    """A registered world is only disturbed in ways that it can be; a user's class is asked when it is built."""
    facts, asked = environments().get(settings.env.name), settings.disturb
    if facts is None:
        return
    bodies = bool(facts.backends) and settings.env.name != "fast"
    able = {"push": facts.translation_invariant, "action": facts.action_size is not None, "mass": bodies, "friction": bodies}
    why = {"push": "can't be pushed", "action": "has discrete actions"}
    for name in (name for name, can in able.items() if getattr(asked, name) and not can):
        reason = why.get(name, "has no body that could differ")
        yield f"disturb.{name}={show(getattr(asked, name))}: env={settings.env.name} {reason}. Nearest: disturb.{name}=0."


@rule("run_dir")
def run_dir_can_be_written(settings: Settings) -> Iterator[str]:
    """The run's folder exists or can be created, and files can be written into it."""
    if settings.run_dir is not None:
        yield from _unwritable("run_dir", settings.run_dir)


@rule("compilation_cache", trees=(Settings, EvaluateSettings))
def cache_can_be_written(settings: Any) -> Iterator[str]:
    """The folder of compiled programs exists or can be created."""
    if settings.compilation_cache not in ("auto", "none"):
        yield from _unwritable("compilation_cache", settings.compilation_cache)


def _unwritable(name: str, text: str) -> Iterator[str]:
    if "\0" in text:
        yield f"{name}={text!r} is not a path."
        return
    folder = Path(text)
    try:
        existing = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    except OSError as error:
        yield f"{name}={text} can't be used: {error.strerror}."
        return
    if not existing.is_dir():
        yield f"{name}={text}: {existing} is a file. Name a folder."
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"{name}={text}: {existing} can't be written to. Name a folder that can."


@rule("run", trees=(EvaluateSettings,))
def run_is_named(settings: EvaluateSettings) -> Iterator[str]:
    """There is no default run."""
    if settings.run is None:
        yield "run= is missing: name the folder of the run to evaluate, as in run=runs/ant."


@rule("checkpoint", trees=(EvaluateSettings,))
def checkpoint_is_an_update(settings: EvaluateSettings) -> Iterator[str]:
    """The latest checkpoint, the best, or that of an update."""
    if settings.checkpoint not in ("latest", "best") and not re.fullmatch(r"[0-9]{1,18}", settings.checkpoint):
        yield f"checkpoint={show(settings.checkpoint)} is neither latest nor best nor the number of an update."


@rule("stop.cost", "stop.price")
def a_cost_needs_a_price(settings: Settings) -> Iterator[str]:
    """Without a price, no time costs anything."""
    if settings.stop.cost and not settings.stop.price:
        yield f"stop.cost={show(settings.stop.cost)} needs stop.price, what an hour of this machine costs in USD, such as stop.price=2.5."
