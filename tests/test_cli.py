import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import EVALUATE, REPORT, TRAIN, call, finish, on_a_cpu_in_an_empty_folder, problems, toy, train

from jaxrl_long import cli, rules
from jaxrl_long.cli.words import names
from jaxrl_long.config import EvaluateSettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.rules import CONFIGS, environments
from jaxrl_long.stored import save_settings

__all__ = ["on_a_cpu_in_an_empty_folder"]

# Values


def test_without_words_the_defaults_of_this_machine_and_of_ant_apply():
    settings = train()
    assert (settings.env.name, settings.env.backend, settings.machine, settings.num_envs, settings.devices) == ("ant", "spring", "cpu", 256, 2)


def test_whole_floats_become_ints():
    settings = train("steps=5e6", "horizon=1e6", "num_envs=256.0", "seed=1_000")
    assert [settings.steps, settings.horizon, settings.num_envs, settings.seed] == [5_000_000, 1_000_000, 256, 1000]
    assert all(type(value) is int for value in (settings.steps, settings.horizon, settings.num_envs))


def test_every_kind_of_value_can_be_written():
    settings = train(
        "algorithm.policy_layers=[32,16]", "algorithm.learning_rate=1e-4", "deterministic=true", "wandb.group=007", "wandb.entity=null",
        "env.options.healthy_reward=2", "+env.options.deep.er=[1,a]", "wandb.project='a, b'",
    )  # fmt: skip
    assert settings.algorithm.policy_layers == (32, 16)
    assert (settings.algorithm.learning_rate, settings.deterministic) == (1e-4, True)
    assert (settings.wandb.group, settings.wandb.entity, settings.wandb.project) == ("007", None, "a, b")
    assert settings.env.options == {"healthy_reward": 2, "deep": {"er": [1, "a"]}}


def test_the_last_of_a_repeated_setting_wins():
    assert train("seed=1", "seed=2").seed == 2
    assert train("env=ant", "env=cartpole").env.name == "cartpole"


@pytest.mark.parametrize("path", ["a b", "a=b", "a,b", "${HOME}", "[x", "a'b\"c", "seed=0,algorithm.clip=0.1", "~x", "é{}()#", "?*"])
def test_paths_are_taken_as_they_are(path):
    assert train(f"run_dir={path}").run_dir == path
    assert train(f"compilation_cache={path}").compilation_cache == path


def test_all_problems_are_told_at_once():
    assert problems("nun_envs=3", "num_envs=2.5", "clip=3", "steps=nan", "algorithm.schedule=linar", "env=humanod", "deterministic=1") == [
        "nun_envs=3: no such setting. Closest: num_envs or eval.num_envs.",
        "clip=3: no such setting. Closest: algorithm.clip.",
        "steps=nan is not a whole number.",
        "num_envs=2.5 is not a whole number. Nearest: 2 or 3.",
        "deterministic=1 is neither true nor false.",
        "algorithm.schedule=linar is not one of constant, linear, kl. Closest: linear.",
        "env=humanod: no environment of this name. Closest: humanoid. Or package.module:Class of your own.",
    ]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("seed=0,1", "seed=0,1 lists several values. Add -m to run each of them, or write one value; a list is written [1,2]."),
        ("seed=[1", "seed=[1 can't be read: "),
        ("num_envs=1e12", "num_envs=1000000000000 is above 1048576. Nearest: 1048576."),
        ("num_envs=" + "9" * 5000, "num_envs=999"),
        ("num_envs=${oc.env:NO_SUCH_VARIABLE}", "The settings can't be put together: "),
        ("replay=3", "replay=3: replay holds several settings. Set one of them: replay.capacity= or replay.memory="),
        ("machine=laptop", "machine=laptop: no such file in configs/machine. Known: cpu, gpu."),
        ("tracker=wanddb", "tracker=wanddb: no such file in configs/tracker. Closest: wandb."),
        ("env={nam: ant}", "env.nam: no such setting. Closest: env.name."),
        ("env=[ant]", "env=[ant]: env holds several settings. Set one of them: env.name= or env.backend="),
        ("tracker=[mlflw]", "tracker=[mlflw] is not one of wandb, mlflow, tensorboard. Closest: mlflow."),
        ("algorithm=td9", "algorithm=td9: no such file in configs/algorithm. "),
        ("machine=no.yaml", "machine=no.yaml: no such file."),
        ("env=../machine/gpu", "env=../machine/gpu: no environment of this name. "),
        ("run_dir=", "run_dir= is empty."),
        ("hydra.run.dir=x", "hydra.run.dir=x: no such setting. "),
        ("horizon", "horizon: settings are written key=value. Closest: horizon."),
        ("--steps=5", "--steps=5: no such option. Known: -h or --help, -m or --multirun. Settings are written without dashes: steps=5."),
        ("~seed", "~seed: settings can't be removed. Write key=value."),
        ("a/b=1", "a/b=1: not a setting's name. Write key=value."),
    ],
)
def test_a_word_that_does_not_fit_is_told_with_the_rule(word, text):
    (problem,) = problems(word)
    assert problem.startswith(text)
    assert len(problem) < 400


