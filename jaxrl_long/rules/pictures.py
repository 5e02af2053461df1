"""Rules of what `render` makes, and training with `eval.video`: which worlds can be filmed, and with what."""

import importlib.util
from collections.abc import Iterator

from jaxrl_long import machine
from jaxrl_long.config import RenderSettings, Settings
from jaxrl_long.rules.base import environments, rule

DRAWN = ("auto", "mp4", "gif")
"""Formats that MuJoCo draws."""
BODILESS = "has no bodies that MuJoCo could draw. Nearest: format=path, which plots how its copies fared."
"""What a film of such a world is refused with; `auto` makes the plot."""

UNDRAWN = "is drawn by EGL or OSMesa, and neither is installed. On Debian or Ubuntu: apt-get install libegl1 libgl1 (or libosmesa6)."


@rule("env.name", "format", trees=(RenderSettings,))
def bodies_can_be_filmed(settings: RenderSettings) -> Iterator[str]:
    """Brax's tasks have bodies; a user's class is asked when it is built."""
    if settings.format not in ("auto", "path") and bodiless(settings.env.name):
        yield f"format={settings.format}: env={settings.env.name} {BODILESS}"


def bodiless(name: str) -> bool:
    """Whether a registered world has nothing that could be filmed."""
    facts = environments().get(name)
    return facts is not None and (not facts.backends or name == "fast")


@rule("format", trees=(RenderSettings,))
def something_draws(settings: RenderSettings) -> Iterator[str]:
    """A video needs a library that draws without a screen, and mp4 one that encodes."""
    if settings.format in DRAWN and not bodiless(settings.env.name) and not machine.graphics():
        yield f"format={settings.format} {UNDRAWN} Without them: format=html or format=path."
    if settings.format == "mp4" and not importlib.util.find_spec("imageio_ffmpeg"):
        yield "format=mp4 needs the extra `render`: pip install 'jaxrl_long[render]'. Nearest: format=gif, which needs nothing."


@rule("eval.video", "env.name")
def training_can_be_filmed(settings: Settings) -> Iterator[str]:
    """Who asks for videos learns at once that there will be none."""
    video, name = settings.eval.video, settings.env.name
    if video and bodiless(name):
        yield f"eval.video={video}: env={name} has no bodies that MuJoCo could draw. Leave it at 0."
    elif video and not machine.graphics():
        yield f"eval.video={video}: a video {UNDRAWN} Without them: eval.video=0."


@rule("width", "height", trees=(RenderSettings,))
def pictures_have_even_edges(settings: RenderSettings) -> Iterator[str]:
    """Video is coded in squares of 2 x 2 pixels."""
    for name in ("width", "height"):
        if (size := getattr(settings, name)) % 2:
            yield f"{name}={size} is odd. Nearest: {name}={size - 1} or {size + 1}."


@rule("env.name", "at", "steps", trees=(RenderSettings,))
def age_within_the_world(settings: RenderSettings) -> Iterator[str]:
    """A world with its own time limit has no age beyond it."""
    facts = environments().get(settings.env.name)
    if facts and facts.max_steps and settings.at >= facts.max_steps:
        yield f"at={settings.at} is not below the inner limit of env={settings.env.name}, {facts.max_steps} steps. Nearest: {facts.max_steps - 1}."
