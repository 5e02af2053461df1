"""Real signals to real processes: nothing is lost, and nobody waits for XLA."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jaxrl_long.runtime import stop
from jaxrl_long.runtime.stop import Stop, run_interruptibly

ROOT = str(Path(stop.__file__).parents[2])

CHUNKS = """
import sys, time
from jaxrl_long.runtime.stop import run_interruptibly

def work(stop):
    stop.something_to_save()
    chunk = 0
    while not stop.poll():
        chunk += 1
        print('chunk', chunk, flush=True)
        time.sleep(0.3)
    print('saved', chunk, flush=True)
    return stop.exit_code

sys.exit(run_interruptibly(work))
"""

COMPILING = """
import sys
import jax, jax.numpy as jnp
from jaxrl_long.runtime.stop import run_interruptibly

def deep(x):
    for k in range(3000):
        x = jnp.sin(x) @ jnp.cos(x + k)
    return x

def work(stop):
    lowered = jax.jit(deep).lower(jnp.ones((16, 16)))
    print('compiling', flush=True)
    lowered.compile()
    print('compiled', flush=True)
    return 0

sys.exit(run_interruptibly(work))
"""

INSIDE = """
import sys
import jax, jax.numpy as jnp
from jaxrl_long.runtime.stop import run_interruptibly

def work(stop):
    stop.something_to_save()
    spin = jax.jit(lambda x: jax.lax.fori_loop(0, 2**30, lambda i, x: jnp.sin(x) @ x, x)).lower(jnp.ones((64, 64))).compile()
    print('inside', flush=True)
    spin(jnp.ones((64, 64))).block_until_ready()
    return 0

sys.exit(run_interruptibly(work))
"""


def start(code: str) -> Any:
    environment = os.environ | {"PYTHONPATH": ROOT, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def read_until(process: Any, line: str) -> None:
    while (found := process.stdout.readline()) != line:
        assert found, process.stderr.read()


def finish(process: Any) -> tuple[float, str, str]:
    """Wait for the end; returns its seconds, stdout and stderr."""
    began = time.monotonic()
    out, err = process.communicate(timeout=30)
    return time.monotonic() - began, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_after_the_3rd_line_finishes_the_chunk_saves_it_and_exits_75(number: signal.Signals) -> None:
    process = start(CHUNKS)
    read_until(process, "chunk 3\n")
    process.send_signal(number)
    _, out, err = finish(process)
    assert out == "saved 3\n"
    assert process.returncode == 75
    assert err == f"{number.name}: finishing the chunk in flight and saving; once more to quit at once.\n"


def test_a_signal_while_compiling_exits_75_at_once() -> None:
    process = start(COMPILING)
    read_until(process, "compiling\n")
    process.send_signal(signal.SIGTERM)
    took, out, err = finish(process)
    assert (process.returncode, out, err) == (75, "", "SIGTERM: nothing new to save.\n")
    assert took < 2.0


def test_a_second_signal_inside_xla_kills_in_less_than_2_s() -> None:
    process = start(INSIDE)
    read_until(process, "inside\n")
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline().startswith("SIGTERM: finishing the chunk in flight")
    process.send_signal(signal.SIGTERM)
    took, _, _ = finish(process)
    # A shell reports 128 + 15 = 143.
    assert process.returncode == -signal.SIGTERM
    assert took < 2.0


def test_the_work_runs_in_another_thread_and_its_exit_code_is_returned() -> None:
    threads: list[str] = []

    def work(_: Stop) -> int:
        threads.append(threading.current_thread().name)
        return 3

    before = [signal.getsignal(number) for number in stop.SIGNALS]
    assert run_interruptibly(work) == 3
    assert threads == ["work"]
    assert [signal.getsignal(number) for number in stop.SIGNALS] == before


def test_an_exception_of_the_work_is_raised_with_the_line_that_raised_it() -> None:
    def work(_: Stop) -> int:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost") as error:
        run_interruptibly(work)
    assert error.traceback[-1].name == "work"


def test_a_signal_is_seen_by_the_work_and_a_finished_run_can_be_started_again_in_the_same_process() -> None:
    def work(asked: Stop) -> int:
        asked.something_to_save()
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.signalled.wait(10)
        assert asked.poll()
        return asked.exit_code

    said: list[str] = []
    for _ in range(2):
        assert run_interruptibly(work, say=said.append) == 75
    assert said == [] or said[0].startswith("SIGTERM: finishing")


def test_a_stop_file_ends_the_work_with_0_and_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "STOP"
    reasons: list[str | None] = []

    def work(asked: Stop) -> int:
        assert not asked.poll()
        file.touch()
        assert asked.poll()
        reasons.append(asked.reason)
        return asked.exit_code

    assert run_interruptibly(work, stop_file=file) == 0
    assert reasons == [f"{file} exists"]
    assert not file.exists()


def test_the_first_reason_counts() -> None:
    asked = Stop()
    asked.ask("the budget of 8 h is used up")
    asked.ask("SIGTERM", 75)
    assert (asked.poll(), asked.reason, asked.exit_code) == (True, "the budget of 8 h is used up", 0)


def test_outside_the_main_thread_the_work_runs_plainly() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run_interruptibly(lambda _: 4)))
    thread.start()
    thread.join()
    assert codes == [4]
