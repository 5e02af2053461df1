"""Measure the pieces of a run on this machine, with the very programs that training runs."""

import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_long import rules
from jaxrl_long.config import MAX_ENVS, Settings
from jaxrl_long.launch import init_state, make_chunk, state_shapes, without_ring
from jaxrl_long.planning.cache import Known
from jaxrl_long.planning.model import Measured, Spread
from jaxrl_long.runtime import assemble, footprint, memory, shares
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.evaluation import EvalState, make_evaluator
from jaxrl_long.runtime.process import started
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.trainer import Program, TrainState

REPEATS = 7
FEW = 3
"""Repeats of what decides less of the run's time."""
PIECE_S = 0.6
"""Shortest time that is worth a look at the clock."""
SAVES = 3
MISSES: list[str] = []
"""Programs that this process had to compile, as none was kept: one entry each."""


def _listen(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_misses":
        MISSES.append(event)


jax.monitoring.register_event_listener(_listen)


def measure(settings: Settings, stop: Stop, say: Callable[[str], None]) -> Known:
    """Everything that the plan of these settings needs. jax must be prepared.

    Raises:
        ConfigError: the run would not fit into memory; nothing has been allocated then.
    """
    settings = footprint.settled(settings)
    program = assemble.program(settings)
    shapes = state_shapes(program)
    footprint.require(settings, program, shapes)
    need, room = footprint.needed(program, shapes), footprint.room(program)
    startup_s = time.time() - started()
    say("compiles the training program")
    first_s, compile_s, (chunk, state) = _ready(lambda: _built(program, shapes))
    say("measures updates")
    state, update, transfer_s = _updates(program, chunk, state, repeats=REPEATS)
    learn_s, infer_s = shares.pieces(program, state, update.median)
    shares.keep(settings, learn_s, infer_s, update.median)
    say("measures evaluation and saving")
    evaluation_compile_s, evaluation = _evaluation(program, settings, state)
    host_bytes = _peak_bytes()
    save, final_save_s = _saving(state if settings.replay.save else without_ring(state), stop)
    workspace = _workspace(chunk, program)
    rates = {settings.num_envs: program.steps_per_update / update.median}
    for other in bracket(settings):
        say(f"measures num_envs={other.num_envs}")
        found = rate(other)
        if found is not None:
            rates[other.num_envs] = found
    measured = Measured(
        startup_s=startup_s,
        compile_s=compile_s,
        cold_compile_s=first_s,
        updates=settings.updates,
        devices=program.mesh.size,
        update=update,
        learn_s=learn_s,
        infer_s=infer_s,
        evaluation=evaluation,
        evaluation_compile_s=evaluation_compile_s,
        save=save,
        final_save_s=final_save_s,
        transfer_s=transfer_s,
        checkpoint_bytes=need.environments + (need.ring if settings.replay.save else 0) + need.parameters // program.mesh.size,
        workspace_bytes=workspace,
        host_bytes=host_bytes,
        rates=dict(sorted(rates.items())),
    )
    return Known(measured, need, room, time.time())


def _peak_bytes() -> int:
    """The most memory that this process has held. Linux' `ru_maxrss` would count what started the process too."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        # macOS counts in bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _workspace(chunk: Any, program: Program) -> int:
    """Bytes that the compiled program needs besides the state, over all devices."""
    return chunk.memory_analysis().temp_size_in_bytes * program.mesh.size


def _kept() -> bool:
    return jax.config.values["jax_compilation_cache_dir"] is not None


def _ready(build: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds that `build` takes now, and in a process that finds its programs compiled; and what it makes, never two of them at once."""
    misses, begin = len(MISSES), time.perf_counter()
    made = build()
    first_s = time.perf_counter() - begin
    if not _kept() or len(MISSES) == misses:
        return first_s, first_s, made
    del made
    begin = time.perf_counter()
    made = build()
    return first_s, min(first_s, time.perf_counter() - begin), made


def _built(program: Program, shapes: TrainState) -> tuple[Any, TrainState]:
    """The compiled program and the state, made as training makes them."""
    with ThreadPoolExecutor(1) as pool:
        compiling = pool.submit(lambda: make_chunk(program).lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile())
        state = jax.block_until_ready(init_state(program, 0))
        return compiling.result(), state


def _updates(program: Program, chunk: Any, state: TrainState, repeats: int) -> tuple[TrainState, Spread, float]:
    """Seconds of one update, and of reading a report; the state a few updates later (the given one is donated)."""
    totals: Any = None

    def run(state: TrainState, updates: int) -> tuple[TrainState, float]:
        nonlocal totals
        begin = time.perf_counter()
        state, totals, _ = jax.block_until_ready(chunk(state, jnp.int32(updates)))
        return state, time.perf_counter() - begin

    state, _ = run(state, program.first_learning)
    state, once_s = run(state, 1)
    updates = max(1, round(PIECE_S / once_s))
    seconds = []
    for _ in range(repeats):
        state, took_s = run(state, updates)
        seconds.append(took_s / updates)
    begin = time.perf_counter()
    jax.device_get(totals)
    return state, Spread.of(seconds), time.perf_counter() - begin


def _evaluation(program: Program, settings: Settings, state: TrainState) -> tuple[float, Spread]:
    """Seconds to compile an evaluation (as a later process does), and to make one of the whole window."""
    _, compile_s, (advance, now) = _ready(lambda: _evaluator(program, settings, state))
    window = min(settings.eval.window, settings.horizon)
    few = min(window, 50)
    begin = time.perf_counter()
    now = jax.block_until_ready(advance(now, few))
    steps = min(window, max(1, round(PIECE_S * few / (time.perf_counter() - begin))))
    seconds = []
    for _ in range(FEW):
        begin = time.perf_counter()
        now = jax.block_until_ready(advance(now, steps))
        seconds.append((time.perf_counter() - begin) / steps * window)
    # A lasting evaluation does the same once more.
    times = 2 if settings.eval.lasting else 1
    return compile_s, Spread.of([times * each for each in seconds])


def _evaluator(program: Program, settings: Settings, state: TrainState) -> tuple[Callable[[EvalState, int], EvalState], EvalState]:
    """What takes an evaluation so many steps on, and its state after one."""
    evaluator = make_evaluator(program, settings.eval.num_envs)

    def advance(now: EvalState, steps: int) -> EvalState:
        return evaluator.advance(state.learner, now, jnp.int32(steps))

    return advance, jax.block_until_ready(advance(evaluator.start(jax.random.key(0)), 1))


def _saving(state: TrainState, stop: Stop) -> tuple[Spread, float]:
    """Seconds that a save holds up, and seconds of one that is waited for."""
    held, whole = [], []
    # A signal waits until the folder is gone again.
    stop.something_to_save()
    with tempfile.TemporaryDirectory(prefix="jaxrl_long_plan_") as folder:
        checkpoints = Checkpoints(folder, keep=1, say=lambda _: None)
        # The first one also imports what saving needs.
        for update in range(SAVES + 1):
            begin = time.perf_counter()
            checkpoints.save(update, update, state, {})
            held.append(time.perf_counter() - begin)
            checkpoints.wait()
            whole.append(time.perf_counter() - begin)
    if not stop.poll():
        stop.nothing_to_save()
    return Spread.of(held[1:]), Spread.of(whole[1:]).median


def bracket(settings: Settings) -> list[Settings]:
    """The same settings with half and with twice the environments, where the rules allow them."""
    others = [replace(settings, num_envs=number) for number in (settings.num_envs // 2, settings.num_envs * 2)]
    return [other for other in others if 0 < other.num_envs <= MAX_ENVS and not rules.broken(other)]


def rate(settings: Settings) -> float | None:
    """Training steps/s of these settings; None where state and workspace do not fit into the memory that is free."""
    program = assemble.program(settings)
    shapes = state_shapes(program)
    need, room = footprint.needed(program, shapes), footprint.room(program)
    if memory.refusal(settings, need, room):
        return None
    chunk = make_chunk(program).lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    if need.state + _workspace(chunk, program) > memory.SAFE * room:
        return None
    _, update, _ = _updates(program, chunk, init_state(program, 0), repeats=FEW)
    return program.steps_per_update / update.median
