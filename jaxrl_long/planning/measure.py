"""Measure the pieces of a run on this machine, with the very programs that training runs."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_long import rules
from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.planning.cache import Known
from jaxrl_long.planning.model import Measured, Spread
from jaxrl_long.runtime import assemble, footprint, shares
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.evaluation import EvalState, make_evaluator
from jaxrl_long.runtime.process import started
from jaxrl_long.trainer import Program, TrainState, init_state, make_chunk, state_shapes

REPEATS = 7
PIECE_S = 0.6
"""Shortest time that is worth a look at the clock."""
SAVES = 3


def measure(settings: Settings, say: Callable[[str], None]) -> Known:
    """Everything that the plan of these settings needs. jax must be prepared.

    Raises:
        ConfigError: the run would not fit into memory; nothing has been allocated then.
    """
    program = assemble.program(settings)
    shapes = state_shapes(program)
    footprint.require(settings, program, shapes)
    need = footprint.needed(shapes)
    startup_s = time.time() - started()
    say("compiles the training program")
    first_s, chunk, state = _built(program, shapes)
    compile_s = _built(program, shapes)[0] if _kept() else first_s
    say("measures updates")
    state, update, transfer_s = _updates(chunk, state)
    learn_s, infer_s = shares.pieces(program, state)
    shares.keep(settings, learn_s, infer_s, update.median)
    say("measures evaluation and saving")
    evaluation_compile_s, evaluation = _evaluation(program, settings, state)
    save, final_save_s, checkpoint_bytes = _saving(state)
    # Linux counts in kB, macOS in bytes.
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    analysis: Any = chunk.memory_analysis()
    rates = {settings.num_envs: program.steps_per_update / update.median}
    for other in bracket(settings):
        say(f"measures num_envs={other.num_envs}")
        rates[other.num_envs] = rate(other, state)
    measured = Measured(
        startup_s=startup_s,
        compile_s=min(compile_s, first_s),
        cold_compile_s=first_s,
        update=update,
        learn_s=learn_s,
        infer_s=infer_s,
        evaluation=evaluation,
        evaluation_compile_s=evaluation_compile_s,
        save=save,
        final_save_s=final_save_s,
        transfer_s=transfer_s,
        checkpoint_bytes=checkpoint_bytes,
        state_bytes=need.state,
        workspace_bytes=analysis.temp_size_in_bytes * program.mesh.size,
        host_bytes=peak_bytes,
        rates=dict(sorted(rates.items())),
    )
    return Known(measured, vars(need), time.time())


def _kept() -> bool:
    return jax.config.values["jax_compilation_cache_dir"] is not None


def _built(program: Program, shapes: TrainState) -> tuple[float, Any, TrainState]:
    """Compile and build the state, as training does; with the seconds it took."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        compiling = pool.submit(lambda: make_chunk(program).lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile())
        state = jax.block_until_ready(init_state(program, 0))
        chunk = compiling.result()
    return time.perf_counter() - begin, chunk, state


def _updates(chunk: Any, state: TrainState, repeats: int = REPEATS) -> tuple[TrainState, Spread, float]:
    """Seconds of one update, and of reading a report; the state a few updates later (the given one is donated)."""
    totals: Any = None

    def run(state: TrainState, updates: int) -> tuple[TrainState, float]:
        nonlocal totals
        begin = time.perf_counter()
        state, totals, _ = jax.block_until_ready(chunk(state, jnp.int32(updates)))
        return state, time.perf_counter() - begin

    state, _ = run(state, 2)
    state, once_s = run(state, 2)
    updates = max(1, round(PIECE_S / (once_s / 2)))
    seconds = []
    for _ in range(repeats):
        state, took_s = run(state, updates)
        seconds.append(took_s / updates)
    begin = time.perf_counter()
    jax.device_get(totals)
    return state, Spread.of(seconds), time.perf_counter() - begin


def _evaluation(program: Program, settings: Settings, state: TrainState) -> tuple[float, Spread]:
    """Seconds to compile an evaluation (as a later process does), and to make one of the whole window."""
    compile_s, advance, now = _evaluator(program, settings, state)
    if _kept():
        compile_s, advance, now = _evaluator(program, settings, state)
    window = min(settings.eval.window, settings.horizon)
    few = min(window, 50)
    begin = time.perf_counter()
    now = jax.block_until_ready(advance(now, few))
    steps = min(window, max(1, round(PIECE_S * few / (time.perf_counter() - begin))))
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        now = jax.block_until_ready(advance(now, steps))
        seconds.append((time.perf_counter() - begin) / steps * window)
    return compile_s, Spread.of(seconds)


def _evaluator(program: Program, settings: Settings, state: TrainState) -> tuple[float, Callable[[EvalState, int], EvalState], EvalState]:
    """Seconds to have an evaluation ready, what takes it so many steps on, and its state after one."""
    begin = time.perf_counter()
    evaluator = make_evaluator(program, settings.eval.num_envs)

    def advance(now: EvalState, steps: int) -> EvalState:
        return evaluator.advance(state.learner, now, jnp.int32(steps))

    now = jax.block_until_ready(advance(evaluator.start(jax.random.key(0)), 1))
    return time.perf_counter() - begin, advance, now


def _saving(state: TrainState) -> tuple[Spread, float, int]:
    """Seconds that a save holds up, seconds of one that is waited for, and its bytes."""
    held, whole = [], []
    with tempfile.TemporaryDirectory(prefix="jaxrl_long_plan_") as folder:
        checkpoints = Checkpoints(folder, keep=1, say=lambda _: None)
        # The first one also imports what saving needs.
        for update in range(SAVES + 1):
            begin = time.perf_counter()
            checkpoints.save(update, update, state, {})
            held.append(time.perf_counter() - begin)
            checkpoints.wait()
            whole.append(time.perf_counter() - begin)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return Spread.of(held[1:]), Spread.of(whole[1:]).median, size


def bracket(settings: Settings) -> list[Settings]:
    """The same settings with half and with twice the environments, where the rules allow them."""
    others = [replace(settings, num_envs=number) for number in (settings.num_envs // 2, settings.num_envs * 2)]
    return [other for other in others if other.num_envs and not rules.broken(other)]


def rate(settings: Settings, state: TrainState) -> float:
    """Training steps/s of these settings, from a state of another number of environments."""
    program = assemble.program(settings)
    shapes = state_shapes(program)
    chunk = make_chunk(program).lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    _, update, _ = _updates(chunk, _resized(state, shapes), repeats=5)
    return program.steps_per_update / update.median


def fitting_rate(settings: Settings) -> float | None:
    """Training steps/s of these settings from their own first state; None where that does not fit into memory."""
    program = assemble.program(settings)
    shapes = state_shapes(program)
    try:
        footprint.require(settings, program, shapes)
    except ConfigError:
        return None
    _, chunk, state = _built(program, shapes)
    _, update, _ = _updates(chunk, state, repeats=5)
    return program.steps_per_update / update.median


def _resized(state: TrainState, shapes: TrainState) -> TrainState:
    """A state with as many environments as `shapes` asks for: those there are, over and over."""
    leaves, structure = jax.tree.flatten(state)

    def fitted(leaf: Any, like: Any) -> Any:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        for axis, size in enumerate(like.shape):
            data = np.take(data, np.arange(size) % data.shape[axis], axis=axis)
        return jax.device_put(jax.random.wrap_key_data(jnp.asarray(data)) if is_key else data, like.sharding, may_alias=False)

    return jax.tree.unflatten(structure, map(fitted, leaves, jax.tree.leaves(shapes)))
