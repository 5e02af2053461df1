"""Have a recording drawn by another process, by one library after the other until one can; what happens to it happens to nobody else."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from jaxrl_long.fields import RunError
from jaxrl_long.machine import GRAPHICS
from jaxrl_long.runtime.progress import StepsBar

FILM = (sys.executable, "-m", "jaxrl_long.reporting.film")
NAMES = {**GRAPHICS, "cgl": "CGL"}


def draw(tape: Path, target: Path, size: tuple[int, int, int], libraries: list[str], bar: StepsBar, on_first: Callable[[], None]) -> list[str]:
    """Draw the recording in the file `tape` as the video `target`, with `size` its width, height and most pictures a second.

    Returns a sentence about each library that failed before one of `libraries` could. Raises RunError when none can.
    """
    failures = []
    for library in libraries:
        failure = _attempt([*FILM, str(tape), str(target), *map(str, size)], library, bar, on_first)
        if failure is None:
            return failures
        failures.append(f"{NAMES.get(library, library)} {failure}")
        for left in target.parent.glob(f".*.{target.name}"):
            left.unlink(missing_ok=True)
    raise RunError(f"no video was drawn: {'; '.join(failures)}. What it shows is kept in {tape}. format=html and format=path need no graphics.")


def _attempt(words: list[str], library: str, bar: StepsBar, on_first: Callable[[], None]) -> str | None:
    """What went wrong, as the rest of a sentence; None: nothing."""
    environment = os.environ | {"MUJOCO_GL": library}
    # MuJoCo sets it as its library needs, and refuses another one.
    environment.pop("PYOPENGL_PLATFORM", None)
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            number = int(line.split()[0])
            if number == 1:
                on_first()
            bar.at(number)
        code = process.wait()
        if not code:
            return None
        complaints.seek(0)
        last = next((line.strip() for line in reversed(complaints.read().splitlines()) if line.strip()), "it said nothing")
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"failed ({last})"
