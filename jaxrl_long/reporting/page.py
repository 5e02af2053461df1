"""One HTML page that needs nothing else: no script, no font, no network. Every text that a user chose is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from jaxrl_long import __version__

Cell = str | int | float | None


def page(title: str, body: Iterable[str]) -> str:
    """The whole document."""
    style = (files("jaxrl_long") / "reporting" / "page.css").read_text(encoding="utf-8")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title><style>{style}</style>'
    # An icon of its own, lest the browser asks for one.
    icon = '<link rel="icon" href="data:,">'
    foot = f'<p class="soft">jaxrl_long {escape(__version__)}</p>'
    return f'<!doctype html>\n<html lang="en"><head>{head}{icon}</head>\n<body>\n{"".join(body)}{foot}</body></html>\n'


def heading(text: str) -> str:
    """A section's."""
    return f"<h2>{escape(text)}</h2>\n"


def paragraph(text: str, soft: bool = False) -> str:
    """A sentence or two."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>\n"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Numbers with their names."""
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in pairs)
    return f'<ul class="tiles">{items}</ul>\n'


def charts(drawn: Iterable[str]) -> str:
    """SVG elements side by side."""
    return f'<div class="charts">{"".join(f"<figure>{svg}</figure>" for svg in drawn)}</div>\n'


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Cells as text."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """Shares of a whole, as one bar with a key: name, size, and what to say of it."""
    total = sum(size for _, size, _ in parts) or 1.0
    colours = [f"var(--c{number % 8})" for number in range(len(parts))]
    pieces = "".join(
        f'<div style="width:{100 * size / total:.2f}%;background:{colour}" title="{escape(f"{name}: {text}")}"></div>'
        for (name, size, text), colour in zip(parts, colours, strict=True)
    )
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)} {escape(text)}</span>' for (name, _, text), colour in zip(parts, colours, strict=True)
    )
    return f'<div class="bar">{pieces}</div><div class="key">{key}</div>\n'


def folded(title: str, content: str) -> str:
    """What is shown when asked for."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>\n"


def shown(cell: Cell) -> str:
    """A number for people."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