def test_a_value_that_cannot_be_read_does_not_hide_the_others():
    assert len(problems("seed=[1", "steps=0", "block=7")) == 3


# Groups


@pytest.mark.parametrize("name", sorted(environments()))
def test_every_registered_environment_has_settings_that_fit_on_both_kinds_of_machine(name):
    assert train(f"env={name}").env.name == name
    assert train(f"env={name}", "machine=gpu", "devices=1").env.name == name


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_file_of_a_group_says_where_its_settings_belong(path):
    assert path.read_text().startswith("# @package _global_\n")


def test_the_command_line_wins_over_env_over_machine():
    Path("mine.yaml").write_text("num_envs: 128\nseed: 3\nrollout_length: 8\n")
    Path("world.yaml").write_text("env: {name: cartpole}\nrollout_length: 16\nseed: 4\n")
    settings = train("machine=mine.yaml", "env=world.yaml", "seed=5")
    assert (settings.num_envs, settings.rollout_length, settings.seed) == (128, 16, 5)
    assert (settings.env.name, settings.machine) == ("cartpole", "mine.yaml")


def test_a_gpu_gets_thousands_of_environments():
    assert (train("machine=gpu").num_envs, train("machine=gpu").machine) == (4096, "gpu")


def test_a_wrong_value_in_a_file_of_ones_own_is_named():
    Path("mine.yaml").write_text("num_envs: many\nsteeps: 3\n")
    assert problems("machine=mine.yaml") == ["steeps: no such setting. Closest: steps.", "num_envs=many is not a whole number."]


def test_a_file_that_is_no_mapping_is_refused():
    Path("mine.yaml").write_text("- 1\n")
    assert problems("machine=mine.yaml") == ["machine=mine.yaml can't be read: it holds no settings."]


def test_a_bare_env_name_brings_that_environments_own_settings():
    assert train("env.name=cartpole").num_envs == train("env=cartpole").num_envs == 64


def test_a_backend_can_be_chosen_beside_the_environment():
    assert train("env.backend=mjx", "env=ant").env.backend == "mjx"


def test_a_users_class_needs_no_file():
    Path("my_world.py").write_text("raise RuntimeError('imported before the settings were decided')")
    sys.path.insert(0, str(Path.cwd()))
    try:
        assert train("env=my_world:World").env.name == "my_world:World"
    finally:
        sys.path.pop(0)


def test_the_tracker_is_chosen_by_name_or_list():
    assert [train(word).tracker for word in ("tracker=none", "tracker=wandb", "tracker=[wandb]", "tracker=[]")] == [[], ["wandb"], ["wandb"], []]
    assert train("tracker=[wandb,mlflow]").tracker == ["wandb", "mlflow"]
    assert [train(f"tracker={name}").tracker for name in ("mlflow", "tensorboard")] == [["mlflow"], ["tensorboard"]]


