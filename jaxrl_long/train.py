"""Train an agent: `python -m jaxrl_long.train env=ant horizon=1000000`. `--help` lists the settings."""

import sys
from typing import TYPE_CHECKING

from jaxrl_long import cli
from jaxrl_long.config import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jaxrl_long.runtime.stop import Stop


def main(call: cli.Call) -> int:
    """Prepare jax, then train until done or told to stop."""
    from pathlib import Path

    from jaxrl_long.machine import find_machine
    from jaxrl_long.planning import cache
    from jaxrl_long.planning.model import predict
    from jaxrl_long.planning.report import announced, compared
    from jaxrl_long.reporting.runs import read
    from jaxrl_long.runtime import devices, stop
    from jaxrl_long.runtime.process import started
    from jaxrl_long.runtime.progress import View

    settings: Settings = call.settings
    view = View()
    planned = cache.load(settings)

    def work(halt: "Stop") -> int:
        devices.prepare(find_machine(), settings.devices, settings.precision, settings.compilation_cache, settings.deterministic, say=view.say)
        from jaxrl_long.runtime.experiment import train

        folder, foretold = Path(settings.run_dir or ""), list(announced(settings, planned)) if call.stored is None else []
        code = train(settings, halt, view, started(), lambda: _report(folder, view.say) if settings.report else None, foretold)
        if code == cli.DONE and planned and call.stored is None and not halt.reason:
            view.say(compared(predict(settings, planned.measured).wall_s, read(folder).wall_s))
        return code

    return stop.run_interruptibly(work, Path(settings.run_dir or "") / "STOP", say=view.say)


def _report(folder: "Path", say: "Callable[[str], None]") -> "Path | None":
    """Write the run's page and return where. What goes wrong with it is said, and is no reason to call the run a failure."""
    from dataclasses import replace

    from jaxrl_long.reporting import report
    from jaxrl_long.reporting.runs import read

    try:
        # This process still holds the run's lock, but its work is done.
        written = report.write([replace(read(folder), running=False)], folder / report.FILE)
    except Exception as error:
        say(f"no report was written: {error}")
        return None
    say(f"report {written}")
    return written


COMMAND = cli.Command(
    name="train",
    summary="Train an agent whose episodes last up to millions of steps.",
    settings=Settings,
    main=main,
    config="train",
    examples=("env=ant horizon=1000000", "env=cartpole", "env=hopper seed=1 run_dir=runs/hopper", "run=runs/hopper steps=20e6", "-m env=ant seed=0,1,2"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
