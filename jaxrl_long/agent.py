"""A trained agent in one's own program.

    from jaxrl_long.agent import load

    agent = load("runs/ant")                  # or load("runs/ant", "best"), load("runs/ant", 480)
    action, memory = agent.act(obs)           # obs [N, O] as its world gives them -> action [N, A] (or [N] numbers of choices)
    action, memory = agent.act(obs, memory)   # the step after

It is deterministic, takes observations as NumPy's or jax's arrays and normalises them itself, and can be called inside
`jax.jit` and `jax.lax.scan`. `agent.world` is the world that it was trained in, undisturbed: `reset(key)` and
`step(state, action, key)` of one copy.
"""

from pathlib import Path

from jaxrl_long import cli, evaluate, stored
from jaxrl_long.runtime import assessment
from jaxrl_long.runtime.assessment import Agent

__all__ = ["Agent", "load"]


def load(run: str | Path, checkpoint: str | int = "latest", *, devices: int = 1) -> Agent:
    """The agent of the run in a folder, at one of its checkpoints: `latest`, `best` (as `checkpoint.best` chose it), or the number of an update.

    Raises:
        ConfigError: no run in that folder, or no such checkpoint.
    """
    settings = cli.settings(evaluate.COMMAND, f"run={run}", f"checkpoint={checkpoint}", f"devices={devices}")
    return assessment.load(settings, stored.load_settings(settings.run))