def test_a_password_with_a_comma_is_neither_a_list_nor_shown():
    assert train("tracker=mlflow", "mlflow.uri=postgresql://me:a,b@host/name").mlflow.uri == "postgresql://me:a,b@host/name"
    (problem,) = problems("tracker=mlflow", "mlflow.uri=postgres://me:hunter2@host/name")
    assert problem.startswith("mlflow.uri=postgres://me:***@host/name is neither a database nor a server that is known here. Such as sqlite:///")


def test_a_plan_needs_no_tracker(monkeypatch):
    monkeypatch.setattr(rules.tracking, "_installed", lambda package: False)
    plan = cli.Command("plan", "Plan a run.", Settings, lambda call: None, config="train", creates=False)
    assert call("tracker=mlflow", command=plan).settings.tracker == ["mlflow"]
    assert problems("tracker=mlflow") == ["tracker=mlflow needs mlflow and sqlalchemy and alembic, not installed here: pip install 'jaxrl_long[mlflow]'."]


# Runs


@pytest.fixture
def stored():
    Path("run").mkdir()
    settings = train("seed=3", "env=hopper", "run_dir=run", "algorithm.policy_layers=[8]", "horizon=1e5")
    settings.wandb.group = "${a} \\${b}"
    save_settings(settings, "run")
    return settings


def test_run_goes_on_with_the_stored_settings_and_those_of_the_command_line(stored):
    found = call("run=run", "steps=9e6", "tracker=wandb")
    assert found.stored == stored
    assert (found.settings.steps, found.settings.tracker) == (9_000_000, ["wandb"])
    assert (found.settings.seed, found.settings.env, found.settings.run_dir) == (3, stored.env, "run")
    assert found.settings.wandb.group == stored.wandb.group


def test_run_refuses_what_would_change_what_is_learned(stored):
    # A task without settings of its own: only its name differs.
    assert problems("run=run", "seed=4", "env=fast", "env.backend=spring") == [
        "env.name=fast, but the run in run has env.name=hopper. Keep hopper, or start a new run_dir.",
        "seed=4, but the run in run has seed=3. Keep 3, or start a new run_dir.",
    ]


def test_run_must_exist():
    assert problems("run=nowhere") == ["run=nowhere: no such folder."]


def test_run_and_run_dir_exclude_each_other(stored):
    assert problems("run=run", "run_dir=other") == ["run= and run_dir= can't both be given: run=DIR goes on with the run in DIR."]


def test_the_same_command_with_the_same_run_dir_goes_on(stored):
    words = ("seed=3", "env=hopper", "wandb.group=other", "run_dir=run", "algorithm.policy_layers=[8]", "horizon=1e5")
    assert call(*words).stored == stored
    assert problems(*words, "horizon=1000") == ["horizon=1000, but the run in run has horizon=100000. Keep 100000, or start a new run_dir."]


def test_evaluate_takes_the_runs_world_and_seed_and_its_own_numbers(stored):
    found = call("run=run", "num_envs=64", "json=true", "checkpoint=120", "env.floating_origin=false", command=EVALUATE)
    settings = found.settings
    assert (settings.run, settings.env.name, settings.env.floating_origin) == ("run", "hopper", False)
    assert (settings.horizon, settings.seed, settings.num_envs, settings.json, settings.checkpoint) == (100_000, 3, 64, True, "120")
    assert found.stored == stored


def test_evaluate_needs_a_run():
    assert problems(command=EVALUATE) == ["run= is missing: name the folder of the run, as in run=runs/ant."]


# Words


def test_python_gets_the_settings_that_the_command_line_would_and_nothing_is_written():
    settings = cli.settings(TRAIN, "env=cartpole", "steps=5e4")
    assert (settings.env.name, settings.steps, settings.horizon, settings.algorithm.minibatches) == ("cartpole", 50_000, 500, 4)
    assert not Path("runs").exists()


