"""Look at what a run's agent does: `python -m jaxrl_long.render run=runs/ant at=1000000`. `--help` lists the settings."""

import sys
from typing import TYPE_CHECKING

from jaxrl_long import cli
from jaxrl_long.config import RenderSettings

if TYPE_CHECKING:
    from jaxrl_long.runtime.stop import Stop


def main(call: cli.Call) -> int:
    """Prepare jax, record the agent, have it drawn, and print where the pictures are."""
    from jaxrl_long.machine import find_machine
    from jaxrl_long.runtime import devices, stop

    settings: RenderSettings = call.settings

    def say(text: str) -> None:
        # Standard output is the result's.
        print(text, file=sys.stderr, flush=True)

    def work(halt: "Stop") -> int:
        # What was recorded is on the disk, and what was not has nothing to save: a signal ends the process at once.
        halt.nothing_to_save()
        devices.prepare(find_machine(), settings.devices, settings.precision, settings.compilation_cache, settings.deterministic)
        from jaxrl_long.reporting import pictures

        for path in pictures.make(settings, call.stored, say):
            print(path)
        return cli.DONE

    return stop.run_interruptibly(work)


COMMAND = cli.Command(
    name="render",
    summary="Film a trained agent, at any age, and plot where its copies went.",
    settings=RenderSettings,
    main=main,
    examples=("run=runs/ant", "run=runs/ant at=1000000 num_envs=16", "run=runs/ant format=gif width=320 height=240 fps=15", "run=runs/point_maze format=path"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
