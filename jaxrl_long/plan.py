"""Say what a run will take before it starts: `python -m jaxrl_long.plan env=ant horizon=1000000 steps=100e6`. `--help` lists the settings."""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl_long import cli
from jaxrl_long.fields import ConfigError
from jaxrl_long.planning import cache, calculator, report
from jaxrl_long.planning.settings import CalculatorSettings, PlanSettings
from jaxrl_long.runtime import memory

if TYPE_CHECKING:
    from jaxrl_long.runtime.stop import Stop


def main(call: cli.Call) -> int:
    """Print the plan of the settings, from what was measured before or now."""
    settings: PlanSettings = call.settings
    if settings.tune.enabled and Path(settings.tune.preset).exists():
        raise ConfigError([f"tune.preset={settings.tune.preset} exists already. Name another file."])
    known = None if settings.refresh else cache.load(settings)
    if known is not None and not settings.tune.enabled:
        room = memory.available_host_bytes()
        _print(settings, report.make(settings, known, room, cached=True))
        return cli.DONE
    from jaxrl_long.runtime import stop

    return stop.run_interruptibly(lambda halt: _measure(settings, halt))


def _measure(settings: PlanSettings, halt: "Stop") -> int:
    from jaxrl_long.machine import find_machine
    from jaxrl_long.runtime import devices

    def say(text: str) -> None:
        # Standard output is the plan's.
        print(f"plan: {text}", file=sys.stderr, flush=True)

    devices.prepare(find_machine(), settings.devices, settings.precision, settings.compilation_cache, settings.deterministic, say=say)
    from jaxrl_long.planning.measure import measure

    known = measure(settings, say)
    if halt.poll():
        return halt.exit_code
    cache.store(settings, known)
    _print(settings, report.make(settings, known, memory.available_host_bytes(), cached=False))
    if settings.tune.enabled:
        _tune(settings, halt, say)
    return halt.exit_code if halt.poll() else cli.DONE


def _tune(settings: PlanSettings, halt: "Stop", say: Callable[[str], None]) -> None:
    from jaxrl_long.planning import tune
    from jaxrl_long.planning.measure import fitting_rate

    found = tune.search(settings.training, lambda candidate: None if halt.poll() else fitting_rate(candidate), say)
    if halt.poll():
        return
    tune.write_preset(found, settings.tune.preset)
    say(f"{found.rate:,.0f} instead of {found.before:,.0f} steps/s with {tune.describe(found.settings)}: {settings.tune.preset}")
    say(f"use it with machine={settings.tune.preset}. Steps are not learning: tune.check=true compares what the agents come to.")
    if settings.tune.check:
        for name, which in (("as it was", settings.training), ("tuned", found.settings)):
            learned = list(tune.check(which, say))
            each = ", ".join(f"{one.window_return:,.0f} in {report.duration(one.wall_s)}" for one in learned)
            say(f"{name}: {each}; {statistics.median(one.per_minute for one in learned):,.1f} a minute (median)")


def _print(settings: PlanSettings, plan: dict[str, Any]) -> None:
    if settings.json:
        print(json.dumps(plan, allow_nan=False))
        return
    _table(report.lines(plan))


def _table(lines: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, text)
    Console(soft_wrap=False, highlight=False).print(table)


def calculate(call: cli.Call) -> int:
    """Print the usual estimate."""
    asked: CalculatorSettings = call.settings
    found = calculator.estimate(asked.t * 1e6, asked.n, asked.s, asked.rollout_s)
    if asked.json:
        print(json.dumps({"env_steps": found.env_steps, "steps_per_s": found.steps_per_s, "wall_s": found.wall_s, "hours": found.hours}))
        return cli.DONE
    _table(
        [
            ("total environment steps", f"{found.env_steps / 1e9:.2f} billion"),
            ("throughput", f"{found.steps_per_s:,.0f} steps/s"),
            ("wall time", f"{found.hours:.1f} h"),
        ]
    )
    return cli.DONE


CALCULATOR = cli.Command(
    name="plan calculator",
    summary="The usual estimate of a run's length: total steps / (n x s / seconds of a rollout).",
    settings=CalculatorSettings,
    main=calculate,
    examples=("t=100 n=100 s=1000", "t=100 n=4096 s=32 rollout_s=0.3"),
    module="jaxrl_long.plan calculator",
)

COMMAND = cli.Command(
    name="plan",
    summary="Say what a run will take before it starts: hours, memory, money, and how much of its horizon it will see.",
    settings=PlanSettings,
    main=main,
    config="train",
    creates=False,
    subcommands={"calculator": CALCULATOR},
    examples=("env=ant horizon=1000000 steps=100e6", "env=ant target.hours=10", "run=runs/ant steps=20e6 json=true", "calculator t=100 n=100 s=1000"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
