"""Several runs from one command line: each in a folder of its own, one after the other."""

import signal
from pathlib import Path

from commandline import TRAIN, finish, on_a_cpu_in_an_empty_folder, toy

from jaxrl_long import cli
from jaxrl_long.stored import load_settings

__all__ = ["on_a_cpu_in_an_empty_folder"]


def test_every_combination_is_run_in_a_folder_of_its_own():
    code, output, _ = finish(toy("-m", "seed=0,1", "algorithm.clip=0.1,0.2", "run_dir=all of, them", "env=cartpole"))
    assert code == 0
    assert len(output.splitlines()) == 4
    assert sorted(path.name for path in Path("all of, them").iterdir()) == [
        "algorithm.clip=0.1,seed=0", "algorithm.clip=0.1,seed=1", "algorithm.clip=0.2,seed=0", "algorithm.clip=0.2,seed=1",
    ]  # fmt: skip
    stored = load_settings("all of, them/algorithm.clip=0.2,seed=1")
    assert (stored.seed, stored.algorithm.clip, stored.env.name) == (1, 0.2, "cartpole")


def test_the_worst_exit_code_of_several_runs_is_returned():
    # seed 7 exits with 75, seed 8 with 1; the last one succeeds.
    assert finish(toy("-m", "seed=7,0", "run_dir=a"))[0] == 75
    assert finish(toy("-m", "seed=8,7,0", "run_dir=b"))[0] == 1


def test_several_runs_are_refused_together_before_the_first_one_starts():
    code, output, errors = finish(toy("-m", "seed=0,-1", "num_envs=256,100", "rollout_length=1"))
    assert (code, output) == (2, "")
    assert "seed=-1 is below 0" in errors
    assert "num_envs=100 x rollout_length=1" in errors
    assert not Path("runs").exists()


def test_a_list_that_nobody_could_run_is_refused_at_once(capsys):
    assert cli.run(TRAIN, ["-m", "seed=range(0,1000000000)"]) == 2
    assert cli.run(TRAIN, ["-m", "seed=range(0,40)", "num_envs=range(1,41)"]) == 2
    assert "-m lists 1600 runs or more; at most 1000 are run at once." in capsys.readouterr().err


def test_a_signal_stops_the_run_under_way_and_those_that_would_follow():
    process = toy("-m", "seed=0,1", "wandb.group=sleep", "run_dir=a")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("0 ")
    process.send_signal(signal.SIGTERM)
    code, output, _ = finish(process)
    assert (code, output) == (75, "")
    assert [path.name for path in Path("a").iterdir()] == ["seed=0"]
