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

import mujoco as stubs
import numpy as np

from jaxrl_long.runtime.tape import Tape, Timing, load

# Its type stubs leave most of it out.
mujoco: Any = stubs

GROUND = 100.0
"""How far the ground reaches, in m."""
SHADOW, SHADOW_PIXELS = 3.0, 1024
"""How far from a body shadows are seen, in m, and how finely: the default of 4096 takes longer than all the rest."""
PERIOD = 4.0
"""Ground and light look the same everywhere to a body that is moved by so many m: a multiple of its checkers' 2 m."""
GROUND_COLOURS = np.array([[72, 88, 104], [104, 122, 138]])
GOAL_COLOUR = np.array([0.9, 0.3, 0.1, 0.8], np.float32)


def model_of(tape: Tape) -> Any:
    """The bodies, on chequered ground that reaches far where they move along it."""
    assert tape.model is not None
    model = mujoco.MjModel.from_binary_path("task.mjb", {"task.mjb": tape.model.tobytes()})
    roaming = tape.axes is not None and len(tape.axes) > 0
    for plane in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        material = model.geom_matid[plane]
        model.geom_rgba[plane, :3] = 1.0 if material >= 0 else 0.55
        if roaming:
            model.geom_size[plane, :2] = GROUND
            # Two squares of 1 m in each repetition.
            model.mat_texrepeat[material] = GROUND
        if material >= 0:
            # A mirror costs as much as the picture itself.
            model.mat_reflectance[material] = 0.0
            model.mat_rgba[material] = 1.0
            _soften(model, model.mat_texid[material].max())
    model.vis.quality.shadowsize = SHADOW_PIXELS
    if roaming:
        # Ground far from the light would shade itself here and there.
        model.vis.map.shadowclip = SHADOW / model.stat.extent
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.2, 0.4
    return model


def _soften(model: Any, texture: int) -> None:
    """Give a texture of black and white the colours of GROUND_COLOURS."""
    if texture < 0 or model.tex_nchannel[texture] != 3:
        return
    first, number = model.tex_adr[texture], model.tex_width[texture] * model.tex_height[texture]
    pixels = model.tex_data[first : first + 3 * number].reshape(-1, 3)
    white = pixels.mean(axis=1, keepdims=True) / 255
    pixels[:] = (1 - white) * GROUND_COLOURS[0] + white * GROUND_COLOURS[1]


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
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        # A hundred of them tell where it gets.
        for row in q[:: -(-len(q) // 100)]:
            pose(model, data, row)
            below, above = extent(model, data)
            root = data.xpos[1] * (roaming, roaming, False)
            low, high = np.minimum(low, below - root), np.maximum(high, above - root)
        size = high - low
        self._offset = (low + high) / 2
        self._roaming = roaming
        self._camera = camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        camera.distance = 1.3 * float(np.linalg.norm(size)) / 2 / np.sin(np.radians(model.vis.global_.fovy) / 2)
        camera.azimuth, camera.elevation = 135.0, -25.0
        if size[1] < 0.4 * max(size[0], size[2]) and size[2] > 0.2 * size[0]:
            # In a plane that stands: from the side.
            camera.azimuth, camera.elevation = 90.0, -12.0
        elif size[2] < 0.3 * max(size[0], size[1]):
            # Flat on the ground: from above.
            camera.azimuth, camera.elevation = 90.0, -50.0

    def at(self, root: np.ndarray) -> Any:
        """MuJoCo's camera for a picture in which the root body is there."""
        self._camera.lookat[:] = self._offset + root * (self._roaming, self._roaming, False)
        return self._camera


def extent(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest corner [3] of the box that all bodies are in."""
    bodies = np.flatnonzero(model.geom_bodyid > 0)
    turn = data.geom_xmat[bodies].reshape(-1, 3, 3)
    centre = data.geom_xpos[bodies] + np.einsum("gij,gj->gi", turn, model.geom_aabb[bodies, :3])
    half = np.einsum("gij,gj->gi", np.abs(turn), model.geom_aabb[bodies, 3:])
    return (centre - half).min(axis=0), (centre + half).max(axis=0)


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
