"""Look at the archive of a run, check it, or hand it to other libraries: `python -m jaxrl_long.archive info runs/ant/archive`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl_long import cli
from jaxrl_long.fields import ConfigError, setting

if TYPE_CHECKING:
    from jaxrl_long.runtime.disk import Reader


@dataclass
class ArchiveCommandSettings:
    """What `archive` can be asked."""

    to: str | None = setting(None, path=True, main=True)
    """Folder that `export` writes the Minari dataset to; it must not exist yet."""
    whole: bool = setting(True, main=True)
    """Export only episodes that are there from beginning to end; false: also the stretches of others."""
    json: bool = setting(False, main=True)
    """Print `info` as one line of JSON."""


def main(call: cli.Call) -> int:
    """Read the archive; without a verb, say what is there."""
    from jaxrl_long.runtime.disk import MANIFEST, Reader

    folder = Path(call.paths[0])
    if not (folder / MANIFEST).exists() and (folder / "archive" / MANIFEST).exists():
        folder /= "archive"
    reader = Reader(folder)
    if call.verb == "verify":
        return _verify(reader)
    if call.verb == "export":
        return _export(reader, call.settings)
    found = _info(reader)
    if call.settings.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<22} {value}" for name, value in _lines(found)))
    return cli.DONE


def _info(reader: "Reader") -> dict[str, Any]:
    episodes = reader.episodes()
    size = sum(path.stat().st_size for path in reader.folder.rglob("*") if path.is_file())
    steps = reader.num_rows * reader.manifest.num_envs
    return {
        **reader.manifest.about,
        "num_envs": reader.manifest.num_envs,
        "rows": reader.num_rows,
        "steps": steps,
        "spans": [list(span) for span in reader.manifest.spans],
        "bytes": size,
        "bytes_per_step": size / steps if steps else None,
        "fields": {name: f"{field['dtype']} {field['shape']}" for name, field in reader.manifest.fields.items()},
        "episodes": len(episodes),
        "whole_episodes": sum(one.whole for one in episodes),
        "longest": max((one.end - one.first for one in episodes), default=0),
    }


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    from jaxrl_long.runtime.memory import gigabytes

    spans = ", ".join(f"{first:,} to {end:,}" for first, end in found["spans"])
    per_step = f" ({found['bytes_per_step']:.1f} bytes a step)" if found["steps"] else ""
    return [
        ("task", f"{found.get('env')}, seed {found.get('seed')}"),
        ("steps", f"{found['steps']:,}: rows {spans} of {found['num_envs']} environments"),
        ("on disk", gigabytes(found["bytes"]) + per_step),
        ("fields", ", ".join(f"{name} {kind}" for name, kind in found["fields"].items())),
        ("episodes", f"{found['episodes']:,}, {found['whole_episodes']:,} of them whole; the longest stretch has {found['longest']:,} steps"),
    ]


def _verify(reader: "Reader") -> int:
    problems = 0
    for problem in reader.verify():
        problems += 1
        print(problem, file=sys.stderr)
    print(f"{problems} problems" if problems else f"{reader.num_rows * reader.manifest.num_envs:,} steps, all of them as they were written")
    return cli.FAILED if problems else cli.DONE


def _export(reader: "Reader", settings: ArchiveCommandSettings) -> int:
    if settings.to is None:
        raise ConfigError(["to=null: name the folder of the dataset, such as to=exported."])
    if Path(settings.to).exists():
        raise ConfigError([f"to={settings.to} exists already. Name a folder that does not."])
    from jaxrl_long.runtime.minari import export

    number, steps = export(reader, Path(settings.to), settings.whole)
    print(f"{number:,} episodes, {steps:,} steps, for minari.MinariDataset({settings.to!r})")
    return cli.DONE


COMMAND = cli.Command(
    name="archive",
    summary="Look at the archive of a run (info), check it (verify), or write a Minari dataset (export).",
    settings=ArchiveCommandSettings,
    main=main,
    verbs=("info", "verify", "export"),
    paths=(1, 1),
    examples=("info runs/ant/archive", "verify runs/ant/archive", "export runs/ant/archive to=exported"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
