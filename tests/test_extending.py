"""docs/extending.md, as it stands: its modules are written out, and its commands train, at a small size."""

import csv
import importlib
import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from documents import DOCS, blocks, commands, write_modules

from jaxrl_long import cli, evaluate, named, train
from jaxrl_long.cli.words import read
from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.replay import codec
from jaxrl_long.runtime import assemble, assessment, experiment
from jaxrl_long.runtime.progress import View
from jaxrl_long.runtime.stop import Stop
from jaxrl_long.runtime.tracking import make_trackers, read_rows

GUIDE = DOCS / "extending.md"
TINY = ["num_envs=8", "rollout_length=4", "eval.num_envs=4", "eval.window=20", "devices=1", "chunk=1", "report=false"]
SMALL = [*TINY, "algorithm.policy_layers=[8]", "algorithm.value_layers=[8]"]


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder that holds the guide's modules, freshly imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = [name.removesuffix(".py") for name in write_modules(GUIDE, tmp_path)]
    codec.find.cache_clear()
    yield
    for name in names:
        sys.modules.pop(name, None)


def settings(*words: str) -> Settings:
    return cli.prepare(train.COMMAND, read(train.COMMAND, list(words))).settings


def trained(*words: str) -> list[dict]:
    """The rows of a small run with these words, in the folder `run`."""
    asked = settings(*words, *SMALL, "run_dir=run")
    assert experiment.train(asked, Stop(), View(io.StringIO()), time.time()) == 0
    return read_rows(Path("run/metrics.jsonl"))


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        assemble.program(settings(*words, *SMALL))
    return str(caught.value)


def test_every_command_of_the_guide_is_one_that_can_be_given():
    called = [words[0] for words in commands(GUIDE)]
    assert {"jaxrl_long.plan", "jaxrl_long.train", "jaxrl_long.evaluate", "jaxrl_long.report"} == {*called}
    for module, *words in commands(GUIDE):
        if module == "jaxrl_long.train":
            given = [word.strip("'") for word in words]
            assert settings(*given).run_dir == next((word.removeprefix("run_dir=") for word in given if word.startswith("run_dir=")), None)


def test_an_environment_trains_and_says_when_it_succeeds():
    rows = trained("env=my_worlds:Hover", "env.options={gust: 1.0}", "horizon=100000", "algorithm.minibatches=2", "steps=64")
    assert rows[-1]["env_steps"] == 64
    assert "success_rate" in rows[-1]
    assert "gust=-1" in refused("env=my_worlds:Hover", "env.options={gust: -1}", "algorithm.minibatches=2")


def test_the_guides_own_test_of_its_world_passes():
    test_my_worlds = importlib.import_module("test_my_worlds")

    test_my_worlds.test_every_number_stays_finite_and_keeps_its_shape()
    assert test_my_worlds.Hover().obs_size == 2


def test_a_yaml_file_names_the_world_and_its_settings(tmp_path):
    [text] = blocks(GUIDE, "yaml")
    (tmp_path / "hover.yaml").write_text(text)
    asked = settings("env=hover.yaml")
    assert (asked.env.name, asked.env.options, asked.horizon, asked.algorithm.lookahead) == ("my_worlds:Hover", {"gust": 0.5}, 100_000, 200)


def test_an_algorithm_learns_goes_on_and_is_evaluated_by_its_name():
    words = ["env=cartpole", "algorithm=my_algorithms:ActorCritic", "algorithm.options={value_weight: 1.0}", "algorithm.trace=0.9"]
    first = trained(*words, "steps=64")
    # The number that only this algorithm reports.
    assert np.isfinite(first[-1]["surprise"])
    # Rollouts need no minibatches, and the ring is as small as PPO's.
    assert settings(*words, *SMALL).ring_rows == 4
    assert [row["update"] for row in trained(*words, "steps=96")] == [1, 2, 3]
    call = cli.prepare(evaluate.COMMAND, read(evaluate.COMMAND, ["run=run", "horizon=20", "num_envs=4", "devices=1"]))
    result = assessment.assess(call.settings, call.stored, say=lambda text: None)
    assert result is not None
    assert result["update"] == 3
    assert "unexpected keyword" in refused("env=cartpole", "algorithm=my_algorithms:ActorCritic", "algorithm.options={speed: 1.0}")


def test_an_algorithm_that_is_told_how_large_the_ring_is_may_draw_from_it():
    words = ["env=cartpole", "algorithm=my_algorithms:ActorCritic", "replay.capacity=320", "replay.begin=64"]
    made = assemble.layout(settings(*words, *SMALL))
    # 320 transitions of 8 environments; 64 of them first; a transition and what followed it.
    assert (made.capacity, made.begin, made.window) == (40, 8, 2)
    assert "replay.begin=999 is more than the ring holds, 320" in refused(*words[:3], "replay.begin=999")


