"""Pictures of a trained agent: what was recorded is what an evaluation sees, and what can't be shown is said before anything is computed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image, ImageSequence

from jaxrl_long.fields import RunError
from jaxrl_long.reporting import film, studio
from jaxrl_long.runtime import tape
from jaxrl_long.runtime.progress import steps_bar


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=True)


def failing(*words: str) -> str:
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 2
    return ended.stderr


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates."""
    folder = tmp_path_factory.mktemp("runs") / "hopper"
    small = ["num_envs=16", "rollout_length=8", "algorithm.minibatches=4", "algorithm.policy_layers=[8]", "algorithm.value_layers=[8]", "eval.every=0"]
    python("-m", "jaxrl_long.train", "env=hopper", *small, "steps=256", "report=false", f"run_dir={folder}")
    return folder


def render(folder: Path, *words: str) -> list[Path]:
    return [Path(line) for line in python("-m", "jaxrl_long.render", f"run={folder}", *words).stdout.splitlines()]


def test_what_is_recorded_is_what_an_evaluation_sees_and_is_recorded_once(hopper):
    asked = ("format=path", "num_envs=4", "at=5", "steps=15", "seed=3")
    (plot,) = render(hopper, *asked)
    assert imread(plot).shape[1] > 300
    (file,) = plot.parent.glob("*.npz")
    recorded = tape.load(file)
    assert (recorded.facts.env, recorded.facts.first, recorded.age[-1]) == ("hopper", 5, 20)
    assert recorded.q is not None
    assert len(recorded.q) == 15
    printed = python("-m", "jaxrl_long.evaluate", f"run={hopper}", "horizon=20", "num_envs=4", "seed=3", "json=true", "devices=1").stdout
    assert recorded.score[-1].mean() == pytest.approx(json.loads(printed.splitlines()[-1])["window_return"], rel=1e-6)
    before = (file.stat().st_mtime_ns, plot.stat().st_mtime_ns)
    assert render(hopper, *asked) == [plot]
    assert (file.stat().st_mtime_ns, plot.stat().st_mtime_ns) == before


def test_of_a_world_without_bodies_the_plot_is_what_is_made(tmp_path):
    small = ["num_envs=16", "rollout_length=8", "algorithm.minibatches=4", "algorithm.policy_layers=[8]", "algorithm.value_layers=[8]", "eval.every=0"]
    python("-m", "jaxrl_long.train", "env=cartpole", *small, "steps=128", "report=false", f"run_dir={tmp_path}")
    ended = python("-m", "jaxrl_long.render", f"run={tmp_path}", "num_envs=4", "steps=20")
    assert "env=cartpole has no bodies that MuJoCo could draw: the plot is all" in ended.stderr
    (plot,) = ended.stdout.splitlines()
    assert imread(plot).shape[1] > 300


@pytest.mark.graphics
def test_a_video_shows_a_body_that_moves(hopper):
    video, _ = render(hopper, "format=gif", "num_envs=2", "steps=40", "width=96", "height=64", "fps=10")
    with Image.open(video) as shown:
        assert shown.size == (96, 64)
        frames = [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(shown)]
    assert len(frames) > 2
    # Not one colour, and not one picture.
    assert frames[0].std() > 5
    assert np.abs(frames[-1] - frames[0]).max() > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["format=gif", "env.name=cartpole"], "env=cartpole has no bodies that MuJoCo could draw. Nearest: format=path"),
        (["format=path", "width=95"], "width=95 is odd. Nearest: width=94 or 96."),
        (["format=avi"], "format=avi"),
    ],
)
def test_what_can_not_be_shown_is_refused(hopper, words, said):
    assert said in failing("-m", "jaxrl_long.render", f"run={hopper}", *words)


def test_a_library_that_crashes_is_told_of_in_a_sentence_and_takes_nobody_with_it(tmp_path, monkeypatch):
    crash = "import os, signal, sys; os.kill(os.getpid(), signal.SIGSEGV) if os.environ['MUJOCO_GL'] == 'egl' else sys.exit('no screen')"
    monkeypatch.setattr(studio, "FILM", (sys.executable, "-c", crash))

    with (
        steps_bar("draw", 1) as bar,
        pytest.raises(RunError, match=r"EGL crashed \(SIGSEGV\); OSMesa failed \(no screen\)\. What it shows is kept in .*tape\.npz"),
    ):
        studio.draw(tmp_path / "tape.npz", tmp_path / "video.gif", (96, 64, 10), ["egl", "osmesa"], bar, lambda: None)


def test_a_body_far_away_is_drawn_near_the_middle_where_the_ground_looks_the_same():
    # 1003 = 250 x 4 + 3 -> -1; the second coordinate is no place.
    np.testing.assert_allclose(film.wrapped(np.array([[1003.0, 1003.0]]), np.array([0])), [[-1.0, 1003.0]])


@pytest.mark.parametrize(("dt", "most", "stride", "fps"), [(0.05, 30, 1, 20.0), (0.008, 30, 5, 25.0), (0.01, 100, 1, 100.0)])
def test_time_passes_as_fast_as_for_the_agent(dt, most, stride, fps):
    timing = tape.Timing.of(dt, most)
    assert (timing.stride, round(timing.fps, 6)) == (stride, fps)


def test_a_file_that_is_no_recording_is_told_of(tmp_path):
    (tmp_path / "tape.npz").write_bytes(b"no")
    with pytest.raises(RunError, match="is no recording that can be read"):
        tape.load(tmp_path / "tape.npz")
