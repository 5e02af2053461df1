"""Take a broken physics step again: `python -m jaxrl_long.replay_fault runs/.../faults/update-7-environment-3.npz`."""

import sys
from dataclasses import dataclass

from jaxrl_long import cli
from jaxrl_long.config import PRECISIONS
from jaxrl_long.fields import setting
from jaxrl_long.stored import load_settings


@dataclass
class ReplayFaultSettings:
    """What `replay_fault` can be asked; the world is the run's."""

    precision: str = setting("highest", choices=PRECISIONS, main=True)
    """Precision of matrix products, in jax's names."""


def main(call: cli.Call) -> int:
    """Prepare jax, take the step, and tell what is not finite before and after it."""
    from pathlib import Path

    from jaxrl_long.machine import find_machine
    from jaxrl_long.runtime import devices

    path = Path(call.paths[0])
    run = load_settings(path.parent.parent)
    devices.prepare(find_machine(), 1, call.settings.precision, run.compilation_cache)
    from jaxrl_long.runtime import assemble
    from jaxrl_long.runtime.faults import replay

    result = replay(path, assemble.simulator(run))
    print(f"action {result.action.tolist()}")
    for when, broken in (("before", result.before), ("after", result.after)):
        print(f"{when} the step: {', '.join(f'{name} ({count})' for name, count in broken.items()) or 'all numbers are finite'}")
    if result.after:
        return cli.DONE
    print(f"The step is finite here (reward {result.reward:.6g}): devices, versions or settings differ from those that broke it.", file=sys.stderr)
    return cli.FAILED


COMMAND = cli.Command(
    name="replay_fault",
    summary="Take the step again that gave a non-finite number in training; exit code 0 if it does so here too.",
    settings=ReplayFaultSettings,
    main=main,
    takes="file",
    paths=(1, 1),
    examples=("runs/ant/faults/update-7-environment-3.npz",),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