def test_a_codec_rounds_as_it_says_and_trains():
    root = codec.find("my_codecs:Root")
    x = jnp.array([0.0, 0.01, -1.0, 30.0, 1000.0]).reshape(-1, 1, 1)
    back = root.decode(root.encode(x, None).row, (), ()).reshape(-1)
    # Half a step of the root, 1/25.4 = 0.0394, is 2 * 0.0394 * √|x| + 0.0394² of x.
    assert (jnp.abs(back - x.reshape(-1))[:4] <= 0.08 * jnp.sqrt(jnp.abs(x.reshape(-1)[:4])) + 0.0016).all()
    np.testing.assert_allclose(back[4], 100.0, rtol=1e-5)
    sac = ["algorithm=sac", "replay.capacity=320", "replay.begin=32", "algorithm.batch=8", "algorithm.update_ratio=0.1"]
    rows = trained("env=cartpole", *sac, "replay.codec=obs:my_codecs:Root", "steps=128")
    assert np.isfinite(rows[-1]["value_loss"])
    assert rows[-1]["grad_norm"] > 0


def test_codecs_of_ones_own_are_for_all_fields_or_by_field():
    def codecs(text: str) -> dict[str, str]:
        return settings("env=cartpole", f"replay.codec={text}").replay.codecs()

    # What probabilities are computed from is not rounded to 8 bits.
    assert codecs("my_codecs:Root") == {"obs": "my_codecs:Root", "action": "my_codecs:Root", "choice": "bfloat16"}
    assert codecs("'obs:my_codecs:Root,action:int8'") == {"obs": "my_codecs:Root", "action": "int8"}
    assert "choice may be float32 or bfloat16 or float16" in refused("env=cartpole", "replay.codec=choice:my_codecs:Root")


def test_a_tracker_gets_the_rows_of_the_run_and_goes_on_after_a_resume():
    for steps in (64, 96):
        trained("env=cartpole", "tracker=my_trackers:Csv", "algorithm.minibatches=2", f"steps={steps}")
    with Path("run/metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert table[-1]["env_steps"] == "96"
    assert [row["env_steps"] for row in table] == sorted({row["env_steps"] for row in table}, key=int)
    assert json.loads(Path("run/trackers.json").read_text()).keys() == {"my_trackers:Csv"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm=my_algorithms:ActorCritc"], "no class ActorCritc. Closest: ActorCritic."),
        (["algorithm=my_codecs:Root"], "can't be built without algorithm.options"),
        (["algorithm=nowhere:Learner"], "no package nowhere can be imported"),
        (["algorithm.options={a: 1}", "algorithm.minibatches=2"], "algorithm=ppo has none"),
        (["replay.codec=my_worlds:Hover", "algorithm.minibatches=2"], "lacks sums, encode, decode, bytes"),
        (["replay.codec=nowhere:Codec", "algorithm.minibatches=2"], "no package nowhere can be imported"),
        (["tracker=nowhere:Csv", "algorithm.minibatches=2"], "no package nowhere can be imported"),
    ],
)
def test_what_is_no_such_class_is_refused_before_anything_compiles(words, said):
    assert said in refused("env=cartpole", *words)


def test_a_class_that_is_no_tracker_is_refused():
    with pytest.raises(ConfigError, match="tracker=my_worlds:Hover lacks start, log, show, finish, abandon"):
        make_trackers(Settings(tracker=["my_worlds:Hover"]), lambda text: None)


def test_a_codec_whose_rows_could_not_be_told_from_plain_numbers_is_refused(tmp_path):
    source = (tmp_path / "my_codecs.py").read_text().replace("jnp.int8", "jnp.int16")
    (tmp_path / "wide_codecs.py").write_text(source)
    assert "its rows are int16. They may be float32, bfloat16, float16, int8." in refused(
        "env=cartpole", "replay.codec=wide_codecs:Root", "algorithm.minibatches=2"
    )


def test_a_run_is_read_from_another_folder_with_the_module_that_lies_where_it_was_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(named, "HOMES", [])
    trained("env=my_worlds:Hover", "steps=64")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    sys.modules.pop("my_worlds")
    with pytest.raises(ConfigError, match="no module my_worlds can be imported"):
        named.load("env", "my_worlds:Hover")
    settings = cli.settings(evaluate.COMMAND, f"run={tmp_path / 'run'}")
    assert named.load("env", settings.env.name).__name__ == "Hover"
    # What lies there comes after everything that is installed.
    assert sys.path[-1] == str(tmp_path)
