"""Evaluate a run's agent: `python -m jaxrl_long.evaluate run=runs/... horizon=1000000`. `--help` lists the settings."""

import sys
from typing import TYPE_CHECKING

from jaxrl_long import cli
from jaxrl_long.config import EvaluateSettings

if TYPE_CHECKING:
    from jaxrl_long.runtime.stop import Stop


def main(call: cli.Call) -> int:
    """Prepare jax, then continue environments to the horizon and print how they fared."""
    from jaxrl_long.machine import find_machine
    from jaxrl_long.runtime import devices, stop

    settings: EvaluateSettings = call.settings

    def say(text: str) -> None:
        # Standard output is the result's.
        print(text, file=sys.stderr, flush=True)

    def work(halt: "Stop") -> int:
        devices.prepare(find_machine(), settings.devices, settings.precision, settings.compilation_cache, settings.deterministic)
        from jaxrl_long.runtime import assessment

        result = assessment.assess(settings, call.stored, halt, say)
        if result is None:
            say(f"stopped by {halt.reason}, saved; the same command goes on.")
            return halt.exit_code
        print(assessment.as_line(result) if settings.json else assessment.as_text(result))
        return 0

    return stop.run_interruptibly(work)


COMMAND = cli.Command(
    name="evaluate",
    summary="Continue a trained agent's environments to a horizon and report how long they last.",
    settings=EvaluateSettings,
    main=main,
    examples=("run=runs/ant horizon=1000000 num_envs=128", "run=runs/ant horizon=16000 num_envs=64 json=true"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
