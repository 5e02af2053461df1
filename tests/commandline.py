"""Command lines for tests: commands that do nothing, one that is a process of its own, and what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl_long import cli, machine
from jaxrl_long.cli.words import read
from jaxrl_long.config import EvaluateSettings, Settings
from jaxrl_long.fields import ConfigError
from jaxrl_long.rules import CONFIGS

TRAIN = cli.Command("train", "Train an agent.", Settings, lambda call: None, config="train", examples=("env=ant horizon=1000000",))
EVALUATE = cli.Command("evaluate", "Evaluate a run.", EvaluateSettings, lambda call: None)
REPORT = cli.Command("report", "Compare runs.", EvaluateSettings, lambda call: None, verbs=("table", "plot"), paths=(1, 2))

MODULE = """
import sys, time, signal
from jaxrl_long import cli
from jaxrl_long.config import Settings
from jaxrl_long.stored import save_settings

def main(call):
    settings = call.settings
    save_settings(settings, settings.run_dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print(settings.seed, settings.run_dir, "jax" in sys.modules, flush=True)
    if settings.wandb.group == "sleep":
        time.sleep(60)
    if settings.wandb.group == "bug":
        raise RuntimeError("our bug")
    return 75 if settings.seed == 7 else 1 if settings.seed == 8 else None

if __name__ == "__main__":
    sys.exit(cli.run(cli.Command("train", "Train an agent.", Settings, main, config="train", module="toy")))
"""


@pytest.fixture(autouse=True)
def on_a_cpu_in_an_empty_folder(monkeypatch, tmp_path):
    """Where every test of command lines stands."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    monkeypatch.chdir(tmp_path)


def call(*arguments, command=TRAIN):
    return cli.prepare(command, read(command, list(arguments)))


def train(*arguments):
    return call(*arguments).settings


def problems(*arguments, command=TRAIN):
    with pytest.raises(ConfigError) as caught:
        call(*arguments, command=command)
    return caught.value.problems


def toy(*arguments):
    Path("toy.py").write_text(MODULE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(CONFIGS.parent.parent), "."])}
    return subprocess.Popen([sys.executable, "-m", "toy", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, output, errors
