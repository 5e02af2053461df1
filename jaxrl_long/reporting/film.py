"""Draw a recording as a video: a process of its own, as the libraries that draw may take the whole process down with them.

    MUJOCO_GL=egl python -m jaxrl_long.reporting.film RECORDING TARGET WIDTH HEIGHT FPS

A line of standard output for each picture: its number and how many there will be.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from jaxrl_long.runtime.tape import Tape, Timing, load

GROUND = 100.0
"""How far the ground reaches, in m."""
PERIOD = 4.0
"""Ground and light look the same everywhere to a body that is moved by so many m: a multiple of its checkers' 2 m."""
GOAL_COLOUR = np.array([0.9, 0.3, 0.1, 0.8], np.float32)


def model_of(tape: Tape) -> Any:
    """The bodies, on endless chequered ground where they move along it."""
    assert tape.model is not None
    model = mujoco.MjModel.from_binary_path("task.mjb", {"task.mjb": tape.model.tobytes()})
    for plane in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        if tape.axes is not None and len(tape.axes):
            model.geom_size[plane, :2] = GROUND
            if (material := model.geom_matid[plane]) >= 0:
                # Two squares of 1 m in each repetition.
                model.mat_texrepeat[material] = GROUND
                model.mat_reflectance[material] = 0.1
    return model


def wrapped(q: np.ndarray, axes: np.ndarray | None) -> np.ndarray:
    """Joint coordinates [S, Q] of a body that stays within half a PERIOD of the middle, along the axes where nobody can tell."""
    q = q.astype(np.float64)
    free = len(axes) if axes is not None else 0
    q[:, :free] -= PERIOD * np.round(q[:, :free] / PERIOD)
    return q


def pictures(tape: Tape, width: int, height: int, stride: int) -> Iterator[np.ndarray]:
    """Every `stride`th step of a recording, as [height, width, 3] bytes."""
    assert tape.q is not None
    model, q = model_of(tape), wrapped(tape.q[::stride], tape.axes)
    model.vis.global_.offwidth, model.vis.global_.offheight = max(width, model.vis.global_.offwidth), max(height, model.vis.global_.offheight)
    data, roaming = mujoco.MjData(model), tape.axes is not None and len(tape.axes) > 0
    camera, light = Camera(model, data, q, roaming), model.light_pos.copy()
    with closing(mujoco.Renderer(model, height, width)) as renderer:
        for row in q:
            pose(model, data, row)
            root = data.xpos[1].copy()
            if roaming:
                data.light_xpos[:, :2] = light[:, :2] + root[:2]
            renderer.update_scene(data, camera.at(root))
            _add_goal(renderer.scene, tape, model)
            yield renderer.render()


def pose(model: Any, data: Any, q: np.ndarray) -> None:
    """Put the bodies where these joint coordinates have them."""
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)


class Camera:
    """Looks at the body that roams, from a constant distance and height; or from where all of a stationary task is seen."""

    def __init__(self, model: Any, data: Any, q: np.ndarray, roaming: bool) -> None:
        """Choose a place from the poses [S, Q]."""
        solid = np.flatnonzero((model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_bodyid > 0))
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        height = []
        # A hundred of them tell where it gets.
        for row in q[:: -(-len(q) // 100)]:
            pose(model, data, row)
            centre = data.geom_xpos[solid] - (np.append(data.xpos[1, :2], 0.0) if roaming else 0.0)
            reach = model.geom_rbound[solid, None]
            low, high = np.minimum(low, (centre - reach).min(axis=0)), np.maximum(high, (centre + reach).max(axis=0))
            height.append(data.xpos[1, 2])
        size = high - low
        self._roaming, self._height = roaming, float(np.mean(height))
        self._camera = camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        camera.lookat[:] = (low + high) / 2
        camera.distance = 1.6 * float(np.linalg.norm(size)) / 2 / np.tan(np.radians(model.vis.global_.fovy) / 2)
        camera.azimuth, camera.elevation = 135.0, -25.0
        if size[2] < 0.3 * max(size[0], size[1]) and not roaming:
            # Flat on a table: from above.
            camera.azimuth, camera.elevation = 90.0, -75.0
        elif size[1] < 0.6 * max(size[0], size[2]):
            # In a plane that stands: from the side.
            camera.azimuth, camera.elevation = 90.0, -12.0

    def at(self, root: np.ndarray) -> Any:
        """MuJoCo's camera for a picture in which the root body is there."""
        if self._roaming:
            self._camera.lookat[:] = (root[0], root[1], self._height)
        return self._camera


def _add_goal(scene: Any, tape: Tape, model: Any) -> None:
    """A ball at the place to be reached, unless the task has a body for it."""
    if tape.goal is None or mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "target") >= 0 or scene.ngeom >= scene.maxgeom:
        return
    place = np.append(tape.goal[tape.facts.shown], 0.3).astype(np.float64)
    mujoco.mjv_initGeom(scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, 0.3), place, np.eye(3).reshape(-1), GOAL_COLOUR)
    scene.ngeom += 1


def write(frames: Iterator[np.ndarray], target: Path, fps: float) -> None:
    """Code pictures of one size as a video, whole or not at all."""
    # The ending says which kind of video it is.
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        (_write_gif if target.suffix == ".gif" else _write_mp4)(frames, draft, fps)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _write_mp4(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    import imageio_ffmpeg

    first = next(frames)
    size = (first.shape[1], first.shape[0])
    shape: dict[str, Any] = {"fps": fps, "quality": 7, "macro_block_size": 2, "output_params": ["-movflags", "+faststart"], "ffmpeg_log_level": "error"}
    with closing(imageio_ffmpeg.write_frames(str(path), size, **shape)) as video:
        video.send(None)
        video.send(np.ascontiguousarray(first))
        for frame in frames:
            video.send(np.ascontiguousarray(frame))


def _write_gif(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    from PIL import Image

    first = Image.fromarray(next(frames)).quantize(255)
    # One palette: colours that change from picture to picture flicker.
    rest = (Image.fromarray(frame).quantize(palette=first, dither=Image.Dither.NONE) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)


def counted(frames: Iterator[np.ndarray], number: int, tell: Callable[[str], None]) -> Iterator[np.ndarray]:
    """The same pictures; each is told of once it is drawn."""
    for count, frame in enumerate(frames, 1):
        tell(f"{count} {number}")
        yield frame


def main(arguments: list[str]) -> None:
    """Draw."""
    tape, target = load(Path(arguments[0])), Path(arguments[1])
    width, height, most = map(int, arguments[2:])
    timing = Timing.of(tape.facts.dt, most)
    assert tape.q is not None
    frames = pictures(tape, width, height, timing.stride)
    write(counted(frames, timing.pictures(len(tape.q)), lambda text: print(text, flush=True)), target, timing.fps)


if __name__ == "__main__":
    main(sys.argv[1:])
