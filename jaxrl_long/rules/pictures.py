"""Rules of what `render` makes: which worlds can be filmed, and with what."""

import importlib.util
from collections.abc import Iterator

from jaxrl_long import machine
from jaxrl_long.config import RenderSettings
from jaxrl_long.rules.base import environments, rule

DRAWN = ("auto", "mp4", "gif")
"""Formats that MuJoCo draws."""
BODILESS = "has no bodies that MuJoCo could draw. Nearest: format=path, which plots how its copies fared."


@rule("env.name", "format", trees=(RenderSettings,))
def bodies_can_be_filmed(settings: RenderSettings) -> Iterator[str]:
    """Brax's tasks have bodies; a user's class is asked when it is built."""
    name, facts = settings.env.name, environments().get(settings.env.name)
    if settings.format != "path" and facts and not (facts.backends and name != "fast"):
        yield f"format={settings.format}: env={name} {BODILESS}"


@rule("format", trees=(RenderSettings,))
def something_draws(settings: RenderSettings) -> Iterator[str]:
    """A video needs a library that draws without a screen, and mp4 one that encodes."""
    if settings.format in DRAWN and not machine.graphics():
        yield (
            f"format={settings.format} is drawn by EGL or OSMesa, and neither is installed. On Debian or Ubuntu: apt-get install libegl1 libgl1 "
            "(or libosmesa6). Without them: format=html or format=path."
        )
    if settings.format == "mp4" and not importlib.util.find_spec("imageio_ffmpeg"):
        yield "format=mp4 needs the extra `render`: pip install 'jaxrl_long[render]'. Nearest: format=gif, which needs nothing."


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
