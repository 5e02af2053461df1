"""The search for fast settings, on rates made up for it."""

import pytest
import yaml
from commandline import train

from jaxrl_long.config import Settings
from jaxrl_long.fields import ConfigError, RunError
from jaxrl_long.planning import tune


def test_a_search_goes_on_for_as_long_as_it_helps():
    # Faster with more environments up to 1024, and with half of the minibatches once; nothing else matters.
    def rate(settings: Settings) -> float | None:
        if settings.num_envs > 4096:
            return None
        return 100.0 * min(settings.num_envs, 1024) / 256 * (1.5 if settings.algorithm.minibatches == 8 else 1.0)

    said: list[str] = []
    found = tune.search(Settings(devices=1), rate, said.append)
    assert (found.settings.num_envs, found.settings.algorithm.minibatches, found.settings.rollout_length) == (1024, 8, 32)
    assert (found.before, found.rate) == (100.0, 600.0)
    assert any("num_envs=1024" in line for line in said)
    preset = yaml.safe_load(tune.preset(found))
    assert preset == {"num_envs": 1024, "rollout_length": 32, "block": 0, "algorithm": {"minibatches": 8}}


def test_only_what_the_algorithm_reads_is_searched_and_written():
    settings = Settings(devices=1)
    settings.algorithm.name = "sac"
    said: list[str] = []
    found = tune.search(settings, lambda settings: float(settings.num_envs <= 512) * settings.num_envs, said.append)
    assert "minibatches" not in " ".join(said)
    assert yaml.safe_load(tune.preset(found)) == {"num_envs": 512, "rollout_length": 32, "block": 0}


def test_noise_is_not_taken_for_speed():
    found = tune.search(Settings(devices=1), lambda settings: 100.0 + 2.0 * (settings.num_envs > 256), lambda _: None)
    assert found.settings == Settings(devices=1)


def test_a_search_that_can_not_begin_says_so():
    with pytest.raises(RunError, match="do not fit into memory"):
        tune.search(Settings(), lambda _: None, lambda _: None)


def test_a_preset_is_a_machine_that_train_takes_and_is_never_overwritten(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    path = tmp_path / "tuned.yaml"
    found = tune.Tuned(Settings(num_envs=512, rollout_length=16, block=32), 2.0, 1.0)
    tune.write_preset(found, str(path))
    settings = train(f"machine={path}", "devices=1")
    assert (settings.num_envs, settings.rollout_length, settings.block) == (512, 16, 32)
    with pytest.raises(ConfigError, match="exists already"):
        tune.check_preset(str(path))
    with pytest.raises(ConfigError, match="no YAML file"):
        tune.check_preset(str(tmp_path / "tuned"))
    with pytest.raises(ConfigError, match="no folder that can be written to"):
        tune.check_preset(str(tmp_path / "nowhere" / "tuned.yaml"))
    with pytest.raises(ConfigError, match="can't be written"):
        tune.check_preset("x" * 300 + ".yaml")
    with pytest.raises(ConfigError, match="exists already"):
        tune.write_preset(found, str(path))


def test_what_was_learnt_is_told_per_minute():
    assert tune.Learned(300.0, 90.0).per_minute == 200.0