def test_a_verb_and_folders_may_come_before_settings(stored):
    Path("seed=0").mkdir()
    found = call("plot", "run", "seed=0", "run=run", command=REPORT)
    # `seed` is a setting of this command, so the word sets it; ./seed=0 names the folder.
    assert (found.verb, found.paths, found.settings.seed) == ("plot", ["run"], 0)
    assert call("./seed=0", "run=run", command=REPORT).paths == ["./seed=0"]


def test_folders_are_counted_and_must_exist(stored):
    assert problems("table", command=REPORT) == ["report takes 1 to 2 folders, not 0."]
    assert problems("./none", command=REPORT) == ["./none: no such folder."]
    assert problems("tabel", command=REPORT) == ["tabel: no such verb. Closest: table."]


def test_help_tells_every_setting_group_and_exit_code_within_the_width_of_a_screen(capsys):
    assert cli.run(TRAIN, ["--help", "env=cartpole"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}=" in text for name in names(TRAIN) if name != "run")
    assert "num_envs=64 " in text
    assert "halfcheetah" in text
    assert "env=ant horizon=1000000" in text
    assert "75 stopped" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_help_is_given_whatever_else_is_wrong(capsys):
    assert cli.run(TRAIN, ["-h", "num_envs=0", "nonsense=1"]) == 0
    assert cli.run(EVALUATE, ["-h"]) == 0
    assert "run=null" in capsys.readouterr().out


# Exit codes


def test_settings_errors_go_to_standard_error_and_exit_with_2_and_write_nothing(capsys):
    assert cli.run(TRAIN, ["num_envs=0", "run_dir=new"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "ConfigError: 1 setting doesn't fit.\n  num_envs=0 is below 1. Nearest: 1.\n"
    assert list(Path.cwd().iterdir()) == []


def test_settings_errors_found_later_exit_with_2_too(capsys):
    def refuse(call):
        raise ConfigError(["env=x:Y has no attribute Y."])

    assert cli.run(cli.Command("evaluate", "", EvaluateSettings, refuse), ["run=."]) == 2
    assert "holds no settings.yaml" in capsys.readouterr().err


def test_a_run_without_a_folder_gets_one_of_its_own():
    for _ in range(2):
        assert cli.run(TRAIN, ["env=cartpole", "seed=4"]) == 0
    folders = sorted(path.name for path in Path("runs").iterdir())
    assert len(folders) == 2
    assert all(re.fullmatch(r"cartpole-\d{8}-\d{6}-s4(-2)?", name) for name in folders)


MEASURED = """
import resource, runpy, sys
sys.argv = ["train", *sys.argv[1:]]
try:
    runpy.run_module("jaxrl_long.train", run_name="__main__")
finally:
    use = resource.getrusage(resource.RUSAGE_SELF)
    print("jax" in sys.modules, "brax" in sys.modules, use.ru_utime + use.ru_stime)
"""


def test_minibatches_that_do_not_fit_are_refused_within_two_seconds_and_without_jax():
    words = ["num_envs=100", "rollout_length=1", "algorithm.minibatches=32"]
    environment = os.environ | {"PYTHONPATH": str(CONFIGS.parent.parent)}
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=False, env=environment)
    with_jax, with_brax, seconds = done.stdout.split()
    assert done.returncode == 2
    assert "num_envs=96 or 128" in done.stderr
    assert (with_jax, with_brax) == ("False", "False")
    assert float(seconds) <= 2


def test_a_bug_of_ours_exits_with_1_and_shows_where():
    code, _, errors = finish(toy("wandb.group=bug"))
    assert code == 1
    assert "Traceback" in errors
    assert "our bug" in errors


def test_a_command_passes_its_exit_code_on_and_writes_only_into_its_run():
    code, output, errors = finish(toy("seed=7", "run_dir=a b=c"))
    assert (code, output, errors) == (75, "7 a b=c False\n", "")
    assert sorted(path.name for path in Path.cwd().iterdir() if path.name != "__pycache__") == ["a b=c", "toy.py"]
