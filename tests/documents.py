"""Documents for tests: their blocks of code, and the rows of their tables."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)


def blocks(document: Path, language: str) -> list[str]:
    """Bodies of the fenced blocks in a language, without the indent of a list."""
    return [textwrap.dedent(found["body"]) for found in BLOCK.finditer(document.read_text()) if found["language"] == language]


def write_modules(document: Path, folder: Path) -> list[str]:
    """Write each Python block that begins with its file's name, `# my_worlds.py`; the names."""
    named = [(match[1], block) for block in blocks(document, "python") if (match := re.match(r"# (\w+\.py)\n", block))]
    for name, block in named:
        (folder / name).write_text(block)
    return [name for name, _ in named]


def commands(document: Path) -> list[list[str]]:
    """The words of every `python -m jaxrl_long.` line in shell blocks."""
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [re.findall(r"'[^']*'|\S+", line.removeprefix("python -m ")) for line in lines if line.startswith("python -m jaxrl_long.")]
