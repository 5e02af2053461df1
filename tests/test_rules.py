import dataclasses
import math
import os

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jaxrl_long import machine, rules
from jaxrl_long.config import (
    AlgorithmSettings,
    DisturbSettings,
    EnvSettings,
    EvalSettings,
    EvaluateSettings,
    MlflowSettings,
    ReplaySettings,
    RestartSettings,
    Settings,
    StopSettings,
)
from jaxrl_long.rules import EnvFacts, broken, divisors, environments, learning, nearest_divisors, nearest_multiples, resolve


def ppo(**values):
    return AlgorithmSettings(**values)


def test_the_defaults_keep_every_rule():
    assert broken(Settings()) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            Settings(num_envs=100, rollout_length=1, algorithm=ppo(minibatches=32)),
            "num_envs=100 x rollout_length=1 = 100 samples can't be split into algorithm.minibatches=32. "
            "Nearest: num_envs=96 or 128, algorithm.minibatches=25 or 50.",
        ),
        (
            Settings(num_envs=100, rollout_length=32, algorithm=ppo(minibatches=48)),
            # 48 / gcd(48, 32) = 3: any multiple of 3 environments would do.
            "num_envs=100 x rollout_length=32 = 3200 samples can't be split into algorithm.minibatches=48. "
            "Nearest: num_envs=99 or 102, algorithm.minibatches=40 or 50.",
        ),
        (
            Settings(num_envs=8, rollout_length=1, devices=2, algorithm=ppo(minibatches=8), eval=EvalSettings(num_envs=2)),
            "num_envs=8 / devices=2 x rollout_length=1 = 4 samples can't be split into algorithm.minibatches=8. Nearest: num_envs=16, algorithm.minibatches=4.",
        ),
        (
            Settings(num_envs=100, devices=3, eval=EvalSettings(num_envs=63)),
            "num_envs=100 can't be split over devices=3. Nearest: num_envs=99 or 102, devices=2 or 4.",
        ),
        (Settings(devices=3, num_envs=192), "eval.num_envs=64 can't be split over devices=3. Nearest: 63 or 66."),
        (
            Settings(num_envs=2**20, rollout_length=2**12),
            "num_envs=1048576 x rollout_length=4096 = 4294967296 samples is above 2147483647. Nearest: num_envs=524287, rollout_length=2047.",
        ),
        (Settings(block=48), "block=48 does not divide num_envs=256. Nearest: 32 or 64."),
        (Settings(block=96, devices=2), "block=96 does not divide num_envs=256 / devices=2 = 128. Nearest: 64 or 128."),
        (
            Settings(num_envs=100, rollout_length=32, replay=ReplaySettings(capacity=100_000)),
            "replay.capacity=100000 is not a multiple of rollout_length x num_envs = 3200. Nearest: 99200 or 102400.",
        ),
        (
            Settings(replay=ReplaySettings(capacity=2 * 8192), algorithm=ppo(reuse=3)),
            "replay.capacity=16384 holds 2 rollouts, but algorithm.reuse=3 reads 4. Nearest: replay.capacity=32768, algorithm.reuse=1.",
        ),
        (Settings(replay=ReplaySettings(capacity=5)), "replay.capacity=5 is not a multiple of rollout_length x num_envs = 8192. Nearest: 8192."),
        (
            Settings(replay=ReplaySettings(save=False, save_every=60.0)),
            "replay.save_every=60 does not go with replay.save=false. Nearest: replay.save=true or replay.save_every=0.",
        ),
        (Settings(algorithm=ppo(lookahead=1.5)), "algorithm.lookahead=1.5 is neither 0 (off) nor at least 2. Nearest: 0 or 2."),
        (Settings(algorithm=ppo(lookahead_end=1)), "algorithm.lookahead_end=1 is neither 0 (off) nor at least 2. Nearest: 0 or 2."),
        (
            Settings(algorithm=ppo(discount=1, lookahead_end=500)),
            "algorithm.lookahead_end=500 has no start to grow from: algorithm.discount=1 looks ahead for ever. Nearest: algorithm.lookahead=100.",
        ),
        (Settings(EnvSettings("reacher"), disturb=DisturbSettings(push=1)), "disturb.push=1: env=reacher can't be pushed. Nearest: disturb.push=0."),
        (
            Settings(EnvSettings("cartpole"), disturb=DisturbSettings(mass=0.2)),
            "disturb.mass=0.2: env=cartpole has no body that could differ. Nearest: disturb.mass=0.",
        ),
        (Settings(restart=RestartSettings(spacing=100)), "restart.spacing=100 is not a multiple of rollout_length=32. Nearest: 96 or 128."),
        (
            Settings(restart=RestartSettings(pool=4, renew=8)),
            "restart.renew=8 is above restart.pool=4. Nearest: restart.renew=4 or restart.pool=8.",
        ),
        (
            Settings(env=EnvSettings("humanod")),
            "env=humanod: no environment of this name. Closest: humanoid. Or package.module:Class of your own.",
        ),
        (Settings(env=EnvSettings("a b:C")), "env=a b:C is not of the form package.module:Class."),
        (
            Settings(env=EnvSettings("no_such_package.module:World")),
            "env=no_such_package.module:World: no package no_such_package can be imported. Run from the folder that holds it, or install it.",
        ),
        (Settings(env=EnvSettings("swimmer", "mjx")), "env.backend=mjx is not supported by env=swimmer. Supported: generalized."),
        (Settings(env=EnvSettings("cartpole", "mjx")), "env.backend=mjx: env=cartpole has no choice of backends. Leave it at auto."),
        (EvaluateSettings(), "run= is missing: name the folder of the run, as in run=runs/ant."),
        (EvaluateSettings(run=".", checkpoint="newest"), "checkpoint=newest is neither latest nor best nor the number of an update."),
        (
            Settings(stop=StopSettings(cost=20.0)),
            "stop.cost=20 needs stop.price, what an hour of this machine costs in USD, such as stop.price=2.5.",
        ),
        (EvaluateSettings(run=".", devices=3), "num_envs=128 can't be split over devices=3. Nearest: num_envs=126 or 129, devices=2 or 4."),
    ],
)
def test_a_broken_rule_is_told_with_values_that_work(settings, text):
    assert broken(settings) == [text]


