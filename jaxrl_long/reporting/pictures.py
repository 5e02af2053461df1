"""Pictures of a run's agent in a folder: recorded once, drawn as asked.

    update-62-seed-0-at-1000000-1f3a9c2e.npz                  the recording
    update-62-seed-0-at-1000000-1f3a9c2e-path.png             where all copies went, or what they were paid
    update-62-seed-0-at-1000000-1f3a9c2e-640x480-30fps.mp4    the video; or .gif, or .html

`1f3a9c2e` stands for everything else that decides the numbers. The same request means the same file, which is left as it is once it is there.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_long import machine
from jaxrl_long.config import RenderSettings, Settings
from jaxrl_long.envs.floating_origin import true_position
from jaxrl_long.fields import ConfigError, RunError, to_plain
from jaxrl_long.reporting import studio
from jaxrl_long.rules.pictures import bodiless
from jaxrl_long.runtime import assemble, assessment, tape
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.folder import RunFolder, write_atomically
from jaxrl_long.runtime.process import started
from jaxrl_long.runtime.progress import steps_bar
from jaxrl_long.runtime.recording import record
from jaxrl_long.runtime.tape import Timing

DECIDING = ("at", "steps", "num_envs", "seed", "env", "precision", "deterministic", "devices")
"""Settings that decide a recording's numbers; the checkpoint does too, by its update."""
PACKAGES = ("jaxrl_long", "jax", "brax", "mujoco")
"""And versions; MuJoCo reads the bodies only as its own version has written them."""
STILL_M = 0.01


def make(settings: RenderSettings, stored: Settings, say: Callable[[str], None]) -> list[Path]:
    """The pictures that `settings` ask for of a run with the `stored` ones, made where they are not there yet.

    Raises:
        ConfigError: the run has no such checkpoint, its world can't be filmed, or the folder can't be written.
        RunError: nothing could be recorded or drawn.
    """
    if settings.format == "auto" and not _has_bodies(settings, stored):
        settings = replace(settings, format="path")
        say(f"env={settings.env.name} has no bodies that MuJoCo could draw: the plot is all that is made of it.")
    run = RunFolder(Path(settings.run or ""))
    folder = Path(settings.to) if settings.to else run.pictures
    update = assessment.find_update(settings.checkpoint, Checkpoints(run.checkpoints, say=say), run)
    stem = name(settings, update)
    recorded, plot, video = folder / f"{stem}.npz", folder / f"{stem}-path.png", folder / f"{stem}-{_ending(settings)}"
    _open(folder, [recorded, plot, video])
    if not recorded.exists():
        taken = record(assessment.load(settings, stored, say), settings, say)
        with _kept(recorded):
            tape.save(taken, recorded)
    try:
        # First, as it is what one waits for.
        if settings.format != "path" and not video.exists():
            _make_video(settings, stored, recorded, video, say)
    finally:
        if not plot.exists():
            with _kept(plot):
                write_atomically(plot, plotted(tape.load(recorded)))
    return [plot] if settings.format == "path" else [video, plot]


def _has_bodies(settings: RenderSettings, stored: Settings) -> bool:
    return not bodiless(settings.env.name) and hasattr(assemble.simulator(replace(stored, env=settings.env)), "pose")


def _open(folder: Path, files: list[Path]) -> None:
    """Make the folder. Raises ConfigError where what is missing of its files can't be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = not all(file.exists() for file in files)
        why = "permission denied" if missing and not os.access(folder, os.W_OK | os.X_OK) else None
    except OSError as error:
        why = error.strerror
    if why:
        raise ConfigError([f"to={folder} can't be written: {why}. Name a folder that can, as in to=pictures."])


@contextmanager
def _kept(file: Path) -> Generator[None]:
    """Around the writing of a file: what goes wrong is told in a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{file} can't be written: {error.strerror}.") from None


def name(settings: RenderSettings, update: int) -> str:
    """The same for all that show the same numbers."""
    asked = {name: value for name, value in to_plain(settings).items() if name in DECIDING}
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    digest = hashlib.sha256(json.dumps([asked, update, versions], sort_keys=True).encode()).hexdigest()
    return f"update-{update}-seed-{settings.seed}-at-{settings.at}-{digest[:8]}"


def _ending(settings: RenderSettings) -> str:
    kind = settings.format
    if kind == "auto":
        kind = "mp4" if importlib.util.find_spec("imageio_ffmpeg") else "gif"
    size = "" if kind == "html" else f"{settings.width}x{settings.height}-"
    return f"{size}{settings.fps}fps.{kind}"


def _make_video(settings: RenderSettings, stored: Settings, recorded: Path, video: Path, say: Callable[[str], None]) -> None:
    """As a page, or drawn in another process; what happened to it there is said."""
    taken = tape.load(recorded)
    if settings.format == "html":
        with _kept(video):
            write_atomically(video, page(settings, stored, taken))
        return
    assert taken.q is not None
    size = (settings.width, settings.height, settings.fps)
    with steps_bar("draw", Timing.of(taken.facts.dt, settings.fps).pictures(len(taken.q)), unit="pictures") as bar:
        failures = studio.draw(recorded, video, size, machine.graphics(), bar, lambda: say(f"first frame after {time.time() - started():.1f} s"))
    for failure in failures:
        say(f"{failure}; the next library drew it.")


def page(settings: RenderSettings, stored: Settings, recorded: tape.Tape) -> str:
    """Brax's viewer with the recording in it."""
    world: Any = assemble.simulator(replace(stored, env=settings.env))
    assert recorded.pos is not None
    assert recorded.rot is not None
    timing = Timing.of(recorded.facts.dt, settings.fps)
    pos = recorded.pos[:: timing.stride]
    if recorded.cell is not None:
        # From the cell of the first step on: far away three.js lacks decimals as well.
        cell = (recorded.cell - recorded.cell[0])[:: timing.stride]
        pos = true_position(np.broadcast_to(cell[:, None], (*pos.shape[:2], 2)), pos)
    return world.viewer(pos, recorded.rot[:: timing.stride], 1.0 / timing.fps)


def plotted(recorded: tape.Tape) -> bytes:
    """Where all copies went, from above; along the only axis that they moved on; or, where they stay in place, what they were paid."""
    from jaxrl_long.reporting import charts

    facts, path = recorded.facts, recorded.path
    copies = f"{recorded.life.shape[1]} copies" if recorded.life.shape[1] > 1 else "one copy"
    title = f"{facts.env}: {copies} to step {recorded.age[-1]:,}, {facts.alive} alive"
    size = np.nanmax(path, axis=(0, 1)) - np.nanmin(path, axis=(0, 1)) if path is not None else np.zeros(3)
    unit, scale = ("km", 1e-3) if size.max() > 3000 else ("m", 1.0)
    if path is not None and (size[1] > STILL_M or recorded.walls is not None):
        return charts.ground(path[..., :2] * scale, facts.shown, unit=unit, title=title, goals=_scaled(recorded.goal, scale), walls=recorded.walls)
    if path is not None and size[0] > STILL_M:
        return charts.lines(recorded.age, path[..., 0] * scale, facts.shown, y=f"x ({unit})", title=title)
    lived = np.diff(recorded.life, axis=0)
    # As long as a copy lives, its reward in each stretch of steps.
    paid = np.diff(recorded.score, axis=0) / np.where(lived > 0, lived, np.nan)
    return charts.lines(recorded.age[1:], paid, facts.shown, y="reward per step", title=title)


def _scaled(places: np.ndarray | None, scale: float) -> np.ndarray | None:
    return None if places is None else places * scale
