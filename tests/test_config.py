import dataclasses

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jaxrl_long.config import (
    MAX_ENVS,
    AlgorithmSettings,
    EnvSettings,
    EvalSettings,
    EvaluateSettings,
    MlflowSettings,
    ReplaySettings,
    Settings,
    WandbSettings,
)
from jaxrl_long.fields import ConfigError, docs, leaves
from jaxrl_long.stored import continuation_problems, load_settings, save_settings


def test_a_million_steps_are_rounded_up_to_eight_whole_updates():
    settings = Settings(steps=1_000_000, num_envs=4096, rollout_length=32)
    # 4096 x 32 = 131,072 a update; 1,000,000 / 131,072 = 7.6
    assert (settings.samples_per_update, settings.updates, settings.total_steps) == (131_072, 8, 1_048_576)


def test_steps_that_fit_whole_updates_are_not_rounded():
    assert Settings(steps=131_072 * 7, num_envs=4096, rollout_length=32).updates == 7


def test_steps_beyond_32_bits_are_counted_exactly():
    assert Settings(steps=2_147_484_672, num_envs=64, rollout_length=16).total_steps == 2_147_484_672


def test_the_ring_holds_one_rollout_and_those_that_are_reused_unless_told_otherwise():
    assert Settings(rollout_length=32).ring_rows == 32
    assert Settings(rollout_length=32, algorithm=AlgorithmSettings(reuse=3)).ring_rows == 128
    assert Settings(rollout_length=32, num_envs=10, replay=ReplaySettings(capacity=640)).ring_rows == 64


@pytest.mark.parametrize("tree", [Settings, EvaluateSettings])
def test_every_setting_is_documented(tree):
    assert [name for name, owner, item in leaves(tree) if not docs(owner)[item.name]] == []


def test_settings_come_back_from_their_file_exactly(tmp_path):
    settings = Settings(
        env=EnvSettings("my.module:World", options={"a": [1, {"b": None}], "c": 1e-30}),
        steps=2**40,
        algorithm=AlgorithmSettings(learning_rate=1 / 3, policy_layers=(7,)),
        tracker=["wandb"],
        wandb=WandbSettings(group="${HOME}: 'q', #1"),
        run_dir=str(tmp_path),
    )
    save_settings(settings, tmp_path)
    loaded = load_settings(tmp_path)
    assert loaded == settings
    assert isinstance(loaded.algorithm.policy_layers, tuple)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]


def test_a_folder_that_was_moved_is_found_where_it_is(tmp_path):
    (tmp_path / "old").mkdir()
    save_settings(Settings(run_dir=str(tmp_path / "old")), tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert load_settings(tmp_path / "new").run_dir == str(tmp_path / "new")


numbers = st.floats(min_value=1e-300, max_value=1.0, exclude_min=True)


groups = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=30))


@given(rate=numbers, steps=st.integers(1, 10**15), group=groups, num_envs=st.integers(1, MAX_ENVS))
@hypothesis_settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_settings_come_back_exactly(tmp_path, rate, steps, group, num_envs):
    settings = Settings(steps=steps, num_envs=num_envs, algorithm=AlgorithmSettings(learning_rate=rate), run_dir=str(tmp_path))
    settings.wandb.group = group
    save_settings(settings, tmp_path)
    assert load_settings(tmp_path) == settings


def test_a_file_of_an_older_version_takes_the_defaults_of_what_it_lacks(tmp_path):
    (tmp_path / "settings.yaml").write_text("steps: 5e6\nalgorithm: {clip: 0.1}\n")
    loaded = load_settings(tmp_path)
    assert (loaded.steps, loaded.algorithm.clip, loaded.num_envs) == (5_000_000, 0.1, 256)


def test_a_setting_of_another_version_is_named(tmp_path):
    (tmp_path / "settings.yaml").write_text("replay: {sizes: 3}\n")
    with pytest.raises(ConfigError, match=r"replay\.sizes: no such setting.*another version than 0\.1\.0"):
        load_settings(tmp_path)


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, text):
    (tmp_path / "settings.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"settings\.yaml"):
        load_settings(tmp_path)


def test_a_folder_that_is_missing_or_holds_no_run_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"run=.*nowhere: no such folder"):
        load_settings(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds no settings\.yaml"):
        load_settings(tmp_path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    save_settings(Settings(seed=1), tmp_path)
    with pytest.raises(yaml.YAMLError):
        save_settings(Settings(env=EnvSettings(options={"x": object()})), tmp_path)
    assert load_settings(tmp_path).seed == 1


def test_a_run_may_go_on_for_longer_and_be_watched_in_other_ways():
    stored = Settings(run_dir="a")
    asked = dataclasses.replace(
        stored, steps=9, chunk=3, devices=2, block=8, run_dir="b", tracker=["wandb"], eval=EvalSettings(every=1), compilation_cache="none", machine="gpu"
    )
    assert continuation_problems(stored, asked) == []


def test_a_run_may_not_change_what_it_learns():
    stored = Settings(run_dir="r")
    asked = dataclasses.replace(stored, seed=4, algorithm=AlgorithmSettings(policy_layers=(32, 32)))
    assert continuation_problems(stored, asked) == [
        "seed=4, but the run in r has seed=0. Keep 0, or start a new run_dir.",
        "algorithm.policy_layers=[32,32], but the run in r has algorithm.policy_layers=[64,64]. Keep [64,64], or start a new run_dir.",
    ]


def test_a_password_is_not_written_into_the_runs_folder(tmp_path):
    settings = Settings(mlflow=MlflowSettings(uri="postgresql://me:hunter2@host/name"))
    save_settings(settings, tmp_path)
    assert "hunter2" not in (tmp_path / "settings.yaml").read_text()
    assert load_settings(tmp_path).mlflow.uri == "postgresql://me:***@host/name"
    assert settings.mlflow.uri == "postgresql://me:hunter2@host/name"
