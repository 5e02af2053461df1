"""Films made beside training: of which agents, from checkpoints that stay as long as needed, and without any harm to the run."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commandline import problems
from PIL import Image
from test_experiment import PROBES, run, settings
from test_trackers import READ_MLFLOW, environment, reading

from jaxrl_long.config import EvalSettings, Settings
from jaxrl_long.runtime import filming
from jaxrl_long.runtime.checkpoint import Checkpoints
from jaxrl_long.runtime.filming import Filming
from jaxrl_long.runtime.stop import Stop

CAMERA = """
import pathlib, sys, time
from PIL import Image
words = dict(word.split("=", 1) for word in sys.argv[1:])
checkpoints = [path.name for path in pathlib.Path(words["run"], "checkpoints").iterdir()]
assert any(name.startswith(f"{int(words['checkpoint']):08d}-") for name in checkpoints), checkpoints
target = pathlib.Path(words["run"], "pictures", f"{words['checkpoint']}.gif")
target.parent.mkdir(exist_ok=True)
shades = [Image.new("RGB", (6, 4), (shade, 0, 0)) for shade in (0, 200)]
shades[0].save(target, save_all=True, append_images=shades[1:])
print(target)
print("another line")
"""
"""In place of `render`: as quick as a test likes it."""


def camera(monkeypatch: pytest.MonkeyPatch, script: str = CAMERA) -> None:
    monkeypatch.setattr(filming, "RENDER", (sys.executable, "-c", script))
    monkeypatch.setenv("MUJOCO_GL", "egl")


class Studio:
    """A `Filming` of a run of 12 updates that is evaluated at every second one, and what came of it."""

    def __init__(self, folder: Path, **watched: Any) -> None:
        self.said: list[str] = []
        self.shown: list[tuple[str, int]] = []
        self.checkpoints: Any = SimpleNamespace(held=set(), busy=False)
        asked = Settings(steps=12 * 8192, eval=EvalSettings(every=2, **watched))
        made: Any = Filming
        self.filming: Filming = made(asked, folder, self.checkpoints, lambda video, update: self.shown.append((video.name, update)), self.said.append)
        for update in range(2, 13, 2):
            (folder / "checkpoints" / f"{update:08d}-1").mkdir(parents=True, exist_ok=True)

    def wait(self) -> None:
        self.filming.finish(lambda: False)


def test_every_so_many_evaluations_and_the_last_are_filmed(tmp_path):
    wanted = {video: [update for update in range(2, 13, 2) if Studio(tmp_path, video=video).filming.wants(update)] for video in (0, 1, 2, 4)}
    assert wanted == {0: [], 1: [2, 4, 6, 8, 10, 12], 2: [4, 8, 12], 4: [8, 12]}


def test_a_film_starts_when_its_checkpoint_is_written_which_stays_until_it_is_done(tmp_path, monkeypatch):
    camera(monkeypatch)
    studio = Studio(tmp_path, video=1)
    studio.checkpoints.busy = True
    studio.filming.ask(2)
    studio.filming.look()
    assert (studio.shown, studio.checkpoints.held) == ([], {2})
    studio.checkpoints.busy = False
    studio.wait()
    assert (studio.shown, studio.checkpoints.held) == ([("2.gif", 2)], set())
    assert studio.said == ["waits for the film of update 2"]


def test_the_latest_waits_for_the_one_being_made_and_the_others_are_left_out(tmp_path, monkeypatch):
    camera(monkeypatch)
    studio = Studio(tmp_path, video=1)
    studio.filming.ask(2)
    studio.filming.look()
    studio.filming.ask(4)
    studio.filming.ask(6)
    assert studio.checkpoints.held == {2, 6}
    studio.wait()
    assert studio.shown == [("2.gif", 2), ("6.gif", 6)]
    assert "no film is made of update 4: the one before it is not done. A larger eval.video asks for fewer." in studio.said


def test_what_goes_wrong_with_a_film_is_one_line(tmp_path, monkeypatch):
    camera(monkeypatch, "import sys; print('first', file=sys.stderr); sys.exit('no screen')")
    studio = Studio(tmp_path, video=1)
    studio.filming.ask(2)
    studio.wait()
    assert (studio.shown, studio.checkpoints.held) == ([], set())
    assert studio.said[-1] == "training goes on without a film of update 2: no screen"


def test_a_film_that_never_ends_is_given_up_and_one_of_a_stopped_run_at_once(tmp_path, monkeypatch):
    camera(monkeypatch, "import time; time.sleep(600)")
    studio = Studio(tmp_path, video=1)
    studio.filming.ask(2)
    began = time.monotonic()
    studio.filming.finish(lambda: True)
    monkeypatch.setattr(filming, "LONGEST_S", 0.0)
    studio.filming.ask(4)
    studio.wait()
    assert time.monotonic() - began < 60
    assert studio.said[-1] == "the film of update 4 is given up after 0 s."
    assert (studio.shown, studio.checkpoints.held) == ([], set())


def test_training_hands_each_film_over_and_its_numbers_stay_the_same(tmp_path, monkeypatch):
    camera(monkeypatch)
    watched = EvalSettings(every=2, num_envs=4, window=10, video=1)
    text = run(settings(tmp_path / "filmed", eval=watched))
    assert f"film of update 4: {tmp_path / 'filmed' / 'pictures' / '4.gif'}" in text
    run(settings(tmp_path / "plain", eval=EvalSettings(every=2, num_envs=4, window=10)))

    def numbers(name: str) -> list[dict[str, Any]]:
        rows = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        return [{key: value for key, value in row.items() if not key.endswith(("_s", "_share"))} for row in rows]

    assert numbers("filmed") == numbers("plain")


def test_a_run_that_is_stopped_does_not_wait_for_its_film(tmp_path, monkeypatch):
    camera(monkeypatch, "import time; time.sleep(600)")
    began = time.monotonic()
    stop = Stop()
    asked = settings(tmp_path / "run", eval=EvalSettings(every=1, num_envs=4, window=10, video=1))
    monkeypatch.setattr(Filming, "look", lambda self, look=Filming.look: (look(self), stop.ask("enough")))
    run(asked, stop)
    assert time.monotonic() - began < 300
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() is not None


@pytest.mark.slow
def test_all_trackers_show_the_films(tmp_path):
    folder = tmp_path / "runs" / "filmed"
    program = f"import sys\nfrom jaxrl_long.runtime import filming\nfilming.RENDER = (sys.executable, '-c', {CAMERA!r})\n"
    program += "from jaxrl_long import cli, train\nsys.exit(cli.run(train.COMMAND))"
    small = ["steps=128", "num_envs=8", "rollout_length=4", "algorithm.minibatches=2", "chunk=1"]
    watched = ["eval.every=2", "eval.window=10", "eval.num_envs=4", "eval.video=2"]
    words = [f"env={PROBES}:RandomStart", *small, *watched, "tracker=[wandb,mlflow,tensorboard]", "wandb.mode=offline", f"run_dir={folder}"]
    command = [sys.executable, "-c", program, *words]
    surroundings = environment(tmp_path, MUJOCO_GL="egl")
    done = subprocess.run(command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout

    (kept,) = reading(READ_MLFLOW, f"sqlite:///{folder.parent / 'mlflow.db'}")
    assert kept["files"] == ["4.gif", "report.html", "summary.json"]
    seen = reading(READ_IMAGES, str(folder / "tensorboard"))
    assert seen == [["video", 4 * 32, 6, 4, (folder / "pictures" / "4.gif").stat().st_size]]
    (copy,) = folder.glob("wandb/offline-run-*/files/media/videos/*.gif")
    with Image.open(copy) as shown:
        assert shown.size == (6, 4)
    assert reading(READ_WANDB, str(next(folder.glob("wandb/offline-run-*/*.wandb")))) == [128]


READ_IMAGES = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
seen = EventAccumulator(sys.argv[1], size_guidance={'images': 0}).Reload()
found = [(name, image) for name in seen.Tags()['images'] for image in seen.Images(name)]
print(json.dumps([(name, image.step, image.width, image.height, len(image.encoded_image_string)) for name, image in found]))
"""
READ_WANDB = """
import json, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record
from jaxrl_long.runtime.tracking.wandb import _records
items = [item for record in _records(Path(sys.argv[1]).read_bytes()) for item in Record.FromString(record).history.item]
print(json.dumps([json.loads(item.value_json) for item in items if 'video_steps' in (item.key, *item.nested_key)]))
"""


@pytest.mark.graphics
def test_a_real_run_is_filmed_while_it_trains(tmp_path):
    folder = tmp_path / "hopper"
    small = ["num_envs=16", "rollout_length=8", "algorithm.minibatches=4", "algorithm.policy_layers=[8]", "algorithm.value_layers=[8]"]
    watched = ["eval.every=2", "eval.window=20", "eval.num_envs=4", "eval.video=1", "report=false"]
    words = ["env=hopper", *small, "steps=512", "chunk=1", *watched, f"run_dir={folder}"]
    done = subprocess.run([sys.executable, "-m", "jaxrl_long.train", *words], env=os.environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    films = [path.name for path in (folder / "pictures").glob("*.mp4")]
    assert any(name.startswith("update-4-") for name in films), done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["env=cartpole", "eval.video=2"], "eval.video=2: env=cartpole has no bodies that MuJoCo could draw. Leave it at 0."),
        (["env=ant", "eval.video=-1"], "eval.video=-1"),
    ],
)
def test_videos_that_can_not_be_made_are_refused_before_training(words, said):
    assert any(said in problem for problem in problems(*words))
