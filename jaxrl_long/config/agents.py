"""What a command asks of a run that it reads: whose agent, in which copies of the world, and what is made of it."""

from dataclasses import dataclass

from jaxrl_long.config.limits import MAX_ENVS, MAX_INT32, PRECISIONS
from jaxrl_long.config.world import EnvSettings
from jaxrl_long.fields import setting

MOST_FRAMES = 100_000
FORMATS = ("auto", "mp4", "gif", "html", "path")


@dataclass
class AgentSettings:
    """An agent of a run, deterministic, in environments of its own. Settings shared with the run default to the run's own."""

    run: str | None = setting(None, path=True, main=True)
    """Folder of the run."""
    checkpoint: str = setting("latest", main=True)
    """Which of its checkpoints: latest, best (as `checkpoint.best` chose it), or the number of an update."""
    num_envs: int = setting(128, low=1, high=MAX_ENVS, main=True)
    """Environments evaluated at once, over all devices."""
    seed: int = setting(0, low=0, high=2**32 - 1, main=True, stored=True)
    """Decides the starts."""
    devices: int = setting(0, low=0, high=4096)
    """Local devices to use; 0: all GPUs, or as many CPU cores as divide `num_envs`."""
    env: EnvSettings = setting(factory=EnvSettings, stored=True)
    precision: str = setting("highest", choices=PRECISIONS, stored=True)
    """Precision of matrix products, in jax's names."""
    deterministic: bool = setting(False, stored=True)
    """Bit-equal results on a GPU too, at some cost in speed."""
    compilation_cache: str = setting("auto", path=True, stored=True)
    """Folder of compiled programs, shared between runs; auto: the user's cache folder; none: off."""


@dataclass
class RenderSettings(AgentSettings):
    """What `render` shows of an agent."""

    num_envs: int = setting(8, low=1, high=MAX_ENVS, main=True)
    """Copies that start together; the first of them that is alive at `at` is filmed, the paths of all are plotted."""
    at: int = setting(0, low=0, high=MAX_INT32 - 2 - MOST_FRAMES, main=True)
    """Age in steps from which on it is filmed; it gets there without being watched."""
    steps: int = setting(0, low=0, high=MOST_FRAMES, main=True)
    """Steps to film; 0: ten seconds of the agent's time, but at least 200 steps."""
    format: str = setting("auto", choices=FORMATS, main=True)
    """What is made besides the plot of paths. auto: mp4 where the extra `render` is installed, otherwise gif, and nothing of a world without bodies;
    html: Brax's viewer, whose page loads scripts from the network; path: the plot alone, which needs no graphics."""
    width: int = setting(640, low=16, high=4096, main=True)
    """Of the video, in pixels."""
    height: int = setting(480, low=16, high=4096, main=True)
    """The same."""
    fps: int = setting(30, low=1, high=240, main=True)
    """Pictures a second at the most; each shows a step, and time passes as fast as for the agent."""
    to: str | None = setting(None, path=True)
    """Folder for the pictures; null: `pictures` in the run's folder."""

    @property
    def horizon(self) -> int:
        """Steps that a copy lives at the most: the task's own limit would cut the film."""
        return self.at + MOST_FRAMES + 1
