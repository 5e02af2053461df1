"""Weights & Biases: online when logged in, otherwise offline, with all its files in the run's folder."""

import netrc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from jaxrl_long.config import WandbSettings

HOST = "https://api.wandb.ai"
INIT_S, FINISH_S = 30.0, 10.0


class WandbTracker:
    """One run of Weights & Biases. Slow to import and to start: use it behind `Background`."""

    def __init__(self, settings: WandbSettings, say: Callable[[str], None]) -> None:
        """Keep the settings; nothing is imported before `start`."""
        self._settings, self._say = settings, say
        self._run: Any = None

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None) -> str:
        """Open the run, or go on with the one of `resume_id`."""
        mode, why = find_mode(self._settings.mode)
        _keep_inside(folder)
        import wandb

        options = wandb.Settings(
            console="off", silent=True, save_code=False, disable_code=True, disable_git=True, init_timeout=INIT_S, finish_timeout=FINISH_S, reinit="create_new"
        )
        place: dict[str, Any] = {"mode": mode, "project": self._settings.project, "entity": self._settings.entity, "group": self._settings.group}
        self._run = wandb.init(**place, name=run_name, id=resume_id, resume="allow", dir=str(folder), config=config, settings=options)
        self._run.define_metric("*", step_metric="env_steps")
        where = self._run.url if mode == "online" else f"{folder / 'wandb'}; `wandb sync` uploads it"
        self._say(f"wandb is {mode} ({why}): {where}")
        return self._run.id

    def log(self, row: dict[str, Any], step: int) -> None:
        """Hand over the numbers of a row; wandb drops steps that it already has, as after a resume."""
        self._run.log({name: value for name, value in row.items() if value is not None}, step=step)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary and close."""
        self._run.summary.update({name: value for name, value in summary.items() if value is not None})
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
