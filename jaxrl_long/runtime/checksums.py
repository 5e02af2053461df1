"""Checksums of a folder: damage is noticed before anything in it is used."""

import hashlib
import os
from pathlib import Path

SUMS = "SHA256SUMS"
"""`sha256sum -c SHA256SUMS` checks a folder by hand."""


def seal(path: Path) -> None:
    """Write down the checksum of every file in the folder, and force all of it onto the disk, so that a rename can't overtake the contents."""
    (path / SUMS).write_text("".join(f"{_digest(file)}  {file.relative_to(path)}\n" for file in _files(path)))
    for entry in [*path.rglob("*"), path]:
        sync(entry)


def sync(path: Path) -> None:
    """Force one file or folder onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_damage(path: Path, needed: str) -> str | None:
    """Say what is wrong with a sealed folder that must hold the file `needed` (missing, truncated, changed or unlisted files); None: nothing.

    >>> (folder := Path("sealed")).mkdir()
    >>> (folder / "state").write_text("abc") and seal(folder)
    >>> find_damage(folder, "state") is None
    True
    >>> find_damage(folder, "state") if (folder / "state").write_text("abd") else None
    'state is damaged (3 bytes, wrong checksum)'
    """
    try:
        lines = (path / SUMS).read_text().splitlines()
        expected = {line[66:]: line[:64] for line in lines}
        present = {str(file.relative_to(path)): file for file in _files(path) if file.name != SUMS}
        if not expected or needed not in expected:
            return f"{SUMS} is incomplete"
        if missing := sorted(expected.keys() ^ present.keys()):
            return f"{missing[0]} is {'missing' if missing[0] in expected else f'not listed in {SUMS}'}"
        changed = [file for file in sorted(present) if _digest(present[file]) != expected[file]]
        return f"{changed[0]} is damaged ({present[changed[0]].stat().st_size} bytes, wrong checksum)" if changed else None
    except (OSError, UnicodeDecodeError) as error:
        return f"it can't be read ({error})"


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
