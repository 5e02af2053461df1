"""Films of the agent while it trains. Each is made by a process of its own, from a checkpoint: what happens to it there never touches training."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jaxrl_long.config import Settings
from jaxrl_long.runtime.checkpoint import Checkpoints

RENDER = (sys.executable, "-m", "jaxrl_long.render")
LONGEST_S = 600.0
"""A film that takes longer is given up."""
LOOK_S = 0.1
AT_LEISURE = ("nice", "-n", "10")
"""Training comes first where there are too few cores for both."""


@dataclass
class Film:
    """One that is being made."""

    update: int
    process: subprocess.Popen[str]
    complaints: IO[str]
    began: float


class Filming:
    """Has every `eval.video`th evaluated agent filmed, one at a time, and hands over what comes of it."""

    def __init__(self, settings: Settings, folder: Path, checkpoints: Checkpoints, show: Callable[[Path, int], None], say: Callable[[str], None]) -> None:
        """`show` is called with each video and the update that it is of. Nothing is started yet."""
        self._interval, self._total = settings.eval.video * (settings.eval.every or settings.updates), settings.updates
        self._folder, self._checkpoints, self._show, self._say = folder, checkpoints, show, say
        # TensorBoard shows nothing else that moves.
        self._words = ["devices=1", "num_envs=1", *(["format=gif"] if "tensorboard" in settings.tracker else [])]
        self._due: int | None = None
        self._film: Film | None = None

    def wants(self, update: int) -> bool:
        """Whether the agent of this update, which was evaluated, is to be filmed; the last one always is. A checkpoint has to be saved for it."""
        return bool(self._interval) and (update % self._interval == 0 or update == self._total)

    def ask(self, update: int) -> None:
        """Film the agent of this update as soon as its checkpoint is written and the film before it is done."""
        if self._due is not None:
            self._say(f"no film is made of update {self._due}: the one before it is not done. A larger eval.video asks for fewer.")
            self._checkpoints.held.discard(self._due)
        self._due = update
        self._checkpoints.held.add(update)

    def look(self) -> None:
        """Start what can be started, and hand over what is done; never waits."""
        if (film := self._film) and film.process.poll() is not None:
            self._handed(film)
        elif film and time.monotonic() - film.began > LONGEST_S:
            self._say(f"the film of update {film.update} is given up after {LONGEST_S:.0f} s.")
            self._give_up(film)
        if self._due is not None and not self._film and not self._checkpoints.busy:
            self._film, self._due = self._started(self._due), None

    def finish(self, stopped: Callable[[], object]) -> None:
        """Wait for what was asked for, unless `stopped`."""
        self.look()
        if self._film:
            self._say(f"waits for the film of update {self._film.update}")
        while (self._film or self._due is not None) and not stopped():
            time.sleep(LOOK_S)
            self.look()
        self.close()

    def close(self) -> None:
        """Nothing is being made any more."""
        self._due = None
        if self._film:
            self._give_up(self._film)
        self._checkpoints.held.clear()

    def _give_up(self, film: Film) -> None:
        film.process.kill()
        film.process.communicate()
        self._done(film)

    def _started(self, update: int) -> Film:
        words = [*RENDER, f"run={self._folder}", f"checkpoint={update}", *self._words]
        calm = AT_LEISURE if shutil.which(AT_LEISURE[0]) else ()
        complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the film
        # The GPU's memory is training's. A session of its own: Ctrl-C is training's as well, which ends the film itself.
        surroundings = os.environ | {"JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen(
            [*calm, *words], env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True, start_new_session=True
        )
        return Film(update, process, complaints, time.monotonic())

    def _handed(self, film: Film) -> None:
        printed = film.process.communicate()[0].split("\n")
        film.complaints.seek(0)
        complaints = [line.strip() for line in film.complaints.read().splitlines() if line.strip()]
        self._done(film)
        if film.process.returncode:
            self._say(f"training goes on without a film of update {film.update}: {complaints[-1] if complaints else 'it said nothing.'}")
        else:
            self._show(Path(printed[0]), film.update)

    def _done(self, film: Film) -> None:
        self._film = None
        self._checkpoints.held.discard(film.update)
        film.complaints.close()
