"""Curves as SVG that lies in the page: its colours are the page's, light or dark, and it holds no more points than can be seen. And pictures as PNG."""

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullFormatter

POINTS = 600
"""Of a curve, at the most."""
COLOURS = 8
INK, LINE = "#010203", "#010204"
"""Stand for the page's colours until the picture is in it."""
STYLE = {"svg.fonttype": "none", "text.parse_math": False, "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
STYLE |= {"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": LINE, "grid.color": LINE, "axes.grid": True}
MOST_LINES = 64
"""Copies in a picture, at the most."""
SHOWN, OTHERS = "#1b6fb8", "#8a939c"
PAPER = {"font.family": "sans-serif", "font.size": 10, "text.parse_math": False, "axes.grid": True, "grid.alpha": 0.3, "grid.linewidth": 0.6}


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    x: Sequence[float]
    y: Sequence[float | None]
    label: str = ""
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """An interval around it."""
    colour: int = 0
    faint: bool = False
    steps: bool = False
    """Drawn as stairs: each value holds until the next."""


def chart(name: str, curves: list[Curve], *, x: str, y: str, title: str = "", log_x: bool = False, log_y: bool = False, low: float | None = None) -> str:
    """An SVG element with these curves; `name` is unique on its page."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        panel: Any = figure.subplots()
        for curve in curves:
            _draw(panel, curve)
        panel.set(xlabel=x, ylabel=y, xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
        panel.set_title(title, fontsize=11, loc="left")
        panel.grid(alpha=0.6, linewidth=0.6)
        if low is not None:
            panel.set_ylim(bottom=low)
        for axis, logarithmic, (_, most) in ((panel.xaxis, log_x, panel.get_xlim()), (panel.yaxis, log_y, panel.get_ylim())):
            # 20k and 3M, and not the formulas that logarithmic axes would show; but no thousandths.
            if logarithmic or most >= 1e4:
                axis.set_major_formatter(EngFormatter(sep=""))
            axis.set_minor_formatter(NullFormatter())
        if any(curve.label for curve in curves):
            panel.legend(fontsize=8, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Title": title or y})
    return _inline(text.getvalue(), name)


def ground(paths: np.ndarray, shown: int, *, unit: str, title: str, goals: np.ndarray | None = None, walls: np.ndarray | None = None) -> bytes:
    """A PNG of paths [P, E, 2] seen from above, that of one copy ahead of the others, with the places they were to reach [E, 2] and a floor plan."""
    with mpl.rc_context(PAPER):
        figure, panel = _sheet((6.4, 6.0), title, f"x ({unit})", f"y ({unit})")
        if walls is not None:
            panel.imshow(walls, cmap="Greys", vmin=0, vmax=2, extent=(0, walls.shape[1], walls.shape[0], 0), zorder=0)
        for copy in _in_front(paths.shape[1], shown):
            colour, front = _path(panel, *paths[:, copy].T, shown=copy == shown)
            if goals is not None:
                panel.plot(*goals[copy], "*", color=colour, markersize=14 if copy == shown else 7, zorder=front)
        _explain(figure, paths.shape[1], goals is not None)
        panel.set_aspect("equal", adjustable="datalim" if walls is None else "box")
        return _png(figure)


def lines(x: np.ndarray, ys: np.ndarray, shown: int, *, y: str, title: str) -> bytes:
    """A PNG of values [P, E] against steps [P] or [P, E], those of one copy ahead of the others'."""
    with mpl.rc_context(PAPER):
        figure, panel = _sheet((6.4, 4.0), title, "steps", y)
        steps = np.broadcast_to(x[:, None] if x.ndim == 1 else x, ys.shape)
        for copy in _in_front(ys.shape[1], shown):
            _path(panel, steps[:, copy], ys[:, copy], shown=copy == shown)
        _explain(figure, ys.shape[1])
        if x.max() >= 1e4:
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        return _png(figure)


def _in_front(copies: int, shown: int) -> list[int]:
    """The copies that are drawn, the one that is shown last."""
    return [copy for copy in range(min(copies, MOST_LINES)) if copy != shown] + [shown]


def _path(panel: Any, x: np.ndarray, y: np.ndarray, *, shown: bool) -> tuple[str, int]:
    """A copy's line, with a dot where one that goes on has come to and a cross where one ended before; its colour and how far in front it is."""
    colour, width, alpha, front = (SHOWN, 1.6, 1.0, 3) if shown else (OTHERS, 0.8, 0.6, 2)
    panel.plot(x, y, color=colour, linewidth=width, alpha=alpha, zorder=front)
    known = np.flatnonzero(np.isfinite(y))
    if len(known):
        panel.plot(x[known[-1]], y[known[-1]], "o" if known[-1] == len(y) - 1 else "x", color=colour, markersize=5, zorder=front)
    return colour, front


def _explain(figure: Figure, copies: int, goals: bool = False) -> None:
    """What lines and marks mean, below the picture."""
    known = [Line2D([], [], color=SHOWN, label="the copy that is shown")]
    known += [Line2D([], [], color=OTHERS, label="others")] if copies > 1 else []
    marks = [("o", "alive"), ("x", "failed"), *([("*", "its goal")] if goals else [])]
    known += [Line2D([], [], color=OTHERS, marker=mark, linestyle="", label=label) for mark, label in marks]
    figure.legend(handles=known, loc="outside lower left", ncols=len(known), frameon=False, fontsize=9)


def _sheet(size: tuple[float, float], title: str, x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    panel: Any = figure.subplots()
    panel.set(xlabel=x, ylabel=y)
    panel.set_title(title, fontsize=11, loc="left")
    return figure, panel


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    # Without a version in it: the same numbers are the same file.
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    return file.getvalue()


def _draw(panel: Any, curve: Curve) -> None:
    kept = [(x, y, number) for number, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)) if y is not None and np.isfinite(y)]
    if not kept:
        return
    xs, ys, at = (np.array(part) for part in zip(*kept, strict=True))
    shown = thinned(ys)
    colour = _token(curve.colour)
    drawn = {"color": colour, "alpha": 0.35 if curve.faint else 1.0, "linewidth": 1.0 if curve.faint else 1.6, "label": curve.label or None}
    if curve.steps:
        drawn["drawstyle"] = "steps-post"
    panel.plot(xs[shown], ys[shown], marker="o" if len(xs) < 2 else None, **drawn)
    if curve.low is not None and curve.high is not None:
        low, high = np.asarray(curve.low)[at], np.asarray(curve.high)[at]
        panel.fill_between(xs[shown], low[shown], high[shown], color=colour, alpha=0.18, linewidth=0)


def thinned(values: np.ndarray, most: int = POINTS) -> np.ndarray:
    """Indices of at most `most` points that show all of a curve's peaks: of each stretch the first, the lowest and the highest; and the last."""
    number = len(values)
    if number <= most:
        return np.arange(number)
    bounds = np.linspace(0, number, (most - 1) // 3 + 1).astype(int)
    found = {number - 1}
    for first, end in itertools.pairwise(bounds):
        part = values[first:end]
        found |= {int(first), int(first + part.argmin()), int(first + part.argmax())}
    return np.array(sorted(found))


def _token(colour: int) -> str:
    return f"#0102{16 + colour % COLOURS:02x}"


def _inline(svg: str, name: str) -> str:
    """Only the element, as wide as its place, in the page's colours, with names that no other picture has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "var(--ink)").replace(LINE, "var(--line)")
    for colour in range(COLOURS):
        svg = svg.replace(_token(colour), f"var(--c{colour})")
    return svg.replace("<svg ", '<svg role="img" ', 1)
