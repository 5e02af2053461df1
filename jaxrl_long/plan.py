"""Say what a run will take before it starts: `python -m jaxrl_long.plan env=ant horizon=1000000 steps=100e6`. `--help` lists the settings."""

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxrl_long import cli
from jaxrl_long.fields import ConfigError
from jaxrl_long.machine import find_machine
from jaxrl_long.planning import cache, calculator, cost, report, tune
from jaxrl_long.planning.settings import CalculatorSettings, PlanSettings
from jaxrl_long.runtime import memory

if TYPE_CHECKING:
    from jaxrl_long.runtime.stop import Stop


def main(call: cli.Call) -> int:
    """Print the plan of the settings, from what was measured before or now."""
    settings: PlanSettings = call.settings
    # Whatever can be refused is refused before minutes are spent on measuring.
    prices = cost.read_prices(cost.CATALOGUE if settings.prices == "auto" else settings.prices)
    if settings.tune.enabled:
        tune.check_preset(settings.tune.preset)
    known = None if settings.refresh else cache.load(settings)
    if known is not None and not settings.tune.enabled:
        if find_machine() == "cpu":
            known = replace(known, room=memory.available_host_bytes())
        if refused := memory.refusal(settings, known.need, known.room):
            raise ConfigError([refused])
        _print(settings, report.make(settings, known, prices, cached=True))
        return cli.DONE
    from jaxrl_long.runtime import stop

    return stop.run_interruptibly(lambda halt: _measure(settings, prices, halt))


def _measure(settings: PlanSettings, prices: dict[str, Any], halt: "Stop") -> int:
    from jaxrl_long.runtime import devices

    def say(text: str) -> None:
        # Standard output is the plan's.
        print(f"plan: {text}", file=sys.stderr, flush=True)

    devices.prepare(find_machine(), settings.devices, settings.precision, settings.compilation_cache, settings.deterministic, say=say)
    from jaxrl_long.planning.measure import measure

    known = measure(settings, halt, say)
    cache.store(settings, known)
    _print(settings, report.make(settings, known, prices, cached=False))
    if settings.tune.enabled and not halt.poll():
        _tune(settings, halt, say)
    return halt.exit_code if halt.poll() else cli.DONE


def _tune(settings: PlanSettings, halt: "Stop", say: Callable[[str], None]) -> None:
    from jaxrl_long.planning.measure import rate

    # What was found until a signal is kept.
    halt.something_to_save()
    found = tune.search(settings.training, lambda candidate: None if halt.poll() else rate(candidate), say)
    say(f"{found.rate:,.0f} instead of {found.before:,.0f} steps/s with {tune.describe(found.settings)}")
    tune.write_preset(found, settings.tune.preset)
    say(f"written to {settings.tune.preset}, for machine={settings.tune.preset}; what an env's own settings name must be given on the command line.")
    say("Steps are not learning: tune.check=true compares what the agents come to.")
    if not settings.tune.check:
        return
    for name, which in (("as it was", settings.training), ("tuned", found.settings)):
        learned = list(tune.check(which, halt, say))
        if halt.poll():
            return
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
    Console(highlight=False, markup=False).print(table)


def calculate(call: cli.Call) -> int:
    """Print the usual estimate."""
    asked: CalculatorSettings = call.settings
    found = calculator.estimate(asked.t * 1e6, asked.n, asked.s, asked.rollout_s)
    if asked.json:
        print(json.dumps({"env_steps": found.env_steps, "steps_per_s": found.steps_per_s, "wall_s": found.wall_s, "hours": found.hours}, allow_nan=False))
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
