"""Weights & Biases: online when logged in, otherwise offline, with all its files in the run's folder."""

import importlib
import json
import netrc
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from jaxrl_long.config import WandbSettings
from jaxrl_long.runtime.tracking.protocol import Row

HOST = "https://api.wandb.ai"
INIT_S, FINISH_S = 30.0, 10.0
BLOCK, FULL, LAST = 32768, 1, 4
"""Of LevelDB's log format: bytes of a block; a record that is whole, and the last part of one."""


class WandbTracker:
    """One run of Weights & Biases. Slow to import and to start: use it behind `Background`."""

    def __init__(self, settings: WandbSettings, say: Callable[[str], None]) -> None:
        """Keep the settings; nothing is imported before `start`."""
        self._settings, self._say = settings, say
        self._run: Any = None
        self._has: set[int] = set()
        """Steps that earlier processes wrote offline."""

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row]) -> str:
        """Open the run, or go on with the one of `resume_id`: online in the same place, offline in a further segment of it."""
        mode, why = find_mode(self._settings.mode)
        _keep_inside(folder)
        import wandb

        if mode == "offline":
            self._has = {step for file in sorted(folder.glob(f"wandb/*run-*-{resume_id}/*.wandb")) for step in steps_of(file)}
        quiet: dict[str, Any] = {"console": "off", "silent": True, "save_code": False, "disable_code": True, "disable_git": True}
        # The command line, which that would hold, may have a password in it; provenance.jsonl has it without.
        quiet["x_disable_meta"] = True
        options = wandb.Settings(**quiet, init_timeout=INIT_S, finish_timeout=FINISH_S, reinit="create_new")
        place: dict[str, Any] = {"mode": mode, "project": self._settings.project, "entity": self._settings.entity, "group": self._settings.group}
        self._run = wandb.init(**place, name=run_name, id=resume_id, resume="allow", dir=str(folder), config=config, settings=options)
        self._run.define_metric("*", step_metric="env_steps")
        self._run.define_metric("video", step_metric="video_steps")
        for row in past:
            self.log(row, row["env_steps"])
        where = self._run.url if mode == "online" else f"{folder / 'wandb'}; `wandb sync` uploads it"
        self._say(f"wandb is {mode} ({why}): {where}")
        return self._run.id

    def log(self, row: Row, step: int) -> None:
        """Hand over the numbers of a row, once; online, wandb itself drops steps that it has."""
        if step not in self._has:
            self._run.log({name: value for name, value in row.items() if value is not None}, step=step)

    def show(self, video: Path, step: int) -> None:
        """Log it, against steps of its own: it comes when training is further already."""
        import wandb

        kind: Any = video.suffix[1:]
        self._run.log({"video": wandb.Video(str(video), format=kind), "video_steps": step})

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        """Write the summary, keep the files as artifacts (the report's page, and videos), and close."""
        import wandb

        self._run.summary.update({name: value for name, value in summary.items() if value is not None})
        for kind, chosen in (("report", [path for path in files if path.suffix == ".html"]), ("video", [path for path in files if path.suffix != ".html"])):
            if chosen:
                artifact = wandb.Artifact(f"{kind}-{self._run.id}", type=kind)
                for path in chosen:
                    artifact.add_file(str(path))
                self._run.log_artifact(artifact)
        self._run.finish()

    def abandon(self) -> None:
        """Unhook wandb from the end of this process, where it would wait for its upload; its own process ends by itself."""
        # No public way in 0.31. A later version without these names only waits, and no longer than `finish_timeout`.
        # Looked up, not imported: the other thread may be in the middle of that import.
        singleton = getattr(sys.modules.get("wandb.sdk.wandb_setup"), "_singleton", None)
        unhook = getattr(getattr(singleton, "_connection", None), "_cleanup", None)
        if unhook is not None:
            unhook()


def find_mode(asked: str) -> tuple[str, str]:
    """Choose online or offline, and say why: without a key, wandb would stop and ask for one."""
    asked = os.environ.get("WANDB_MODE", "auto") if asked == "auto" else asked
    if asked not in ("auto", "online"):
        return asked, "as set"
    if _logged_in():
        return "online", "logged in"
    return "offline", "not logged in, see `wandb login`"


def steps_of(file: Path) -> Iterator[int]:
    """The steps that a .wandb file holds, also one that a killed process left behind."""
    # The module's messages are made when it is imported.
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    for record in _records(file.read_bytes()):
        history = messages.Record.FromString(record).history.item
        yield from (json.loads(item.value_json) for item in history if item.key == "env_steps" or list(item.nested_key) == ["env_steps"])


def _records(data: bytes) -> Iterator[bytes]:
    """Records of LevelDB's log format after a header of 7 bytes, up to the first that is not whole."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        if not FULL <= kind <= LAST or place + 7 + size > len(data):
            return
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def _logged_in() -> bool:
    """Whether wandb would find credentials: in the environment or in the user's netrc file."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or HOST).hostname or ""
    file = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        return netrc.netrc(str(file)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _keep_inside(folder: Path) -> None:
    """Point wandb's caches, otherwise in the home folder, into the run's, and keep it quiet; what the user has set stays."""
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ.setdefault(name, str(folder / "wandb" / name.split("_")[1].lower()))
    for name, value in (("WANDB_ERROR_REPORTING", "false"), ("WANDB_SILENT", "true")):
        os.environ.setdefault(name, value)
