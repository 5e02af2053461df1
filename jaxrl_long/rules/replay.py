"""Rules of the ring and of the archive."""

from collections.abc import Iterator

from jaxrl_long.config import CODECS, MAX_INT32, Settings
from jaxrl_long.fields import show
from jaxrl_long.named import problem
from jaxrl_long.rules.base import environments, nearest_multiples, rule

LENT_STEPS = 512
"""Rows of a block of the archive: what is lent looks no farther ahead."""


@rule("replay.memory")
def memory_is_a_size(settings: Settings) -> Iterator[str]:
    """Bytes with a unit, or auto."""
    try:
        settings.replay.memory_bytes()
    except ValueError as error:
        yield f"replay.memory={show(settings.replay.memory)} {error}"


@rule(
    "archive.enabled",
    "archive.share",
    "archive.lend",
    "algorithm.name",
    "env.name",
    "env.stack",
    "replay.hindsight",
    "devices",
    "algorithm.batch",
    "algorithm.n_step",
)
def archive_lends_what_it_has(settings: Settings) -> Iterator[str]:
    """Only an archive that is kept can be drawn from, in equal parts by every device; and its goals stay as they were."""
    share, facts = settings.archive.share, environments().get(settings.env.name)
    if not share or settings.algorithm.name == "ppo":
        return
    if not settings.archive.enabled:
        yield f"archive.share={show(share)} needs an archive. Nearest: archive.enabled=true or archive.share=0."
    if facts and facts.goals and settings.replay.hindsight:
        yield f"archive.share={show(share)} does not go with replay.hindsight={show(settings.replay.hindsight)}. Nearest: replay.hindsight=0."
    if settings.algorithm.n_step >= LENT_STEPS:
        yield f"algorithm.n_step={settings.algorithm.n_step} does not go with archive.share={show(share)}. Nearest: algorithm.n_step={LENT_STEPS - 1}."
    each = settings.algorithm.batch // (settings.devices or 1)
    if not 0 < round(share * each) < each:
        near = " or ".join(show(part / each) for part in (1, each - 1) if 0 < part < each) or "0"
        yield f"archive.share={show(share)} of a batch of {each} on each device is {round(share * each)}. Nearest: archive.share={near}."
    if settings.env.stack > 1:
        yield f"archive.share={show(share)} does not go with env.stack={settings.env.stack}. Nearest: env.stack=1."
    if settings.archive.lend % (settings.devices or 1):
        near = nearest_multiples(settings.devices, settings.archive.lend, 2**24)
        yield f"archive.lend={settings.archive.lend} can't be split over devices={settings.devices}. Nearest: {near}."


@rule("replay.save", "replay.save_every")
def what_is_not_saved_has_no_period(settings: Settings) -> Iterator[str]:
    """Either never, or every so often."""
    if settings.replay.save_every and not settings.replay.save:
        yield f"replay.save_every={show(settings.replay.save_every)} does not go with replay.save=false. Nearest: replay.save=true or replay.save_every=0."


@rule("env.stack", "restart.source", "algorithm.name", "replay.capacity", "replay.memory")
def earlier_observations_are_the_episodes_own(settings: Settings) -> Iterator[str]:
    """Who goes back to an earlier moment has other rows before it in the ring than it has seen."""
    stack, source = settings.env.stack, settings.restart.source
    if stack > 1 and source in ("archive", "rewind") and settings.draws:
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
        chosen = settings.replay.codecs()
    except ValueError as error:
        yield f"replay.codec={show(settings.replay.codec)} {error}"
        return
    yield from filter(None, (problem("replay.codec", codec) for codec in sorted({*chosen.values()} - {*CODECS})))


@rule("algorithm.name", "replay.begin", "replay.capacity", "replay.memory", "algorithm.n_step", "num_envs", "rollout_length")
def ring_can_be_drawn_from(settings: Settings) -> Iterator[str]:
    """Learning begins before the ring is full, and a transition fits into it."""
    if not settings.draws:
        return
    holds, steps = settings.ring_rows * settings.num_envs, settings.algorithm.n_step
    if settings.replay.begin > holds:
        yield f"replay.begin={settings.replay.begin} is more than the ring holds, {holds} transitions. Nearest: {holds}."
    if steps >= settings.ring_rows:
        yield f"algorithm.n_step={steps} needs {steps + 1} rows of the ring, which has {settings.ring_rows}. Nearest: {settings.ring_rows - 1}."


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
