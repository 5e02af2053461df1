"""Rules of the algorithms."""

import math
from collections.abc import Iterator

from jaxrl_long.config import ALGORITHMS, MAX_ENVS, MAX_INT32, Settings
from jaxrl_long.fields import show
from jaxrl_long.named import problem
from jaxrl_long.rules.base import environments, nearest_divisors, nearest_multiples, rule


@rule("algorithm.name", "algorithm.options")
def known_algorithm(settings: Settings) -> Iterator[str]:
    """One of ours, which has no options, or a user's class in a package that can be found (which is not imported here)."""
    name, options = settings.algorithm.name, settings.algorithm.options
    if name not in ALGORITHMS and (wrong := problem("algorithm", name)):
        yield wrong
    if name in ALGORITHMS and options:
        yield f"algorithm.options={show(options)}: algorithm={name} has none. They are for a class of your own, algorithm=package.module:Class."


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


@rule("env.name", "algorithm.name", "algorithm.n_step", "replay.hindsight")
def hindsight_looks_at_single_steps(settings: Settings) -> Iterator[str]:
    """What n steps would have paid on the way to another goal is not known."""
    facts, steps = environments().get(settings.env.name), settings.algorithm.n_step
    if facts and facts.goals and settings.algorithm.name == "sac" and settings.replay.hindsight and steps > 1:
        share = show(settings.replay.hindsight)
        yield f"algorithm.n_step={steps} does not go with replay.hindsight={share}. Nearest: algorithm.n_step=1 or replay.hindsight=0."


@rule("algorithm.batch", "algorithm.name", "devices")
def drawn_batch_splits_over_devices(settings: Settings) -> Iterator[str]:
    """Every device draws equally many transitions."""
    devices, batch = settings.devices or 1, settings.algorithm.batch
    if settings.algorithm.name == "sac" and batch % devices:
        yield f"algorithm.batch={batch} can't be split over devices={devices}. Nearest: {nearest_multiples(devices, batch, 2**20)}."


@rule("algorithm.name", "algorithm.schedule")
def rates_follow_what_is_measured(settings: Settings) -> Iterator[str]:
    """Only PPO measures how far an update has moved the policy."""
    if settings.algorithm.name == "sac" and settings.algorithm.schedule == "kl":
        yield "algorithm.schedule=kl does not go with algorithm.name=sac. Nearest: constant or linear."
