"""Rules of worlds: which there are, what they can do, and how copies of them are split."""

from collections.abc import Iterator
from typing import Any

from jaxrl_long.config import MAX_ENVS, MAX_INT32, AgentSettings, EvaluateSettings, Settings
from jaxrl_long.fields import closest, show
from jaxrl_long.named import problem
from jaxrl_long.rules.base import environments, nearest_divisors, nearest_multiples, rule


@rule("env.name", trees=(Settings, AgentSettings))
def known_environment(settings: Any) -> Iterator[str]:
    """A registered name, or a user's class in a package that can be found (which is not imported here)."""
    name = settings.env.name
    if name in environments():
        return
    if ":" not in name:
        yield f"env={name}: no environment of this name. {closest(name, environments())} Or package.module:Class of your own."
    elif wrong := problem("env", name):
        yield wrong


@rule("env.name", "env.backend", trees=(Settings, AgentSettings))
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


@rule("goals.curriculum", "restart.source", "restart.renew")
def nearer_goals_come_from_the_pool(settings: Settings) -> Iterator[str]:
    """Starts that are drawn within the world's steps know nothing of success elsewhere, and a pool that is never redrawn keeps its goals."""
    if settings.goals.curriculum and not settings.restart.renew:
        yield f"goals.curriculum={show(settings.goals.curriculum)} needs starts that are redrawn: restart.renew=0. Nearest: restart.renew=1."
    if settings.goals.curriculum and settings.restart.source == "fresh":
        yield f"goals.curriculum={show(settings.goals.curriculum)} does not go with restart.source=fresh. Nearest: restart.source=pool."


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


@rule("num_envs", "devices", trees=(Settings, AgentSettings))
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


@rule("block", "num_envs", "devices")
def blocks_split_environments(settings: Settings) -> Iterator[str]:
    """The environments of a device are stepped in equal blocks."""
    devices = settings.devices or 1
    each = settings.num_envs // devices
    if settings.block and settings.num_envs % devices == 0 and each % settings.block:
        over = f" / devices={devices} = {each}" if devices > 1 else ""
        yield f"block={settings.block} does not divide num_envs={settings.num_envs}{over}. Nearest: {nearest_divisors(each, settings.block)}."