def test_a_horizon_beyond_the_worlds_own_limit_names_the_limit(monkeypatch):
    monkeypatch.setattr("jaxrl_long.rules.world.environments", lambda: {"limited": EnvFacts(1, num_actions=2, max_steps=1000)})
    assert broken(Settings(horizon=2500, env=EnvSettings("limited"))) == [
        "horizon=2500 is above the inner limit of env=limited, 1000 steps, which can't be switched off. Nearest: 1000."
    ]
    assert broken(Settings(horizon=1000, env=EnvSettings("limited"))) == []


def test_a_rule_that_reads_a_setting_known_to_be_wrong_is_left_out():
    settings = Settings(num_envs=100, algorithm=ppo(minibatches=48), block=7)
    assert broken(settings, bad=["num_envs"]) == []
    assert len(broken(settings, bad=["block"])) == 1


def test_a_users_class_needs_a_package_that_can_be_found_and_does_not_import_it(tmp_path, monkeypatch):
    (tmp_path / "my_world.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert broken(Settings(env=EnvSettings("my_world:World"))) == []


def test_a_run_dir_that_is_a_file_or_lies_below_one_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/below"):
        (text,) = broken(Settings(run_dir=str(tmp_path / name)))
        assert text == f"run_dir={tmp_path / name}: {tmp_path / 'file'} is a file. Name a folder."


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (text,) = broken(Settings(compilation_cache=str(tmp_path / "cache")))
    assert text == f"compilation_cache={tmp_path / 'cache'}: {tmp_path} can't be written to. Name a folder that can."


def test_a_name_too_long_for_a_folder_is_refused():
    (text,) = broken(Settings(run_dir="x" * 5000))
    assert "can't be used: File name too long." in text


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_nearest_divisors_divide_and_lie_around(number, wanted):
    if number % wanted:
        near = [int(text) for text in nearest_divisors(number, wanted).split(" or ")]
        assert all(number % d == 0 for d in near)
        assert [d for d in divisors(number) if near[0] < d < near[-1]] == []


@given(st.integers(1, 1000), st.integers(1, 10**6), st.integers(1, 10**5))
def test_nearest_multiples_are_multiples_within_the_limits(step, wanted, low):
    near = [int(text) for text in nearest_multiples(step, wanted, 10**9, low).split(" or ")]
    assert all(number % step == 0 and number >= low for number in near)
    assert near[-1] >= wanted or near[-1] >= low


@given(st.integers(1, 5000), st.integers(1, 200), st.integers(1, 200), st.integers(1, 8))
@hypothesis_settings(deadline=None)
def test_the_environments_that_are_suggested_for_minibatches_work(num_envs, rollout_length, minibatches, devices):
    settings = Settings(num_envs=num_envs * devices, rollout_length=rollout_length, devices=devices, algorithm=ppo(minibatches=minibatches))
    if not list(learning.batch_splits_into_minibatches(settings)):
        return
    step = devices * minibatches // math.gcd(minibatches, rollout_length)
    for suggestion in nearest_multiples(step, settings.num_envs, 2**20).split(" or "):
        assert list(learning.batch_splits_into_minibatches(dataclasses.replace(settings, num_envs=int(suggestion)))) == []


def resolved(monkeypatch, cores, settings, kind="cpu"):
    monkeypatch.setattr(machine, "find_machine", lambda: kind)
    monkeypatch.setattr(machine, "usable_cores", lambda: cores)
    return resolve(settings)


def test_as_many_cores_are_used_as_every_rule_allows(monkeypatch):
    assert resolved(monkeypatch, 8, Settings(num_envs=256)).devices == 8
    assert resolved(monkeypatch, 6, Settings(num_envs=256)).devices == 4
    assert resolved(monkeypatch, 8, Settings(num_envs=256, block=64)).devices == 4
    assert resolved(monkeypatch, 8, Settings(num_envs=7, algorithm=ppo(minibatches=7))).devices == 1
    assert resolved(monkeypatch, 8, Settings(num_envs=32, rollout_length=1)).devices == 2  # 32 / 2 = 16 samples in 16 minibatches
    assert resolved(monkeypatch, 8, EvaluateSettings(run=".", num_envs=12)).devices == 6


def test_devices_that_were_asked_for_stay(monkeypatch):
    assert resolved(monkeypatch, 8, Settings(devices=2)).devices == 2


def test_the_number_of_gpus_is_left_to_jax(monkeypatch):
    assert resolved(monkeypatch, 8, Settings(), kind="gpu").devices == 0


def test_the_backend_that_auto_means_is_named():
    assert resolve(Settings(env=EnvSettings("swimmer"))).env.backend == "generalized"
    assert resolve(Settings(env=EnvSettings("cartpole"))).env.backend == "auto"


def test_registered_environments_have_the_sizes_of_their_spaces():
    assert environments()["ant"] == EnvFacts(27, 8, None, ("spring", "positional", "generalized", "mjx"), None, True)
    assert all((facts.action_size is None) != (facts.num_actions is None) for facts in environments().values())


def tracked(uri: str, *names: str) -> Settings:
    return Settings(tracker=list(names or ("mlflow",)), mlflow=MlflowSettings(uri=uri))


@pytest.mark.parametrize(
    ("package", "uri", "names", "text"),
    [
        ("tensorboardX", "auto", ("tensorboard",), "tracker=tensorboard needs tensorboardX, not installed here: pip install 'jaxrl_long[tensorboard]'."),
        ("mlflow", "auto", ("wandb", "mlflow"), "tracker=mlflow needs mlflow, not installed here: pip install 'jaxrl_long[mlflow]'."),
        ("psycopg", "postgresql://me@host/name", (), "tracker=mlflow needs psycopg, not installed here: pip install 'jaxrl_long[mlflow]'."),
    ],
)
def test_a_tracker_whose_package_is_missing_is_told_how_to_get_it(monkeypatch, package, uri, names, text):
    known = rules.tracking._installed
    monkeypatch.setattr(rules.tracking, "_installed", lambda name: name != package and known(name))
    assert rules.broken(tracked(uri, *names)) == [text]


@pytest.mark.parametrize(
    "uri",
    ["auto", "sqlite:////data/mlflow.db", "sqlite:///mlflow.db", "postgresql://me:hunter2@host:5432/name", "postgresql+psycopg://host/name", "https://host"],
)
def test_databases_and_servers_are_addresses_of_mlflow(uri):
    assert rules.broken(tracked(uri)) == []


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("mlruns", "mlflow.uri=mlruns is neither a database nor a server that is known here. Such as sqlite:////home/me/mlflow.db, "),
        ("sqlite://mlflow.db", "mlflow.uri=sqlite://mlflow.db names no file. Such as sqlite:////home/me/mlflow.db, "),
        ("postgresql://me:hunter2/@host/name", "mlflow.uri=postgresql://me:***@host/name: a password's @ / ? # are written %40 %2F %3F %23, "),
        ("postgresql://me:hunter2@3@host/name", "mlflow.uri=postgresql://me:***@host/name: a password's @ / ? # are written %40 %2F %3F %23, "),
        ("postgresql://me:***@host/name", "mlflow.uri=postgresql://me:***@host/name: passwords are not kept with a run. "),
    ],
)
def test_an_address_that_can_not_be_used_is_told_without_its_password(uri, text):
    (problem,) = rules.broken(tracked(uri))
    assert problem.startswith(text)
    assert "hunter" not in problem
    assert rules.broken(tracked(uri, "wandb")) == []
